"""The watchdog at work: the policy's remedies become requests, its notices are told.

It is shown each diagnosis by whoever makes one; nothing here waits but the end of a job, shortly, for its last notice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hawk.config.settings import Settings
from hawk.core.diagnosis import watchdog as policy
from hawk.core.diagnosis.evidence import Evidence
from hawk.core.diagnosis.fixes import plan
from hawk.core.diagnosis.verdict import Diagnosis, Verdict
from hawk.core.diagnosis.watchdog import Act, Memory, Notice, WatchdogConfig
from hawk.core.states import JobStatus
from hawk.core.text import one_line
from hawk.errors import StorageError
from hawk.runner.notify import Notifier, Statuses
from hawk.store import actions
from hawk.store.rundir import JobSpec, RunDir, read_json

if TYPE_CHECKING:
    from hawk.runner.stalls import Note

BY = "watchdog"


class Watchdog:
    """Of one job; does nothing where the eval set has no `watchdog:`.

    Args:
        secrets: Of the job, by name: those that its notifications need are among them.
        note: Writes a line of the journal, from any thread.
    """

    def __init__(
        self,
        run_dir: RunDir,
        spec: JobSpec,
        secrets: Mapping[str, str],
        settings: Settings,
        reaper: Statuses,
        note: Note,
    ) -> None:
        self._run_dir, self._generation, self._settings, self._note = (
            run_dir,
            spec.generation,
            settings,
            note,
        )
        self._config = _config(spec.config, note, run_dir.job_id)
        self._memory = Memory()
        self._notifier: Notifier | None = None
        if self._config is None:
            return
        _remember(self._memory, run_dir)
        if self._config.notify is not None:
            names = _secret_names(self._config)
            mine = {name: value for name, value in secrets.items() if name in names}
            self._notifier = Notifier(self._config.notify, run_dir.job_id, mine, reaper, note, run_dir.path)

    def look(self, diagnosis: Diagnosis, evidence: Evidence, now: float | None = None) -> None:
        """Act on a diagnosis, and tell of it, where the policy says so.

        Args:
            evidence: That it was made from.
            now: Seconds of a clock that only goes forward.
        """
        if self._config is None:
            return
        names = {attempt.uuid: attempt.name for attempt in evidence.attempts if attempt.uuid}
        moment = time.monotonic() if now is None else now
        acts, notices = policy.look(self._memory, diagnosis.verdicts, self._config, moment, names)
        for act in acts:
            self._do(act, evidence)
        for notice in notices:
            self._tell(notice, diagnosis.status)

    def ended(self, status: JobStatus, verdicts: Sequence[Verdict]) -> None:
        """The job has ended: tell of it, and wait a moment until that is told."""
        if self._config is None:
            return
        for notice in policy.ended(verdicts, self._config, failed=status is not JobStatus.COMPLETE):
            self._tell(notice, status)
        if self._notifier is not None:
            self._notifier.close()

    def _do(self, act: Act, evidence: Evidence) -> None:
        assert self._config is not None
        planned = plan(act.fix, evidence)
        if planned.fix is None:
            self._note(actions.KIND, act.cause, "refused", planned.refused, {"by": BY})
            return
        what = "; ".join(step.what for step in planned.steps[:10])
        if self._config.dry_run:
            data = {"by": BY, "fix": msgspec.to_builtins(planned.fix), "held": act.held}
            self._note(actions.KIND, act.cause, "would be done", what, data)
            return
        try:
            actions.request(
                self._run_dir,
                planned.fix,
                by=BY,
                cause=act.cause,
                generation=self._generation,
                held=act.held,
            )
        except StorageError as ex:
            self._note(actions.KIND, act.cause, "refused", ex.message, {"by": BY})

    def _tell(self, notice: Notice, status: str) -> None:
        if self._notifier is not None:
            self._notifier.tell(news(notice, self._run_dir.job_id, status, self._url()))

    def _url(self) -> str | None:
        """Where the diagnosis is to be had."""
        base = self._settings.api_url
        if base is None:
            try:
                record = read_json(self._settings.server_file, dict[str, Any]) or {}
            except StorageError:
                record = {}
            base = str(record.get("url") or "") or None
        return f"{base.rstrip('/')}/monitoring/jobs/{self._run_dir.job_id}/diagnosis" if base else None


def news(notice: Notice, job_id: str, status: str, url: str | None) -> dict[str, Any]:
    """What is posted: names and causes; `what` may quote a provider or a tool, one line of it."""
    return {
        "job_id": job_id,
        "event": notice.event.value,
        "status": str(status),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "url": url,
        "verdicts": [
            {
                "n": v.n,
                "cause": v.cause,
                "layer": v.layer.value,
                "severity": v.severity.value,
                "what": one_line(v.what, 500),
                "attempts": v.attempts,
                "since": v.since,
                "remedy": v.remedy,
                "next": v.next,
            }
            for v in notice.verdicts
        ],
    }


def _config(config: Mapping[str, Any], note: Note, job_id: str) -> WatchdogConfig | None:
    found = config.get("watchdog")
    if found is None:
        return None
    try:
        return msgspec.convert(found, WatchdogConfig)
    except msgspec.ValidationError as ex:  # of another version: a job must not die of it
        note("job", job_id, "warning", f"the watchdog is off: {ex}", {})
        return None


def _secret_names(config: WatchdogConfig) -> set[str]:
    notify = config.notify
    names: list[str | None] = []
    if notify is not None and notify.webhook is not None:
        names += [notify.webhook.url_from, *notify.webhook.headers_from.values()]
    if notify is not None and notify.email is not None:
        names += [notify.email.user_from, notify.email.password_from]
    return {name for name in names if name}


def _remember(memory: Memory, run_dir: RunDir) -> None:
    """What an earlier supervisor of this run has spent: budgets are the job's, not its process's."""
    spent, by_attempt = 0, Counter[str]()
    for entry in run_dir.journal():
        if entry.kind == "job" and entry.state in ("submitted", "resumed", "restarted"):
            spent, by_attempt = 0, Counter[str]()
        elif entry.kind == actions.KIND and entry.state == "asked" and entry.data.get("by") == BY:
            spent += 1
            by_attempt.update(str(name) for name in entry.data.get("held") or [])
    memory.spent, memory.by_attempt = spent, by_attempt
