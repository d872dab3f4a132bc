"""Providers that say nothing, or nothing more."""

from __future__ import annotations

from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered, fresh, in_turns
from tests.faults.lab.scenario import SILENCE, scenario
from tests.middleman.provider_answers import EVENTS, chat
from tests.middleman.provider_faults import black_hole
from tests.middleman.provider_raw import Act, Answer, Framing, Part, Received


def _half(request: Received, pieces: int) -> Answer:
    """The first pieces of a streamed answer, and then silence."""
    whole = chat({**request.json(), "stream": True}, tuple(f" word{i}" for i in range(pieces + 5)))
    parts: list[Part] = [*whole.parts[:pieces], Act.SILENCE]
    return Answer(parts, headers=[*EVENTS], framing=Framing.CHUNKED)


@scenario("provider.black_hole", within=SILENCE)
def accepts_and_is_silent(bench: Bench) -> Case:
    bench.model(fresh(black_hole), everything=True)
    return bench.case(bench.samples(bench.number(2, 5), ["ask"]))


@scenario("provider.black_hole", within=SILENCE, quick=False)
def answers_at_first_and_then_is_silent(bench: Bench) -> Case:
    good = bench.number(4, 8)
    said = 0

    def say(request: Received) -> Answer:
        nonlocal said
        said += 1
        return chat(request.json(), ("42",)) if said <= good else black_hole()

    model = bench.model(say, everything=True)
    return bench.case(
        bench.samples(3, ["ask", 20]),
        present=lambda run: len(model.provider.received) > good,
    )


@scenario("provider.stream_stalled", within=SILENCE)
def half_a_stream(bench: Bench) -> Case:
    pieces = bench.number(2, 12)
    bench.model(lambda request: _half(request, pieces), stream=True)
    return bench.case(bench.samples(bench.number(2, 4), ["ask"]))


@scenario("provider.stream_stalled", within=SILENCE)
def every_second_stream_stalls(bench: Bench) -> Case:
    pieces = bench.number(2, 6)
    bench.model(in_turns(answered(0.3), lambda request: _half(request, pieces)), stream=True)
    return bench.case(bench.samples(4, ["ask", 3]))
