"""What holds a worker is named by its line, while it is held and after it died: one job, one fault after another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hawk.core.recorder.stacks import RUNNING, StackRecord, own_frame, waits
from hawk.server.services.stackrecords import Stacks
from hawk.store.rundir import JournalEntry
from tests.recorder import phases
from tests.system import TASKS, System, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

JOB = "phases"
HERE = "recorder/phases.py"
SOURCE = Path(phases.__file__).read_text().splitlines()


def line(text: str) -> int:
    """The number of the only line that holds this."""
    (found,) = [number for number, content in enumerate(SOURCE, 1) if text in content]
    return found


class Job:
    def __init__(self, system: System, gate: Path) -> None:
        self.system, self.gate = system, gate

    def go(self, phase: str) -> None:
        (self.gate / phase).touch()

    def stacks(self, *options: str) -> Stacks:
        done = self.system.hawk("stacktrace", JOB, "--json", *options)
        return msgspec.json.decode(done.stdout, type=Stacks)

    def held(self) -> StackRecord | None:
        """The worker's record, as soon as it says that the event loop is held."""
        record = self.stacks().records[0]
        return record if record.blocked is not None else None

    def noted(self, state: str, word: str) -> JournalEntry | None:
        entries = [e for e in self.system.run_dir(JOB).journal() if e.kind == "worker" and e.state == state]
        return next((e for e in reversed(entries) if word in e.reason or e.data.get("stall") == word), None)

    def activity(self) -> str | None:
        """What the status says that the first sample does, where it says in which line."""
        samples = [s for task in self.system.status(JOB).tasks for s in task.samples if s.id == "main"]
        detail = (samples[0].activity.detail if samples and samples[0].activity else None) or ""
        return detail if ".py:" in detail else None

    def worker(self) -> int:
        """Its pid, as soon as an attempt runs in it."""

        def ready() -> int | None:
            records = self.stacks().records
            return records[0].pid if records and records[0].live and waits(records[0]) else None

        return until("an attempt runs in the worker", ready, 60, 0.5)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    base = tmp_path_factory.mktemp("stalls")
    system = System(base)
    system.start()
    try:
        gate = base / "gate"
        gate.mkdir()
        config = {
            "tasks": [{"file": phases.__file__, "items": [{"name": "phases", "args": {"gate": str(gate)}}]}],
            "models": [{"file": str(TASKS), "items": [{"name": "counted/m"}]}],
        }
        with system.client() as client:
            client.submit(
                {"eval_set_config": config, "eval_set_id": JOB, "base_dir": str(Path(phases.__file__).parent)}
            )
        found = Job(system, gate)
        until("the job has a worker", lambda: system.workers(JOB))
        until("stacks are kept", lambda: list(system.run_dir(JOB).path.glob("workers/0/stacks/last.json")))
        yield found
    finally:
        system.stop()


def test_a_sleep_in_the_event_loop_is_named_live_and_noted(job: Job) -> None:
    job.worker()
    job.go("nap")
    record = until("the loop is held", job.held, 30)
    thread = record.blocked
    assert thread is not None
    own = own_frame(thread.frames)
    assert own is not None
    assert (own.line, own.function) == (line("time.sleep(9)"), "nap")
    assert thread.attempt is not None
    assert thread.attempt.name == "phases/main/1"
    assert any(c.awaits == RUNNING for c in record.chains)
    stalled = until("it is noted", lambda: job.noted("stalled", "loop_blocked"), 30)
    assert f"{HERE}:{line('time.sleep(9)')} nap" in stalled.reason
    assert stalled.data["attempt"] == "phases/main/1"
    said = until("the status says so", job.activity)
    assert f"{HERE}:{line('time.sleep(9)')} nap" in said
    over = until("its end is noted", lambda: job.noted("goes on", "loop_blocked"), 30)
    assert over.data["since"] < over.data["until"]
    assert over.data["where"] == stalled.data["where"]


def test_c_code_that_keeps_the_interpreter_is_named_from_outside(job: Job) -> None:
    job.go("hold")
    stalled = until("it is noted", lambda: job.noted("stalled", "worker_silent"), 40)
    assert f"{HERE}:{line('usleep')} hold" in stalled.reason
    record = job.held()
    assert record is not None
    assert record.threads_by == "py-spy"
    assert "something holds its interpreter" in record.missing["await chains"]
    assert record.chains_at is not None
    assert record.chains_at < record.at
    assert record.blocked is not None
    assert record.blocked.gil
    until("it is over", lambda: job.noted("goes on", "worker_silent"), 40)


def test_a_busy_regular_expression_is_named_and_so_after_its_worker_was_killed(job: Job) -> None:
    job.go("match")
    record = until("the loop is held", job.held, 30)
    assert record.blocked is not None
    own = own_frame(record.blocked.frames)
    assert own is not None
    assert (own.line, own.function) == (line("re.match"), "match")
    text = job.system.hawk("stacktrace", JOB).stdout
    assert f"{HERE}:{line('re.match')}" in text.splitlines()[0]
    pid = record.pid
    os.kill(pid, signal.SIGKILL)
    until("its end is noted", lambda: job.noted("exited", "SIGKILL"), 30)
    kept = [msgspec.json.decode(p.read_bytes(), type=StackRecord) for p in _kept(job)]
    assert any(f.function == "match" for r in kept if r.pid == pid for t in r.threads for f in t.frames)
    until("the worker runs again", lambda: job.worker() != pid, 60)
    (before,) = job.stacks("--before").records
    assert (before.pid, before.live, before.ended) == (pid, False, "killed by SIGKILL")
    assert {who.sample for chain in waits(before) for who in chain.attempts} == {"main", phases.HOSTILE}
    (only,) = job.stacks("--before", "--sample", "main").records
    assert {who.sample for chain in only.chains for who in chain.attempts} == {"main"}
    nobody = job.system.hawk("stacktrace", JOB, "--before", "--sample", "nobody", check=False)
    assert (nobody.returncode, "'nobody'" in nobody.stderr) == (2, True)
    assert "hawk stacktrace --before" in job.system.hawk("stacktrace", JOB).stdout


def test_a_fault_in_c_leaves_the_stack_of_the_thread_that_died(job: Job) -> None:
    pid = job.worker()
    job.go("fault")
    until("its end is noted", lambda: job.noted("exited", "SIGSEGV"), 30)
    job.worker()  # the next one keeps what the one before left
    (fatal,) = job.system.run_dir(JOB).path.glob("workers/0/stacks/fatal-*.txt")
    text = fatal.read_text()
    assert f"line {line('ctypes.string_at')} in fault" in text
    assert pid not in job.system.workers(JOB)


def test_a_worker_that_the_kernel_killed_for_memory_says_so(job: Job) -> None:
    pid = job.worker()
    cgroup = _memory_cgroup()
    if cgroup is None:
        pytest.skip("NOT TESTED: this machine lets no memory cgroup be made")
    try:
        (cgroup / "cgroup.procs").write_text(str(pid))
        job.go("hoard")
        near = until("it is noted", lambda: job.noted("stalled", "memory_near_limit"), 60)
        assert "MiB in use" in near.reason
        ended = until("its end is noted", lambda: job.noted("exited", "out of memory"), 60)
        assert str(cgroup) in ended.reason
    finally:
        until("the cgroup is empty", lambda: not (cgroup / "cgroup.procs").read_text().strip(), 20)
        cgroup.rmdir()


def test_a_deadlock_and_a_hung_await_are_named_live_and_when_everything_is_dead(job: Job) -> None:
    job.worker()
    job.go("deadlock")

    def places(seen: Stacks) -> set[int]:
        return {own.line for chain in waits(seen.records[0]) if (own := own_frame(chain.frames))}

    def found() -> Stacks | None:
        seen = job.stacks()
        return seen if places(seen) >= {waiting, locked} else None

    waiting, locked = line("asyncio.Event().wait()"), line("async with other:")
    live = until("both are named", found, 30)
    assert live.live
    by_line = {own.line: c for c in waits(live.records[0]) if (own := own_frame(c.frames))}
    assert [who.sample for who in by_line[waiting].attempts] == [phases.HOSTILE]
    assert [who.name for who in by_line[locked].attempts] == ["phases/main/1"]
    assert by_line[locked].frames[-1].function == "Lock.acquire"
    uuid = by_line[locked].attempts[0].uuid
    (one,) = job.stacks("--sample", uuid).records
    assert {who.uuid for chain in one.chains for who in chain.attempts} == {uuid}

    until("it is kept", lambda: found() and _last(job) > live.records[0].at, 30)
    supervisor = job.system.supervisor(JOB)
    assert supervisor is not None
    job.system.kill_server()  # it would start another supervisor
    os.kill(supervisor, signal.SIGKILL)
    for pid in job.system.workers(JOB):
        os.kill(pid, signal.SIGKILL)
    until("all are dead", lambda: not job.system.workers(JOB))
    job.system.start()

    def of_the_dead() -> str | None:
        """Where the server is quicker, the next process is the worker by now."""
        for options in ([], ["--before"]):
            seen = job.stacks(*options)
            if seen.records and not seen.live and places(seen) >= {waiting, locked}:
                text = job.system.hawk("stacktrace", JOB, *options).stdout
                if "red/1" in text and "as it was last" in text:
                    return text
        return None

    text = until("it is said of the dead", of_the_dead, 60)
    assert "\x1b" not in text


def _kept(job: Job) -> list[Path]:
    return sorted(job.system.run_dir(JOB).path.glob("workers/0/stacks/[0-9]*.json"))


def _last(job: Job) -> str:
    path = job.system.run_dir(JOB).path / "workers/0/stacks/last.json"
    return msgspec.json.decode(path.read_bytes(), type=StackRecord).at


def _memory_cgroup() -> Path | None:
    """A cgroup in which there is little room."""
    limit = f"{phases.ROOM}M"
    for parent, file in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        made = parent / f"hawk-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        if (made / file).exists():
            (made / file).write_text(limit)
            return made
        made.rmdir()
    return None
