"""Attempts that fail, repeat themselves, or wait for a person."""

from __future__ import annotations

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case, Probe
from tests.faults.lab.replies import ASK, PUBLISH, agent, answered, call
from tests.faults.lab.run import Run, marked
from tests.faults.lab.scenario import SILENCE, scenario


@scenario("attempt.retry_loop", least=Severity.WARNING)
def same_error_every_try(bench: Bench) -> Case:
    message = f"{bench.word()} is missing"
    samples = bench.samples(bench.number(1, 3), ["ask"], ["fail", message, bench.between(0, 0.5)])
    return bench.case(samples, retry_on_error=bench.number(300, 900), present=_tries(3), must=[message])


def _tries(count: int) -> Probe:
    return lambda run: any((sample.retries or 0) >= count for sample in run.samples())


@scenario("attempt.limit_hit")
def messages_used_up(bench: Bench) -> Case:
    bench.model(agent(f"echo {bench.word()}", delay=0.2, forever=True))
    return bench.case(
        bench.samples(3, ["agent"]), boxed=True, message_limit=bench.number(4, 9), present=_limited,
        must=["message"],
    )  # fmt: skip


@scenario("attempt.limit_hit")
def time_used_up(bench: Bench) -> Case:
    return bench.case(
        bench.samples(3, ["sleep", 600]), time_limit=bench.number(3, 6), present=_limited, must=["time"]
    )


@scenario("attempt.limit_hit")
def tokens_used_up(bench: Bench) -> Case:
    bench.model(answered(0.2, words=tuple(" word" for _ in range(50))))
    return bench.case(
        bench.samples(3, ["ask", 500]), token_limit=bench.number(200, 600), present=_limited, must=["token"]
    )


def _limited(run: Run) -> bool:
    return any(sample.limit for sample in run.samples())


@scenario("attempt.agent_looping", least=Severity.WARNING, within=30)
def same_command_same_answer(bench: Bench) -> Case:
    word = bench.word()
    bench.model(agent(f"cat {word} || true", delay=bench.between(0.3, 0.8), forever=True))
    return bench.case(
        bench.samples(2, ["agent"]), boxed=True,
        present=lambda run: len(run.bench.models[0].provider.received) >= 8,
        must=[word],
    )  # fmt: skip


@scenario("attempt.scorer_hung", within=SILENCE)
def scorer_waits_for_nothing(bench: Bench) -> Case:
    return bench.case(
        bench.samples(3, ["ask"]),
        task={"score": {"*": ["never"]}},
        present=marked("score", 3),
        must=[bench.line("score never")],
    )


@scenario("attempt.scorer_error", least=Severity.WARNING)
def scorer_raises(bench: Bench) -> Case:
    message = f"no {bench.word()} in the answer"
    return bench.case(
        bench.samples(3, ["ask"]),
        task={"score": {"*": ["fail", message]}},
        retry_on_error=0,
        present=marked("score", 3),
        must=[message],
    )


@scenario("attempt.setup_failed", least=Severity.WARNING)
def setup_script_fails(bench: Bench) -> Case:
    word = bench.word()
    script = f"#!/bin/sh\necho {word} >&2\nexit {bench.number(2, 90)}\n"
    samples = [bench.sample(["run", "true"], setup=script) for _ in range(3)]
    return bench.case(
        samples, boxed=True, retry_on_error=0,
        present=lambda run: run.ended() or any(s.error for s in run.samples()),
    )  # fmt: skip


@scenario("attempt.awaiting_approval")
def nobody_approves(bench: Bench) -> Case:
    bench.model(agent(lambda request: call(request, PUBLISH), delay=0.3))
    return bench.case(bench.samples(2, ["agent"]), boxed=True, approval="human", present=_doing("approval"))


@scenario("attempt.awaiting_approval", within=SILENCE)
def approver_of_ones_own_waits(bench: Bench) -> Case:
    """Inspect does not say of it that a person is asked: only its await chain does."""
    model = bench.model(agent(lambda request: call(request, PUBLISH), delay=0.3))
    return bench.case(
        bench.samples(2, ["agent"]), boxed=True, task={"asked": True},
        present=lambda run: len(model.provider.received) >= 2,
    )  # fmt: skip


@scenario("attempt.awaiting_input")
def nobody_answers(bench: Bench) -> Case:
    question = {
        "message": f"Which {bench.word()}?",
        "schema": {"type": "object", "properties": {"which": {"type": "string"}}},
    }
    bench.model(agent(lambda request: call(request, ASK, **question), delay=0.3))
    return bench.case(bench.samples(2, ["agent"]), boxed=True, present=_doing("question"))


def _doing(what: str) -> Probe:
    return lambda run: any(s.activity is not None and s.activity.type == what for s in run.samples())
