"""`hawk_list` and `hawk_report`: what there is, and what came of it."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from hawk.cli import report_words as words
from hawk.cli.context import App
from hawk.cli.mcp_base import Args, Expendable, Result, Tool, Untrusted
from hawk.cli.mcp_text import short
from hawk.core.attempts.report import PairRow
from hawk.replies import EvalSetItem, SampleItem

_WORD = re.compile(r"[A-Za-z0-9_.+/-]+")


class EvalSetArgs(Args):
    id: str | None = Field(
        default=None, description="Id of the eval set. Left out: the last one of the person who runs Hawk."
    )


class EvalSetLine(BaseModel):
    id: str
    status: str | None
    created_at: str | None
    created_by: str | None
    tasks: list[str]


class SampleLine(BaseModel):
    """One attempt."""

    uuid: str
    sample: Untrusted | None
    attempt: int
    task: str | None
    model: str | None
    status: str
    score: str | None = Field(description="Numbers and single words; other values of a scorer are left out.")
    error: Untrusted | None
    seconds: float | None


class Listing(Result):
    expendable: ClassVar = (
        Expendable("samples", "fewer with 'search'; hawk list samples ID --limit N"),
        Expendable("eval_sets", "fewer with 'search'; hawk list eval-sets --limit N"),
    )
    eval_set_id: str | None
    eval_sets: list[EvalSetLine] = Field(default_factory=list)
    samples: list[SampleLine] = Field(default_factory=list)

    def head(self) -> str:
        if self.eval_set_id is None:
            rows = [
                f"  {e.id}  {e.status or '–'}  {e.created_at or ''}  {', '.join(e.tasks)}"
                for e in self.eval_sets
            ]
            return "\n".join(["Eval sets, newest first:" if rows else "No eval sets.", *rows])
        rows = [
            f"  {s.uuid}  {s.task or ''} {s.sample} #{s.attempt}  {s.status}  {s.score or ''}"
            + (f"  {s.error}" if s.error else "")
            for s in self.samples
        ]
        return "\n".join(
            [f"Samples of {self.eval_set_id}:" if rows else f"No samples of {self.eval_set_id} yet.", *rows]
        )


class ListArgs(EvalSetArgs):
    what: Literal["eval_sets", "samples"] = Field(
        description="Eval sets (newest first), or the samples of one."
    )
    search: str | None = Field(
        default=None,
        description="Only with this text: in id and task names; of samples in id, uuid, task and model.",
    )
    limit: int = Field(default=20, ge=1, le=500, description="At most so many.")


def _list(app: App, args: ListArgs) -> Listing:
    most = args.limit + 1  # one more than is shown tells whether there are more
    with app.connect() as client:
        if args.what == "eval_sets":
            sets = client.eval_sets(limit=most, search=args.search)
            result = Listing(eval_set_id=None, eval_sets=[_eval_set(item) for item in sets[: args.limit]])
            more = len(sets) == most
        else:
            job_id = app.eval_set(args.id)
            samples = list(islice(client.samples(job_id, limit=most, search=args.search), most))
            result = Listing(
                eval_set_id=short(job_id), samples=[_sample(item) for item in samples[: args.limit]]
            )
            more = len(samples) == most
    if more:
        result.cut.append("there are more: a higher 'limit', or 'search'")
    return result


def _eval_set(item: EvalSetItem) -> EvalSetLine:
    return EvalSetLine(
        id=short(item.eval_set_id),
        status=short(item.status) or None,
        created_at=short(item.created_at) or None,
        created_by=short(item.created_by) or None,
        tasks=[short(name) for name in item.task_names[:8]],
    )


def _sample(item: SampleItem) -> SampleLine:
    scores = [f"{_word(s.scorer, 60)}={_word(s.value, 12)}" for s in (item.scores or [])[:3]]
    status = short(item.status) or ("error" if item.error_message else "success")
    return SampleLine(
        uuid=short(item.uuid),
        sample=Untrusted.of(item.id, 80),
        attempt=item.epoch,
        task=short(item.task_name) or None,
        model=short(item.model) or None,
        status="running" if item.is_provisional and status == "success" else status,
        score=", ".join(scores) or None,
        error=Untrusted.of(item.error_message),
        seconds=item.total_time_seconds,
    )


def _word(value: Any, limit: int) -> str:
    """What may be said without being somebody's text: a number, a letter, a word."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= limit and _WORD.fullmatch(text) else "(text)"


class Rate(BaseModel):
    name: str
    meaning: str
    value: float | None
    low: float | None = Field(description="95 % interval")
    high: float | None
    why_not: str | None


class PairLine(BaseModel):
    result: str = Field(description="failed, no result, undecided, flaky, passed")
    passes: int
    attempts: int
    task: str
    model: str
    agent: str | None
    sample: Untrusted | None
    uuids: list[str] = Field(description="Of its attempts.")
    why: Untrusted | None

    @classmethod
    def of(cls, row: PairRow) -> PairLine:
        return cls(
            result=words.state(row).value,
            passes=row.passes,
            attempts=row.planned,
            task=short(row.pair.task),
            model=short(row.pair.model),
            agent=short(row.pair.agent) or None,
            sample=Untrusted.of(row.pair.sample, 80),
            uuids=[short(a.uuid) for a in row.attempts[:8] if a.uuid],
            why=Untrusted.of(words.why(row)),
        )


class InfraError(BaseModel):
    count: int
    error: Untrusted | None


class ReportResult(Result):
    expendable: ClassVar = (
        Expendable("pairs", "hawk report ID --all"),
        Expendable("infra_errors", "hawk report ID --all"),
    )
    job_id: str
    headline: str
    complete: bool
    passed: int
    failed: int
    undecided: int
    rates: list[Rate]
    facts: dict[str, str]
    infra_errors: list[InfraError] = Field(description="Not counted as failures.")
    pairs: list[PairLine] = Field(
        description="Those that need a look, worst first; all of them when all passed."
    )
    pairs_total: int

    def head(self) -> str:
        lines = [f"{self.job_id}: {self.headline}" + ("" if self.complete else " Not complete.")]
        for rate in self.rates:
            interval = (
                f" ({100 * rate.low:.1f}–{100 * rate.high:.1f})"
                if rate.low is not None and rate.high is not None
                else ""
            )
            value = "–" if rate.value is None else words.percent(rate.value)
            lines.append(f"  {rate.name}: {value}{interval} {rate.why_not or rate.meaning}")
        lines += [f"  {name}: {text}" for name, text in self.facts.items()]
        lines += [f"  infrastructure error, {e.count:,} x: {e.error}" for e in self.infra_errors]
        rows = [
            f"  {p.result}: {p.task} {p.sample} · {p.model} {p.passes}/{p.attempts}"
            + (f" ({p.uuids[0]})" if p.uuids else "")
            + (f" {p.why}" if p.why else "")
            for p in self.pairs
        ]
        return "\n".join([*lines, *([f"Pairs ({self.pairs_total:,} in all):", *rows] if rows else [])])


class ReportArgs(EvalSetArgs):
    pairs: int = Field(default=20, ge=0, le=500, description="At most so many pairs.")


def _report(app: App, args: ReportArgs) -> ReportResult:
    with app.connect() as client:
        found = client.report(app.eval_set(args.id))
    rows = words.ordered(found.pairs)
    notable = [row for row in rows if words.state(row) is not words.State.PASSED] or rows
    errors = sorted(found.infra_errors.items(), key=lambda item: -item[1])
    return ReportResult(
        job_id=short(found.job_id),
        headline=short(words.headline(found), 300),
        complete=found.complete,
        passed=found.passed,
        failed=found.failed,
        undecided=found.undecided,
        rates=[_rate(rate) for rate in words.rates(found)],
        facts={fact.label: short(fact.text, 300) for fact in words.facts(found)},
        infra_errors=[InfraError(count=count, error=Untrusted.of(text)) for text, count in errors[:20]],
        pairs=[PairLine.of(row) for row in notable[: args.pairs]],
        pairs_total=len(rows),
    )


def _rate(rate: words.Rate) -> Rate:
    estimate = rate.estimate
    return Rate(
        name=rate.name,
        meaning=rate.meaning,
        value=estimate.value if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        why_not=short(rate.why_not, 200) or None,
    )


LIST = Tool(
    "hawk_list",
    "Eval sets, or samples of one",
    "Which eval sets there are, or which samples an eval set has, with the uuids that the other tools take. Use it to find an "
    "id, or the samples that errored.",
    ListArgs,
    Listing,
    _list,
)
REPORT = Tool(
    "hawk_report",
    "What came of the attempts",
    "Pass rates with intervals, costs, infrastructure errors, and the pairs that failed or have no result, with why. Use it "
    "when an eval set has ended, or for results so far.",
    ReportArgs,
    ReportResult,
    _report,
)
