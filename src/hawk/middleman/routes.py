"""Where requests go: what a catalog answers with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from hawk.config.providers import Provider
from hawk.core.traffic.breaker import BreakerSettings
from hawk.core.traffic.lane import Limits
from hawk.core.traffic.prices import Price


class JobUpstream(Protocol):
    """A provider that a job brings along: where it is, and its `kind` and `prefix` as in `Provider`."""

    @property
    def base_url(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def prefix(self) -> str: ...


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds that each part of a request may take.

    Attributes:
        connect: Until the provider takes the connection.
        first_byte: From the sent request to the first byte of the answer.
        idle: Between two parts of an answer.
        total: From the arrival of the request to the end of the answer.
        queue: In the queue, before it is sent.
    """

    connect: float = 10
    first_byte: float = 600
    idle: float = 300
    total: float = 7200
    queue: float = 3600


class Route(msgspec.Struct, frozen=True):
    """Where requests for one model go.

    Attributes:
        provider: Whose format it is; `provider.prefix` of the path is what `base_url` takes the place of.
        account: Which account pays. Begins with `job-` where the key or the address is the job's own.
        key: The provider's key; None where it needs none.
        base_url: Where the provider is, without a slash at the end.
        groups: Model groups that may use it; none: everybody.
        headers: More fields for the request.
        of_job: The address is the job's: check where it resolves to (`hawk.middleman.address.forbidden_address`).
    """

    provider: Provider
    account: str
    key: str | None
    base_url: str
    deadlines: Deadlines
    limits: Limits
    breaker: BreakerSettings
    price: Price | None
    groups: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    of_job: bool = False

    def __repr__(self) -> str:  # the key must not get into a log
        return f"<Route {self.provider.name}/{self.account} {self.base_url}>"


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that has a price or an entry in the settings.

    Attributes:
        name: Inspect's.
        provider: Name of its provider.
        model: What the provider calls it.
        groups: Those that may use it; none: everybody.
        price: None: unknown.
        reachable: Whether its provider has an address and the key that it needs.
        dead: Nobody may use it any more.
    """

    name: str
    provider: str
    model: str
    groups: tuple[str, ...]
    price: Price | None
    reachable: bool
    dead: bool = False


class Unroutable(Exception):  # noqa: N818  # reads as a verdict, like Refusal
    """A request can go nowhere.

    Attributes:
        type: `hawk_unknown_provider`, `hawk_no_key` or `hawk_upstream_forbidden`.
        message: What is missing or not allowed.
        remedy: What to do about it.
    """

    def __init__(self, type: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.remedy = remedy
