"""Rules of the layer `middleman`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
