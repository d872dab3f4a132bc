"""Reports to draw and serve, made by the real aggregation."""

from __future__ import annotations

import msgspec

from hawk.core.attempts.report import PolicyUse, Report
from hawk.core.attempts.results import Check, Failure, Outcome, Pair, Result, Scored, Usage, Workspace
from tests.core.attempts.made import reported, result
from tests.store.hostile import NAMES

MODEL = "openai/gpt-5.6"
SEQUENTIAL = PolicyUse("sequential", 90.0, 8, 240.0, tokens=900, cost=1.5, waves=2, slots=4)
SELECTIVE = PolicyUse("selective", 60.0, 9, 300.0, tokens=950, slots=4, threshold=300.0)


def pair(name: str) -> Pair:
    return Pair("coding", name, MODEL, "react")


def attempts(name: str, *outcomes: Outcome | bool, **fields: object) -> list[Result]:
    made = []
    for k, outcome in enumerate(outcomes, 1):
        passed = outcome in (True, Outcome.PASS)
        checks = (Check("compiles", True), Check("tests pass", passed, "" if passed else "2 of 9 fail"))
        given = {
            "scores": {"v": Scored("C" if passed else "I", explanation=f"because of {name}", checks=checks)},
            "usage": {MODEL: Usage(input=90, output=10, total=100)},
            "cost": 0.25,
            "uuid": f"{name}-{k}",
            "workspace": Workspace(1, 10, 5),
            **fields,
        }
        made.append(result(pair(name), k, outcome, duration=30 * k, **given))
    return made


def mixed(job_id: str = "demo-1") -> Report:
    """One pair of each kind: passed, saved, failed, timed out, without a result, undecided."""
    broken = Failure("RateLimitError", "429 Too many requests")
    results = [
        *attempts("easy", True, True),
        *attempts("saved", False, True),
        *attempts("hard", False, False),
        *attempts("slow", Outcome.TIMEOUT, Outcome.TIMEOUT, reason="time limit of 12 minutes"),
        *attempts("lost", Outcome.INFRA_ERROR, Outcome.INFRA_ERROR, error=broken, cost=None, workspace=None),
        *attempts("open", False),
    ]
    names = ("easy", "saved", "hard", "slow", "lost", "open")
    return reported(
        [(pair(name), 2) for name in names],
        results,
        job_id,
        policies=[SEQUENTIAL, SELECTIVE],
        problems=["attempts/x/1/result.json: is torn or damaged: Input data was truncated"],
    )


def passed() -> Report:
    return reported([(pair("easy"), 1)], attempts("easy", True), "demo-1")


def empty() -> Report:
    return reported([], [], "demo-1")


def hostile() -> Report:
    """Every text that can come from outside is one of `NAMES`, in every place."""
    planned, results = [], []
    for i, name in enumerate(NAMES):
        fields = {
            "scores": {name: Scored(name, explanation=name * 2, checks=(Check(name, False, name),))},
            "reason": name,
            "uuid": name,
            "usage": {name: Usage(total=1)},
        }
        for of in (Pair(name, name, name, name), Pair("t", f"{i}", "m", name)):
            planned.append((of, 2))
            results.append(result(of, 1, False, **fields))
            results.append(
                result(of, 2, Outcome.INFRA_ERROR, error=Failure(name or "e", name or "e"), **fields)
            )
        lost = Pair("lost", name, "m")
        planned.append((lost, 1))
        results.append(result(lost, 1, Outcome.INFRA_ERROR, error=Failure("e", name or "e")))
    made = reported(planned, results, "demo-1", problems=list(NAMES))
    return msgspec.structs.replace(
        made,
        job_id=NAMES[0] + NAMES[6],
        biased=NAMES[6],
        policies=[PolicyUse(name, 1, 1, 1) for name in NAMES],
    )


def big(pairs: int, runs: int) -> Report:
    planned, results = [], []
    for i in range(pairs):
        of = Pair("coding", f"s{i}", MODEL, "react")
        planned.append((of, runs))
        results += [result(of, k, (i + k) % 3 > 0) for k in range(1, runs + 1)]
    return reported(planned, results, "demo-1")
