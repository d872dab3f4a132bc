"""`hawk diagnose` as a person sees it: the text, what changes while it follows, a bundle without a server."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
import zstandard
from click.testing import CliRunner

from hawk.cli import cli
from hawk.cli.diagnose_text import changes, explained, render
from hawk.core.diagnosis.causes import Layer, Scope, Severity, Source, Who
from hawk.core.diagnosis.evidence import Attempt, Evidence, Job, Stalled, Worker
from hawk.core.diagnosis.verdict import Diagnosis, Fact, Fix, FixKind, Judged, Verdict
from hawk.core.snapshot import Progress

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def verdict(cause: str, severity: Severity, layer: Layer = Layer.SANDBOX, **more: object) -> Verdict:
    given = {
        "n": 1,
        "scope": Scope.ATTEMPT,
        "what": f"{cause} happens",
        "who": Who.OPERATOR,
        "remedy": "Do it",
        **more,
    }
    return Verdict(cause=cause, layer=layer, severity=severity, next="hawk trace j", **given)  # type: ignore[arg-type]


def diagnosis(*verdicts: Verdict, **more: object) -> Diagnosis:
    return Diagnosis("j", NOW.isoformat(), "running", list(verdicts), **more)  # type: ignore[arg-type]


def test_a_verdict_says_all_that_is_known_of_it() -> None:
    since = (NOW - timedelta(minutes=5)).isoformat()
    hung = verdict(
        "tool_hung", Severity.STUCK, since=since, attempts=2, pairs=1, held=["t/a/1", "t/a/2"], cost_hours=0.17,
        evidence=[Fact(Source.SANDBOX, "cat sleeps in its standard input")], doc="sandbox-tool-hung",
        weakened=["trace"], fix=Fix(FixKind.CANCEL_TOOL_CALL, ["u"]),
    )  # fmt: skip
    text = render(diagnosis(hung, missing={"middleman": "it is off"}))
    for said in (
        "1. STUCK · sandbox/tool_hung",
        "2 attempts of 1 pair",
        "(5m 00s)",
        "0.17 attempt-hours lost",
        "won't go on by itself",
        "holds: t/a/1, t/a/2",
        "· sandbox: cat sleeps in its standard input",
        "not checked against: trace",
        "do:   Do it  [operator]",
        "next: hawk trace j",
        "fix:  hawk fix 1  (cancel tool call)",
        "docs/why-is-my-eval-stuck.md#sandbox-tool-hung",
        "middleman: it is off",
    ):
        assert said in text, said


def test_what_is_well_is_said_and_information_is_no_alarm() -> None:
    well = verdict("progressing", Severity.INFO, Layer.HEALTHY)
    assert "nothing is wrong with it that Hawk can see" in render(diagnosis(well))
    assert "progressing: progressing happens" in render(diagnosis(well))
    assert "nothing is wrong; what it waits for" in render(
        diagnosis(verdict("no_slot", Severity.INFO, Layer.SCHEDULER))
    )


def test_a_verdict_that_clears_says_when_and_one_of_a_dead_runner_says_so() -> None:
    clears = (NOW + timedelta(seconds=90)).isoformat()
    text = render(
        diagnosis(verdict("rate_limited", Severity.WARNING, Layer.PROVIDER, clears=clears, before_death=True))
    )
    assert "ends by itself in 1m 30s" in text
    assert "so it was when it was last seen" in text


def test_following_tells_what_came_grew_and_went() -> None:
    small = verdict("tool_hung", Severity.WARNING, attempts=1)
    assert [*changes(diagnosis(), diagnosis(small))] == [
        "WARNING tool_hung: tool_hung happens · holds 1 attempt → hawk trace j"
    ]
    assert [*changes(diagnosis(small), diagnosis(verdict("tool_hung", Severity.WARNING, attempts=4)))] == [
        "tool_hung: holds 4 attempts (was 1)"
    ]
    assert [*changes(diagnosis(small), diagnosis())] == ["over: tool_hung"]
    assert [*changes(diagnosis(small), diagnosis(small))] == []


def test_why_lists_what_fired_what_ruled_it_out_and_what_could_not_be_judged() -> None:
    why = [
        Judged("loop_blocked", Layer.RUNNER, "fired", "", "blocked"),
        Judged("black_hole", Layer.PROVIDER, "ruled out", "loop_blocked: blocked", "silent"),
        Judged("queue_wait", Layer.MIDDLEMAN, "not judged", "middleman: it is off"),
        Judged("killed", Layer.RUNNER, "not seen"),
    ]
    text = explained(diagnosis(why=why))
    assert "fired: runner/loop_blocked: blocked" in text
    assert "ruled out: provider/black_hole (silent) by loop_blocked: blocked" in text
    assert "not judged: middleman/queue_wait, for want of middleman: it is off" in text
    assert "not seen: runner/killed" in text


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of a job whose worker's loop was blocked as everything died."""
    stall = Stalled("loop_blocked", (NOW - timedelta(seconds=40)).isoformat(), "blocked", "agent.py:7 think")
    evidence = Evidence(
        "j", NOW.isoformat(), job=Job(), progress=Progress(total=1, running=1),
        attempts=[Attempt("t", "s", 1, "t/s/1", uuid="u", worker=0)], workers=[Worker(0, beat=0.5, lag=40, stalled=[stall])],
    )  # fmt: skip
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        data = msgspec.json.encode(evidence)
        member = tarfile.TarInfo("j/evidence.json")
        member.size = len(data)
        archive.addfile(member, BytesIO(data))
    path = tmp_path / "j.bundle.tar.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(packed.getvalue()))
    return path


def test_a_bundle_is_diagnosed_without_a_server(bundle: Path) -> None:
    answer = CliRunner().invoke(cli, ["diagnose", "--file", str(bundle)])
    assert answer.exit_code == 0, answer.output
    assert "STUCK · runner/loop_blocked" in answer.output
    assert "agent.py:7 think" in answer.output
    strict = CliRunner().invoke(cli, ["diagnose", "--file", str(bundle), "--exit-status", "--json"])
    assert strict.exit_code == 3
    assert msgspec.json.decode(strict.stdout_bytes, type=Diagnosis).verdicts[0].before_death is False


def test_a_bundle_can_neither_be_followed_nor_be_of_another_job(bundle: Path) -> None:
    for more in (["-f"], ["another"]):
        answer = CliRunner().invoke(cli, ["diagnose", "--file", str(bundle), *more])
        assert answer.exit_code != 0
