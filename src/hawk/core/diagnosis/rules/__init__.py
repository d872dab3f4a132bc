"""The rules, a module a layer. Their order is that of the layers; ranking does not depend on it."""

from hawk.core.diagnosis.rule import Rule
from hawk.core.diagnosis.rules import (
    attempt,
    awaits,
    ends,
    healthy,
    launching,
    middleman,
    provider,
    runner,
    sandbox,
    scheduler,
    storage,
)

RULES: tuple[Rule, ...] = (
    *provider.RULES,
    *middleman.RULES,
    *runner.RULES,
    *awaits.RULES,
    *ends.RULES,
    *storage.RULES,
    *launching.RULES,
    *sandbox.RULES,
    *attempt.RULES,
    *scheduler.RULES,
    *healthy.RULES,
)
