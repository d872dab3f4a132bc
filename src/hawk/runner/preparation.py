"""What comes before the workers of a job: the environment of its packages, and the plan of its attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hawk.config.requirements import located
from hawk.config.settings import Settings
from hawk.core import job
from hawk.core.plan import Plan
from hawk.errors import HawkError
from hawk.runner.book import Book
from hawk.runner.environment import EnvironmentBuild
from hawk.runner.launch import Launcher
from hawk.runner.processes import Reaper, Worker, describe_status, sweep
from hawk.runner.workerhome import Exit
from hawk.store.rundir import JobSpec, RunDir, read_json


class Planned(Protocol):
    """Takes the plan; `earlier`: a supervisor before this one made it."""

    def __call__(self, plan: Plan, *, earlier: bool = False) -> None: ...


class Preparation:
    """Of one job, by its supervisor.

    Args:
        dispatch: Told how it goes.
        planned: Given the plan, in place of being told that the eval set is enumerated.

    Attributes:
        enumerator: The process that enumerates, while it does.
    """

    def __init__(
        self,
        run_dir: RunDir,
        spec: JobSpec,
        settings: Settings,
        launcher: Launcher,
        book: Book,
        reaper: Reaper,
        dispatch: Callable[[job.Event], None],
        planned: Planned,
    ) -> None:
        self._run_dir, self._spec, self._settings = run_dir, spec, settings
        self._launcher, self._book, self._reaper = launcher, book, reaper
        self._dispatch, self._planned = dispatch, planned
        self._build: EnvironmentBuild | None = None
        self.enumerator: Worker | None = None

    def watch(self, *, stopping: bool) -> None:
        """Take up what has ended since the last look.

        Args:
            stopping: The job is to stop: what still runs is ended.
        """
        self._watch_build(stopping)
        self._watch_enumerator(stopping)

    def prepare(self) -> None:
        """Begin to install what the eval set wants."""
        if self._spec.packages:
            self._book.note("job", self._spec.job_id, "installing", ", ".join(self._spec.packages))
            packages = [located(package, self._spec.base_dir) for package in self._spec.packages]
            self._build = EnvironmentBuild(self._settings, self._run_dir, packages)
        else:
            self._dispatch(job.Prepared())

    def _watch_build(self, stopping: bool) -> None:
        if self._build is None:
            return
        if stopping:
            self._build.cancel()
        result = self._build.poll(self._reaper)
        if result is None:
            return
        self._build = None
        if isinstance(result, HawkError):
            self._dispatch(job.PreparationFailed(result.message, result.remedy))
        else:
            self._launcher.use_environment(result)
            self._dispatch(job.Prepared())

    def enumerate(self) -> None:
        """Enumerate the eval set, unless this generation's plan is there: then an earlier supervisor did."""
        plan = self._run_dir.read_plan()
        if plan is not None and plan.generation == self._spec.generation:
            self._planned(plan, earlier=True)
            return
        if plan is not None:
            # What has completed stays in sight meanwhile.
            self._book.use_plan(plan.again(self._launcher.logs()))
        if ended := self._launcher.end_strangers():
            self._book.note("worker", "*", "killed", f"{ended} of an earlier run of this id")
        self._book.note("job", self._spec.job_id, "enumerating")
        try:
            self.enumerator = self._launcher.enumerate()
        except (HawkError, RuntimeError) as ex:
            self._dispatch(job.EnumerationFailed(str(ex), getattr(ex, "remedy", None)))

    def _watch_enumerator(self, stopping: bool) -> None:
        worker = self.enumerator
        if worker is None:
            return
        if stopping:
            worker.signal("SIGKILL")
        ended, status = worker.ended(self._reaper)
        if not ended:
            return
        self.enumerator = None
        sweep(self._run_dir)
        found = self._launcher.enumeration()
        if found is None or status != 0:
            end = read_json(worker.home / "exit.json", Exit)
            reason = end.reason if end and end.reason else describe_status(status or 0) or "no enumeration"
            remedy = end.remedy if end and end.remedy else f"hawk logs {self._spec.job_id}"
            self._dispatch(job.EnumerationFailed(reason, remedy))
            return
        try:
            plan, problems = self._launcher.write_plan(found)
        except HawkError as ex:
            self._dispatch(job.EnumerationFailed(ex.message, ex.remedy))
            return
        for problem in problems:
            self._book.note("job", self._spec.job_id, "warning", problem)
        self._planned(plan)
