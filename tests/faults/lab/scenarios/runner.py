"""Workers that stand still, starve, die, or can't write."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case, Probe
from tests.faults.lab.cgroup import cgroup_missing, memory_cgroup, move_workers, usage
from tests.faults.lab.replies import answered
from tests.faults.lab.run import Run, after, again_and_again, kill_workers, marked, running
from tests.faults.lab.scenario import SILENCE, scenario


def _held(bench: Bench, step: str, *args: float) -> Case:
    """One attempt holds the worker; others only meet that."""
    bench.model(answered(bench.between(0.2, 1)))
    return bench.case(
        [*bench.samples(bench.number(1, 4), ["ask", 500]), bench.sample(["ask", bench.number(1, 4)], [step, *args])],
        present=marked("block"),
        must=[bench.line(step)],
    )  # fmt: skip


@scenario("runner.loop_blocked", least=Severity.WARNING, quick=True)
def synchronous_sleep(bench: Bench) -> Case:
    return _held(bench, "nap", 600)


@scenario("runner.loop_blocked", least=Severity.WARNING)
def busy_regular_expression(bench: Bench) -> Case:
    return _held(bench, "match", bench.number(50, 70))


@scenario("runner.loop_blocked", least=Severity.WARNING)
def waits_for_a_thread(bench: Bench) -> Case:
    return _held(bench, "wait_for_thread", 600)


@scenario("runner.await_never_resolved", within=SILENCE)
def event_that_nobody_sets(bench: Bench) -> Case:
    step = bench.rng.choice(["event", "future", "queue"])
    samples = bench.samples(bench.number(1, 3), ["ask", 2], [step])
    return bench.case(samples, present=marked("never", len(samples)), must=[bench.line(step)])


@scenario("runner.await_never_resolved", within=SILENCE)
def deadlock_of_a_lock(bench: Bench) -> Case:
    samples = bench.samples(3, ["ask"], ["deadlock", bench.word()])
    return bench.case(samples, present=marked("never", 3), must=[bench.line("deadlock")])


@scenario("runner.cpu_starved", within=SILENCE, least=Severity.WARNING, must_not=["runner.loop_blocked"])
def work_that_leaves_no_room(bench: Bench) -> Case:
    samples = bench.samples(bench.number(3, 5), ["busy", 300, bench.between(0.15, 0.35)])
    return bench.case(samples, present=marked("busy", len(samples)))


@scenario("runner.memory_near_limit", least=Severity.WARNING, needs=cgroup_missing)
def memory_nearly_used_up(bench: Bench) -> Case:
    room = bench.number(180, 260)
    group = memory_cgroup(bench, room)
    return bench.case(
        [bench.sample(["sleep", 1.5], ["fill", usage(group), int(0.95 * room * 2**20), 600])],
        actions=[again_and_again(lambda run: move_workers(run, group), 0.1)],
        present=marked("hoard"),
    )


@scenario("runner.oom_killed", least=Severity.WARNING, needs=cgroup_missing)
def memory_used_up(bench: Bench) -> Case:
    room = bench.number(160, 220)
    group = memory_cgroup(bench, room)
    return bench.case(
        [bench.sample(["sleep", 3], ["hoard", 20, 60, 600])],
        actions=[again_and_again(lambda run: move_workers(run, group), 0.1)],
        present=lambda run: any("memory" in e.reason for e in run.run_dir.journal() if e.state == "exited"),
    )


@scenario("runner.crashed", least=Severity.WARNING)
def fault_in_c(bench: Bench) -> Case:
    return bench.case([bench.sample(["ask"], ["fault"])], present=_exited(1), must=["SIGSEGV"])


@scenario("runner.crashed", least=Severity.WARNING)
def worker_leaves(bench: Bench) -> Case:
    code = bench.number(3, 90)
    return bench.case([bench.sample(["sleep", 0.5], ["leave", code])], present=_exited(1), must=[str(code)])


@scenario("runner.killed", least=Severity.WARNING, must_not=["runner.oom_killed"])
def killed_again_and_again(bench: Bench) -> Case:
    bench.model(answered(0.5))
    pause = bench.between(0.5, 2)
    return bench.case(
        bench.samples(3, ["ask", 500]),
        actions=[after(running, again_and_again(kill_workers, pause))],
        present=_exited(2),
        must=["SIGKILL"],
    )


def _exited(times: int) -> Probe:
    return lambda run: sum(e.kind == "worker" and e.state == "exited" for e in run.run_dir.journal()) >= times


@scenario("runner.control_socket_lost", least=Severity.INFO)
def socket_deleted(bench: Bench) -> Case:
    bench.model(answered(0.7))
    gone: list[Path] = []

    def delete(run: Run) -> None:
        for path in run.run_dir.path.glob("workers/*/data/inspect_ai/control/*.sock"):
            path.unlink()
            gone.append(path)

    return bench.case(
        bench.samples(3, ["ask", 500]),
        actions=[after(running, delete, bench.between(2, 4))],
        present=lambda run: gone,
    )


def _cant_mount() -> str | None:
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "mounting is not allowed here"


@scenario("runner.log_store_unwritable", least=Severity.WARNING, within=30, needs=_cant_mount)
def logs_become_read_only(bench: Bench) -> Case:
    bench.model(answered(0.4))
    mounted: list[Path] = []

    def seal(run: Run) -> None:
        logs = run.run_dir.logs
        subprocess.run(["mount", "--bind", str(logs), str(logs)], check=True)
        mounted.append(logs)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(logs)], check=True)

    def unseal() -> None:
        for logs in mounted:
            subprocess.run(["umount", "-l", str(logs)], check=False, capture_output=True)

    bench.undoing.callback(unseal)
    return bench.case(
        bench.samples(30, ["ask", 3]),
        log_buffer=1,
        max_samples=3,
        actions=[after(running, seal, bench.between(1, 2))],
        present=lambda run: mounted,
    )


@scenario("runner.database_locked", least=Severity.WARNING, within=SILENCE)
def somebody_holds_the_buffer(bench: Bench) -> Case:
    bench.model(answered(0.4))
    held: list[Path] = []

    def hold(run: Run) -> None:
        found = run.until(lambda: list(run.run_dir.path.glob("buffer/*/*.db")))
        for path in found:
            database = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
            database.execute("BEGIN IMMEDIATE")
            bench.undoing.callback(database.close)
            held.append(path)

    return bench.case(
        bench.samples(3, ["ask", 500]),
        actions=[after(running, hold, bench.between(1, 3))],
        present=lambda run: held,
    )
