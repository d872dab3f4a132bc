"""Starting workers: their directory, environment, selection; finding those that still live."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hawk.bridge.selection import Enumeration, selection, worker_environment
from hawk.config.settings import Settings
from hawk.core.plan import Plan, PlanTask
from hawk.errors import SecretsNeededError
from hawk.runner import datahome
from hawk.runner.models import ModelAccess
from hawk.runner.planner import make_plan
from hawk.runner.processes import Worker, Zygote, sweep
from hawk.runner.wire import ENUMERATE, RUN, ForkRequest
from hawk.runner.workerhome import Share, directory
from hawk.runner.workpods.starting import WorkerPods
from hawk.store.locks import holder
from hawk.store.marks import marks
from hawk.store.rundir import JobSpec, RunDir, read_json, storage_error, write_json

_NOT_FOR_WORKERS = (
    "HAWK_ACCESS_TOKEN",
    "HAWK_API_URL",
    "HAWK_DATABASE_URL",
    "HAWK_JOB_MIDDLEMAN_TOKEN",
    "HAWK_JOB_MIDDLEMAN_URL",
)


class Launcher:
    """Starts the workers of one job through its zygote."""

    def __init__(
        self,
        run_dir: RunDir,
        spec: JobSpec,
        secrets: dict[str, str],
        settings: Settings,
        zygote: Zygote | None,
        models: ModelAccess,
    ) -> None:
        self._run_dir = run_dir
        self._spec = spec
        self._secrets = secrets
        self._settings = settings
        self._zygote = zygote
        self._models = models
        self._python = sys.executable
        self._pods = WorkerPods.of(run_dir, spec, settings)

    def use_environment(self, python: str) -> None:
        """Start workers with another interpreter from here on."""
        self.close()
        self._python = python

    def close(self) -> None:
        """No more workers for now; the memory of the zygote is given back."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def enumerate(self) -> Worker:
        """Start the enumeration.

        Raises:
            HawkError: Secrets are missing, or the run directory can't be written.
            RuntimeError: No process could be started.
        """
        home = directory(self._run_dir, ENUMERATE, 0)
        (home / "enumeration.json").unlink(missing_ok=True)
        return self._start(ENUMERATE, 0, home, (), capture=home / "manifest.json")

    def enumeration(self) -> Enumeration | None:
        """What the enumeration found; None when it ended without a result."""
        return read_json(directory(self._run_dir, ENUMERATE, 0) / "enumeration.json", Enumeration)

    def logs(self) -> list[str]:
        """File names of the logs that there are."""
        return sorted(path.name for path in self._run_dir.logs.glob("*.eval"))

    def write_plan(self, found: Enumeration) -> tuple[Plan, list[str]]:
        """Fix what will run; also what could not be used for that, in words."""
        plan, problems = make_plan(found, self._spec, self._settings, self._run_dir, self.logs())
        write_json(self._run_dir.plan_file, plan)
        return plan, problems

    def run(self, index: int, tasks: list[PlanTask], resume: dict[str, str]) -> Worker:
        """Start a worker for some tasks.

        Args:
            resume: Log to resume from, by task identifier.

        Raises:
            HawkError: Secrets are missing, or the run directory can't be written.
            RuntimeError: No process could be started.
        """
        plan = self._run_dir.read_plan()
        overrides: dict[str, Any] = {"log_dir": str(self._run_dir.logs), **(plan.overrides if plan else {})}
        if self._settings.log_shared:
            overrides["log_shared"] = self._settings.log_shared
        document = selection(self._spec.job_id, tasks, resume, overrides)
        home = directory(self._run_dir, RUN, index)
        identifiers = tuple(task.identifier for task in tasks)
        slots = plan.share(tasks) if plan else 0
        return self._start(RUN, index, home, identifiers, document=document, slots=slots)

    def adopt(self) -> list[Worker]:
        """Workers of this generation that an earlier supervisor started and that still live."""
        living = [worker for worker, generation in self._living() if generation == self._spec.generation]
        return living if self._pods is None else [*living, *self._found_pods(living)]

    def _found_pods(self, held: list[Worker]) -> Iterator[Worker]:
        """Workers whose pods live, and that nothing stands for any more."""
        assert self._pods is not None
        began = {index for index in self._run_dir.worker_indices() if self._is_of_now(index)}
        began -= {worker.index for worker in held}
        for index, pod in self._pods.living().items() if began else ():
            if index in began:
                self._require_secrets()
                self._models.open()
                yield self._stand_in(index, pod)

    def _is_of_now(self, index: int) -> bool:
        share = read_json(directory(self._run_dir, RUN, index) / "worker.json", Share)
        return share is not None and share.generation == self._spec.generation

    def end_strangers(self) -> int:
        """Kill the workers of earlier generations: the plan is about to be another. Returns how many."""
        strangers = [worker for worker, generation in self._living() if generation != self._spec.generation]
        for worker in strangers:
            worker.signal("SIGKILL")
        if strangers:
            sweep(self._run_dir)
        return len(strangers)

    def _living(self) -> list[tuple[Worker, int]]:
        found = []
        for index in self._run_dir.worker_indices():
            home = directory(self._run_dir, RUN, index)
            pid = holder(home / "lock")
            share = read_json(home / "worker.json", Share)
            if pid is not None and share is not None:
                data_home = datahome.link_path(self._settings.run_base, home)
                remote = self._pods is not None
                worker = Worker(index, home, data_home, share.identifiers, pid, adopted=True, remote=remote)
                found.append((worker, share.generation))
        return found

    def _start(
        self,
        mode: str,
        index: int,
        home: Path,
        identifiers: tuple[str, ...],
        *,
        capture: Path | None = None,
        document: dict[str, Any] | None = None,
        slots: int = 0,
    ) -> Worker:
        self._require_secrets()
        self._models.open()
        _end_stray(home / "lock")
        try:
            home.mkdir(parents=True, exist_ok=True)
            (home / "exit.json").unlink(missing_ok=True)
        except OSError as ex:
            raise storage_error(home, ex) from ex
        data_home = datahome.make(self._settings.run_base, self._run_dir, home)
        selected = None
        if document is not None:
            selected = home / "selection.json"
            write_json(selected, document)
            now = datetime.now(UTC).isoformat()
            write_json(home / "worker.json", Share(identifiers, now, self._spec.generation, slots))
            if self._pods is not None:
                return self._stand_in(index)
        if self._zygote is None:
            self._zygote = Zygote(self._python)
        request = ForkRequest(
            mode=mode,
            run_dir=str(self._run_dir.path),
            index=index,
            environ=self._environ(
                worker_environment(data_home, capture=capture, selected=selected), mode, index
            ),
            cwd=self._spec.base_dir,
        )
        try:
            pid = self._zygote.fork(request)
        except RuntimeError:
            self.close()
            raise
        return Worker(index, home, data_home, identifiers, pid)

    def _stand_in(self, index: int, pod: str | None = None) -> Worker:
        """Start what stands for a worker that has a pod of its own.

        Args:
            pod: The pod that is there already.
        """
        assert self._pods is not None
        self.close()  # nothing is forked here any more
        home = directory(self._run_dir, RUN, index)
        data_home = datahome.make(self._settings.run_base, self._run_dir, home)
        if pod is not None:  # it comes again at once; this one would tell of a silence that there was none
            (home / "heartbeat.json").unlink(missing_ok=True)
        share = read_json(home / "worker.json", Share)
        own = marks(self._run_dir, str(index))
        told = {**self._models.environment({**self._said(), **self._secrets}), **own}
        pid = self._pods.stand_in(index, told, own, self._models.beside, pod)
        identifiers = share.identifiers if share is not None else ()
        return Worker(index, home, data_home, identifiers, pid, remote=True)

    def _said(self) -> dict[str, str]:
        """Variables that the eval set names."""
        runner = self._spec.config.get("runner") or {}
        return {k: str(v) for k, v in (runner.get("environment") or {}).items()}

    def _environ(self, inspect: dict[str, str], mode: str, index: int) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if k not in _NOT_FOR_WORKERS}
        # what runs on the host finds the interpreter of the job, not a version manager's wrapper
        own["PATH"] = f"{Path(self._python).parent}{os.pathsep}{own.get('PATH', os.defpath)}"
        known = self._models.environment({**own, **self._said(), **self._secrets})
        return {**known, **inspect, **marks(self._run_dir, mode if mode == ENUMERATE else str(index))}

    def _require_secrets(self) -> None:
        missing = [name for name in self._spec.secret_names if name not in self._secrets]
        if missing:
            flags = " ".join(f"--secret {name}" for name in missing)
            raise SecretsNeededError(
                f"needs secrets again, which are stored nowhere: {', '.join(missing)}",
                remedy=f"hawk eval-set resume {self._spec.job_id} {flags}",
                names=missing,
            )


def _end_stray(lock: Path) -> None:
    """Kill the process that still is what is about to be started: a supervisor died just after forking it."""
    deadline = time.monotonic() + 5
    while (pid := holder(lock)) is not None and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
