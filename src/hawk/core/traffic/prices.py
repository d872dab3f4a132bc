"""What a request cost: its tokens times the list price of its model."""

from __future__ import annotations

import msgspec

from hawk.core.traffic.usage import Usage

MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True):
    """Price of a model in US dollars per million tokens.

    Attributes:
        input: Tokens of the request that were not in a cache.
        output: Tokens of the answer, reasoning included.
        cache_read: Tokens of the request that a cache held.
        cache_write: Tokens of the request that were put into a cache.
        context: Tokens that request and answer may have together; None: unknown.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    context: int | None = None


def cost(usage: Usage, price: Price) -> float:
    """US dollars that a usage costs at a price: the sum over its four kinds of token, none counted twice."""
    return (
        usage.input * price.input
        + usage.output * price.output
        + usage.cache_read * price.cache_read
        + usage.cache_write * price.cache_write
    ) / MILLION
