"""Faults of the middleman that need one of their own: gone, its clock, its code."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import msgspec

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.replies import answered
from tests.faults.lab.room import MIDDLEMAN
from tests.faults.lab.run import Run, after, again_and_again
from tests.faults.lab.scenario import scenario

SHIMS = Path(__file__).parents[1] / "shims"
"""A directory whose `sitecustomize.py` breaks what the environment says."""


def _pid(run: Run) -> int:
    found = msgspec.json.decode((run.system.home / "middleman.json").read_bytes())
    return int(found["pid"])


@scenario("middleman.down", least=Severity.WARNING, alone=True)
def middleman_does_not_answer(bench: Bench) -> Case:
    model = bench.model(answered(0.5))
    stopped: list[int] = []

    def stop(run: Run) -> None:
        stopped.append(_pid(run))
        os.kill(stopped[0], signal.SIGSTOP)

    def go_on() -> None:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    bench.closing.callback(go_on)
    return bench.case(
        bench.samples(3, ["ask", 400]),
        actions=[after(lambda run: len(model.provider.received) > 2, stop)],
        present=lambda run: stopped,
    )


@scenario("middleman.down", least=Severity.WARNING, alone=True)
def middleman_does_not_come_back(bench: Bench) -> Case:
    model = bench.model(answered(0.5))
    killed: list[int] = []

    def end(run: Run) -> None:
        (run.system.home / "middleman.yaml").write_text(f"{bench.word()}: [\n")
        killed.append(_pid(run))
        with contextlib.suppress(ProcessLookupError):
            os.kill(killed[-1], signal.SIGKILL)

    return bench.case(
        bench.samples(3, ["ask", 400]),
        max_retries=100,
        actions=[after(lambda run: len(model.provider.received) > 2, again_and_again(end, 5))],
        present=lambda run: killed,
    )


@scenario("middleman.token_expired", least=Severity.STUCK, alone=True)
def token_past_its_date(bench: Bench) -> Case:
    model = bench.model(answered(0.5))
    good = bench.number(8, 14)
    environ = {"PYTHONPATH": str(SHIMS), "LAB_TOKEN_LIFETIME": str(-60 + good)}

    def refused(run: Run) -> bool:
        spans = run.run_dir.path / "spans" / "middleman.jsonl"
        return (
            bool(model.provider.received) and spans.exists() and b"hawk_token_expired" in spans.read_bytes()
        )

    def errors(run: Run) -> bool:
        return refused(run) or any("expired" in (sample.error or "") for sample in run.samples())

    return bench.case(bench.samples(3, ["ask", 400]), present=errors, case={"environ": environ})


@scenario("middleman.proxy_fault", least=Severity.WARNING, alone=True)
def middleman_fails_by_itself(bench: Bench) -> Case:
    bench.model(answered(0.3))
    flag = bench.gate / "broken"
    environ = {"PYTHONPATH": str(SHIMS), "LAB_BREAK_MIDDLEMAN": str(flag), "LAB_SAYS": bench.word()}
    model = bench.models[0]
    return bench.case(
        bench.samples(3, ["ask", 400]),
        max_retries=100,
        actions=[after(lambda run: len(model.provider.received) > 2, lambda run: flag.touch())],
        present=lambda run: flag.exists(),
        case={"environ": environ, "middleman": MIDDLEMAN},
    )
