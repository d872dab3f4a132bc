"""Rules of the layer `attempt`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
