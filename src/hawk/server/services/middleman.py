"""Keeps a middleman running beside the server, in a process of its own: what blocks one does not slow the other, and a
server that is killed takes no model call with it."""

from __future__ import annotations

import logging
import subprocess

from hawk.config.settings import Settings
from hawk.errors import HawkError
from hawk.middleman import calls, presence

_log = logging.getLogger(__name__)


class Middleman:
    """The local server's hold on it. Methods may block for a moment: call from a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._child: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start one if there is none. Does not wait until it listens: whoever needs it does."""
        if not self._settings.middleman:
            return
        if self._child is not None and self._child.poll() is None:
            return
        try:
            if presence.living(self._settings.home) is None:
                self._child = presence.start(self._settings)
        except (OSError, HawkError) as ex:
            _log.error("the middleman can't be started: %s", ex)

    def revoke(self, job_id: str) -> None:
        """End a job's requests at once."""
        if not calls.revoke(self._settings, job_id):
            _log.warning("job %s: the middleman could not be told that it has ended", job_id)

    def close(self, *, in_use: bool) -> None:
        """The server ends; the middleman too, unless jobs run on."""
        if self._settings.middleman and not in_use:
            presence.stop(self._settings, timeout=2.0)
        if self._child is not None:
            self._child.poll()
