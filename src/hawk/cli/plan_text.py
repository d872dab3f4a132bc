"""A plan in words: what will run, in which order, what that takes, and the bounds that hold."""

from __future__ import annotations

import math

from hawk.cli.text import clean, duration, plural, table
from hawk.core.attempts.policy import Policy, Rules
from hawk.core.attempts.report import PolicyUse
from hawk.core.plan import Limits, Plan

MAX_TASKS = 20


def render(plan: Plan) -> str:
    """Tasks, pairs x runs = attempts, workers, policy, what it is predicted to take, and the finite limits."""
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
    lines += [f"  Attempts: {order_text(plan)}", f"  Limits: {limits_text(plan.limits)}"]
    lines += ["  " + line for line in forecast_text(plan, pairs).splitlines()]
    return "\n".join(lines)


def order_text(plan: Plan) -> str:
    """How attempts relate in time, and how many run at once."""
    slots = min(plan.slots or plan.total, plan.total)
    if plan.rescore is not None:
        room = plan.ceiling if plan.ceiling and slots < plan.total else ""
        return clean(
            f"what they left in {plan.rescore} is scored again, {room or 'all at once'}; no agent runs"
        )
    one_by_one = plan.rules.policy is Policy.SEQUENTIAL
    most = min(slots, sum(len(task.sample_ids) for task in plan.tasks)) if one_by_one else slots
    waves = math.ceil((plan.total if not one_by_one else most) / max(1, slots))
    room = f"{most} at once" + (f" ({plan.ceiling})" if plan.ceiling and slots < plan.total else "")
    if not one_by_one:
        room += f", {plural(waves, 'wave')}"
    return clean(f"{policy_text(plan.rules)}; {room}")


def policy_text(rules: Rules) -> str:
    """A policy in words."""
    match rules.policy:
        case Policy.SEQUENTIAL:
            text = "one after the other until one passes"
        case Policy.PARALLEL:
            text = "all at once"
        case Policy.SELECTIVE if rules.threshold is None:
            text = "all at once, for want of a history to tell long pairs from short ones"
        case _:
            text = (
                f"at once for pairs predicted above {duration(rules.threshold)}, else one after the other until one "
                "passes"
            )
    return text + ("; a pass stops the others of its pair" if rules.cancel_siblings else "")


def forecast_text(plan: Plan, pairs: int) -> str:
    """What the policy and the others are predicted to take; what is missing for that."""
    if plan.rescore is not None:
        without = (
            f"{plural(len(plan.excluded), 'attempt')} without: not scored again." if plan.excluded else ""
        )
        return clean(
            f"With a result in {plan.rescore}: {plan.total - len(plan.excluded)}. {without}".rstrip()
        )
    if not plan.forecast:
        return "No earlier attempt at these pairs is known: nothing to predict from."
    source = f"Predicted from earlier attempts at {plan.known} of {plural(pairs, 'pair')}:"
    return f"{source}\n{uses_text(plan.forecast)}"


def uses_text(uses: list[PolicyUse]) -> str:
    """Policies side by side, a table."""
    rows = [
        [
            use.policy,
            duration(use.wall),
            str(use.attempts),
            f"{use.seconds / 3600:.2f}",
            str(use.waves),
            "–" if use.tokens is None else f"{use.tokens:,}",
            "–" if use.cost is None else f"${use.cost:,.2f}",
        ]
        for use in uses
    ]
    return table(
        ["policy", "wall clock", "attempts", "sandbox-hours", "waves", "tokens", "money"], rows, columns=110
    )


def limits_text(limits: Limits) -> str:
    """Each bound, or that there is none."""
    retries = "without end" if limits.max_retries is None else f"at most {limits.max_retries}"
    call = "as long as it takes" if limits.attempt_timeout is None else duration(limits.attempt_timeout)
    return clean(
        f"model call retries {retries}, one model call {call}, errored attempt again {limits.retry_on_error} x, "
        f"failed task again {limits.task_retries} x, dead worker again {limits.worker_restarts} x"
    )
