"""Rules of the layer `sandbox`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
