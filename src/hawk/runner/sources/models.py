"""Models of the job as the middleman sees them, requests that are open or have ended, and what attempts wait for between tries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from hawk.config.providers import PROVIDERS, find_provider, names_of, provider_of
from hawk.core.diagnosis.calls import Kind
from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import (
    Attempt,
    CallGroup,
    Evidence,
    Held,
    Lane,
    Model,
    OpenRequest,
    Probe,
    Retrying,
)
from hawk.core.states import ActivityType
from hawk.errors import HawkError
from hawk.runner.models import ModelAccess
from hawk.runner.sources.context import Context
from hawk.runner.sources.directly import Directly
from hawk.runner.sources.spantail import WINDOW, Chain, Ended, Spans, kind_of_chain

Key = tuple[str, str, str]
"""(provider, account, model), as the middleman calls them."""

RECENT = 50
"""Requests whose end is shown one by one, and durations that are kept."""

ENDS = 20
"""Durations that are kept of each way to end."""

UUIDS = 1000

OVER = 900.0
"""Seconds after the end of a pause for which the try that followed is still believed to be under way."""

SILENT = 30.0
"""Seconds in one call after which a provider is asked directly, where no middleman does."""

_PHASES = {
    "reading": "reading",
    "queued": "waiting",
    "connecting": "connecting",
    "waiting": "sent",
    "streaming": "answering",
}
_WAITS = (ActivityType.RETRY_WAIT, ActivityType.MODEL, None)
_NEUTRAL = frozenset({Kind.CLIENT_GONE, Kind.DRAINING})
"""Ends that say nothing of the provider."""


class ModelReader:
    """See the module."""

    source = Source.MIDDLEMAN

    def __init__(self) -> None:
        self._spans: Spans | None = None
        self._direct = Directly()
        self._names: dict[tuple[str, str], str] | None = None
        self._urls: dict[str, str] = {}
        self._models: dict[Key, Model] = {}

    def fill(self, evidence: Evidence, context: Context) -> None:
        access, now = context.models, context.now.timestamp()
        if self._spans is None:
            self._spans = Spans(context.run_dir.path / "spans")
        if self._names is None:
            self._names = access.named() if access is not None else {}
        self._models = {}
        self._spans.read(now)
        self._spans.forget(frozenset(context.attempts))
        ends: dict[Key, dict[Kind, list[str]]] = defaultdict(lambda: defaultdict(list))
        for uuid, last in self._spans.last.items():
            if last.kind is not Kind.OK and last.at > now - WINDOW:
                ends[last.model][last.kind].append(uuid)
        for key, requests in self._spans.by_model.items():
            if requests:
                self._ended(self._model(key), requests, ends[key])
        self._retries(context, now)
        if access is not None and access.on:
            evidence.job.models_problem, evidence.job.models_problem_since = (
                access.problem,
                access.problem_since,
            )
            if access.use is not None and access.use.exhausted is not None:
                evidence.job.exhausted = access.use.exhausted
            self._ask_middleman(evidence, access, context)
        self._ask_directly(context, access, now)
        evidence.models = list(self._models.values())

    def _model(self, key: Key) -> Model:
        found = self._models.get(key)
        if found is None:
            provider, account, model = key
            name = self._name(provider, model) if model else ""
            found = self._models[key] = Model(
                provider, account, model, name, url=self._urls.get(provider, "")
            )
        return found

    def _name(self, provider: str, model: str) -> str:
        assert self._names is not None
        known = self._names.get((provider, model))
        if known is not None:
            return known
        found = find_provider(provider)
        return names_of(found, model)[0] if found is not None else ""

    # --- requests that have ended

    def _ended(self, model: Model, requests: Iterable[Ended], ends: Mapping[Kind, list[str]]) -> None:
        ok: list[Ended] = []
        failed: dict[Kind, list[Ended]] = defaultdict(list)
        streaks: Counter[Kind] = Counter()
        again: Counter[Kind] = Counter()
        first: Ended | None = None
        recent: list[str] = []
        for ended in requests:
            kind = ended.kind
            if kind is Kind.OK:
                ok.append(ended)
                recent.append("S")
                streaks.clear()
                again.clear()
                first = None
                continue
            failed[kind].append(ended)
            streaks[kind] += 1
            again[kind] += ended.again
            if kind not in _NEUTRAL:
                recent.append("F")
                first = first or ended
        model.recent = "".join(recent[-RECENT:])
        if ok:
            model.last_ok = _iso(ok[-1].at)
            model.ok_seconds = [round(ended.seconds, 3) for ended in ok[-RECENT:]]
        model.failing = sum(n for kind, n in streaks.items() if kind not in _NEUTRAL)
        model.failing_since = _iso(first.at) if first is not None else None
        model.calls = [
            _group(kind, ended, streaks[kind], again[kind], ends.get(kind, []))
            for kind, ended in failed.items()
        ]

    # --- pauses between tries

    def _retries(self, context: Context, now: float) -> None:
        spans = self._spans
        assert spans is not None
        own: dict[Key, list[tuple[str, Chain, Kind]]] = defaultdict(list)
        for uuid, attempt in context.attempts.items():
            chain, last = spans.chains.get(uuid), spans.last.get(uuid)
            if chain is not None and not _over(chain, attempt, now):
                kind = last.kind if last is not None and last.failures else kind_of_chain(chain)
                if kind in (Kind.CLIENT_GONE, Kind.OK):
                    kind = kind_of_chain(chain)
                key = last.model if last is not None else self._key_of(attempt.model)
                attempt.retrying = Retrying(
                    chain.count,
                    round(chain.waited, 3),
                    _iso(chain.since),
                    _iso(chain.until),
                    chain.status or (last.status if last is not None else None),
                    chain.error,
                    kind,
                    last.said if last is not None else "",
                    "/".join((key[0], key[2])),
                )
                if last is None:
                    own[key].append((uuid, chain, kind))
            elif last is not None and last.failures >= 2:
                attempt.retrying = Retrying(
                    last.failures,
                    since=_iso(last.since),
                    status=last.status or None,
                    kind=last.kind,
                    said=last.said,
                    model=f"{last.model[0]}/{last.model[2]}",
                )
        for key, chains in own.items():
            self._without_spans(self._model(key), chains)

    def _without_spans(self, model: Model, chains: list[tuple[str, Chain, Kind]]) -> None:
        """Requests that no middleman noted, as far as the pauses after them tell."""
        groups = {Kind(group.kind): group for group in model.calls}
        for uuid, chain, kind in chains:
            group = groups.setdefault(kind, CallGroup(kind, 0, status=chain.status or 0, error=chain.error))
            group.count += chain.count
            group.streak += chain.count
            group.again += chain.count - 1
            group.first_at = min(group.first_at or _iso(chain.since), _iso(chain.since))
            group.last_at = max(group.last_at or "", _iso(chain.until))
            group.seconds = [*group.seconds, *chain.ages][-ENDS:]
            group.uuids.append(uuid)
            model.failing += chain.count
            model.failing_since = min(model.failing_since or _iso(chain.since), _iso(chain.since))
            model.recent = (model.recent + "F" * chain.count)[-RECENT:]
        model.calls = list(groups.values())

    def _key_of(self, name: str) -> Key:
        """Of a model as Inspect names it, which no middleman has seen."""
        provider, model = provider_of(name) or tuple(name.split("/", 1)) if "/" in name else ("", name)
        for key in self._models:
            if (key[0], key[2]) == (provider, model):
                return key
        key = (provider, "", model)
        if key not in self._models:
            self._model(key).name = name
        return key

    # --- the middleman

    def _ask_middleman(self, evidence: Evidence, access: ModelAccess, context: Context) -> None:
        try:
            status = access.status()
        except (OSError, HawkError) as ex:
            evidence.missing[Source.MIDDLEMAN] = str(ex)
            return
        if status is None:
            if access.problem is not None:
                evidence.missing[Source.MIDDLEMAN] = access.problem
            return
        if status.get("missing"):  # what nobody tells is no sign that it is not there
            evidence.missing[Source.MIDDLEMAN] = status["missing"]
        for row in status.get("lanes") or ():
            model = self._model((row["provider"], row["account"], row["model"] or ""))
            model.lane = _lane(row)
            model.url = self._urls[row["provider"]] = row.get("url") or ""
            if (probe := row.get("probe")) is not None:
                model.probe = Probe(
                    probe["at"], probe["answered"], round(probe["seconds"], 3), probe["status"], probe["why"]
                )
        for row in status.get("requests") or ():
            if not row["replayed"] and row["provider"]:
                key = (row["provider"], row["account"], row["model"] or "")
                self._model(key).open.append(_open(row, context.attempts))

    # --- past the middleman

    def _ask_directly(self, context: Context, access: ModelAccess | None, now: float) -> None:
        """Where the middleman fails by itself, is away, or there is none, and something is silent."""
        through = access is not None and access.on
        silent = set()
        for attempt in context.attempts.values():
            if attempt.activity is not ActivityType.MODEL or attempt.model.startswith("mockllm/"):
                continue
            if through and provider_of(attempt.model) is not None:
                continue
            key, since = self._key_of(attempt.model), _seconds(attempt.since)
            self._models[key].past = True
            if since is not None and now - since > SILENT:
                silent.add(key)
        for key, model in list(self._models.items()):
            own = next((group for group in model.calls if group.kind == Kind.INTERNAL and group.streak), None)
            if own is None and key not in silent and not (through and access is not None and access.problem):
                continue
            url = model.url or self._known_url(key[0], access)
            model.direct = self._direct.ask(url) if url else None
            if own is not None and model.direct is not None:
                own.direct = model.direct.answered

    def _known_url(self, provider: str, access: ModelAccess | None) -> str:
        if access is not None and (own := access.upstream(provider)) is not None:
            return own
        known = PROVIDERS.get(provider)
        return (known.base_url or "") if known is not None and "{" not in (known.base_url or "") else ""


def _group(kind: Kind, ended: list[Ended], streak: int, again: int, uuids: list[str]) -> CallGroup:
    newest = ended[-1]
    return CallGroup(
        kind,
        len(ended),
        status=newest.status,
        upstream_status=newest.upstream,
        error=newest.error,
        said=next((e.said for e in reversed(ended) if e.said), ""),
        first_at=_iso(ended[-streak].at if streak else ended[0].at),
        last_at=_iso(newest.at),
        streak=streak,
        seconds=[round(e.seconds, 3) for e in ended[-ENDS:]],
        output=[e.output for e in ended[-ENDS:]],
        uuids=uuids[-UUIDS:],
        again=again,
    )


def _over(chain: Chain, attempt: Attempt, now: float) -> bool:
    """Whether the call that was tried again and again has ended since."""
    if attempt.activity is ActivityType.RETRY_WAIT:
        return False
    return attempt.activity not in _WAITS or now - chain.until > OVER or attempt.outcomes.endswith("S")


def _lane(row: Mapping[str, Any]) -> Lane:
    breaker = row["breaker"]
    return Lane(
        limit=row["limit"],
        most=row["most"],
        in_flight=row["in_flight"],
        waiting=row["waiting"],
        by_job=[
            Held(held["job"], held["in_flight"], held["waiting"], held["oldest_wait_s"], held["mine"])
            for held in row["by_job"]
        ],
        paused_until=row["paused_until"],
        paused_why=row["paused_why"],
        breaker_open=breaker["open"],
        breaker_since=breaker["since"],
        breaker_retry_at=breaker["retry_at"],
        breaker_said=breaker["said"],
        p50=row["latency_p50_s"],
        p95=row["latency_p95_s"],
        per_minute=row["requests_per_minute"],
        refused=row["status_429_last_minute"],
        errors=row["errors_last_minute"],
    )


def _open(row: Mapping[str, Any], attempts: Mapping[str, Attempt]) -> OpenRequest:
    attempt = attempts.get(row["sample_uuid"])
    who = "/".join(part for part in (row["task"], row["sample"], row["attempt"]) if part)
    return OpenRequest(
        id=row["id"],
        uuid=row["sample_uuid"],
        name=attempt.name if attempt is not None else who,
        phase=_PHASES.get(row["phase"], row["phase"]),
        age=row["age_s"],
        upstream_age=row["sent_s"],
        quiet=row["quiet_s"] or 0.0,
        bytes=row["bytes_out"],
        stream=row["stream"],
        reasoning=row["reasoning"],
        most_tokens=row["most_tokens"],
        place=row["place"],
        until=row["until"],
        retry=row["retry"],
        deadline=row["deadline_s"],
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds(at: str | None) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except ValueError:
        return None
