"""What is closed before a run begins holds it, and is opened as usual."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from inspect_ai._control import pause
from inspect_ai._control.eval_state import reset_run_registries

from hawk.bridge.pausing import hold_from_start


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    reset_run_registries()
    yield
    reset_run_registries()
    pause._model_gates.clear()


@pytest.mark.parametrize("calls_too", [True, False])
def test_a_process_is_held_before_there_is_a_loop_and_goes_on_when_it_is_told(calls_too: bool) -> None:
    hold_from_start(calls_too, {})
    assert (pause.process_paused(), pause.process_paused_now()) == (True, calls_too)

    async def told() -> bool:
        waiting = asyncio.create_task(pause._process_gate.wait_open())
        await asyncio.sleep(0)
        held = not waiting.done()
        await pause.resume_process()
        await asyncio.wait_for(waiting, 60)
        return held

    assert asyncio.run(told())
    assert not pause.process_paused()


def test_models_are_held_by_name_and_the_process_is_not() -> None:
    hold_from_start(None, {"openai/gpt-5": True, "mockllm/model": False})
    assert not pause.process_paused()
    gates = {name: (gate.paused, gate.hard) for name, gate in pause._model_gates.items()}
    assert gates == {"openai/gpt-5": (True, True), "mockllm/model": (True, False)}


def test_nothing_is_held_where_nothing_was_paused() -> None:
    hold_from_start(None, {})
    assert not pause.process_paused()
    assert pause._model_gates == {}
