"""What each cause means, how it is seen, and what to do: the table that verdicts, docs and help are made from.

A module a layer. `next` is a command with {job}, {uuid} or {model} filled in.
"""

from __future__ import annotations

from hawk.core.diagnosis.about import attempt, healthy, middleman, provider, runner, sandbox, scheduler
from hawk.core.diagnosis.about.table import About
from hawk.core.diagnosis.causes import Cause, Layer

__all__ = ["ABOUT", "About"]

ABOUT: dict[Cause, About] = {
    cause: About(layer, *texts, cause.word)
    for layer, table in (
        (Layer.PROVIDER, provider.PROVIDER),
        (Layer.MIDDLEMAN, middleman.MIDDLEMAN),
        (Layer.RUNNER, runner.RUNNER),
        (Layer.SANDBOX, sandbox.SANDBOX),
        (Layer.ATTEMPT, attempt.ATTEMPT),
        (Layer.SCHEDULER, scheduler.SCHEDULER),
        (Layer.HEALTHY, healthy.HEALTHY),
    )
    for cause, texts in table.items()
}
