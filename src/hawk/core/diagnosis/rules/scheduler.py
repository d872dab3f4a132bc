"""Rules of the layer `scheduler`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
