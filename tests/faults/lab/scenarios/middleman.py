"""What the middleman itself refuses, or makes wait."""

from __future__ import annotations

from pathlib import Path

from hawk.config.settings import load_settings
from hawk.core.diagnosis.causes import Severity
from hawk.middleman import calls
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered, fresh
from tests.faults.lab.run import Run, after, running
from tests.faults.lab.scenario import scenario
from tests.middleman.provider_answers import error

CASSETTE = Path(__file__).parents[4] / "examples" / "quickstart.cassette.jsonl"


@scenario("middleman.token_revoked", least=Severity.STUCK)
def access_taken_away(bench: Bench) -> Case:
    model = bench.model(answered(bench.between(0.3, 1)))
    done = []

    def revoke(run: Run) -> None:
        assert calls.revoke(load_settings(run.system.environ), run.job)
        done.append(1)

    return bench.case(
        bench.samples(3, ["ask", 400]),
        actions=[after(lambda run: len(model.provider.received) > 2, revoke, bench.between(0, 2))],
        present=lambda run: done,
    )


@scenario("middleman.model_not_permitted", least=Severity.FATAL)
def model_for_others(bench: Bench) -> Case:
    model = bench.model()
    return bench.case(
        bench.samples(3, ["ask", 2]),
        middleman={"models": [f"openai-api/{bench.word()}/*"]},
        present=lambda run: running(run) or run.ended(),
        must=[model.asked],
    )


@scenario("middleman.queue_wait", must_not=["provider.black_hole", "provider.rate_limited"])
def one_place_for_many(bench: Bench) -> Case:
    model = bench.model(answered(bench.between(4, 8)), kind="narrow")
    return bench.case(
        bench.samples(bench.number(5, 9), ["ask", 4]),
        must=[model.asked],
    )


@scenario("middleman.budget_exhausted", least=Severity.STUCK)
def budget_used_up(bench: Bench) -> Case:
    bench.model(answered(0.3, words=tuple(" word" for _ in range(40))))
    tokens = bench.number(100, 400)
    return bench.case(
        bench.samples(3, ["ask", 50]), middleman={"budget": {"tokens": tokens}}, present=_exhausted
    )


def _exhausted(run: Run) -> bool:
    found = run.snapshot()
    return found is not None and found.models is not None and found.models.exhausted is not None


@scenario("middleman.breaker_open", least=Severity.WARNING, either=["provider.server_error"])
def breaker_holds_calls_back(bench: Bench) -> Case:
    model = bench.model(
        fresh(lambda: error(500, "server_error", "it broke"), bench.between(0, 0.4)), kind="brittle"
    )
    return bench.case(
        bench.samples(4, ["ask", 2]),
        max_retries=100,
        present=lambda run: len(model.provider.received) >= 3,
        must=[model.asked],
    )


@scenario("middleman.replay_miss", least=Severity.STUCK)
def not_on_the_tape(bench: Bench) -> Case:
    tape = bench.folder / f"{bench.word()}.jsonl"
    tape.write_bytes(CASSETTE.read_bytes())
    bench.model()
    return bench.case(
        bench.samples(3, ["ask"]),
        middleman={"replay": tape.name},
        retry_on_error=0,
        present=lambda run: running(run) or run.ended(),
    )
