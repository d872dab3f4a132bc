"""The middleman's own paths: health, metrics, who may use what, a job's own account of itself, administration.

Each is authorised: a person's token may do everything here, a job's token only what is under `/job`. The two health
paths and the description of the paths are open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from hawk.errors import HawkError, NotFoundError, UsageError
from hawk.middleman import fields, metrics, openapi, probe, status
from hawk.middleman.house import House
from hawk.middleman.keys import KeyStore, names
from hawk.middleman.openapi import JOB_NAME
from hawk.middleman.paths import Target
from hawk.middleman.refusals import Refusal
from hawk.middleman.request import Request, TooLargeError
from hawk.middleman.shared_peers import Asker
from hawk.middleman.tokens import Principal


class Page(NamedTuple):
    """An answer of the middleman's own."""

    body: bytes
    status: int = 200
    kind: str = "application/json"


Handler = Callable[[Request, Target], Awaitable[Page]]


def reply(value: Any, status: int = 200) -> Page:
    """A page of JSON."""
    return Page(msgspec.json.encode(value), status)


class OwnPaths:
    """Handlers by first segment (`table`)."""

    def __init__(self, house: House, keys: KeyStore) -> None:
        self._house = house
        self._keys = keys
        self.table: dict[str, Handler] = {
            "health": self._health,
            "metrics": self._metrics,
            "openapi.json": self._openapi,
            "permitted_models": self._permitted_models,
            "permitted_models_info": self._permitted_models_info,
            "public_models_info": self._public_models_info,
            "model_groups": self._model_groups,
            "admin": self._admin,
            "job": self._job,
        }

    # --- who may ------------------------------------------------------------------------------------------

    def _who(self, request: Request, target: Target) -> Principal:
        token = fields.credential(request.headers) or target.key
        return self._house.verifier.who(token, time.time())

    def _person(self, request: Request, target: Target) -> None:
        principal = self._who(request, target)
        if principal.claims is not None:
            raise Refusal(
                "hawk_not_permitted", "A job's token may not do this; it takes a person's access token."
            )

    def _claimed(self, request: Request, target: Target) -> Principal:
        principal = self._who(request, target)
        if principal.claims is None:
            raise Refusal("hawk_not_permitted", "This is a job's own account; it takes a job's token.")
        return principal

    # --- open ---------------------------------------------------------------------------------------------

    async def _health(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD")
        if target.rest == "/live":
            return reply({"status": "live"})
        if target.rest == "/ready":
            draining = self._house.draining
            return reply({"status": "draining" if draining else "ready"}, 503 if draining else 200)
        raise _unknown(target)

    async def _openapi(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD")
        _bare(target)
        return reply(openapi.document())

    # --- for anyone with a token ----------------------------------------------------------------------------

    async def _metrics(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD")
        _bare(target)
        self._person(request, target)
        return Page(metrics.render(self._house), kind=metrics.CONTENT_TYPE)

    async def _permitted_models(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD", "POST")
        _bare(target)
        principal = await self._asker(request, target)
        return reply([model["name"] for model in self._models(principal)])

    async def _permitted_models_info(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD", "POST")
        _bare(target)
        return reply(self._models(await self._asker(request, target)))

    async def _public_models_info(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD", "POST")
        _bare(target)
        await self._asker(request, target)
        return reply([model for model in self._models(None) if model["public"]])

    async def _model_groups(self, request: Request, target: Target) -> Page:
        _only(request, "GET", "HEAD")
        _bare(target)
        principal = self._who(request, target)
        asked = set(request.query("model"))
        models = [m for m in self._models(principal) if not asked or asked & {m["name"], m["inspect_name"]}]
        groups = {m["name"]: m["groups"][0] if m["groups"] else "model-access-public" for m in models}
        return reply(
            {
                "groups": groups,
                "labs": {m["name"]: m["lab"] for m in models},
                "providers": {m["name"]: m["provider"] for m in models},
                "dead": [m["name"] for m in models if m["dead"]],
            }
        )

    async def _asker(self, request: Request, target: Target) -> Principal:
        """Who asks, by header or, as the public client does it, by `api_key` in the body."""
        token = fields.credential(request.headers) or target.key
        if request.method == "POST" and request.has_body:
            body = await _json(request)
            given, flag = body.get("api_key"), body.get("only_available_models", False)
            if not isinstance(given, str | None) or not isinstance(flag, bool):
                raise Refusal("hawk_bad_request", 'Send {"api_key": "a token"}.')
            token = token or given
        return self._house.verifier.who(token, time.time())

    def _models(self, principal: Principal | None) -> list[dict[str, Any]]:
        return status.models(self._house, principal)

    # --- a job's own --------------------------------------------------------------------------------------

    async def _job(self, request: Request, target: Target) -> Page:
        if target.rest == "/keys":
            _only(request, "PUT")
            principal = self._claimed(request, target)
            body = await _json(request)
            if not all(isinstance(v, str) for v in body.values()):
                raise Refusal("hawk_bad_request", "Keys are text, by the name of their environment variable.")
            self._house.set_keys(principal, {str(k): str(v).strip() for k, v in body.items()})
            providers = [provider.name for provider in self._house.catalog.providers()]
            return reply({"keys": len(body), "providers": providers})
        if target.rest == "/status":
            _only(request, "GET", "HEAD")
            principal = self._claimed(request, target)
            self._house.job(principal)
            return reply(await status.of_job_everywhere(self._house, Asker(principal.job, principal.user)))
        if target.rest == "/status/here" and self._house.shared is not None:
            _only(request, "GET", "HEAD")
            asker = self._house.shared.peers.admit(fields.credential(request.headers))
            return reply(status.of_job(self._house, asker))
        _bare(target)
        _only(request, "GET", "HEAD", "DELETE")
        principal = self._claimed(request, target)
        if request.method == "DELETE":
            closed = self._house.revoke(principal.job)
            await self._house.spans.write()  # a runner that ends says of them what became of the job
            return reply({"closed": closed})
        self._house.job(principal)
        return reply({**status.job(self._house, principal.job), "instance": self._house.instance})

    # --- administration -----------------------------------------------------------------------------------

    async def _admin(self, request: Request, target: Target) -> Page:
        where = [unquote(segment) for segment in target.rest.split("/")[1:]]
        match where:
            case ["status" | "models" | "prices"] | ["keys"]:
                _only(request, "GET", "HEAD")
            case ["reload" | "probe"] | ["jobs", _, "revoke"]:
                _only(request, "POST")
            case ["keys", _] | ["keys", _, _]:
                _only(request, "GET", "HEAD", "PUT", "DELETE")
        self._person(request, target)
        match where:
            case ["status"]:
                return reply(status.document(self._house))
            case ["models"]:
                return reply(self._models(None))
            case ["prices"]:
                return reply(self._house.catalog.prices())
            case ["reload"]:
                return await self._reload()
            case ["probe"]:
                return await self._probe(request)
            case ["jobs", job, "revoke"]:
                if JOB_NAME.fullmatch(job) is None:
                    raise Refusal("hawk_bad_request", f"{job!r} can't be a job.")
                return reply({"closed": self._house.revoke(job)})
            case ["keys", *key] if len(key) <= 2:
                return await self._admin_keys(request, key)
            case _:
                raise _unknown(target)

    async def _reload(self) -> Page:
        try:
            catalog = self._house.reload()
        except HawkError as ex:
            raise Refusal(
                "hawk_bad_request", f"The old configuration stays: {ex.message} {ex.remedy or ''}"
            ) from ex
        counts = {"providers": len(catalog.providers()), "models": len(catalog.models())}
        return reply({**counts, "keys": len(await asyncio.to_thread(self._keys.list))})

    async def _probe(self, request: Request) -> Page:
        body = await _json(request)
        model, job = body.get("model"), body.get("job")
        if not isinstance(model, str) or not isinstance(job, str | None):
            raise Refusal("hawk_bad_request", 'Send {"model": "openai/gpt-5", "job": null}.')
        return reply(await probe.both_ways(self._house, model, job))

    async def _admin_keys(self, request: Request, where: list[str]) -> Page:
        try:
            if not where:
                return reply(await asyncio.to_thread(self._keys.list))
            provider, account = names(where[0], where[1] if len(where) > 1 else "default")
            if request.method == "PUT":
                value = (await _json(request)).get("value")
                if not isinstance(value, str):
                    raise Refusal("hawk_bad_request", 'Send {"value": "the key"}.')
                info: Any = await asyncio.to_thread(self._keys.set, provider, value, account)
            elif request.method == "DELETE":
                await asyncio.to_thread(self._keys.remove, provider, account)
                info = {"removed": f"{provider}/{account}"}
            else:
                found = await asyncio.to_thread(self._keys.list)
                return reply(
                    [k for k in found if k.provider == provider and (len(where) == 1 or k.account == account)]
                )
            self._house.reload()
        except HawkError as ex:
            raise _refusal(ex) from ex
        return reply(info)


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await request.read(1 << 20) or b"{}")
    except (msgspec.MsgspecError, TooLargeError, RecursionError) as ex:
        raise Refusal("hawk_bad_request", "The body is not JSON.") from ex
    if not isinstance(found, dict):
        raise Refusal("hawk_bad_request", "The body is not a JSON object.")
    return found


def _only(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise Refusal("hawk_method_not_allowed", f"Allowed here: {', '.join(methods)}.", allow=methods)


def _bare(target: Target) -> None:
    if target.rest:
        raise _unknown(target)


def _refusal(ex: HawkError) -> Refusal:
    kind = "hawk_bad_request" if isinstance(ex, UsageError) else "hawk_internal"
    if isinstance(ex, NotFoundError):
        kind = "hawk_unknown_key"
    return Refusal(kind, f"{ex.message} {ex.remedy or ''}".strip())


def _unknown(target: Target) -> Refusal:
    return Refusal("hawk_unknown_path", f"There is no /{target.provider}{target.rest} here.")
