"""Healthy or merely slow: models that take long, providers that say no now and then, queues that move."""

from __future__ import annotations

from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered, fresh, in_turns, late
from tests.faults.lab.run import running
from tests.faults.lab.scenario import healthy
from tests.middleman.provider_answers import chat
from tests.middleman.provider_faults import empty_output, overloaded, rate_limited, server_error
from tests.middleman.provider_raw import Received

LONG = 75.0
"""Seconds for which what looks like silence is looked at: more than a verdict of silence may take."""


def _words(count: int) -> tuple[str, ...]:
    return tuple(f" word{i}" for i in range(count))


@healthy("provider.slow_generation", watch=LONG, quick=False)
def long_reasoning_streamed(bench: Bench) -> Case:
    bench.model(answered(bench.between(1, 4), _words(600), bench.between(0.15, 0.3)), stream=True)
    return bench.case(bench.samples(bench.number(2, 5), ["ask"]), reasoning_effort="high")


@healthy(watch=LONG)
def long_reasoning_at_once(bench: Bench) -> Case:
    """Not streamed: nothing comes for a minute, and then all of it."""
    bench.model(answered(bench.between(50, 65), _words(300)))
    return bench.case(bench.samples(3, ["ask"]), reasoning_effort="high")


@healthy(watch=LONG)
def first_word_after_long_thought(bench: Bench) -> Case:
    bench.model(answered(bench.between(35, 50), _words(100), 0.2), stream=True)
    return bench.case(bench.samples(3, ["ask"]))


@healthy(watch=LONG)
def streams_with_long_pauses(bench: Bench) -> Case:
    bench.model(answered(1, _words(12), bench.between(9, 14)), stream=True)
    return bench.case(bench.samples(3, ["ask"]))


@healthy()
def refusals_and_answers_in_turns(bench: Bench) -> Case:
    bench.model(in_turns(fresh(lambda: rate_limited("1"), 0.1), answered(bench.between(0.3, 1))))
    return bench.case(bench.samples(bench.number(2, 4), ["ask", 60]), max_retries=50)


@healthy()
def errors_and_answers_in_turns(bench: Bench) -> Case:
    bench.model(in_turns(fresh(server_error, 0.1), answered(bench.between(0.3, 1))))
    return bench.case(bench.samples(3, ["ask", 60]), max_retries=50)


@healthy()
def one_overloaded_answer_in_three(bench: Bench) -> Case:
    bench.model(in_turns(answered(0.4), fresh(overloaded, 0.1), answered(0.6)))
    return bench.case(bench.samples(3, ["ask", 60]), max_retries=50)


@healthy()
def few_empty_answers(bench: Bench) -> Case:
    bench.model(in_turns(answered(0.4), answered(0.4), fresh(empty_output, 0.2), answered(0.4)))
    return bench.case(bench.samples(3, ["ask", 80]))


@healthy()
def slow_and_uneven_answers(bench: Bench) -> Case:
    rng = bench.rng
    bench.model(lambda request: late(chat(request.json(), ("42",)), rng.choice([0.2, 0.5, 1, 3, 9, 15])))
    return bench.case(bench.samples(4, ["ask", 30]))


@healthy("middleman.queue_wait", watch=45)
def deep_queue_that_moves(bench: Bench) -> Case:
    bench.model(answered(bench.between(0.5, 1.2)), kind="narrow")
    return bench.case(bench.samples(bench.number(20, 40), ["ask", 4]), max_connections=40, max_samples=40)


@healthy(watch=45)
def two_tasks_share_one_lane(bench: Bench) -> Case:
    bench.model(answered(bench.between(1, 2)), kind="narrow")
    items = [
        bench.task(bench.samples(4, ["ask", 10])),
        {**bench.task(bench.samples(6, ["ask", 10]))},
    ]
    return bench.case(items=items)


@healthy()
def cold_start(bench: Bench) -> Case:
    """The first answers of a model take long, and then none does."""
    count = 0

    def say(request: Received) -> object:
        nonlocal count
        count += 1
        return late(chat(request.json(), ("42",)), 22.0 if count <= 4 else 0.4)

    bench.model(say)  # type: ignore[arg-type]
    return bench.case(bench.samples(4, ["ask", 40]), present=running)


@healthy(watch=30)
def refused_at_first(bench: Bench) -> Case:
    """A few errors in the beginning, and then all is well."""
    count, bad = 0, bench.number(2, 5)

    def say(request: Received) -> object:
        nonlocal count
        count += 1
        return server_error() if count <= bad else late(chat(request.json(), ("42",)), 0.4)

    bench.model(say)  # type: ignore[arg-type]
    return bench.case(bench.samples(3, ["ask", 60]), max_retries=50)


@healthy(watch=22, quick=True)
def several_kinds_of_providers(bench: Bench) -> Case:
    """A long stream, refusals and errors in turns with answers, a queue that moves, uneven answers, in one job."""
    rng = bench.rng
    stream = bench.model(answered(1, _words(400), bench.between(0.1, 0.3)), stream=True)
    others = [
        bench.model(in_turns(fresh(lambda: rate_limited("1"), 0.1), answered(0.4))),
        bench.model(in_turns(fresh(server_error, 0.1), answered(0.4))),
        bench.model(lambda request: late(chat(request.json(), ("42",)), rng.choice([0.2, 1, 4]))),
    ]
    narrow = bench.model(answered(0.6), kind="narrow")
    again = [["other", model.name] for model in others for _ in range(12)]
    queued = bench.samples(3, *[["other", narrow.name]] * 10)
    return bench.case(
        [bench.sample(["ask"]), *bench.samples(2, *again), *queued], models=[stream], max_retries=50
    )
