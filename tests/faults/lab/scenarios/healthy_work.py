"""Healthy or merely slow: tools, scorers, starts, people, pauses, the last attempt."""

from __future__ import annotations

from typing import Any

from hawk.core.states import StopAction
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import PUBLISH, SHELL, agent, answered, by_sample, call
from tests.faults.lab.run import Run, after, ended, kill_workers, marked, running, tool_runs
from tests.faults.lab.scenario import healthy
from tests.faults.lab.scenarios.scheduler import pause

LONG = 75.0


def _agents(bench: Bench, *turns: object, count: int = 2, **config: object) -> Case:
    bench.model(agent(*turns, delay=bench.between(0.2, 0.6)))  # type: ignore[arg-type]
    return bench.case(bench.samples(count, ["agent"]), boxed=True, **config)  # type: ignore[arg-type]


@healthy(watch=LONG)
def tool_that_computes(bench: Bench) -> Case:
    code = "import time\nend = time.time() + 70\nwhile time.time() < end: sum(range(100000))"
    return _agents(bench, f"nice python3 -c '{code}'", count=1)


@healthy(watch=LONG)
def tool_that_writes(bench: Bench) -> Case:
    name = bench.word()
    return _agents(bench, f"for i in $(seq 140); do head -c 200000 /dev/urandom >> {name}; sleep 0.5; done")


@healthy(watch=LONG)
def tool_that_prints_now_and_then(bench: Bench) -> Case:
    return _agents(bench, f"for i in $(seq 14); do echo step $i of {bench.word()}; sleep 5; done")


@healthy(watch=55, quick=False)
def tool_that_sleeps_within_its_deadline(bench: Bench) -> Case:
    seconds = bench.number(35, 44)
    return _agents(bench, lambda request: call(request, SHELL, command=f"sleep {seconds}", timeout=120))


@healthy()
def short_sleeps_in_a_row(bench: Bench) -> Case:
    return _agents(bench, *(f"sleep {bench.number(2, 6)}; echo {i}" for i in range(12)))


@healthy()
def polls_until_it_is_ready(bench: Bench) -> Case:
    """The same call again and again, with another answer each time."""
    word = bench.word()
    bench.model(
        agent(
            f"date +%N; wc -c {word}* 2>/dev/null; head -c 99 /dev/urandom >> {word}", delay=0.6, forever=True
        )
    )
    return bench.case(bench.samples(2, ["agent"]), boxed=True)


@healthy()
def command_fails_and_another_helps(bench: Bench) -> Case:
    turns = [f"ls {bench.word()}" if i % 3 == 0 else f"echo {bench.word()}" for i in range(40)]
    return _agents(bench, *turns)


@healthy("healthy.long_tail", watch=45)
def one_long_tail(bench: Bench) -> Case:
    bench.model(answered(0.4))
    steps: list[list[Any]] = [["sleep", 2], ["ask"]] * 30
    return bench.case(
        [*bench.samples(bench.number(8, 12), ["ask"]), bench.sample(*steps)],
        present=running,
    )


@healthy("attempt.awaiting_approval", watch=30)
def person_approves_late(bench: Bench) -> Case:
    bench.model(agent(lambda request: call(request, PUBLISH), f"echo {bench.word()}", delay=0.3))
    return bench.case(
        bench.samples(2, ["agent"]), boxed=True, task={"asked": True, "approve_after": bench.between(12, 20)}
    )


@healthy("scheduler.paused", watch=35)
def paused_job(bench: Bench) -> Case:
    model = bench.model(answered(0.5))
    return bench.case(
        bench.samples(3, ["ask", 500]),
        actions=[after(lambda run: len(model.provider.received) > 2, pause)],
    )


@healthy(watch=30)
def slow_dataset(bench: Bench) -> Case:
    return bench.case(
        bench.samples(2, ["ask", 20]), task={"load": ["sleep", bench.number(12, 18)]}, present=marked("load")
    )


@healthy(watch=25)
def many_short_attempts(bench: Bench) -> Case:
    bench.model(answered(0.05))
    return bench.case(bench.samples(120, ["ask"]), max_samples=8)


@healthy(watch=LONG)
def agent_that_sleeps(bench: Bench) -> Case:
    steps: list[list[Any]] = [["sleep", 15], ["ask"]] * 5
    return bench.case(bench.samples(3, *steps))


@healthy(watch=50)
def lock_held_by_one_that_works(bench: Bench) -> Case:
    name = bench.word()
    return bench.case(bench.samples(4, ["turn", name, 9], ["ask"]))


@healthy(watch=50)
def long_call_in_a_thread(bench: Bench) -> Case:
    return bench.case([*bench.samples(2, ["ask", 80]), bench.sample(["thread", 40], ["ask"])])


@healthy(watch=30)
def big_output(bench: Bench) -> Case:
    bench.model(agent("head -c 3000000 /dev/urandom | base64", delay=0.5, forever=True))
    return bench.case(
        [bench.sample(["say", 200_000, 60, 0.2]), bench.sample(["agent"])], boxed=True, message_limit=40
    )


@healthy(watch=30)
def second_try_succeeds(bench: Bench) -> Case:
    message = f"{bench.word()} was not there"
    bench.model(answered(0.6))
    return bench.case(bench.samples(4, ["fail_first", 1, message], ["ask", 20]), retry_on_error=3)


@healthy(watch=25, quick=False)
def limit_that_ends_attempts(bench: Bench) -> Case:
    bench.model(answered(0.4))
    return bench.case(bench.samples(4, ["ask", 100]), token_limit=bench.number(100, 300))


@healthy(watch=35)
def worker_restarted_once(bench: Bench) -> Case:
    bench.model(answered(0.5))
    return bench.case(
        bench.samples(3, ["ask", 60]), actions=[after(running, kill_workers, bench.between(2, 4))]
    )


@healthy(watch=50)
def slow_scorer(bench: Bench) -> Case:
    return bench.case(bench.samples(3, ["ask"]), task={"score": {"*": ["slow", bench.number(30, 40)]}})


@healthy("scheduler.no_slot", watch=30, quick=False)
def waiting_for_a_place(bench: Bench) -> Case:
    bench.model(answered(0.5))
    return bench.case(bench.samples(20, ["ask", 6]), max_samples=2)


@healthy("scheduler.stopping", watch=30)
def stop_in_progress(bench: Bench) -> Case:
    bench.model(answered(0.5))

    def stop(run: Run) -> None:
        with run.system.client() as client:
            client.stop(run.job, StopAction.SCORE)

    return bench.case(
        bench.samples(3, ["ask", 500]),
        task={"score": {"*": ["slow", bench.number(10, 15)]}},
        actions=[after(running, stop, 1)],
    )


@healthy(watch=35)
def slow_sandbox_start(bench: Bench) -> Case:
    script = f"#!/bin/sh\nsleep {bench.number(12, 18)}\n"
    samples = [bench.sample(["run", "true"], ["ask", 10], setup=script) for _ in range(3)]
    return bench.case(samples, boxed=True, present=tool_runs("sleep 1"))


@healthy(watch=20)
def short_eval_to_its_end(bench: Bench) -> Case:
    bench.model(answered(0.1))
    return bench.case(bench.samples(1, ["ask"]), present=lambda run: running(run) or ended(run))


@healthy(watch=30)
def grader_that_asks_a_model(bench: Bench) -> Case:
    bench.model(answered(bench.between(3, 6)))
    return bench.case(bench.samples(5, ["ask", 2]), task={"score": {"*": ["ask"]}})


@healthy(watch=25, quick=True)
def several_kinds_of_work(bench: Bench) -> Case:
    """Tools, answers, a person, a sleep, a wait for a place, side by side in one job."""
    tools = bench.sample(["agent"])
    person = bench.sample(["agent"])
    scripts = {
        tools["input"].split()[1]: agent(*(f"sleep {i % 3}; echo {bench.word()}" for i in range(30))),
        person["input"].split()[1]: agent(
            lambda request: call(request, PUBLISH), *(f"sleep 2; echo {bench.word()}" for _ in range(10))
        ),
    }
    bench.model(by_sample(scripts, answered(0.5)))
    samples = [tools, person, bench.sample(["sleep", 12], ["ask", 20]), *bench.samples(3, ["ask", 20])]
    return bench.case(
        samples, boxed=True, task={"asked": True, "approve_after": bench.between(8, 12)}, max_samples=5
    )
