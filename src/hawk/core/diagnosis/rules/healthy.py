"""Rules of the layer `healthy`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
