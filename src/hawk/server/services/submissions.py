"""Taking eval sets in: validate, write the run directory, start the runner. Submitting twice is safe.

Order matters for a `kill -9` at any moment: the run directory is whole before the runner is started, and a
run directory without a runner is what the reconciler starts one for.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from hawk.config.ids import MAX_LENGTH, PATTERN, check_id, new_id
from hawk.config.load import parse_eval_set
from hawk.config.settings import Settings
from hawk.core.states import JobStatus
from hawk.engine.protocol import Engine
from hawk.errors import ConflictError, HawkError, NotFoundError, SecretsNeededError, UsageError
from hawk.server.services import rescores
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry, now
from hawk.server.services.sources import pack_source
from hawk.store import stoprequests
from hawk.store.database import Database
from hawk.store.history import past_attempts
from hawk.store.importer import register
from hawk.store.rundir import JobSpec, JournalEntry, RunDir, storage_error, write_atomic, write_json

_MEANINGLESS_HERE = ("image", "image_tag", "log_dir_allow_dirty", "force", "allow_sensitive_cross_lab_scan")


# Their forms are described, and checked below: with better messages.
JobId = Annotated[str, Meta(extra_json_schema={"pattern": PATTERN, "maxLength": MAX_LENGTH})]
Variables = Annotated[
    dict[str, str],
    Meta(
        extra_json_schema={
            "propertyNames": {"pattern": r"^[^=\x00]+$"},
            "additionalProperties": {"type": "string", "pattern": r"^[^\x00]*$"},
        }
    ),
]


class SubmitRequest(msgspec.Struct):
    """The body of `POST /eval_sets/`.

    Attributes:
        eval_set_config: The config as data, variables filled in; None for a script or a resume.
        eval_set_id: Wins over the config's own. Alone, it means resume.
        secrets: Values by name; kept in memory while the job runs.
        access: Keys and addresses of model providers by variable, where the submitter has some: in memory like secrets,
            but a resume does without if it must.
        source: The text as written, kept with the run.
        base_dir: What relative paths are relative to.
        script: Absolute path of a Python file that calls `eval_set()`.
        resume: Start an existing id again with its saved config.
        restart: Start over: earlier logs are moved aside.
        dry_run: Make a plan under an id of its own, and run nothing.
        rescore: Id of a job that has ended, whose attempts are scored again, without an agent: by its config as it is
            saved, or by `eval_set_config`. Without `eval_set_id` the new job is `<id>-rescore-<n>`.
        engine: Where it runs, instead of what the config says: `local` or `kubernetes`.
    """

    eval_set_config: dict[str, Any] | None = None
    eval_set_id: JobId | None = None
    secrets: Variables | None = None
    access: Variables | None = None
    source: str | None = None
    base_dir: str | None = None
    script: str | None = None
    resume: bool = False
    restart: bool = False
    dry_run: bool = False
    rescore: JobId | None = None
    engine: Literal["local", "kubernetes"] | None = None
    image: str | None = None
    image_tag: str | None = None
    log_dir_allow_dirty: bool = False
    refresh_token: str | None = None
    force: bool = False
    priority: str | None = None
    allow_sensitive_cross_lab_scan: bool = False


class SubmitReply(msgspec.Struct):
    """`created`: the id is new. `adopted`: its runner lives already, nothing was started."""

    eval_set_id: str
    warnings: list[str]
    created: bool
    adopted: bool


@dataclass
class _Wanted:
    """What a request asks to run. `config` is None where the saved one is meant."""

    job_id: str
    config: dict[str, Any] | None
    script: str | None
    secret_names: list[str]
    packages: list[str]
    warnings: list[str]

    @property
    def saved(self) -> bool:
        return self.config is None and self.script is None


class Submissions:
    """Takes eval sets in. Safe from any thread."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        engine: Engine,
        registry: Registry,
        feeds: Feeds,
        user: str,
    ) -> None:
        self._settings = settings
        self._database = database
        self._engine = engine
        self._registry = registry
        self._feeds = feeds
        self._user = user

    def submit(self, request: SubmitRequest) -> SubmitReply:
        """Start an eval set, resume one, or find it running.

        Raises:
            ConfigError: The config is wrong.
            ConflictError: The id runs with another config, or is another job's; what is to be scored again can't be.
            NotFoundError: A resume of an id that does not exist; nothing of that id to be scored again.
            SecretsNeededError: Secrets that it names were not given.
            StorageError: The run directory can't be written.
            UsageError: The request contradicts itself, or a secret can't be an environment variable.
        """
        _check_variables(request)
        if request.rescore is None:
            return self._submit(request, _interpret(request))
        with self._registry.exclusive(check_id(request.rescore)):  # it must not be resumed meanwhile
            return self._submit(*self._rescore(request))

    def _rescore(self, request: SubmitRequest) -> tuple[SubmitRequest, _Wanted]:
        """What a request to score a job again asks for, by its own config or by the saved one."""
        assert request.rescore is not None
        if request.eval_set_id == request.rescore:
            raise UsageError(
                f"{request.rescore} can't be scored again in its own place.", remedy="Choose another --name."
            )
        found = rescores.source(self._registry, self._engine, request.rescore)
        job_id = check_id(request.eval_set_id or rescores.free_id(self._registry, request.rescore))
        changes: dict[str, Any] = {"eval_set_id": job_id, "resume": False, "restart": False}
        if request.eval_set_config is not None or request.script:
            request = msgspec.structs.replace(request, **changes)
            wanted = _interpret(request)
        else:
            spec = found.spec
            request = msgspec.structs.replace(request, base_dir=spec.base_dir, source=found.text, **changes)
            wanted = _Wanted(job_id, spec.config or None, spec.script, spec.secret_names, spec.packages, [])
        wanted.warnings += found.warnings
        return request, wanted

    def _submit(self, request: SubmitRequest, wanted: _Wanted) -> SubmitReply:
        run = self._registry.run(wanted.job_id)
        with self._registry.exclusive(wanted.job_id):
            old = run.read_spec() if run.spec_file.exists() else None
            if old is None and wanted.saved:
                raise NotFoundError(f"No eval set {wanted.job_id!r} to resume.", remedy="hawk list eval-sets")
            if old is not None and not wanted.saved and old.rescore != request.rescore:
                raise _another_job(old)
            if old is not None and self._runs(wanted.job_id):
                return self._adopt(run, old, wanted, request)
            spec = self._spec(old, wanted, request, run)
            self._check_secrets(spec, request)
            self._write(run, spec, request, fresh=old is None)
            self._launch(run, spec, request, fresh=old is None)
        return SubmitReply(wanted.job_id, wanted.warnings, created=old is None, adopted=False)

    def _runs(self, job_id: str) -> bool:
        """Whether its runner lives. One that has ended lives no more because its cluster can't be asked."""
        liveness = self._engine.liveness(job_id)
        return liveness.alive and (liveness.problem is None or self._registry.get(job_id) is not None)

    def _adopt(self, run: RunDir, old: JobSpec, wanted: _Wanted, request: SubmitRequest) -> SubmitReply:
        """The same again while its runner lives is found running; something else is refused."""
        same = wanted.saved or (wanted.config, wanted.script) == (old.config or None, old.script)
        if request.restart or not same:
            what = "to start over" if same else "with another config"
            raise ConflictError(
                f"Eval set {run.job_id!r} is running; it can't be submitted {what}.",
                remedy=f"hawk stop {run.job_id}, or choose another id.",
            )
        state = self._registry.get(run.job_id)
        if state is not None:
            state.secrets.update({**(request.access or {}), **(request.secrets or {})})
        return SubmitReply(run.job_id, wanted.warnings, created=False, adopted=True)

    def _spec(self, old: JobSpec | None, wanted: _Wanted, request: SubmitRequest, run: RunDir) -> JobSpec:
        given = set(request.secrets or {})
        generation = old.generation + 1 if old else 1
        if wanted.saved:
            assert old is not None
            names = sorted({*old.secret_names, *given})
            engine = request.engine or old.engine
            return msgspec.structs.replace(old, secret_names=names, generation=generation, engine=engine)
        base_dir = request.base_dir or (old.base_dir if old else None) or str(run.path)
        return JobSpec(
            job_id=wanted.job_id,
            base_dir=base_dir,
            config=wanted.config or {},
            script=wanted.script,
            secret_names=sorted({*wanted.secret_names, *given}),
            packages=wanted.packages,
            created_by=old.created_by if old else self._user,
            created_at=old.created_at if old else now().isoformat(),
            workers=self._settings.workers,
            generation=generation,
            dry_run=request.dry_run,
            rescore=request.rescore,
            engine=request.engine or _engine_of(wanted, request, self._settings.engine),
        )

    def _check_secrets(self, spec: JobSpec, request: SubmitRequest) -> None:
        state = self._registry.get(spec.job_id)
        held = {*(request.secrets or {}), *(state.secrets if state else {})}
        missing = sorted(set(spec.secret_names) - held)
        if missing:
            raise SecretsNeededError(
                f"Eval set {spec.job_id!r} needs {', '.join(missing)}: not given, and secrets are never stored.",
                remedy="Add " + " ".join(f"--secret {name}" for name in missing),
                names=missing,
            )

    def _write(self, run: RunDir, spec: JobSpec, request: SubmitRequest, *, fresh: bool) -> None:
        """The run directory, whole, and `job.json` last: with it the job exists."""
        run.create()
        if spec.engine == "kubernetes":
            self._pack(run, spec, fresh=fresh)
        elif run.pods_file.exists():  # it ran on a cluster before
            run.pods_file.rename(run.path / f"pods.{spec.generation - 1}.json")
        if not fresh:
            _set_back(run, restart=request.restart)
        text = request.source
        if text is None and not spec.script and (fresh or request.eval_set_config is not None):
            text = yaml.safe_dump(spec.config, sort_keys=False, allow_unicode=True)
        if text is not None:
            file = run.path / "eval-set.py" if spec.script else run.config_file
            write_atomic(file, text.encode("utf-8", "replace"))
        with self._database.read() as session:
            write_json(run.history_file, past_attempts(session, models=_models(spec.config)), durable=False)
        write_json(run.spec_file, spec)
        with self._database.write() as session:
            register(session, run, spec)

    def _pack(self, run: RunDir, spec: JobSpec, *, fresh: bool) -> None:
        try:
            pack_source(run, Path(spec.base_dir))
        except HawkError:
            if fresh:
                shutil.rmtree(run.path, ignore_errors=True)
            raise

    def _launch(self, run: RunDir, spec: JobSpec, request: SubmitRequest, *, fresh: bool) -> None:
        state = self._registry.add(
            run, created_by=spec.created_by, secrets={**(request.access or {}), **(request.secrets or {})}
        )
        word = "submitted" if fresh else "restarted" if request.restart else "resumed"
        try:
            run.append_journal(JournalEntry(now().isoformat(), "job", run.job_id, word, f"by {self._user}"))
            self._engine.launch(run.job_id, state.secrets)
        except HawkError:
            if fresh:
                self._undo(run)
            raise
        finally:
            self._feeds.touch(run.job_id)
        state.launched_at = time.monotonic()

    def _undo(self, run: RunDir) -> None:
        """A job that never started leaves nothing behind: the submitter has the error."""
        self._registry.drop(run.job_id)
        with self._database.write() as session:
            job = register(session, run, run.read_spec())
            session.delete(job)
        shutil.rmtree(run.path, ignore_errors=True)


def _interpret(request: SubmitRequest) -> _Wanted:
    """Validate what the request asks for, without touching a file.

    Raises:
        ConfigError: The config is wrong.
        UsageError: The request contradicts itself.
    """
    if request.script and request.eval_set_config is not None:
        raise UsageError("Give either script or eval_set_config.")
    warnings = [
        f"{name} has no meaning here and is ignored." for name in _MEANINGLESS_HERE if getattr(request, name)
    ]
    if request.script:
        return _interpret_script(request, warnings)
    if request.eval_set_config is None:
        if not request.eval_set_id:
            raise UsageError("There is nothing to run: no eval_set_config and no eval_set_id.")
        return _Wanted(check_id(request.eval_set_id), None, None, [], [], warnings)
    base_dir = Path(request.base_dir) if request.base_dir else None
    loaded = parse_eval_set(request.eval_set_config, base_dir=base_dir)
    assert loaded.config is not None
    config = loaded.config
    job_id = _id(request, config.eval_set_id, config.name)
    secrets = [secret.name for secret in config.required_secrets]
    return _Wanted(job_id, config.to_data(), None, secrets, config.requirements, warnings + loaded.warnings)


def _check_variables(request: SubmitRequest) -> None:
    for name, value in {**(request.access or {}), **(request.secrets or {})}.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(
                f"{name!r} can't be an environment variable: name or value has what none can hold."
            )


def _another_job(old: JobSpec) -> ConflictError:
    what = "runs agents" if old.rescore is None else f"scores {old.rescore} again"
    return ConflictError(
        f"Eval set {old.job_id!r} is another job: it {what}.", remedy="Choose another id (--name)."
    )


def _id(request: SubmitRequest, own: str | None, name: str | None) -> str:
    if request.dry_run:
        return new_id("dry-run")
    return check_id(request.eval_set_id or own or new_id(name))


def _interpret_script(request: SubmitRequest, warnings: list[str]) -> _Wanted:
    script = Path(request.script or "")
    if not script.is_absolute() or not _is_file(script):
        raise UsageError(f"The script {str(script)!r} is not the absolute path of a file.")
    job_id = _id(request, None, script.stem)
    return _Wanted(job_id, None, str(script), [], [], warnings)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def _engine_of(wanted: _Wanted, request: SubmitRequest, default: str) -> str:
    """Where a job runs that nobody says it of; scoring again reads another run directory, which is here."""
    if request.rescore is not None:
        return "local"
    return (wanted.config or {}).get("engine") or default


def _models(config: dict[str, Any]) -> list[str]:
    """Models that a config names, as Inspect spells them; none where tasks bring their own."""
    return [item["name"] for entry in config.get("models") or [] for item in entry.get("items") or []]


def _set_back(run: RunDir, *, restart: bool) -> None:
    """Make an ended job one that is to run again. Nothing is deleted: a restart moves what there is aside."""
    stoprequests.clear(run)  # one that came as the job ended must not stop the next run
    if restart and any(run.logs.iterdir()):
        aside = next(path for n in range(1, 10_000) if not (path := run.path / f"logs.{n}").exists())
        try:
            run.logs.rename(aside)
            for file in (run.snapshot_file, run.plan_file, run.attempts):
                if file.exists():
                    file.rename(aside / file.name)
        except OSError as ex:
            raise storage_error(aside, ex) from ex
        run.create()
        return
    snapshot = run.read_snapshot()
    if snapshot is not None:
        snapshot.status = JobStatus.PENDING
        snapshot.reason = snapshot.remedy = snapshot.finished_at = None
        write_json(run.snapshot_file, snapshot)
