"""Where Hawk keeps things and how it is reached, from the environment. No heavy import: the CLI's path."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hawk.errors import UsageError


class JobMiddleman(NamedTuple):
    """Where a job's middleman is, and the job's token there."""

    url: str
    token: str


@dataclass(frozen=True)
class Settings:
    """Everything that the environment decides.

    Attributes:
        home: `HAWK_HOME`, else `~/.local/share/hawk`: database, run directories, token, logs.
        root: `HAWK_ROOT`, else `<home>/runs`: the parent of all run directories.
        api_url: `HAWK_API_URL`: a server that someone else runs. None: the local one, started at need.
        access_token: `HAWK_ACCESS_TOKEN`; wins over the token file.
        database_url: `HAWK_DATABASE_URL`, else SQLite in `home`.
        port: `HAWK_PORT` of the local server; 0 takes any free one.
        idle_exit: `HAWK_IDLE_EXIT`: seconds without a request and without a job after which the local
            server ends by itself; 0 never.
        workers: `HAWK_WORKERS`: the most workers one job may have; None: one a core.
        warm: `HAWK_WARM`: keep a process that has imported everything, of which runners are copies (about
            200 MB, mostly shared with them). Default on.
        template: `HAWK_TEMPLATE`: the socket of such a process that somebody else keeps, instead of an own one.
        middleman: `HAWK_MIDDLEMAN`: workers reach models through the middleman. Default on.
        job_middleman: `HAWK_JOB_MIDDLEMAN_URL` and `HAWK_JOB_MIDDLEMAN_TOKEN`: of a runner in a pod: the middleman that
            somebody else keeps for its job, and the job's token there. None: this home's own.
        middleman_database_url: `HAWK_MIDDLEMAN_DATABASE_URL`: PostgreSQL through which several middlemen share limits, and
            from which the server has the spans of its jobs. None: the index's, where that is PostgreSQL and a cluster has
            such middlemen.
        engine: `HAWK_ENGINE`: where jobs run of which nobody says it: `local` (the default) or `kubernetes`.
        bucket: `HAWK_BUCKET`: object storage (`s3://…`) that has a copy of every run directory, and from which a server brings
            back what its disk has lost. None: there is none.
        log_shared: `HAWK_LOG_SHARED`: seconds between copies of running attempts into the log directory, for a machine
            that may be lost with all its disks; 0: none.
        worker_pod: `HAWK_WORKER_POD`: of a runner in a pod: the file with the pod of any of its workers. None: workers are
            processes beside it.
        run_base: `HAWK_RUN_BASE`: short directory for sockets, which have a length limit of about 100 bytes.
    """

    home: Path
    root: Path
    api_url: str | None
    access_token: str | None
    database_url: str
    port: int
    idle_exit: float
    workers: int | None
    warm: bool
    template: Path | None
    middleman: bool
    run_base: Path
    job_middleman: JobMiddleman | None = None
    log_shared: int = 0
    bucket: str | None = None
    middleman_database_url: str | None = None
    engine: str = "local"
    worker_pod: Path | None = None

    @property
    def token_file(self) -> Path:
        return self.home / "token"

    @property
    def server_file(self) -> Path:
        """`{url, pid, version, started_at}` of the running local server."""
        return self.home / "server.json"

    @property
    def server_log(self) -> Path:
        return self.home / "server.log"

    @property
    def server_lock(self) -> Path:
        """Held by the running local server: two can't share a home."""
        return self.home / "server.lock"

    @property
    def environments(self) -> Path:
        """Cached isolated environments of eval sets with `packages:`."""
        return self.home / "environments"

    @property
    def last_job_file(self) -> Path:
        return self.home / "last-job-id"

    @property
    def last_eval_set_file(self) -> Path:
        return self.home / "last-eval-set-id"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment.

    Raises:
        UsageError: A variable has a value of the wrong kind.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("HAWK_HOME") or _data_home(env) / "hawk").expanduser().absolute()
    root = Path(env.get("HAWK_ROOT") or home / "runs").expanduser().absolute()
    return Settings(
        home=home,
        root=root,
        api_url=(env.get("HAWK_API_URL") or "").rstrip("/") or None,
        access_token=env.get("HAWK_ACCESS_TOKEN") or None,
        database_url=env.get("HAWK_DATABASE_URL") or f"sqlite:///{home / 'hawk.db'}",
        port=int(_number(env, "HAWK_PORT", 0)),
        idle_exit=_number(env, "HAWK_IDLE_EXIT", 0.0),
        workers=int(_number(env, "HAWK_WORKERS", 0)) or None,
        warm=_switch(env, "HAWK_WARM", default=True),
        template=Path(env["HAWK_TEMPLATE"]) if env.get("HAWK_TEMPLATE") else None,
        middleman=_switch(env, "HAWK_MIDDLEMAN", default=True),
        run_base=Path(env.get("HAWK_RUN_BASE") or _short_directory() / f"hawk-{os.getuid()}"),
        job_middleman=_job_middleman(env),
        log_shared=int(_number(env, "HAWK_LOG_SHARED", 0)),
        engine=_engine(env),
        worker_pod=Path(env["HAWK_WORKER_POD"]) if env.get("HAWK_WORKER_POD") else None,
        middleman_database_url=env.get("HAWK_MIDDLEMAN_DATABASE_URL") or None,
        bucket=(env.get("HAWK_BUCKET") or "").rstrip("/") or None,
    )


def _engine(env: Mapping[str, str]) -> str:
    found = env.get("HAWK_ENGINE") or "local"
    if found not in ("local", "kubernetes"):
        raise UsageError(
            f"HAWK_ENGINE={found!r} is no engine.", remedy="Set HAWK_ENGINE=local or HAWK_ENGINE=kubernetes."
        )
    return found


def _job_middleman(env: Mapping[str, str]) -> JobMiddleman | None:
    url, token = env.get("HAWK_JOB_MIDDLEMAN_URL"), env.get("HAWK_JOB_MIDDLEMAN_TOKEN")
    return JobMiddleman(url.rstrip("/"), token) if url and token else None


def _data_home(env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_DATA_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "share")


def _short_directory() -> Path:
    """The directory for temporary files, or /tmp where a socket below it would have too long a path."""
    usual = Path(tempfile.gettempdir())
    return usual if len(str(usual)) <= 40 else Path("/tmp")  # noqa: S108  # made for this user alone


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise UsageError(
            f"{name}={text!r} is not a number of zero or more.", remedy=f"Unset {name} or correct it."
        )
    return value


def _switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = (env.get(name) or "").strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    if text:
        raise UsageError(f"{name}={text!r} is neither on nor off.", remedy=f"Set {name}=1 or {name}=0.")
    return default
