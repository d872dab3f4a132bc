"""Telling people: a webhook, a command, a mail. On a thread of its own; what fails is journaled and harms nothing.

Addresses and headers that are secret are known here only while the job runs: no error message may show them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from hawk.core.diagnosis.watchdog import Email, Notify, Webhook

if TYPE_CHECKING:
    from hawk.runner.stalls import Note

TRIES = 3
PAUSES = (1.0, 3.0)
"""Seconds between tries: short, since what is told is news."""

PATIENCE = 10.0
"""Seconds that a webhook or a mail server may take."""

COMMAND_TIME = 30.0
LAST = 15.0
"""Seconds that the end of a job waits for what is still to be told."""


class Statuses(Protocol):
    """Who collects how children end: `runner.processes.Reaper`. It takes every child's status, whoever waits for it."""

    def collect(self) -> None: ...

    def status(self, pid: int) -> int | None: ...


class Notifier:
    """Tells people, one thing after the other.

    Args:
        secrets: Values by name of the environment variables that the config names.
        note: Writes a line of the journal, from any thread.
    """

    def __init__(
        self, config: Notify, job_id: str, secrets: Mapping[str, str], reaper: Statuses, note: Note, cwd: Path
    ) -> None:
        self._config, self._job_id, self._secrets = config, job_id, secrets
        self._reaper, self._note, self._cwd = reaper, note, cwd
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def tell(self, news: dict[str, Any]) -> None:
        """Tell everybody, soon. Never waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()
        self._queue.put(news)

    def close(self) -> None:
        """Wait until all is told, for at most `LAST` seconds."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(LAST)

    def _run(self) -> None:
        while (news := self._queue.get()) is not None:
            config = self._config
            if config.webhook is not None:
                self._try("webhook", partial(post, config.webhook, self._secrets, news), news)
            if config.command:
                self._try("command", partial(self._command, news), news, tries=1)
            if config.email is not None:
                self._try("email", partial(mail, config.email, self._secrets, news), news)

    def _try(self, how: str, do: Callable[[], str], news: Mapping[str, Any], *, tries: int = TRIES) -> None:
        why = ""
        for n in range(tries):
            try:
                said = do()
            except Exception as ex:  # whatever it is, the job goes on
                why = self._without_secrets(f"{type(ex).__name__}: {ex}")
                if n < tries - 1:
                    time.sleep(PAUSES[min(n, len(PAUSES) - 1)])
                continue
            self._note("fix", how, "notified", f"{news['event']}: {said}", {})
            return
        self._note("fix", how, "not notified", f"{news['event']}: {why}", {})

    def _without_secrets(self, text: str) -> str:
        for value in self._secrets.values():
            if value:
                text = text.replace(value, "…")
        return " ".join(text.split())[:300]

    def _command(self, news: dict[str, Any]) -> str:
        """Run the command; its status comes from the reaper, which collects every child of this process."""
        import subprocess

        hidden = {*self._secrets, "HAWK_ACCESS_TOKEN", "HAWK_DATABASE_URL"}
        environ = {name: value for name, value in os.environ.items() if name not in hidden}
        process = subprocess.Popen(
            self._config.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._cwd if self._cwd.is_dir() else None,
            env=environ,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it does not read
            process.stdin.write(msgspec.json.encode(news))
        with contextlib.suppress(OSError):
            process.stdin.close()
        deadline = time.monotonic() + COMMAND_TIME
        while (status := self._status(process.pid)) is None:
            if time.monotonic() >= deadline:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, 9)
                process.returncode = -9
                raise TimeoutError(f"{self._config.command[0]} took more than {COMMAND_TIME:.0f} s")
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{self._config.command[0]} ended with {process.returncode}")
        return str(self._config.command[0])

    def _status(self, pid: int) -> int | None:
        self._reaper.collect()  # the supervisor's loop, which does it else, is over when the last news are told
        return self._reaper.status(pid)


def post(webhook: Webhook, secrets: Mapping[str, str], news: Mapping[str, Any]) -> str:
    """Post it. Returns where to, without what may be secret.

    Raises:
        OSError: It can't be reached, or answers with an error.
        ValueError: There is no address.
    """
    import http.client
    import ssl

    address = urlsplit(webhook.url or secrets.get(webhook.url_from or "", ""))
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"{webhook.url_from or 'url'} holds no address of a webhook")
    headers = {"content-type": "application/json", "user-agent": "hawk", **webhook.headers}
    for name, variable in webhook.headers_from.items():
        headers[name] = secrets.get(variable, "")
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=PATIENCE, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=PATIENCE)
    path = (address.path or "/") + (f"?{address.query}" if address.query else "")
    try:
        connection.request("POST", path, msgspec.json.encode(news), headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 300:  # a redirect too: what is secret goes to no other host
        raise OSError(f"{address.hostname} answered {status}")
    return f"{address.hostname} answered {status}"


def mail(email: Email, secrets: Mapping[str, str], news: Mapping[str, Any]) -> str:
    """Send it.

    Raises:
        OSError: The server can't be reached, or does not take it.
    """
    import smtplib
    import ssl
    from email.message import EmailMessage

    message = EmailMessage()
    message["From"], message["To"] = email.sender, ", ".join(email.to)
    message["Subject"] = f"Hawk: {news['job_id']} {news['event']}"
    message.set_content(text_of(news))
    with smtplib.SMTP(email.host, email.port, timeout=PATIENCE) as server:
        if email.starttls:
            server.starttls(context=ssl.create_default_context())
        if email.user_from and email.password_from:
            server.login(secrets.get(email.user_from, ""), secrets.get(email.password_from, ""))
        server.send_message(message)
    return f"{email.host} took a mail to {len(email.to)}"


def text_of(news: Mapping[str, Any]) -> str:
    """The same for a person."""
    lines = [f"{news['job_id']}: {news['event']} ({news['status']}), {news['at']}", ""]
    for verdict in news["verdicts"]:
        lines += [
            f"{verdict['severity']}: {verdict['cause']}: {verdict['what']}",
            f"  {verdict['remedy']}",
            f"  {verdict['next']}",
            "",
        ]
    return "\n".join([*lines, str(news.get("url") or "")]).strip() + "\n"
