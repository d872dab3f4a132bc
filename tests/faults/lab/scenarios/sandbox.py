"""Sandboxes that can't be made, that are lost, and commands that don't end."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import psutil

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case, Probe
from tests.faults.lab.replies import SHELL, agent, call
from tests.faults.lab.run import Run, after, ended, marked, tool_runs
from tests.faults.lab.scenario import SILENCE, scenario


def _hung(bench: Bench, command: str, shown: str, *, kind: str | None = None) -> Case:
    """Agents that run a few commands, and then one that does not end."""
    first = [f"echo {bench.word()}" for _ in range(bench.number(0, 3))]
    bench.model(agent(*first, command, delay=bench.between(0.1, 0.6)))
    return bench.case(
        bench.samples(bench.number(1, 3), ["agent"]), boxed=True, present=tool_runs(shown), must=[shown]
    )


@scenario("sandbox.tool_hung", within=SILENCE)
def command_sleeps(bench: Bench) -> Case:
    seconds = bench.number(10_000, 99_999)
    return _hung(bench, f"sleep {seconds}", f"sleep {seconds}")


@scenario("sandbox.tool_hung", within=SILENCE)
def command_waits_for_input(bench: Bench) -> Case:
    name = bench.word()
    command = f"mkfifo {name}; cat {name}"
    return _hung(bench, command, f"cat {name}")


@scenario("sandbox.tool_hung", within=SILENCE)
def command_waits_for_a_lock(bench: Bench) -> Case:
    name = f"{bench.word()}.lock"
    return _hung(
        bench,
        f"exec 9> {name}; flock 9; (sleep 90000 9>&1 & ) ; flock {name} echo got",
        f"flock {name}",
    )


@scenario("sandbox.tool_hung", within=SILENCE)
def command_waits_for_the_network(bench: Bench) -> Case:
    port = bench.number(20_000, 60_000)
    code = f"import socket; s = socket.create_server(('127.0.0.1', {port})); s.settimeout(None); s.accept()"
    return _hung(bench, f'/usr/bin/python3 -c "{code}"', str(port))


@scenario("sandbox.tool_hung", within=SILENCE)
def deadline_that_has_passed_for_others(bench: Bench) -> Case:
    """Healthy calls took a second each; this one reads what nobody writes, in a pipe of two."""
    name = bench.word()
    return _hung(bench, f"mkfifo {name}; tail -f {name} | wc -l", f"tail -f {name}")


@scenario("sandbox.create_failed", least=Severity.STUCK)
def root_without_programs(bench: Bench) -> Case:
    root = bench.folder / bench.word()
    (root / "etc").mkdir(parents=True)
    return bench.case(
        bench.samples(3, ["run", "true"]),
        boxed={"rootfs": str(root)},
        present=lambda run: ended(run) or any(s.error for s in run.samples()),
    )


@scenario("sandbox.create_failed", least=Severity.STUCK)
def setup_layer_fails(bench: Bench) -> Case:
    word = bench.word()
    return bench.case(
        bench.samples(3, ["run", "true"]),
        boxed={"setup": {"script": f"echo {word}; exit 3", "network": "none"}},
        present=lambda run: ended(run) or any(s.error for s in run.samples()),
    )


@scenario("sandbox.start_timeout", within=SILENCE)
def service_never_ready(bench: Bench) -> Case:
    service, word = bench.word(), bench.word()
    return bench.case(
        bench.samples(3, ["run", "true"]),
        boxed={"services": {service: {"command": ["sleep", "100000"], "ready": f"test -e /tmp/{word}"}}},
        present=tool_runs("sleep 100000"),
    )


@scenario("sandbox.start_timeout", within=SILENCE)
def setup_of_samples_hangs(bench: Bench) -> Case:
    seconds = bench.number(10_000, 99_999)
    script = f"#!/bin/sh\nsleep {seconds}\n"
    samples = [bench.sample(["run", "true"], setup=script) for _ in range(3)]
    return bench.case(samples, boxed=True, present=tool_runs(f"sleep {seconds}"))


@scenario("sandbox.exec_lost", least=Severity.WARNING)
def sandbox_killed_under_a_command(bench: Bench) -> Case:
    seconds = bench.number(10_000, 99_999)
    later = (f"echo {bench.word()}" for _ in range(300))
    bench.model(agent(f"sleep {seconds}", *later, delay=0.6))
    killed: list[int] = []

    def end(run: Run) -> None:
        """Kill the first process of the sandbox in which the command runs."""
        for process in psutil.process_iter(["cmdline"]):
            if f"sleep {seconds}" == " ".join(process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.Error):
                    _first(process).kill()
                    killed.append(process.pid)

    return bench.case(
        bench.samples(3, ["agent"]),
        boxed=True,
        actions=[after(tool_runs(f"sleep {seconds}"), end, 1)],
        present=lambda run: killed,
    )


def _first(process: psutil.Process) -> psutil.Process:
    """The first process of the pid namespace that this one is in."""
    space = Path(f"/proc/{process.pid}/ns/pid").readlink()
    for other in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            here = Path(f"/proc/{other.pid}")
            numbers = next(x for x in (here / "status").read_text().splitlines() if x.startswith("NSpid"))
            if (here / "ns/pid").readlink() == space and numbers.split()[-1] == "1":
                return other
    raise AssertionError(f"process {process.pid} is in no namespace of its own")


@scenario("sandbox.oom_killed", least=Severity.WARNING, must_not=["runner.oom_killed"])
def commands_need_more_memory(bench: Bench) -> Case:
    size = bench.number(200, 400)
    command = f"head -c {size}M /dev/zero | tail > /dev/null"
    bench.model(agent(command, delay=0.5, forever=True))
    return bench.case(
        bench.samples(2, ["agent"]),
        boxed={"limits": {"memory": f"{bench.number(40, 80)}m"}},
        present=_trouble("oom_killed"),
    )


@scenario("sandbox.disk_full", least=Severity.WARNING, must_not=["runner.disk_full"])
def workspace_is_full(bench: Bench) -> Case:
    name = bench.word()
    command = f"dd if=/dev/zero of={name}-$RANDOM bs=1M count={bench.number(30, 60)}"
    bench.model(agent(command, delay=0.5, forever=True))
    return bench.case(
        bench.samples(2, ["agent"]),
        boxed={"limits": {"workspace": f"{bench.number(8, 24)}m"}},
        present=_trouble("disk_full"),
    )


def _trouble(name: str) -> Probe:
    return lambda run: any(s.sandbox is not None and name in s.sandbox.troubles for s in run.samples())


@scenario("sandbox.network_denied", least=Severity.WARNING)
def commands_want_the_network(bench: Bench) -> Case:
    word, port = bench.word(), bench.number(80, 9000)
    commands = [
        f"curl -sS http://{word}.example.org/{bench.word()}",
        f"bash -c 'echo > /dev/tcp/93.184.216.{bench.number(1, 250)}/{port}'",
        f"getent hosts {word}.example.org || echo 'could not resolve host {word}.example.org'",
        f"curl -sS --connect-timeout 5 http://93.184.216.{bench.number(1, 250)}:{port}/",
    ]
    used = [c for c in commands if not c.startswith("curl") or shutil.which("curl", path="/usr/bin")]
    count = 0

    def turn(request: object) -> object:
        nonlocal count
        count += 1
        return call(request, SHELL, command=used[count % len(used)])  # type: ignore[arg-type]

    bench.model(agent(turn, delay=0.6, forever=True))  # type: ignore[arg-type]
    return bench.case(bench.samples(2, ["agent"]), boxed=True, present=lambda run: count > 4)


@scenario("sandbox.limiter_starved", within=SILENCE)
def few_hold_all_places(bench: Bench) -> Case:
    name = bench.word()
    places = bench.number(1, 2)
    return bench.case(
        bench.samples(places + bench.number(3, 5), ["limiter", name, places, 100_000]),
        present=marked("limiter", places + 3),
    )
