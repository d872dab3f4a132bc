"""`hawk compare`: the verdict first, then what it rests on."""

from __future__ import annotations

import re

import msgspec
import pytest

from hawk.cli.compare_text import render
from hawk.core.attempts.report import Comparison, Concentration, Judgement
from hawk.core.text import strip_controls
from tests.cli.conftest import Run
from tests.cli.serving import Canned
from tests.store.hostile import NAMES

Env = dict[str, str]
PATH = "GET /meta/compare"


def comparison(judgement: Judgement = Judgement.NOISE, **fields: object) -> Comparison:
    given = {
        "common": 220,
        "both_passed": 184,
        "both_failed": 20,
        "lost": [f"t · m · lost-{i}" for i in range(30)],
        "gained": ["t · m · won"],
        "p": 0.4548,
        "because": ["10 PASS→FAIL and 6 FAIL→PASS: p = 0.45"],
        "expected_flips": 14.2,
        "expected_sd": 3.7,
        "smallest": 10,
        **fields,
    }
    return Comparison("run-a", "run-b", judgement=judgement, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judgement", "said"),
    [
        (Judgement.NOISE, "noise: run-b differs from run-a by no more than two identical runs do."),
        (Judgement.REGRESSION, "regression: run-b is worse than run-a."),
        (Judgement.IMPROVEMENT, "improvement: run-b is better than run-a."),
        (Judgement.THROTTLING, "throttling: openai throttled run-b"),
        (
            Judgement.UNDERPOWERED,
            "underpowered: these pairs are too few to tell: fewer than 10 net losses can't",
        ),
    ],
)
def test_the_verdict_comes_first_and_the_evidence_under_it(
    canned: Canned, remote: Env, run: Run, judgement: Judgement, said: str
) -> None:
    canned.routes[PATH] = comparison(judgement, blame="openai")
    done = run("compare", "run-a", "run-b", env=remote)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(said)
    assert lines[1] == "  - 10 PASS→FAIL and 6 FAIL→PASS: p = 0.45"
    assert canned.requests[-1][1] == "/meta/compare?a=run-a&b=run-b"


def test_figures_flips_and_where_they_lie(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes[PATH] = comparison(
        concentration=[
            Concentration("provider", "openai", 9, 88, 0.0123),
            Concentration("time", "first hour", 1, 4, None),
            Concentration("model", "quiet", 0, 4, None),
        ],
        errors_a={},
        errors_b={"openai": 12},
        retries_a={"openai": {"429 RateLimitError": 3}},
        retries_b={"openai": {"429 RateLimitError": 4000}, "moonshot": {"503": 1}},
        only_b=["t · m · new"],
        undecided=["t · m · open"],
        different=True,
    )
    text = run("compare", "run-a", "run-b", env=remote).stdout
    assert "220 decided in both: 184 passed, 20 failed twice" in text
    assert "30 PASS→FAIL, 1 FAIL→PASS; p = 0.455 (McNemar, exact)" in text
    assert "two identical runs would show 14.2 ± 3.7 flips" in text
    assert "from 10 net losses on" in text
    assert "lost-19" in text
    assert "… 10 more; --all names them" in text
    assert re.search(r"^provider  openai .* 0.0123$", text, re.MULTILINE)
    assert "quiet" not in text
    assert "4,000" in text
    assert "moonshot" in text
    assert "Only in run-b: 1" in text
    assert "Not decided in both: 1" in text
    assert "configured differently" in text
    assert "lost-29" in run("compare", "run-a", "run-b", "--all", env=remote).stdout


def test_json_is_what_the_server_sent(canned: Canned, remote: Env, run: Run) -> None:
    canned.routes[PATH] = comparison()
    done = run("compare", "run-a", "run-b", "--json", env=remote)
    assert done.stdout.encode() == msgspec.json.encode(comparison()) + b"\n"


def test_two_ids_are_needed_and_unknown_ones_said(canned: Canned, remote: Env, run: Run) -> None:
    assert run("compare", "run-a", env=remote).returncode == 2
    done = run("compare", "run-a", "run-b", env=remote)
    assert (done.returncode, "hawk list eval-sets" in done.stderr) == (2, True)


@pytest.mark.parametrize("columns", [None, 40])
def test_hostile_names_are_harmless(columns: int | None) -> None:
    counts = dict.fromkeys(NAMES, 1)
    found = comparison(
        Judgement.THROTTLING,
        blame=NAMES[11],
        lost=NAMES,
        gained=NAMES,
        only_a=NAMES,
        because=NAMES,
        concentration=[Concentration(name, name, 1, 1, 0.5) for name in NAMES],
        errors_a=counts,
        retries_b=dict.fromkeys(NAMES, counts),
    )
    found.a = NAMES[11]
    text = render(found, everything=True, columns=columns)
    plain = text.replace("\x1b[31m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert strip_controls(plain) == plain


def test_no_common_pair_is_said_plainly() -> None:
    text = render(
        Comparison("a", "b", 0, 0, 0, [], [], 1.0, Judgement.UNDERPOWERED, only_a=["x"], only_b=["y"])
    )
    assert "these pairs are too few to tell: such a difference can't be seen with them." in text
