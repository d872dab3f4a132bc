"""Taking eval sets in: validate, write the run directory, start the runner. Submitting twice is safe.

Order matters for a `kill -9` at any moment: the run directory is whole before the runner is started, and a
run directory without a runner is what the reconciler starts one for.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hawk.config.ids import check_id
from hawk.config.settings import Settings
from hawk.core.states import JobStatus
from hawk.engine.protocol import Engine
from hawk.errors import ConflictError, HawkError, NotFoundError, SecretsNeededError, UsageError
from hawk.link.rules import SOURCE
from hawk.server.services import rescores, sources
from hawk.server.services.feeds import Feeds
from hawk.server.services.registry import Registry, now
from hawk.server.services.requests import SubmitRequest, Wanted, check_variables, interpret
from hawk.server.services.sending import Sent, placed, put_files
from hawk.server.services.uploads import Uploads
from hawk.store import stoprequests
from hawk.store.database import Database
from hawk.store.history import past_attempts
from hawk.store.importer import register
from hawk.store.rundir import JobSpec, JournalEntry, RunDir, storage_error, write_atomic, write_json


class SubmitReply(msgspec.Struct):
    """`created`: the id is new. `adopted`: its runner lives already, nothing was started."""

    eval_set_id: str
    warnings: list[str]
    created: bool
    adopted: bool


class Submissions:
    """Takes eval sets in. Safe from any thread."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        engine: Engine,
        registry: Registry,
        feeds: Feeds,
        uploads: Uploads,
        user: str,
    ) -> None:
        self._settings = settings
        self._database = database
        self._engine = engine
        self._registry = registry
        self._feeds = feeds
        self._uploads = uploads
        self._user = user

    def submit(self, request: SubmitRequest) -> SubmitReply:
        """Start an eval set, resume one, or find it running.

        Raises:
            ConfigError: The config is wrong.
            ConflictError: The id runs with another config, or is another job's; what is to be scored again can't be.
            NotFoundError: A resume of an id that does not exist; nothing of that id to be scored again; files that were
                not sent, or are gone (field: `files`).
            SecretsNeededError: Secrets that it names were not given.
            StorageError: The run directory can't be written.
            UsageError: The request contradicts itself, or a secret can't be an environment variable.
        """
        check_variables(request)
        if request.rescore is None:
            with self._sent(request) as sent:
                return self._submit(request, interpret(request, sent), sent)
        with self._registry.exclusive(check_id(request.rescore)):  # it must not be resumed meanwhile
            return self._rescore(request)

    @contextlib.contextmanager
    def _sent(self, request: SubmitRequest) -> Iterator[Sent | None]:
        """The files that a request comes with, unpacked."""
        if request.files is None:
            yield None
            return
        if request.eval_set_config is None and not request.script:
            raise UsageError("files are of an eval_set_config or a script, and there is neither.")
        archive = self._uploads.find(self._user, request.files)
        with sources.unpacked(archive, self._registry.root) as directory:
            yield Sent(request.files, archive, directory)

    def _rescore(self, request: SubmitRequest) -> SubmitReply:
        """Score a job again, by its own config or by the saved one."""
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
            with self._sent(request) as sent:
                wanted = interpret(request, sent)
                wanted.warnings += found.warnings
                wanted.engine = found.spec.engine
                return self._submit(request, wanted, sent)
        spec = found.spec
        changes |= {"base_dir": spec.base_dir, "files": spec.files, "source": found.text}
        request = msgspec.structs.replace(request, **changes)
        wanted = Wanted(
            job_id,
            spec.config or None,
            spec.script,
            spec.secret_names,
            spec.packages,
            found.warnings,
            spec.engine,
        )
        if spec.files is None:
            return self._submit(request, wanted, None)
        if spec.script is not None:
            wanted.script = str(Path(spec.script).relative_to(spec.base_dir))
        wanted.warnings.append(
            f"It is scored with the files that were sent with {request.rescore}; --config sends them as they are now."
        )
        archive = self._registry.run(spec.job_id).path / SOURCE
        with sources.unpacked(archive, self._registry.root) as directory:
            return self._submit(request, wanted, Sent(spec.files, archive, directory))

    def _submit(self, request: SubmitRequest, wanted: Wanted, sent: Sent | None) -> SubmitReply:
        run = self._registry.run(wanted.job_id)
        with self._registry.exclusive(wanted.job_id):
            old = run.read_spec() if run.spec_file.exists() else None
            if old is None and wanted.saved:
                raise NotFoundError(f"No eval set {wanted.job_id!r} to resume.", remedy="hawk list eval-sets")
            if old is not None and not wanted.saved and old.rescore != request.rescore:
                raise _another_job(old)
            if old is not None and self._runs(wanted.job_id):
                return self._adopt(run, old, wanted, request)
            spec = placed(self._spec(old, wanted, request, run), run)
            self._check_secrets(spec, request)
            self._write(run, spec, request, sent, fresh=old is None)
            self._launch(run, spec, request, fresh=old is None)
        return SubmitReply(wanted.job_id, wanted.warnings, created=old is None, adopted=False)

    def _runs(self, job_id: str) -> bool:
        """Whether its runner lives. One that has ended lives no more because its cluster can't be asked."""
        liveness = self._engine.liveness(job_id)
        return liveness.alive and (liveness.problem is None or self._registry.get(job_id) is not None)

    def _adopt(self, run: RunDir, old: JobSpec, wanted: Wanted, request: SubmitRequest) -> SubmitReply:
        """The same again while its runner lives is found running; something else is refused."""
        script = wanted.script
        if request.files is not None:
            script = placed(msgspec.structs.replace(old, script=script), run).script
        same = wanted.saved or (wanted.config, script) == (old.config or None, old.script)
        if request.restart or not same:
            what = "to start over" if same else "with another config"
            raise ConflictError(
                f"Eval set {run.job_id!r} is running; it can't be submitted {what}.",
                remedy=f"hawk stop {run.job_id}, or choose another id.",
            )
        state = self._registry.get(run.job_id)
        if state is not None:
            state.secrets.update({**(request.access or {}), **(request.secrets or {})})
        if request.files is not None and request.files != old.files:
            wanted.warnings.append(
                f"{run.job_id} runs with the files that it was started with; those that have changed since are not used."
            )
        return SubmitReply(run.job_id, wanted.warnings, created=False, adopted=True)

    def _spec(self, old: JobSpec | None, wanted: Wanted, request: SubmitRequest, run: RunDir) -> JobSpec:
        given = set(request.secrets or {})
        generation = old.generation + 1 if old else 1
        if wanted.saved:
            assert old is not None
            names = sorted({*old.secret_names, *given})
            engine = request.engine or old.engine
            return msgspec.structs.replace(old, secret_names=names, generation=generation, engine=engine)
        files, base_dir = request.files, request.base_dir or str(run.path)
        if old is not None and not (request.files or request.base_dir or request.script):
            files, base_dir = old.files, old.base_dir
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
            engine=request.engine
            or (wanted.config or {}).get("engine")
            or wanted.engine
            or self._settings.engine,
            files=files,
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

    def _write(
        self, run: RunDir, spec: JobSpec, request: SubmitRequest, sent: Sent | None, *, fresh: bool
    ) -> None:
        """The run directory, whole, and `job.json` last: with it the job exists."""
        run.create()
        try:
            put_files(run, spec, sent)
        except HawkError:
            if fresh:
                shutil.rmtree(run.path, ignore_errors=True)
            raise
        if spec.engine != "kubernetes" and run.pods_file.exists():  # it ran on a cluster before
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


def _another_job(old: JobSpec) -> ConflictError:
    what = "runs agents" if old.rescore is None else f"scores {old.rescore} again"
    return ConflictError(
        f"Eval set {old.job_id!r} is another job: it {what}.", remedy="Choose another id (--name)."
    )


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
