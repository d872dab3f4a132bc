"""Rules of the layer `runner`."""

from hawk.core.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
