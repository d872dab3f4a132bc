"""Two and three causes at once: each has to be named, and holds its own attempts."""

from __future__ import annotations

from typing import Any

from tests.faults.lab.bench import Bench, Case, Model, Probe
from tests.faults.lab.replies import PUBLISH, agent, answered, by_sample, call, fresh
from tests.faults.lab.run import Run, after, both, marked, running, tool_runs
from tests.faults.lab.scenario import SILENCE, scenario
from tests.middleman.provider import Say
from tests.middleman.provider_faults import (
    black_hole,
    not_found,
    overloaded,
    rate_limited,
    server_error,
    unauthorized,
)


def _asked(model: Model) -> Probe:
    return lambda run: bool(model.provider.received)


def _word(sample: dict[str, Any]) -> str:
    return str(sample["input"]).split()[1]


def _people(bench: Bench) -> dict[str, object]:
    """A person has to approve what is published."""
    publish = f"{bench.renamed['lab_publish']}*"
    return {"approvers": [{"name": "human", "tools": publish}, {"name": "auto", "tools": "*"}]}


def _hung(bench: Bench) -> tuple[dict[str, Any], str, Say]:
    """A sample, its hung command, and the script that makes it call that."""
    seconds = bench.number(10_000, 99_999)
    sample = bench.sample(["agent"])
    return sample, f"sleep {seconds}", agent(f"sleep {seconds}", delay=0.4)


@scenario("sandbox.tool_hung", "provider.rate_limited", within=SILENCE)
def command_hangs_and_rate_is_limited(bench: Bench) -> Case:
    hung, command, script = _hung(bench)
    main = bench.model(by_sample({_word(hung): script}))
    other = bench.model(fresh(lambda: rate_limited("2")))
    samples = [hung, *bench.samples(2, ["other", other.name])]
    return bench.case(
        samples, models=[main], boxed=True, max_retries=100, present=both(tool_runs(command), _asked(other)),
        must=[command],
    )  # fmt: skip


@scenario("runner.await_never_resolved", "attempt.agent_looping", within=SILENCE)
def one_waits_and_one_repeats_itself(bench: Bench) -> Case:
    looping, word = bench.sample(["agent"]), bench.word()
    bench.model(by_sample({_word(looping): agent(f"cat {word} || true", delay=0.5, forever=True)}))
    return bench.case(
        [looping, *bench.samples(2, ["event"])],
        boxed=True,
        present=marked("never", 2),
        must=[bench.line("event")],
    )


@scenario("provider.black_hole", "provider.rate_limited", within=SILENCE)
def one_provider_silent_and_one_limits(bench: Bench) -> Case:
    silent = bench.model(fresh(black_hole), everything=True)
    limiting = bench.model(fresh(lambda: rate_limited("1")))
    return bench.case(
        bench.samples(2, ["ask"]), models=[silent, limiting], max_retries=100,
        present=both(_asked(silent), _asked(limiting)), must=[silent.asked, limiting.asked],
    )  # fmt: skip


@scenario("attempt.scorer_hung", "attempt.retry_loop", within=SILENCE)
def scorer_hangs_and_another_fails(bench: Bench) -> Case:
    message = f"{bench.word()} is missing"
    hung, failing = bench.sample(["ask"]), bench.sample(["ask"], ["fail", message, 0.3])
    return bench.case(
        [hung, failing], task={"score": {hung["id"]: ["never"]}}, retry_on_error=900,
        present=both(marked("score"), marked("fail")), must=[message],
    )  # fmt: skip


@scenario("attempt.awaiting_approval", "sandbox.tool_hung", within=SILENCE)
def person_does_not_come_and_command_hangs(bench: Bench) -> Case:
    hung, command, script = _hung(bench)
    asks = bench.sample(["agent"])
    person = agent(lambda request: call(request, PUBLISH), delay=0.3)
    bench.model(by_sample({_word(hung): script, _word(asks): person}))
    return bench.case(
        [hung, asks], boxed=True, approval=_people(bench), present=tool_runs(command), must=[command]
    )


@scenario("provider.server_error", "runner.control_socket_lost", within=30)
def provider_fails_and_socket_is_gone(bench: Bench) -> Case:
    model = bench.model(fresh(server_error, 0.3), kind="calm")
    gone: list[object] = []

    def delete(run: Run) -> None:
        for path in run.run_dir.path.glob("workers/*/data/inspect_ai/control/*.sock"):
            path.unlink()
            gone.append(path)

    return bench.case(
        bench.samples(3, ["ask", 3]), max_retries=100, actions=[after(running, delete, 1)],
        present=both(_asked(model), lambda run: gone),
    )  # fmt: skip


@scenario("sandbox.oom_killed", "provider.model_not_found", within=30)
def little_memory_and_no_such_model(bench: Bench) -> Case:
    good = bench.model(agent("head -c 300M /dev/zero | tail > /dev/null", delay=0.5, forever=True))
    bad = bench.model(fresh(not_found))
    samples = [*bench.samples(2, ["agent"]), bench.sample(["other", bad.name])]
    return bench.case(
        samples, models=[good], boxed={"limits": {"memory": "60m"}},
        present=lambda run: bad.provider.received
        and any(s.sandbox is not None and s.sandbox.troubles for s in run.samples()),
    )  # fmt: skip


@scenario("sandbox.tool_hung", "scheduler.no_slot", within=SILENCE)
def commands_hang_in_all_places(bench: Bench) -> Case:
    seconds = bench.number(10_000, 99_999)
    bench.model(agent(f"sleep {seconds}", delay=0.3))
    return bench.case(
        bench.samples(7, ["agent"]), boxed=True, max_samples=2, present=tool_runs(f"sleep {seconds}"),
        must=[f"sleep {seconds}"],
    )  # fmt: skip


@scenario("runner.loop_blocked", "provider.auth_rejected", within=30)
def one_worker_blocked_and_the_key_is_wrong(bench: Bench) -> Case:
    good, bad = bench.model(answered(0.5)), bench.model(fresh(unauthorized))
    wrong = bench.samples(2, ["ask", 2], ["other", bad.name])
    held = bench.sample(["sleep", 5], ["nap", 600])
    return bench.case(
        [held, *wrong], models=[good], retry_on_error=0, present=marked("block"), must=[bench.line("nap")]
    )


@scenario("sandbox.tool_hung", "runner.await_never_resolved", "provider.rate_limited", within=SILENCE)
def three_at_once(bench: Bench) -> Case:
    hung, command, script = _hung(bench)
    main = bench.model(by_sample({_word(hung): script}))
    other = bench.model(fresh(lambda: rate_limited("2")))
    samples = [hung, bench.sample(["event"]), bench.sample(["other", other.name])]
    return bench.case(
        samples, models=[main], boxed=True, max_retries=100,
        present=both(tool_runs(command), marked("never"), _asked(other)), must=[command, bench.line("event")],
    )  # fmt: skip


@scenario("attempt.agent_looping", "attempt.scorer_hung", "provider.overloaded", within=SILENCE)
def another_three_at_once(bench: Bench) -> Case:
    looping, word, hung = bench.sample(["agent"]), bench.word(), bench.sample(["ask"])
    main = bench.model(by_sample({_word(looping): agent(f"cat {word} || true", delay=0.5, forever=True)}))
    other = bench.model(fresh(overloaded), kind="calm")
    return bench.case(
        [looping, hung, *bench.samples(2, ["other", other.name])], models=[main], boxed=True, max_retries=100,
        task={"score": {hung["id"]: ["never"]}}, present=both(marked("score"), _asked(other)), must=[word],
    )  # fmt: skip


@scenario(
    "provider.rate_limited", "provider.server_error", "provider.auth_rejected", "provider.model_not_found",
    "middleman.model_not_permitted", "sandbox.tool_hung", "sandbox.oom_killed", "attempt.agent_looping",
    "attempt.awaiting_approval", "scheduler.no_slot",
    within=30, quick=True,
)  # fmt: skip
def many_at_once(bench: Bench) -> Case:
    """One job in which each attempt has a trouble of its own: what a machine has time for at every commit."""
    hung, command, script = _hung(bench)
    looping, asks, large = bench.sample(["agent"]), bench.sample(["agent"]), bench.sample(["agent"])
    word = bench.word()
    main = bench.model(
        by_sample(
            {
                _word(hung): script,
                _word(looping): agent(f"cat {word} || true", delay=0.5, forever=True),
                _word(asks): agent(lambda request: call(request, PUBLISH), delay=0.3),
                _word(large): agent(
                    *(f"head -c {200 + i}M /dev/zero | tail > /dev/null" for i in range(200)), delay=1
                ),
            }
        )
    )
    others = [
        bench.model(fresh(lambda: rate_limited("2"))),
        bench.model(fresh(server_error), kind="calm"),
        bench.model(fresh(unauthorized)),
        bench.model(fresh(not_found)),
    ]
    forbidden = bench.model()
    samples = [
        *(bench.sample(["other", model.name]) for model in (*others, forbidden)),
        hung, looping, asks, large, *bench.samples(3, ["sleep", 10_000]),
    ]  # fmt: skip
    return bench.case(
        samples, models=[main], boxed={"limits": {"memory": "60m"}}, max_retries=100, max_samples=8,
        approval=_people(bench), retry_on_error=0, middleman={"models": [model.name for model in (main, *others)]},
        present=both(tool_runs(command), _troubled), must=[command],
    )  # fmt: skip


def _troubled(run: Run) -> bool:
    return any(s.sandbox is not None and s.sandbox.troubles for s in run.samples())
