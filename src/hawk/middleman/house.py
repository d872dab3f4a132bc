"""Everything that the middleman holds while it runs."""

from __future__ import annotations

import asyncio
import fnmatch
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping

from hawk.config.providers import Kind
from hawk.core.traffic.breaker import Breaker
from hawk.core.traffic.lane import Lane
from hawk.core.traffic.ledger import Budget, Ledger
from hawk.middleman.address import forbidden_address
from hawk.middleman.admission import Turnstile
from hawk.middleman.catalog import Catalog, Route, Unroutable
from hawk.middleman.deadlines import Watch
from hawk.middleman.exchange import Exchange, Exchanges
from hawk.middleman.pool import Pool
from hawk.middleman.refusals import Refusal
from hawk.middleman.shared import Sharing
from hawk.middleman.spans import SpanWriter
from hawk.middleman.tapes import Tapes
from hawk.middleman.tokens import Principal, Verifier

_LANES_OF_JOB = 100
"""Lanes that a job's own status shows."""

_LANES = 2000
"""Lanes that may be kept; beyond, those that nobody uses are forgotten: model names come from outside."""


class Job:
    """What is kept of a job beside its token.

    Attributes:
        keys: Keys of its own, by environment variable; in memory only.
        budget: As its newest token says.
        token, principal: The newest, for a probe in its name.
        lanes: Names of those that it has used, the newest last.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.budget = Budget()
        self.token: str | None = None
        self.principal: Principal | None = None
        self.lanes: dict[tuple[str, str, str], None] = {}


class House:
    """The parts of one middleman, used on its event loop only.

    Attributes:
        ended: Requests that have ended, by (provider, status, type of error).
    """

    def __init__(
        self,
        catalog: Catalog,
        verifier: Verifier,
        spans: SpanWriter,
        *,
        load: Callable[[], Catalog],
        url: str = "",
        shared: Sharing | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog = catalog
        self.verifier = verifier
        self.spans = spans
        self._trusted, self._guarded = Pool(), Pool(self.forbidden)
        self.tapes = Tapes()
        self.ledger = Ledger()
        self.exchanges = Exchanges()
        self.jobs: dict[str, Job] = {}
        self.turnstiles: dict[tuple[str, str, str], Turnstile] = {}
        self.ended: Counter[tuple[str, int, str]] = Counter()
        self.draining = False
        self.instance = secrets.token_hex(8)
        self.started_at = time.time()
        self.url = url
        self.loop = asyncio.get_running_loop()
        self.loop_started = self.loop.time()
        self.deadlines = Watch(self.exchanges, self.loop)
        self._load = load
        self._routes: dict[tuple[str, str, str], Route] = {}
        self._permitted: dict[tuple[str, str, str], bool] = {}
        self._prefix = secrets.token_hex(4)
        self._serial = 0
        self._given = given or {}
        self.shared = shared
        if shared is not None:
            shared.attach(self)

    def next_id(self) -> str:
        """An id for a request: unique, and cheap."""
        self._serial += 1
        return f"{self._prefix}-{self._serial:x}"

    def kind_of(self, provider: str) -> Kind:
        """The format of a provider's requests, also of one that is not there: its client wants an error it can read."""
        found = self.catalog.provider(provider)
        return found.kind if found is not None else Kind.OPENAI

    def job(self, principal: Principal, token: str | None = None) -> Job:
        """What is kept of the job that asks; made, with what it spent before, when it is seen first."""
        job = self.jobs.get(principal.job)
        if job is None:
            job = self.jobs[principal.job] = Job()
            if principal.job and (spent := self.spans.spend_of(principal.job)) is not None:
                self.ledger.restore(principal.job, spent)
            if principal.job and self.shared is not None:
                job.keys = self.shared.adopt(principal.job)
        if principal.claims is not None and job.principal is not principal:
            job.budget, job.principal = principal.claims.budget, principal
            job.lanes = dict(list(job.lanes.items())[-_LANES_OF_JOB:])
            if token is not None:
                job.token = token
        return job

    def check_model(self, principal: Principal, provider: str, model: str | None) -> None:
        """Whether who asks may use a model.

        Raises:
            Refusal: It may not, or the request hides which model it is for.
        """
        claims = principal.claims
        if claims is None or (claims.groups is None and claims.models == ("*",)):
            return
        if model is None:
            raise Refusal(
                "hawk_model_not_permitted",
                f"Job {claims.job} may use some models only, and this request to {provider} doesn't say which it is for.",
                no_retry=True,
            )
        key = (claims.jti, provider, model)
        allowed = self._permitted.get(key)
        if allowed is None:
            allowed = self.may_use(principal, provider, model)
            if len(self._permitted) > 20_000:
                self._permitted.clear()
            self._permitted[key] = allowed
        if not allowed:
            raise Refusal(
                "hawk_model_not_permitted", f"Job {claims.job} may not use {provider}/{model}.", no_retry=True
            )

    def may_use(self, principal: Principal, provider: str, model: str) -> bool:
        """Whether its token names the model, and one of its groups has it."""
        if principal.claims is None:
            return self.catalog.permitted(principal.groups, model, provider)
        names = self.catalog.names(provider, model)
        named = any(
            fnmatch.fnmatchcase(name, pattern) for pattern in principal.claims.models for name in names
        )
        return named and self.catalog.permitted(principal.groups, model, provider)

    def check_budget(self, principal: Principal) -> None:
        """Whether a job may spend more.

        Raises:
            Refusal: Its budget is used up.
        """
        budget = principal.claims.budget if principal.claims is not None else None
        if budget is None or (budget.usd is None and budget.tokens is None):
            return
        spent = self.ledger.exhausted(principal.job, budget)
        if spent is not None:
            raise Refusal(
                "hawk_budget_exhausted",
                f"The budget of job {principal.job} is used up: {spent}.",
                no_retry=True,
            )

    def route(self, principal: Principal, provider: str, model: str | None) -> Route:
        """Where a request goes, with which key.

        Raises:
            Refusal: Nowhere.
        """
        cached = (principal.claims.jti if principal.claims is not None else "", provider, model or "")
        route = self._routes.get(cached)
        if route is None:
            upstreams = principal.claims.upstreams if principal.claims is not None else {}
            keys = self.keys_of(principal)
            try:
                route = self.catalog.route(provider, model, job_keys=keys, job_upstreams=upstreams)
            except Unroutable as ex:
                raise Refusal(ex.type, f"{ex.message} {ex.remedy}".strip(), no_retry=True) from ex
            if len(self._routes) > 20_000:
                self._routes.clear()
            self._routes[cached] = route
        return route

    def turnstile(self, route: Route, model: str | None) -> Turnstile:
        """The queue of one (account, model)."""
        name = (route.provider.name, route.account, model or "")
        found = self.turnstiles.get(name)
        if found is None:
            if len(self.turnstiles) >= _LANES:
                self.turnstiles = {k: t for k, t in self.turnstiles.items() if not t.idle}
            now = self.loop.time()
            shared = self.shared
            lane = Lane(route.limits, now) if shared is None else shared.lane(name, route.limits, now)
            found = Turnstile(name, lane, Breaker(route.breaker), self.loop)
            found.base_url = route.base_url
            self.turnstiles[name] = found
        elif found.lane.limits != route.limits:
            found.lane.limits = route.limits
            found.refresh()
        return found

    def keys_of(self, principal: Principal) -> Mapping[str, str]:
        """Keys of a job's own, by environment variable."""
        brought = self.job(principal).keys
        if not self._given:
            return brought
        return {**self._given, **{name: key for name, key in brought.items() if key}}

    def set_keys(self, principal: Principal, keys: dict[str, str]) -> None:
        """Keys of a job's own, by environment variable."""
        self.job(principal).keys = keys
        self._routes.clear()
        if self.shared is not None:
            self.shared.keys(principal.job, keys)

    def keys_from_elsewhere(self, job: str, keys: dict[str, str]) -> None:
        """The job brought them to another replica."""
        if job in self.jobs:
            self.jobs[job].keys = keys
            self._routes.clear()

    def pool_of(self, route: Route) -> Pool:
        """Connections for a route: a job's own provider may not be everywhere."""
        return self._guarded if route.of_job else self._trusted

    def close(self) -> None:
        """Let go of idle connections and cassettes."""
        self._trusted.close()
        self._guarded.close()
        self.tapes.close_all()

    def forbidden(self, ip: str, port: int) -> str | None:
        """Why a job's provider must not be reached there, or None."""
        return forbidden_address(ip, policy=self.catalog.policy, port=port, own=self.catalog.own)

    def reload(self) -> Catalog:
        """Read the configuration again. Requests on their way keep what they have.

        Raises:
            ConfigError: It is wrong; the old one stays in force.
        """
        self.catalog = self._load()
        self._routes.clear()
        self._permitted.clear()
        return self.catalog

    def revoke(self, job: str, at: float | None = None) -> int:
        """End a job's requests at once and forget its keys. Returns how many were open.

        Args:
            at: It was revoked at this time (seconds since the epoch) by another replica; None: now, here.
        """
        until = self.verifier.revoke(job, time.time() if at is None else at)
        if self.shared is not None and at is None:
            self.shared.revoked(job, until)
        self.jobs.pop(job, None)
        self._routes.clear()
        doomed = self.exchanges.of(job)
        for exchange in doomed:
            exchange.end_by(
                Refusal("hawk_token_revoked", f"Job {job} has ended or was stopped.", no_retry=True)
            )
        for close in self.tapes.close(job):
            self.loop.run_in_executor(None, close)
        return len(doomed)

    def finish(self, exchange: Exchange) -> None:
        """Write down what became of a request."""
        known = exchange.provider if self.catalog.provider(exchange.provider) is not None else ""
        self.ended[known, exchange.status, (exchange.error or "")] += 1
        self.exchanges.remove(exchange)
        spend = self.ledger.spend(exchange.job) if exchange.job and exchange.admitted is not None else None
        self.spans.add(exchange, spend)
