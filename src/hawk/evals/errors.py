"""What goes wrong while an attempt is scored."""

from __future__ import annotations


class ScorerError(Exception):
    """The scorer failed, not the agent: it raised, took too long, or answered with what is no verdict.

    Never a wrong answer: whoever counts attempts must not count this one as a fail.
    """
