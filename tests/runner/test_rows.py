"""What is known of an attempt's sandbox goes with the try that it was of."""

from __future__ import annotations

from datetime import datetime

import pytest

from hawk.bridge.control import SampleRow
from hawk.bridge.logformat import SampleSummary
from hawk.core.snapshot import Activity, Sample, SandboxFacts
from hawk.core.states import ActivityType, SamplePhase
from hawk.runner.heartbeat import attempt_name, split_name
from hawk.runner.rows import in_flight, unreachable, with_sandbox

HIT = SandboxFacts("b.default", {"oom_killed": 1})
NOON = "2026-01-01T12:00:00+00:00"


def row(phase: SamplePhase, started_at: str | None, sandbox: SandboxFacts | None = None) -> Sample:
    return Sample("s", 1, 1, phase=phase, started_at=started_at, sandbox=sandbox)


@pytest.mark.parametrize(
    ("sample", "shown"),
    [
        (row(SamplePhase.COMPLETED, "2026-01-01T11:59:59.5+00:00"), HIT),
        (row(SamplePhase.ERRORED, "2026-01-01T12:59:00+01:00"), HIT),
        (row(SamplePhase.ERRORED, None), HIT),
        (row(SamplePhase.COMPLETED, "2026-01-01T12:00:01+00:00"), None),
        (row(SamplePhase.RUNNING, "2026-01-01T11:00:00+00:00"), None),
        (row(SamplePhase.LIMIT, NOON, SandboxFacts("own")), SandboxFacts("own")),
    ],
    ids=["its own", "another time zone", "no start", "an earlier try's", "in flight", "known already"],
)
def test_a_sandbox_that_ended_shows_with_its_own_try(sample: Sample, shown: SandboxFacts | None) -> None:
    assert with_sandbox(sample, NOON, HIT).sandbox == shown


@pytest.mark.parametrize("sample_id", ["s0", "a/b", "a@b/1@c", ""])
def test_the_name_of_an_attempt_can_be_taken_apart(sample_id: str) -> None:
    assert split_name(attempt_name(sample_id, 3, "eval")) == (sample_id, 3, "eval")


@pytest.mark.parametrize(
    ("sandbox", "awaited", "detail"),
    [
        (None, None, "starting its sandbox"),
        (
            None,
            "building its sandbox's setup layer (packages jq)",
            "building its sandbox's setup layer (packages jq)",
        ),
        (SandboxFacts("a.default"), None, "putting its files into the sandbox, running its setup"),
    ],
)
def test_an_attempt_that_has_not_started_says_what_its_sandbox_waits_for(
    sandbox: SandboxFacts | None, awaited: str | None, detail: str
) -> None:
    now = datetime.fromisoformat(NOON)
    queued = SampleRow("s", 1, "queued", last_activity_at=now.timestamp() - 7, events=1)
    assert queued.begun
    shown = in_flight(
        queued, None, [], now=now, uuid="u", http_retries=0, outcomes="", sandbox=sandbox, awaited=awaited
    )
    assert (shown.phase, shown.uuid, shown.idle_seconds) == (SamplePhase.INIT, "u", 7.0)
    assert shown.activity == Activity(ActivityType.SANDBOX, detail, "2026-01-01T11:59:53+00:00")


def test_one_that_only_waits_has_not_begun() -> None:
    assert not SampleRow("s", 1, "queued").begun
    assert not SampleRow("s", 1, "pending").begun


def test_a_clock_that_was_set_back_makes_no_time_negative() -> None:
    now = datetime.fromisoformat(NOON)
    later = now.timestamp() + 3600
    running = SampleRow("s", 1, "running", started_at=later, last_activity_at=later, total_time=0.5)
    shown = in_flight(
        running, None, [], now=now, uuid=None, http_retries=0, outcomes="", sandbox=None, awaited=None
    )
    assert (shown.idle_seconds, shown.total_time) == (0.0, 0.5)
    summary = SampleSummary("s", 1, started_at="2026-01-01T13:00:00+00:00")
    assert unreachable(summary, [], None, "", now, None).idle_seconds == 0.0
