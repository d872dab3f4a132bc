"""Rules of the layer `provider`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
