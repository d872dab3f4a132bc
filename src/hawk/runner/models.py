"""A job's way to its models: the middleman, a token for it, and what the job has spent there.

A thread watches it, so that a middleman that is gone or does not answer holds nothing up: it is started again, and told
the job's own keys, which it holds in memory only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from hawk.config.providers import client_environment, hidden_variables, provider_of
from hawk.config.settings import Settings
from hawk.config.upstreams import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    JobUpstream,
    models_of,
    providers_of,
    upstreams_of,
)
from hawk.core.snapshot import ModelUse
from hawk.core.traffic.ledger import Budget
from hawk.errors import HawkError
from hawk.middleman import calls, presence
from hawk.store.rundir import JobSpec, RunDir, write_json

if TYPE_CHECKING:
    from hawk.middleman.tokens import Cassette, Upstream

_PRICES = {
    "input": "input_cost_per_1m",
    "output": "output_cost_per_1m",
    "input_cache_write": "cache_write_cost_per_1m",
    "input_cache_read": "cache_read_cost_per_1m",
}
"""Inspect's names of prices to those of the middleman's list, in dollars per million tokens."""

LOOK = 0.5
"""Seconds between looks at the middleman and at what the job has spent there."""

SETTLING = 3.0
"""Seconds after its last request in which a job's account may still grow."""

PATIENCE = 60.0
"""Seconds that a middleman which somebody else keeps may take to come up."""


class ModelAccess:
    """The middleman, for one job.

    Attributes:
        use: What the job has spent and has on its way, as of the last look; None before the first.
        problem: Why it can't be asked, or refuses to answer, one line; `problem_since`: since when, ISO 8601.
    """

    def __init__(
        self, run_dir: RunDir, spec: JobSpec, secrets: Mapping[str, str], settings: Settings
    ) -> None:
        self._run_dir, self._spec, self._settings = run_dir, spec, settings
        self._secrets = dict(secrets)
        self._config = spec.config
        self._options: Mapping[str, Any] = spec.config.get("middleman") or {}
        self._own = self._own_variables()
        self._upstreams = upstreams_of(self._config, self._own)
        self._url: str | None = None
        self._token = ""
        self._instances: set[str] = set()
        self._local: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False
        self.use: ModelUse | None = None
        self.problem: str | None = None
        self.problem_since: str | None = None

    @property
    def on(self) -> bool:
        """Whether this job's requests go through it."""
        return self._settings.middleman and not self._options.get("off")

    def open(self) -> None:
        """Make sure that there is a middleman, and that it knows this job.

        Raises:
            HawkError: It does not start.
        """
        if not self.on or self._url is not None:
            return
        given = self._settings.job_middleman
        if given is not None:
            self._token = given.token
            self._meet(given.url)
        else:
            self._open_own()
        self._keep_prices()
        self._thread = threading.Thread(target=self._watch, name="middleman", daemon=True)
        self._thread.start()

    def _meet(self, url: str) -> None:
        """Make the acquaintance of a middleman that somebody else keeps, and that may only just be starting."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._introduce(url)
                break
            except OSError as ex:
                if time.monotonic() >= deadline:
                    raise HawkError(
                        f"The middleman at {url} does not answer: {ex}.",
                        remedy="Look at its container (kubectl logs), or set HAWK_KUBE_MIDDLEMAN_URL to one that runs.",
                    ) from ex
                time.sleep(LOOK)
        self._url = url

    def _open_own(self) -> None:
        from hawk.middleman.tokens import (  # a library of cryptography: not for who needs none
            mint,
            signing_key,
        )

        found = presence.ensure(self._settings)
        self._token = mint(
            signing_key(self._settings.home),
            job=self._spec.job_id,
            user=self._spec.created_by or "",
            models=tuple(self._options.get("models") or ("*",)),
            budget=self._budget(),
            upstreams={u.name: _claim(u) for u in self._upstreams},
            cassette=self._cassette(),
        )
        try:
            self._introduce(found.url)
        except OSError as ex:
            raise HawkError(
                f"The middleman at {found.url} does not answer: {ex}.", remedy="hawk middleman status"
            ) from ex
        self._instances = {found.instance}
        self._url = found.url

    @property
    def beside(self) -> str | None:
        """Address of a middleman that only this machine, or pod, reaches; None: others reach it too, or there is none."""
        if self._url is None or urlsplit(self._url).hostname not in ("127.0.0.1", "localhost", "::1"):
            return None
        return self._url

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """A worker's variables instead of those that it would inherit: addresses and a token, no key."""
        if self._url is None:
            return dict(inherited)
        providers = providers_of(self._config, self._own)
        hidden = hidden_variables(providers.values())
        kept = {name: value for name, value in inherited.items() if name not in hidden}
        brought = {u.name for u in self._upstreams}
        served = [p for p in providers.values() if not p.local or p.name in brought or p.name in self._local]
        access = {URL_VARIABLE: self._url, TOKEN_VARIABLE: self._token}
        return {**kept, **client_environment(self._url, self._token, served), **access}

    def revoke(self) -> None:
        """End every request of this job now."""
        self._ended = True
        self._tell("DELETE", "/job")

    def status(self) -> dict[str, Any] | None:
        """What the middleman says of the job's lanes and open requests; None while there is nothing to be said.

        Raises:
            OSError, HawkError: It does not answer, or refuses to.
        """
        if self._url is None or self._ended or self.problem is not None:
            return None
        found: dict[str, Any] = calls.call(self._url, self._token, "GET", "/job/status", timeout=5)
        return found

    def upstream(self, provider: str) -> str | None:
        """Where a provider of the job's own is; None for one that it does not bring along."""
        return next((u.base_url for u in self._upstreams if u.name == provider), None)

    def named(self) -> dict[tuple[str, str], str]:
        """(provider, model) as the middleman calls them → Inspect's name, of the models that the config names."""
        found: dict[tuple[str, str], str] = {}
        for name, base_url in models_of(self._config):
            known = provider_of(name)
            if known is not None:
                own = (u.name for u in self._upstreams if base_url is not None and u.base_url == base_url)
                found[next(own, known[0]), known[1]] = name
        return found

    def close(self) -> None:
        """The job has ended: its token is good for nothing any more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=LOOK + 6)
            self._look()
            if self._settings.job_middleman is not None:
                self._settle()
            self.revoke()
            self._thread = None

    def _settle(self) -> None:
        """Look until the account stands still: behind one address may be several, each of which tells the others a moment later."""
        deadline = time.monotonic() + SETTLING
        while time.monotonic() < deadline:
            before = self.use
            time.sleep(LOOK)
            self._look()
            if self.use is None or (self.use == before and not self.use.in_flight and not self.use.waiting):
                return

    # --- what it says to the middleman ----------------------------------------------------------------------

    def _introduce(self, url: str) -> None:
        hidden = hidden_variables(providers_of(self._config, self._own).values())
        keys = {name: value for name, value in self._own.items() if name in hidden}
        answer = calls.call(url, self._token, "PUT", "/job/keys", keys, timeout=10)
        self._local = frozenset(answer.get("providers") or ())

    def _keep_prices(self) -> None:
        """Write down what the job's models cost, so that each attempt can say what it did."""
        try:
            infos = calls.call(self._url or "", self._token, "GET", "/permitted_models_info", timeout=10)
        except (OSError, HawkError):
            return
        named = {model for model, _ in models_of(self._config)}
        prices = {
            info["inspect_name"]: {ours: info[theirs] for ours, theirs in _PRICES.items()}
            for info in infos
            if info["inspect_name"] in named and info["input_cost_per_1m"] is not None
        }
        if prices:
            write_json(self._run_dir.prices_file, prices)

    def _tell(self, method: str, path: str) -> dict[str, Any] | None:
        if self._url is None:
            return None
        try:
            answer: dict[str, Any] = calls.call(self._url, self._token, method, path, timeout=5)
        except (OSError, HawkError):
            return None
        return answer

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK):
            try:
                if self._settings.job_middleman is None:
                    self._keep_own()
                self._look()
            except (OSError, HawkError) as ex:
                self._trouble(f"the middleman does not answer: {ex}")
                time.sleep(LOOK)

    def _keep_own(self) -> None:
        found = presence.living(self._settings.home)
        if found is None:
            self._trouble("the middleman has ended; it is started again")
            found = presence.ensure(self._settings)
        self._know(found.instance, found.url)

    def _know(self, instance: str, url: str) -> None:
        """One that was started anew has forgotten the job's keys. Behind one address there may be several."""
        if instance not in self._instances:
            self._introduce(url)
            self._instances.add(instance)

    def _trouble(self, problem: str | None) -> None:
        if problem is None:
            self.problem = self.problem_since = None
            return
        self.use = msgspec.structs.replace(self.use or ModelUse(), problem=problem)
        if self.problem is None:
            self.problem_since = datetime.now(UTC).isoformat()
        self.problem = problem

    def _look(self) -> None:
        if self._url is None or self._ended:
            return
        try:
            answer = calls.call(self._url, self._token, "GET", "/job", timeout=5)
        except HawkError as ex:
            self._trouble(ex.message)
        except OSError as ex:
            self._trouble(f"the middleman does not answer: {ex}")
        else:
            self._trouble(None)
            self.use = ModelUse(
                requests=answer.get("requests", 0),
                tokens=answer.get("tokens", 0),
                usd=answer.get("usd"),
                in_flight=answer.get("in_flight", 0),
                waiting=answer.get("waiting", 0),
                exhausted=answer.get("exhausted"),
            )
            if self._settings.job_middleman is not None and (instance := answer.get("instance")):
                with contextlib.suppress(OSError, HawkError):  # the next look tries again
                    self._know(instance, self._url)

    # --- what the config says -------------------------------------------------------------------------------

    def _own_variables(self) -> dict[str, str]:
        runner = self._spec.config.get("runner") or {}
        environment = {k: str(v) for k, v in (runner.get("environment") or {}).items()}
        return {**environment, **self._secrets}

    def _budget(self) -> Budget:
        said = self._options.get("budget") or {}
        return Budget(usd=said.get("usd"), tokens=said.get("tokens"))

    def _cassette(self) -> Cassette | None:
        from hawk.middleman.tokens import Cassette

        options, base = self._options, Path(self._spec.base_dir)
        record, replay = options.get("record"), options.get("replay")
        if replay is not None:
            return Cassette("replay", str(base / replay), options.get("replay_speed") or 0.0)
        if not record:
            return None
        own = self._run_dir.path / "cassette.jsonl"
        return Cassette("record", str(own if record is True else base / record))


def _claim(upstream: JobUpstream) -> Upstream:
    from hawk.middleman.tokens import Upstream

    return Upstream(upstream.base_url, upstream.client.kind, upstream.client.prefix)
