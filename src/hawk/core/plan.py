"""What a job will run: fixed once, the totals that progress is counted against."""

import msgspec

from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.report import PolicyUse
from hawk.core.attempts.results import Pair


class PlanTask(msgspec.Struct, frozen=True):
    """One (task, agent, model) and its pairs.

    Attributes:
        identifier: Inspect's stable task identifier; pairs the task with its logs.
        name: Task name as a person knows it.
        model: Full model name, provider included.
        agent: Agent or solver name, or None for the task's own.
        registry_name: For pruning; None for a task that has none.
        args_hash: For pruning, with `registry_name`.
        sample_ids: Selected sample ids, in dataset order.
        epochs: Attempts of each sample.
        sequence: Order within the eval set.
        predicted: Seconds that an attempt at each sample is expected to take, None where nobody knows; may be empty.
    """

    identifier: str
    name: str
    model: str
    sample_ids: list[str]
    epochs: int
    agent: str | None = None
    registry_name: str | None = None
    args_hash: str | None = None
    sequence: int = 0
    predicted: list[float | None] = []

    @property
    def attempts(self) -> int:
        return len(self.sample_ids) * self.epochs

    @property
    def load(self) -> float:
        """Predicted seconds of all its attempts; one that nobody knows counts a minute."""
        known = self.predicted or [None] * len(self.sample_ids)
        return self.epochs * sum(_UNKNOWN if seconds is None else seconds for seconds in known)

    def pair(self, sample_id: str) -> Pair:
        return Pair(self.name, sample_id, self.model, self.agent)

    @property
    def predictions(self) -> dict[str, float | None]:
        """`predicted` by sample id."""
        return dict(zip(self.sample_ids, self.predicted, strict=False))


_UNKNOWN = 60.0


class Limits(msgspec.Struct, frozen=True):
    """The finite bounds Hawk sets where Inspect's are endless; printed with the plan.

    Attributes:
        max_retries: Model call retries before the attempt errors.
        attempt_timeout: Seconds one model call may take.
        retry_on_error: Times an errored attempt is run again in its worker.
        task_retries: Times a task whose log ended in error is run again.
        worker_restarts: Times a dead worker is started again without any attempt having finished between.
    """

    max_retries: int | None = 12
    attempt_timeout: int | None = 1800
    retry_on_error: int = 2
    task_retries: int = 1
    worker_restarts: int = 3


class Plan(msgspec.Struct, frozen=True):
    """The file `plan.json`.

    Attributes:
        workers: The most worker processes at a time.
        generation: The submit or resume that this plan belongs to.
        prior_logs: File names of logs that were there before this generation. What completed in them counts;
            what errored or was canceled in them runs again.
        overrides: Inspect options that Hawk sets because the eval set does not: everything at once.
        rules: Which attempts run, and when.
        slots: Attempts at once, over all workers; `ceiling` says what keeps it from being all of them, or is empty.
        forecast: What this policy is predicted to take, then what the others would; empty without history.
        known: Pairs of which history knows something.
        fingerprint: Of what may change an outcome.
        rescore: Id of the job whose attempts are scored again; nothing else runs then. `rules` are the eval set's all
            the same: the attempts came about under them, which reports must know.
        excluded: Attempts that do not run, as (task identifier, sample id, attempt): that job has no result of them.
    """

    eval_set_id: str
    tasks: list[PlanTask]
    limits: Limits = msgspec.field(default_factory=Limits)
    policy: str = "parallel"
    runs: int = 1
    workers: int = 1
    created_at: str = ""
    generation: int = 1
    prior_logs: list[str] = []
    overrides: dict[str, int] = {}
    rules: Rules = Rules(Policy.PARALLEL)
    slots: int = 0
    ceiling: str = ""
    forecast: list[PolicyUse] = []
    known: int = 0
    fingerprint: str = ""
    rescore: str | None = None
    excluded: list[tuple[str, str, int]] = []

    @property
    def order(self) -> Rules:
        """The rules by which attempts start and are stopped: what is scored again is so all at once."""
        return self.rules if self.rescore is None else Rules(Policy.PARALLEL, pass_rule=self.rules.pass_rule)

    def share(self, tasks: "list[PlanTask]") -> int:
        """Slots of a worker that runs these tasks: its part of all, by what there is to do."""
        mine, total = sum(task.attempts for task in tasks), sum(task.load for task in self.tasks)
        slots = self.slots or self.total
        if slots >= self.total or total <= 0:
            return max(1, mine)
        return max(1, min(mine, int(slots * sum(task.load for task in tasks) / total)))

    @property
    def total(self) -> int:
        """Planned attempts of the job."""
        return sum(task.attempts for task in self.tasks)

    def again(self, prior_logs: list[str]) -> "Plan":
        """The plan of an earlier generation, to be shown until this one's is known."""
        return msgspec.structs.replace(self, prior_logs=prior_logs)


def deal(tasks: list[PlanTask], workers: int) -> list[list[PlanTask]]:
    """Share the tasks out so that no worker carries much more than another.

    Longest processing time first: each task, largest first, goes to the least loaded worker. A share is
    never empty; fewer tasks than workers give fewer shares.

    Args:
        tasks: Tasks to deal; order decides between equals.
        workers: The most shares there may be (at least 1).
    """
    shares: list[list[PlanTask]] = [[] for _ in range(max(1, min(workers, len(tasks))))]
    loads = [0.0] * len(shares)
    for task in sorted(tasks, key=lambda t: -t.load):
        i = loads.index(min(loads))
        shares[i].append(task)
        loads[i] += task.load
    return [sorted(share, key=lambda t: t.sequence) for share in shares if share]


MAX_AT_ONCE = 1000
"""Attempts of one worker in flight at once; more wait for a place."""

ATTEMPT_MEMORY = 4 << 20
"""Bytes that an attempt is taken to need: about 0.5 MiB in Inspect, 1 MiB for its sandbox, and some for its commands."""


def ceiling(total: int, workers: int, *, asked: int | None, memory: int | None) -> tuple[int, str]:
    """Attempts at once, and what keeps it from being all of them.

    Args:
        total: Planned attempts.
        asked: The eval set's own bound (`max_sandboxes`), or None.
        memory: Bytes that are free, or None where nobody knows.
    """
    bounds = [(total, ""), (MAX_AT_ONCE * workers, f"{MAX_AT_ONCE} a worker")]
    if memory is not None:
        bounds.append((max(1, memory // ATTEMPT_MEMORY), f"{memory >> 20} MiB of free memory"))
    if asked is not None:
        bounds.append((asked, f"max_sandboxes: {asked}"))
    return min(bounds, key=lambda bound: bound[0])


def concurrency(tasks: list[PlanTask], given: dict[str, object]) -> dict[str, int]:
    """Inspect's concurrency options such that every attempt starts at once, up to `MAX_AT_ONCE`.

    Inspect's own defaults run one task at a time, 25 attempts of it, and as many subprocesses as there are
    cores, though attempts mostly wait.

    Args:
        tasks: The plan's tasks.
        given: Options that the eval set passes itself; those are left alone.
    """
    widest = min(MAX_AT_ONCE, max((task.attempts for task in tasks), default=1))
    total = min(MAX_AT_ONCE, sum(task.attempts for task in tasks))
    wanted = {
        "max_tasks": max(1, len(tasks)),
        "max_samples": max(1, widest),
        "max_sandboxes": max(1, total),
        "max_subprocesses": max(8, min(256, total)),
    }
    return {name: value for name, value in wanted.items() if given.get(name) is None}
