"""What is said of sandboxes: commands that hang and commands that work, sandboxes that can't be made or are lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hawk.core.diagnosis.causes import Cause, Severity, Source
from hawk.core.diagnosis.diagnose import explain
from hawk.core.diagnosis.errortext import normalised, sign_of
from hawk.core.diagnosis.evidence import Times, Unreached, WaitingSandbox, Worker
from hawk.core.diagnosis.verdict import FixKind
from hawk.core.snapshot import SandboxFacts
from hawk.core.states import ActivityType, SamplePhase
from tests.core.diagnosis.build_attempts import (
    NOW,
    RULES,
    ago,
    call,
    ended,
    evidence,
    found,
    in_flight,
    only,
    process,
    wait,
)

HUNG = Cause.TOOL_HUNG


# --- commands


@pytest.mark.parametrize(
    ("command", "waits", "quiet"),
    [
        ("sleep 100000", "a timer", 6.0),
        ("sleep infinity", "a timer", 6.0),
        ("cat", "its standard input", 31.0),
        ("read-fifo", "a pipe", 31.0),
        ("flock /tmp/l true", "a lock", 51.0),
        ("curl http://10.0.0.1", "the network", 51.0),
        ("python -m http.server", "a client: it serves", 40.0),
        ("strange", "", 130.0),
    ],
)
def test_a_command_that_waits_for_what_will_not_come_is_hung(command: str, waits: str, quiet: float) -> None:
    hung = in_flight(waited=quiet + 5, processes=[process(command, quiet, waits)])
    finding = only(evidence(hung), HUNG)
    assert finding.severity is Severity.STUCK
    assert command in finding.what
    assert finding.fix is not None
    assert (finding.fix.kind, finding.fix.uuids) == (FixKind.CANCEL_TOOL_CALL, ["u-s1"])
    assert finding.held == [0]


@pytest.mark.parametrize(
    ("command", "quiet", "fields"),
    [
        ("make -j8", 2.0, {"busy": 0.9}),
        ("wget big", 1.0, {"io": 5e6}),
        ("sleep 60", 20.0, {"waits": "a timer"}),
        ("slow-answer", 20.0, {"waits": "the network"}),
        ("ld", 25.0, {"waits": "a lock"}),
    ],
)
def test_a_command_that_works_or_has_only_begun_to_wait_is_not_spoken_of(
    command: str, quiet: float, fields: dict[str, Any]
) -> None:
    running = process(command, quiet, age=300.0, **fields)
    if command.startswith("sleep"):
        running.age = 20.0
    assert found(evidence(in_flight(waited=1000.0, processes=[running])), HUNG) == []


@pytest.mark.parametrize(
    ("command", "waits", "quiet", "deadline"),
    [
        ("sleep 300", "a timer", 100.0, None),
        ("python wait.py", "a timer", 100.0, None),
        ("curl http://slow", "the network", 40.0, None),
        ("cat", "its standard input", 100.0, 80.0),
        ("strange", "", 60.0, None),
    ],
)
def test_what_may_be_meant_so_is_information(
    command: str, waits: str, quiet: float, deadline: float | None
) -> None:
    attempt = in_flight(waited=quiet + 5, processes=[process(command, quiet, waits, deadline=deadline)])
    finding = only(evidence(attempt), HUNG)
    assert finding.severity is Severity.INFO
    assert finding.fix is None
    assert (finding.clears is not None) == (command == "sleep 300" or deadline is not None)


def test_a_deadline_that_its_call_names_makes_it_information_until_it_has_passed() -> None:
    def judged(age: float) -> list[Severity]:
        attempt = in_flight(
            waited=age,
            calls=[call("exec(timeout=180, bash -c x)", age, "Sandbox Exec", 180.0)],
            processes=[process("x", age - 2, "the network")],
        )
        return [finding.severity for finding in found(evidence(attempt), HUNG)]

    assert judged(100) == [Severity.INFO]
    assert judged(185) == [Severity.STUCK]  # it is quiet, and nothing ended it
    assert judged(220) == [Severity.STUCK]


def test_what_is_usual_for_a_tool_is_not_hung() -> None:
    attempt = in_flight(waited=200.0, calls=[call("wait_for_ci()", 200.0)], detail="wait_for_ci")
    attempt.processes = [process("ci-client", 150.0, "the network")]
    seen = evidence(attempt)
    assert only(seen, HUNG).severity is Severity.STUCK
    seen.learnt.tools = {"wait_for_ci": Times(20, 300.0, 500.0, 600.0)}
    assert only(seen, HUNG).severity is Severity.INFO


def test_commands_that_hang_alike_are_one_finding() -> None:
    attempts = [in_flight(f"s{n}", processes=[process("cat", 60.0, "its standard input")]) for n in range(5)]
    attempts.append(in_flight("other", processes=[process("make", 1.0, busy=1.0)]))
    finding = only(evidence(*attempts), HUNG)
    assert finding.held == [0, 1, 2, 3, 4]
    assert finding.what.startswith("5 attempts wait for commands that do nothing")


def test_a_daemon_in_the_background_is_not_the_command() -> None:
    daemon = process("postgres", 900.0, "the network", background=True)
    working = process("psql -f load.sql", 1.0, busy=0.4)
    assert found(evidence(in_flight(processes=[working, daemon])), HUNG) == []
    build = process("make", 0.0, background=True, busy=0.8)
    meant = in_flight(processes=[process("sleep 3600", 100.0, "a timer"), build])
    assert only(evidence(meant), HUNG).severity is Severity.INFO


def test_the_client_of_inspects_own_tools_says_nothing_of_what_it_serves() -> None:
    client = process("/var/tmp/inspect-sandbox-tools exec", 90.0, "the network")
    works = process("gcc x.c", 1.0, busy=1.0, background=True)
    assert found(evidence(in_flight(processes=[client, works])), HUNG) == []


def test_without_sight_of_processes_age_alone_raises_no_alarm() -> None:
    def judged(age: float, times: Times | None = None) -> list[Severity]:
        attempt = in_flight(waited=age, calls=[call("docker compose exec …", age, "Subprocess")])
        seen = evidence(attempt)
        seen.missing = {}
        if times is not None:
            seen.learnt.tools = {"bash": times}
        return [finding.severity for finding in found(seen, HUNG)]

    assert judged(50) == []
    assert judged(70) == [Severity.INFO]
    assert judged(70, Times(50, 5.0, 30.0, 60.0)) == []
    assert judged(4000) == [Severity.WARNING]


def test_a_tool_that_is_python_is_judged_by_its_chain() -> None:
    def judged(kind: str, quiet: float) -> list[Severity]:
        attempt = in_flight(waited=quiet, calls=[call("ask()", quiet)], wait=wait(kind, since=quiet))
        return [finding.severity for finding in found(evidence(attempt), HUNG)]

    assert judged("event", 45) == [Severity.STUCK]
    assert judged("event", 20) == []
    assert judged("timer", 100) == [Severity.INFO]
    assert judged("network", 100) == [Severity.INFO]
    assert judged("network", 400) == [Severity.STUCK]
    assert judged("running", 400) == []
    asks = in_flight(
        waited=300.0, calls=[call("agent()", 300.0), call("m", 200.0, "Model")], wait=wait("network")
    )
    assert found(evidence(asks), HUNG) == []


# --- limiters


def test_a_limiter_whose_places_are_held_by_what_stands_still_is_starved() -> None:
    queued = [
        in_flight(f"w{n}", wait=wait("limiter", frames=["subprocess", "concurrency"], since=80.0))
        for n in range(6)
    ]
    holder = in_flight(
        "h",
        waited=200.0,
        calls=[call("tail -f x", 200.0, "Subprocess")],
        processes=[process("tail -f x", 190.0, "a signal")],
    )
    finding = only(evidence(*queued, holder), Cause.LIMITER_STARVED)
    assert (finding.severity, finding.subject, finding.held) == (
        Severity.STUCK,
        "max_subprocesses",
        [0, 1, 2, 3, 4, 5],
    )
    assert "t/h/1" in finding.what
    both = {v.cause: v.held for v in explain(evidence(*queued, holder), NOW, RULES).verdicts}
    assert set(both) == {"limiter_starved", "tool_hung"}  # the holder's own trouble is told too


def test_a_queue_that_moves_is_not_starved() -> None:
    queued = [in_flight(f"w{n}", wait=wait("limiter", frames=["subprocess"], since=80.0)) for n in range(6)]
    works = in_flight(
        "h", calls=[call("make", 200.0, "Subprocess")], processes=[process("make", 1.0, busy=1.0)]
    )
    assert found(evidence(*queued, works), Cause.LIMITER_STARVED) == []
    model = [
        in_flight(f"m{n}", wait=wait("limiter", frames=["Model._generate", "concurrency"])) for n in range(6)
    ]
    assert found(evidence(*model, works), Cause.LIMITER_STARVED) == []


# --- sandboxes that can't be made

TEXTS = {
    Cause.IMAGE_PULL: [
        "Error response from daemon: pull access denied for acme/tool, repository does not exist or may require 'docker login'",
        "manifest for python:3.99 not found: manifest unknown",
        "toomanyrequests: You have reached your pull rate limit.",
        'Failed to pull image "x": failed to resolve reference "docker.io/library/x:y": not found',
        'Error Head "https://ghcr.io/v2/a/b/manifests/latest": denied: denied',
    ],
    Cause.CREATE_FAILED: [
        "The sandbox 1f2e3d4c.default could not be made: create: bwrap: Can't mount proc on /newroot/proc",
        "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ],
    Cause.CRASH_LOOP: ["The service db ended before it was ready: exit code 1. no such file"],
    Cause.UNSCHEDULABLE: ["0/12 nodes are available: 12 Insufficient memory."],
    Cause.EXEC_LOST: ['service "default" is not running', "pod UID mismatch: the pod was replaced"],
    Cause.NETWORK_DENIED: [
        "Failed to execute setup script for sample: curl: (6) Could not resolve host: pypi.org"
    ],
    Cause.SETUP_FAILED: ["Failed to execute setup script for sample: make: *** No rule to make target"],
    Cause.SANDBOX_DISK_FULL: ["tar: write error: No space left on device"],
}


@pytest.mark.parametrize(
    ("cause", "text"), [(cause, text) for cause, texts in TEXTS.items() for text in texts]
)
def test_an_errors_own_words_name_the_cause_and_nothing_else(cause: Cause, text: str) -> None:
    phase = "setup" if "setup script" in text else "agent" if cause is Cause.EXEC_LOST else "sandbox"
    verdicts = explain(evidence(ends=[ended(text, 4, phase=phase)], errored=4), NOW, RULES).verdicts
    assert [verdict.cause for verdict in verdicts] == [cause.word]
    assert verdicts[0].severity.rank >= Severity.WARNING.rank
    assert verdicts[0].attempts >= 4


def test_sandboxes_that_fail_now_and_then_are_a_warning_and_those_that_always_do_are_fatal() -> None:
    text = TEXTS[Cause.CREATE_FAILED][0]
    assert only(evidence(ends=[ended(text)], errored=3), Cause.CREATE_FAILED).severity is Severity.FATAL
    some = evidence(ends=[ended(text)], errored=3, completed=5)
    assert only(some, Cause.CREATE_FAILED).severity is Severity.WARNING
    some.ended[0].last_at = ago(2000)
    assert only(some, Cause.CREATE_FAILED).severity is Severity.INFO


def test_an_agents_own_error_is_not_taken_for_the_sandboxs() -> None:
    agents = ended("Error response from daemon: conflict", phase="agent")
    assert explain(evidence(ends=[agents], errored=3, completed=1), NOW, RULES).verdicts == []


def test_the_clusters_word_for_a_pod_that_does_not_start() -> None:
    def judged(reason: str, cause: Cause, waited: float) -> Severity:
        seen = evidence(in_flight(phase=SamplePhase.INIT, activity=ActivityType.SANDBOX, waited=5.0))
        seen.sandboxes = [WaitingSandbox("s1", "pod-1", "Pending", reason, "why", ago(waited), "task-1")]
        finding = only(seen, cause)
        assert finding.held == [0]
        return finding.severity

    assert judged("ImagePullBackOff", Cause.IMAGE_PULL, 20) is Severity.STUCK
    assert judged("CreateContainerConfigError", Cause.CREATE_FAILED, 20) is Severity.STUCK
    assert judged("CrashLoopBackOff", Cause.CRASH_LOOP, 20) is Severity.STUCK
    assert judged("Unschedulable", Cause.UNSCHEDULABLE, 100) is Severity.INFO
    assert judged("Unschedulable", Cause.UNSCHEDULABLE, 200) is Severity.STUCK


def test_pods_that_failed_and_pods_that_still_wait_for_the_same_image_are_one_finding() -> None:
    text = "The sandbox's image lost:1 can't be had (pod p-0): ImagePullBackOff"
    starting = [
        in_flight(str(n), phase=SamplePhase.INIT, activity=ActivityType.SANDBOX, waited=5.0) for n in (1, 2)
    ]
    seen = evidence(*starting, ends=[ended(text, phase="sandbox")], errored=3)
    task = seen.tasks[0]
    seen.sandboxes = [
        WaitingSandbox(a.sample, f"p-{a.sample}", "Pending", "ErrImagePull", "no such image", ago(20 + n), task.identifier)
        for n, a in enumerate(starting)
    ]  # fmt: skip
    finding = only(seen, Cause.IMAGE_PULL)
    assert finding.severity is Severity.FATAL
    assert (finding.held, finding.ended, finding.subject) == ([0, 1], 3, task.name)
    assert finding.what.startswith("3 sandboxes of ")
    assert "(2 pods more wait)" in finding.what
    assert [f.fact for f in finding.facts if f.source is Source.ENGINE] == [
        "p-1 and 1 more: ErrImagePull no such image"
    ]


def test_pods_that_wait_are_told_by_task_and_by_its_name() -> None:
    seen = evidence(waiting=4)
    other = msgspec.structs.replace(seen.tasks[0], identifier="other-id", name="other")
    seen.tasks.append(other)
    seen.sandboxes = [
        WaitingSandbox(None, f"p-{n}", "Pending", "ErrImagePull", "no such image", ago(20), task.identifier)
        for n, task in enumerate([*seen.tasks, other])
    ]
    subjects = {f.subject: f.waiting for f in found(seen, Cause.IMAGE_PULL)}
    assert subjects == {seen.tasks[0].name: 1, "other": 2}


def test_a_setup_that_stands_still_is_named_early_and_stuck_late_and_a_cold_start_is_neither() -> None:
    def judged(waited: float, **fields: Any) -> list[Severity]:
        starts = in_flight(phase=SamplePhase.INIT, activity=ActivityType.SANDBOX, waited=waited, **fields)
        return [finding.severity for finding in found(evidence(starts), Cause.START_TIMEOUT)]

    waiting = [process("/tmp/setup.sh", 40.0, "the network")]
    assert judged(45, processes=waiting) == [Severity.INFO]
    assert judged(300, processes=waiting) == [Severity.STUCK]
    assert judged(60, processes=[process("sleep 9999", 50.0, "a timer")]) == [Severity.STUCK]
    assert judged(30) == []
    assert judged(90) == [Severity.INFO]
    assert judged(500, processes=[process("pip install x", 1.0, busy=0.5)]) == [Severity.INFO]
    building = evidence(waiting=10)
    building.workers = [Worker(0, preparing="layer 1f3a", preparing_since=ago(100))]
    assert [f.severity for f in found(building, Cause.START_TIMEOUT)] == [Severity.INFO]


# --- lost, or short of something


def test_limits_of_the_sandbox_that_were_hit_are_told_by_name() -> None:
    short = SandboxFacts("a.default", troubles={"oom_killed": 3})
    assert only(evidence(in_flight(sandbox=short)), Cause.SANDBOX_OOM_KILLED).severity is Severity.WARNING
    full = SandboxFacts("a.default", lost="the sandbox may not write more: its workspace limit was reached")
    assert only(evidence(in_flight(sandbox=full)), Cause.SANDBOX_DISK_FULL).severity is Severity.WARNING
    assert found(evidence(in_flight(sandbox=full)), Cause.EXEC_LOST) == []
    lost = SandboxFacts("a.default", lost="its first process was killed")
    assert only(evidence(in_flight(sandbox=lost)), Cause.EXEC_LOST).held == [0]


def test_a_look_at_the_network_is_no_trouble_but_insisting_on_it_is() -> None:
    def judged(count: int, of: int) -> list[Severity]:
        there = Unreached(count, of, "Could not resolve host: pypi.org", ago(60), ago(5))
        return [f.severity for f in found(evidence(in_flight(unreached=there)), Cause.NETWORK_DENIED)]

    assert judged(1, 10) == []
    assert judged(2, 10) == [Severity.INFO]
    assert judged(5, 8) == [Severity.WARNING]


def test_texts_are_compared_without_what_varies() -> None:
    one = "The sandbox 1f2e3d4c.default could not be made at /tmp/abc/x after 12 s (id 0x7f)"
    other = "The sandbox 99aa88bb.default could not be made at /tmp/zzz/y after 3 s (id 0x11)"
    assert normalised(one) == normalised(other)
    assert sign_of("AssertionError: 3 != 4") == ""
