"""How long things took before."""

from __future__ import annotations

import msgspec


class Times(msgspec.Struct, omit_defaults=True):
    """Durations seen before of one kind of thing, in seconds."""

    count: int
    p50: float
    p95: float
    most: float


class Learnt(msgspec.Struct, omit_defaults=True):
    """What earlier runs and this one have shown.

    Attributes:
        models: How long a call takes, by `provider/model`.
        tools: How long a call takes, by the tool's name.
        scorers: How long one takes, by its name.
        starts: How long a sandbox takes to be there, by task.
        idle: The longest time that an attempt did nothing and then went on.
    """

    models: dict[str, Times] = {}
    tools: dict[str, Times] = {}
    scorers: dict[str, Times] = {}
    starts: dict[str, Times] = {}
    idle: float = 0.0
