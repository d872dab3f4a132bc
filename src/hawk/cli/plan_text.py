"""A plan in words: what will run, how much of it, and the bounds that hold."""

from __future__ import annotations

from hawk.cli.text import clean, duration, plural, table
from hawk.core.plan import Limits, Plan

MAX_TASKS = 20


def render(plan: Plan) -> str:
    """Tasks, pairs x runs = attempts, workers, and the finite limits."""
    pairs = sum(len(task.sample_ids) for task in plan.tasks)
    epochs = {task.epochs for task in plan.tasks}
    times = f" x {plural(epochs.pop(), 'run')}" if len(epochs) == 1 else ""
    head = (
        f"Plan: {plural(len(plan.tasks), 'task')}, {plural(pairs, 'pair')}{times} = {plural(plan.total, 'attempt')}, "
        f"{plural(plan.workers, 'worker')}"
    )
    rows = [
        [
            task.name,
            task.agent or "–",
            task.model,
            str(len(task.sample_ids)),
            str(task.epochs),
            str(task.attempts),
        ]
        for task in plan.tasks[:MAX_TASKS]
    ]
    shown = table(["task", "agent", "model", "samples", "runs", "attempts"], rows, columns=110)
    lines = [head, *("  " + line for line in shown.splitlines())]
    if len(plan.tasks) > MAX_TASKS:
        lines.append(f"  … {len(plan.tasks) - MAX_TASKS} more tasks")
    lines.append(f"  Limits: {limits_text(plan.limits)}")
    return "\n".join(lines)


def limits_text(limits: Limits) -> str:
    """Each bound, or that there is none."""
    retries = "without end" if limits.max_retries is None else f"at most {limits.max_retries}"
    call = "as long as it takes" if limits.attempt_timeout is None else duration(limits.attempt_timeout)
    return clean(
        f"model call retries {retries}, one model call {call}, errored attempt again {limits.retry_on_error} x, "
        f"failed task again {limits.task_retries} x, dead worker again {limits.worker_restarts} x"
    )
