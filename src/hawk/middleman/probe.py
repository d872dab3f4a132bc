"""The same small request through the middleman and directly, to tell whose fault a failure is."""

from __future__ import annotations

import asyncio
import time

import msgspec

from hawk.config.providers import Kind, credential, provider_of
from hawk.config.smallrequest import small_request
from hawk.middleman.catalog import Route
from hawk.middleman.house import House
from hawk.middleman.pool import Address, Forbidden, Pool, address_of, failure, target_of
from hawk.middleman.refusals import Refusal
from hawk.middleman.tokens import Principal

PATIENCE = 60.0
"""Seconds that one of the two may take."""

_SHOWN = 500


class Leg(msgspec.Struct, frozen=True):
    """One of the two requests.

    Attributes:
        status: None: there was no answer.
        error: Why there was none.
        type: `error.type` of an answer that is an error.
        body: Its beginning.
        seconds: Until the whole answer was there.
    """

    status: int | None
    seconds: float
    error: str | None = None
    type: str | None = None
    body: str = ""

    @property
    def good(self) -> bool:
        return self.status is not None and self.status < 400


class Probe(msgspec.Struct, frozen=True):
    """Both, and what follows. `whose`: nobody, provider, middleman, caller or unknown."""

    model: str
    provider: str
    through: Leg
    direct: Leg
    verdict: str
    whose: str
    remedy: str


async def both_ways(house: House, model: str, job: str | None) -> Probe:
    """Ask a model both ways, as a person or, with its token and keys, as a job.

    Raises:
        Refusal: The model is nobody's that the middleman serves, or the job is not known.
    """
    found = provider_of(model)
    provider = house.catalog.provider(found[0]) if found is not None else None
    if found is None or provider is None:
        raise Refusal(
            "hawk_unknown_provider", f"{model!r} is not a model of a provider, such as openai/gpt-5."
        )
    token, principal = _credential(house, job)
    path, document = small_request(provider, found[1])
    body = msgspec.json.encode(document)
    here = address_of(house.url)
    sent = credential(provider.kind, token)
    through = await _ask(here, f"/{provider.name}{path}", sent, provider.kind, body)
    try:
        route = house.route(principal, provider.name, found[1])
    except Refusal as ex:
        direct = Leg(None, 0.0, error=ex.message, type=ex.kind)
    else:
        direct = await straight(route, path, body, house.forbidden)
    verdict, whose, remedy = judge(provider.name, through, direct)
    return Probe(model, provider.name, through, direct, verdict, whose, remedy)


async def straight(route: Route, path: str, body: bytes, forbidden: Forbidden | None) -> Leg:
    """The request to the provider itself, on a connection of its own."""
    address = address_of(route.base_url)
    target = target_of(address, route.provider.prefix, path, "")
    header = credential(route.provider.kind, route.key) if route.key is not None else None
    return await _ask(address, target, header, route.provider.kind, body, forbidden if route.of_job else None)


def judge(provider: str, through: Leg, direct: Leg) -> tuple[str, str, str]:
    """(verdict, whose fault, remedy)."""
    if through.good and direct.good:
        return "Both ways work.", "nobody", "If a run fails all the same, look at what its own requests hold."
    ours = (through.type or "").startswith("hawk_")
    if direct.good:
        if ours:
            reason = f"The middleman refuses: {through.type}."
            return reason, "caller", "docs/middleman.md says what each of its errors asks for."
        return (
            "Direct works, through the middleman does not.",
            "middleman",
            "hawk middleman status, then its log.",
        )
    if direct.type == "hawk_no_key":
        return f"There is no key of {provider}.", "caller", f"hawk middleman keys set {provider}"
    if through.good:
        return (
            "Through the middleman works; the direct request failed.",
            "unknown",
            "Try again: it may pass by itself.",
        )
    if direct.status is None:
        return (
            f"{provider} can't be reached: {direct.error}",
            "provider",
            "Check its address, its status page, the network.",
        )
    if direct.status in (401, 403):
        return (
            f"{provider} rejects the key ({direct.status}).",
            "caller",
            f"hawk middleman keys set {provider}",
        )
    if direct.status == 429:
        return f"{provider} limits the rate (429).", "provider", "Wait, or ask for a higher limit."
    if direct.status < 500:
        return (
            f"{provider} rejects the request ({direct.status}).",
            "caller",
            "Check the model's name and the account.",
        )
    return f"{provider} fails both ways ({direct.status}).", "provider", "Wait; its status page may say more."


def _credential(house: House, job: str | None) -> tuple[str, Principal]:
    if job is None:
        return house.verifier.person, house.verifier.owner
    known = house.jobs.get(job)
    if known is None or known.token is None or known.principal is None:
        raise Refusal(
            "hawk_unknown_job", f"No job {job!r} has asked this middleman for anything since it started."
        )
    return known.token, known.principal


async def _ask(
    address: Address,
    target: str,
    header: tuple[str, str] | None,
    kind: Kind,
    body: bytes,
    forbidden: Forbidden | None = None,
) -> Leg:
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    if header is not None:
        headers.append(header)
    if kind is Kind.ANTHROPIC:
        headers.append(("anthropic-version", "2023-06-01"))
    started = time.monotonic()
    pool, parts = Pool(forbidden), list[bytes]()
    try:
        async with asyncio.timeout(PATIENCE):
            connection = await pool.connection(address, connect=10)
            answer = await connection.ask("POST", target, address.authority, headers, body)
            while part := await answer.part():
                parts.append(part)
            pool.release(address, answer)
    except TimeoutError:
        return Leg(None, time.monotonic() - started, error=f"no answer within {PATIENCE:g} s")
    except (OSError, ValueError) as ex:
        refusal = failure("the provider", address, ex)
        return Leg(None, time.monotonic() - started, error=refusal.message, type=refusal.kind)
    finally:
        pool.close()
    text = b"".join(parts).decode("utf-8", "replace")
    return Leg(answer.status, time.monotonic() - started, type=_type_of(text), body=text[:_SHOWN])


def _type_of(text: str) -> str | None:
    try:
        found = msgspec.json.decode(text)["error"]["type"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
