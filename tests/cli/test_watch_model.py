from datetime import timedelta

import msgspec

from hawk.cli import watch_model as model
from hawk.cli import watch_plain
from hawk.cli.watch_concerns import concerns, waits
from hawk.cli.watch_troubles import troubles
from hawk.core.snapshot import Activity, ModelUse, Progress, SandboxFacts, Snapshot, Task
from hawk.core.states import ActivityType, JobStatus, SamplePhase
from tests.cli.snapshots import NOW, at, busy, count, ended, large, sample


def test_attempts_are_ranked_by_how_much_they_need_a_person() -> None:
    found, more = concerns(busy(), NOW, 10)
    assert [c.sample for c in found] == ["frozen", "retrying", "idle", "broken", "long", "quick"]
    assert more == 0


def test_each_concern_says_what_it_waits_for_and_how_long() -> None:
    texts = {c.sample: c.text for c in concerns(busy(), NOW, 10)[0]}
    assert texts["retrying"].startswith("waits to retry RateLimitError 429 for 5m 00s, 15m 00s to go")
    assert "7 HTTP retries" in texts["retrying"]
    assert "calls SSFFF" in texts["retrying"]
    assert texts["quick"] == "tool bash for 3s"
    assert texts["frozen"] == "worker's event loop is blocked for 1m 30s"
    assert "idle 6m 40s" in texts["idle"]


def test_limits_that_a_sandbox_has_hit_stand_first() -> None:
    hit = SandboxFacts("x.default", {"oom_killed": 2, "disk_full": 1})
    lost = SandboxFacts("y.default", lost="the process that keeps the sandboxes has ended")
    activity = Activity(ActivityType.TOOL, "bash", at(3))
    snapshot = busy()
    snapshot.tasks[0].samples = [
        sample("a", SamplePhase.RUNNING, activity=activity, sandbox=hit),
        sample("b", SamplePhase.ERRORED, error="no more room", sandbox=hit),
        sample("c", SamplePhase.RUNNING, activity=activity, sandbox=lost),
        sample("d", SamplePhase.RUNNING, activity=activity, sandbox=SandboxFacts("z.default")),
    ]
    assert {c.sample: c.text for c in concerns(snapshot, NOW, 10)[0]} == {
        "a": "disk_full · oom_killed ×2 · tool bash for 3s",
        "b": "disk_full · oom_killed ×2 · no more room",
        "c": "sandbox lost · tool bash for 3s",
        "d": "tool bash for 3s",
    }


def test_what_attempts_wait_for_is_said_where_it_is_more_than_their_turn() -> None:
    snapshot = busy()
    waiting = [sample(name, SamplePhase.WAITING, reason="queued") for name in "ab"]
    snapshot.tasks[0].samples = waiting
    snapshot.tasks[0].progress = count(waiting, 2)
    assert waits(snapshot) == []
    assert list(watch_plain.changes(snapshot, snapshot, NOW)) == []
    other = msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot)
    for row in other.tasks[0].samples:
        row.reason = "building its sandbox's setup layer (packages \x1b[2Jjq)"
    line = "coding: 2 waiting: building its sandbox's setup layer (packages jq)"
    assert waits(other) == [line]
    assert line in watch_plain.render(other, NOW)
    assert list(watch_plain.changes(snapshot, other, NOW)) == [line]
    assert list(watch_plain.changes(other, other, NOW)) == []


def test_every_activity_has_words() -> None:
    for kind in ActivityType:
        snapshot = busy()
        snapshot.tasks[0].samples = [sample("a", SamplePhase.RUNNING, activity=Activity(kind, "x", at(5)))]
        assert concerns(snapshot, NOW, 1)[0][0].text.endswith("x for 5s")


def test_times_go_on_between_two_snapshots() -> None:
    later = NOW + timedelta(seconds=60)
    texts = {c.sample: c.text for c in concerns(busy(), later, 10)[0]}
    assert texts["quick"] == "tool bash for 1m 03s"
    assert "for 6m 00s, 14m 00s to go" in texts["retrying"]


def test_a_wrong_clock_here_does_not_show() -> None:
    elsewhere = NOW + timedelta(hours=5)
    assert model.server_now(busy(), 2.0, elsewhere) == NOW + timedelta(seconds=2)


def test_pace_is_observed_and_unknown_before_anything_ended() -> None:
    running = Progress(total=4, completed=2, running=2)
    done = [
        sample("a", SamplePhase.COMPLETED, completed_at=at(30)),
        sample("b", SamplePhase.COMPLETED, completed_at=at(10)),
    ]
    pace = model.pace(done, running, NOW - timedelta(minutes=2), NOW)
    assert pace.per_minute == 1.0
    assert pace.eta_seconds == 120
    unknown = model.pace([], Progress(total=4, running=4), NOW - timedelta(minutes=2), NOW)
    assert (model.rate_text(unknown), model.eta_text(unknown)) == ("–", "–")


def test_times_of_every_form_count_for_the_pace() -> None:
    running = Progress(total=9, completed=8, running=1)
    ends = (
        "2026-11-29T11:59:00+00:00",
        "2026-11-29T11:59:00.000001+00:00",
        "2026-11-29T11:59:00Z",
        "2026-11-29T13:59:00.000001+02:00",
        "2026-11-29T11:57:59.999999+00:00",
        "2026-11-29T11:58:00+00:00",
        "2026-11-29T13:57:59.999999+02:00",
        "no time",
    )
    done = [sample("a", SamplePhase.COMPLETED, i, completed_at=end) for i, end in enumerate(ends)]
    assert model.pace(done, running, NOW - timedelta(minutes=2), NOW).per_minute == 2.0


def test_attempts_that_ended_before_a_resume_are_no_pace() -> None:
    old = [sample("a", SamplePhase.COMPLETED, completed_at=at(3600))]
    assert model.pace(old, Progress(total=2, completed=1, running=1), None, NOW).per_minute is None


def test_tasks_of_one_name_are_told_apart_by_model() -> None:
    tasks = [Task("coding", model="m/a"), Task("coding", model="m/b")]
    assert model.task_names(tasks) == ["coding · m/a", "coding · m/b"]
    assert model.task_names([Task("coding", model="m/a")]) == ["coding"]


def test_trouble_with_workers_and_sources_is_said() -> None:
    lines = troubles(busy(), NOW)
    assert "worker 0 restarted 1 x (killed by signal 9)" in lines
    assert "worker 1 has not answered for 20s" in lines
    assert "metrics unavailable: no answer" in lines


def test_trouble_reasons_have_words() -> None:
    snapshot = Snapshot("j", trouble_reason="OOMKilled")
    assert troubles(snapshot, NOW) == ["runner out of memory (OOMKilled)"]


def test_a_bar_adds_up_and_shows_everything_that_exists() -> None:
    for counts in ([1, 0, 1, 0, 0, 998], [500, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 3], [1, 1, 1, 1, 1, 1]):
        cells = watch_plain.segments(sum(counts), counts, 16)
        assert sum(cells) == 16
        assert all((cell > 0) == (n > 0) for cell, n in zip(cells, counts, strict=True))
    assert sum(watch_plain.segments(0, [0] * 6, 16)) == 16
    assert sum(watch_plain.segments(6, [1] * 6, 3)) == 3


def test_plain_snapshot_has_counts_tasks_and_attempts() -> None:
    text = watch_plain.render(busy(), NOW)
    assert "demo-1: Running for 2m 00s" in text
    assert "5/12 · 2 completed · 1 limit · 1 errored · 1 canceled · 4 running · 3 waiting" in text
    assert "errored  ValueError: bad Traceback" in text
    assert "\x1b" not in text


def test_plain_snapshot_of_a_huge_job_stays_short() -> None:
    text = watch_plain.render(large(100, 100), NOW)
    assert "… 70 more tasks" in text
    assert "3,288 more" in text
    assert len(text.splitlines()) < 60


def test_changes_are_one_line_each_and_nothing_is_said_twice() -> None:
    first = list(watch_plain.changes(None, busy(), NOW))
    assert first[0] == "Running"
    assert any(line.startswith("errored: coding broken #1: ValueError") for line in first)
    assert list(watch_plain.changes(busy(), busy(), NOW + timedelta(seconds=9))) == []
    last = list(watch_plain.changes(busy(), ended(), NOW))
    assert last[0] == "Complete"
    assert last[1].startswith("5/5")


def test_summary_has_scores_wall_time_and_the_next_commands() -> None:
    text = watch_plain.summary(ended(), NOW)
    assert "demo-1: Complete in 2m 00s" in text
    assert "verify/accuracy 0.667" in text
    assert "hawk transcript uuid-broken-1" in text
    assert "hawk list samples demo-1" in text
    failed = watch_plain.summary(ended(JobStatus.FAILED), NOW)
    assert "hawk eval-set resume demo-1" in failed


def test_what_a_job_spends_on_models_is_said_in_one_line() -> None:
    snapshot = busy()
    assert model.models_text(snapshot) == ""
    snapshot.models = ModelUse(requests=1200, tokens=34567, usd=1.5, in_flight=3, waiting=2)
    shown = "1,200 model calls · 34,567 tokens · $1.50 · 3 in flight · 2 waiting for the provider"
    assert model.models_text(snapshot).startswith(shown)
    snapshot.models = ModelUse(problem="the middleman does not answer: \x1b[31mno")
    assert any("does not answer: " in line and "\x1b" not in line for line in troubles(snapshot, NOW))
