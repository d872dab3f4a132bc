"""Cgroups of version 1, for real: limits bite, a user without rights gets by, nothing stays behind."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.sandbox import cgroupfs
from hawk.sandbox.cgroups import Cgroup, Delegation, Unavailable, delegate, leftovers, remove_tree
from tests.sandbox.forked import answered, drop, ended, forked, idle
from tests.system import until

MIB = 1 << 20
USER = 1879048192
"""First of the subordinate ids: owns nothing on the machine."""
CONTROLLERS = {"memory", "pids", "cpu", "cpuacct"}
MOUNTED = {controller for item in cgroupfs.find() for controller in item.controllers}

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0, reason="NOT TESTED: cgroups are made for another user, which needs root"
    ),
    pytest.mark.skipif(
        not CONTROLLERS <= MOUNTED,
        reason=f"NOT TESTED: no cgroup version 1 here with {', '.join(sorted(CONTROLLERS - MOUNTED))}",
    ),
]


def name() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def delegation() -> Iterator[Delegation]:
    made = delegate(name(), USER, USER)
    try:
        yield made
    finally:
        for label in cgroupfs.children(made.directories["pids"]):  # of a test that failed
            Cgroup(1, {controller: path / label for controller, path in made.directories.items()}).kill()
        assert made.remove(), f"left behind: {made.directories}"


def unlimited(delegation: Delegation, label: str = "one") -> Cgroup:
    return delegation.create(label, memory=None, processes=None, cpus=None)


def own(controller: str) -> Path:
    return next(item.own for item in cgroupfs.find() if controller in item.controllers)


def test_delegation_lies_below_the_own_cgroup_and_belongs_to_the_user(delegation: Delegation) -> None:
    assert delegation.version == 1
    assert set(delegation.directories) == CONTROLLERS
    for controller, path in delegation.directories.items():
        assert path.parent == own(controller)
        assert path.stat().st_uid == path.stat().st_gid == USER
        assert (path / "cgroup.procs").stat().st_uid == (path / "tasks").stat().st_uid == USER
    assert delegation.directories["memory"].joinpath("memory.limit_in_bytes").stat().st_uid == 0


def test_delegation_survives_json(delegation: Delegation) -> None:
    assert Delegation.from_dict(json.loads(json.dumps(delegation.to_dict()))) == delegation


def test_memory_hog_is_killed_and_counted(delegation: Delegation) -> None:
    cgroup = delegation.create("hog", memory=32 * MIB, processes=None, cpus=None)

    def hog() -> None:
        cgroup.join()
        kept = [bytearray(os.urandom(MIB)) for _ in range(256)]
        os._exit(len(kept))

    assert cgroup.usage().oom_kills == 0
    assert ended(forked(hog)) == -signal.SIGKILL
    usage = cgroup.usage()
    assert usage.oom_kills == cgroup.events().oom_kills == 1
    assert 16 * MIB < usage.memory_peak <= 32 * MIB
    until("its memory is given back", lambda: cgroup.usage().memory < 16 * MIB)
    cgroup.remove()


def test_swap_does_not_defeat_the_memory_limit(delegation: Delegation) -> None:
    cgroup = delegation.create("one", memory=32 * MIB, processes=None, cpus=None)
    both = cgroup.directories["memory"] / "memory.memsw.limit_in_bytes"
    if not both.exists():
        pytest.skip("NOT TESTED: this kernel does not account for swap")
    assert int(both.read_text()) == 32 * MIB


def test_too_many_processes_are_refused_and_counted(delegation: Delegation) -> None:
    cgroup = delegation.create("many", memory=None, processes=8, cpus=None)

    def many() -> None:
        cgroup.join()
        for count in itertools.count(1):
            try:
                forked(signal.pause)
            except BlockingIOError:
                os._exit(count)

    assert cgroup.usage().fork_failures == 0
    assert ended(forked(many)) == 8
    usage = cgroup.usage()
    assert usage.fork_failures == cgroup.events().fork_failures == 1
    assert usage.processes == len(cgroup.processes()) == 7
    assert cgroup.kill()
    cgroup.remove()


def test_kill_outruns_a_fork_bomb_and_leaves_the_limit_as_it_was(delegation: Delegation) -> None:
    cgroup = delegation.create("bomb", memory=None, processes=64, cpus=None)

    def bomb() -> None:
        cgroup.join()
        while True:
            try:
                os.fork()
            except BlockingIOError:
                os._exit(0)

    def keep_bombing() -> None:
        cgroup.join()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            forked(bomb)

    pid = forked(keep_bombing)
    until("the bomb meets its limit", lambda: cgroup.events().fork_failures, period=0.001)
    assert cgroup.kill(patience=30)
    assert ended(pid) == -signal.SIGKILL
    assert cgroup.processes() == set()
    assert (cgroup.directories["pids"] / "pids.max").read_text() == "64\n"
    cgroup.remove()


def test_processor_time_is_limited_and_counted(delegation: Delegation) -> None:
    cgroup = delegation.create("slow", memory=None, processes=None, cpus=0.1)

    def spin() -> float:
        cgroup.join()
        begun, used = time.monotonic(), time.process_time()
        while time.monotonic() < begun + 1:
            pass
        return time.process_time() - used

    used = answered(spin)
    assert used < 0.3
    assert used * 0.5 < cgroup.usage().cpu_seconds < 0.5


def test_more_processors_than_an_ancestor_has_are_no_error(delegation: Delegation) -> None:
    (delegation.directories["cpu"] / "cpu.cfs_quota_us").write_text("50000")
    cgroup = delegation.create("greedy", memory=None, processes=None, cpus=2)
    assert (cgroup.directories["cpu"] / "cpu.cfs_quota_us").read_text() == "-1\n"


def test_user_without_rights_makes_uses_and_removes_cgroups(delegation: Delegation) -> None:
    def keeper() -> dict[str, object]:
        drop(USER)
        cgroup = Delegation.from_dict(delegation.to_dict()).create(
            "one", memory=64 * MIB, processes=8, cpus=1
        )
        with idle() as pid:
            cgroup.enter(pid)
            inside = cgroup.processes() == {pid} and cgroup.usage().processes == 1
            killed = cgroup.kill()
        cgroup.remove()
        return {
            "inside": inside,
            "killed": killed,
            "gone": not any(p.exists() for p in cgroup.directories.values()),
        }

    assert answered(keeper) == {"inside": True, "killed": True, "gone": True}


def test_user_without_rights_can_neither_lift_its_own_limits_nor_move_others(delegation: Delegation) -> None:
    def keeper() -> list[str]:
        drop(USER)
        refused = []
        try:
            (delegation.directories["memory"] / "memory.limit_in_bytes").write_text("-1")
        except PermissionError:
            refused.append("lift")
        try:
            unlimited(delegation).enter(os.getppid())
        except PermissionError:
            refused.append("move")
        return refused

    assert answered(keeper) == ["lift", "move"]


def test_keeper_is_moved_into_every_hierarchy_and_marks_the_delegation_as_used() -> None:
    delegation = delegate(name(), USER, USER)
    with idle() as pid:
        delegation.adopt_keeper(pid)
        delegation.adopt_keeper(pid)
        for path in delegation.directories.values():
            assert cgroupfs.processes(path / "keeper") == {pid}
        unlimited(delegation)
        assert not delegation.remove()
        assert (delegation.directories["pids"] / "one").exists()
    assert delegation.remove()
    assert not any(path.exists() for path in delegation.directories.values())
    assert delegation.remove()


def test_sweep_finds_delegations_and_removes_only_those_without_processes() -> None:
    delegation = delegate(name(), USER, USER)
    places = set(delegation.directories.values())
    unit = own("pids") / f"hawk-{name()}.service"
    unit.mkdir()
    try:
        assert places <= set(leftovers())
        assert places & set(leftovers(Path("/sys/fs/cgroup/pids"))) == {delegation.directories["pids"]}
        assert unit not in leftovers()
    finally:
        unit.rmdir()
    cgroup = unlimited(delegation)
    with idle(cgroup.join):
        assert [remove_tree(path) for path in places] == [False] * 4
        assert all(path.exists() for path in cgroup.directories.values())
    assert [remove_tree(path) for path in places] == [True] * 4
    assert not places & set(leftovers())


def test_abandoned_delegation_of_the_same_name_is_replaced_and_one_in_use_is_not() -> None:
    again = name()
    delegation = delegate(again, USER, USER)
    unlimited(delegation)
    assert delegate(again, USER, USER) == delegation
    assert not (delegation.directories["memory"] / "one").exists()
    with idle() as pid:
        delegation.adopt_keeper(pid)
        with pytest.raises(Unavailable, match="in use"):
            delegate(again, USER, USER)
    assert delegation.remove()


def test_remove_names_what_is_still_inside(delegation: Delegation) -> None:
    cgroup = unlimited(delegation)
    with idle(cgroup.join) as pid, pytest.raises(OSError, match=rf"in use by \S.* \({pid}\)"):
        cgroup.remove(patience=0.01)
    nested = cgroup.directories["memory"] / "deeper"
    nested.mkdir()
    with pytest.raises(OSError, match="in use by the cgroup deeper"):
        cgroup.remove(patience=0.01)
    nested.rmdir()
    cgroup.remove()
    cgroup.remove()
    assert not any(path.exists() for path in cgroup.directories.values())


def test_refused_limit_leaves_nothing_behind(delegation: Delegation) -> None:
    with pytest.raises(OSError):
        delegation.create("one", memory=MIB, processes=-1, cpus=None)
    assert [cgroupfs.children(path) for path in delegation.directories.values()] == [[]] * 4


def test_label_in_use_is_refused_and_the_cgroup_stays(delegation: Delegation) -> None:
    cgroup = unlimited(delegation)
    with pytest.raises(FileExistsError):
        unlimited(delegation)
    assert all(path.exists() for path in cgroup.directories.values())


@pytest.mark.parametrize("label", ["", ".", "..", "../one", "a/b", "keeper", ".hidden", "a\n"])
def test_unsafe_labels_are_refused(delegation: Delegation, label: str) -> None:
    with pytest.raises(ValueError, match="not a label"):
        unlimited(delegation, label)


@pytest.mark.parametrize("bad", ["", "..", "a/b", "server.service"])
def test_unsafe_names_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        delegate(bad, USER, USER)


def test_user_without_rights_is_told_so() -> None:
    def ask() -> str:
        drop(USER)
        with pytest.raises(Unavailable) as caught:
            delegate(name(), USER, USER)
        return caught.value.reason

    assert answered(ask) == f"no permission to make cgroups in {own('memory')} as uid {USER}"


def test_read_only_file_system_is_named() -> None:
    code = (
        "from hawk.sandbox.cgroups import Unavailable, delegate\n"
        f"try: delegate({name()!r}, {USER}, {USER})\n"
        "except Unavailable as error: print(error.reason)"
    )
    memory = next(item.root for item in cgroupfs.find() if "memory" in item.controllers)
    command = f'mount -o remount,bind,ro {memory} && exec {sys.executable} -c "$0"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"the cgroup file system is read-only: {own('memory')}"


def test_a_cgroup_costs_less_than_two_milliseconds(delegation: Delegation) -> None:
    """The best of many, as others use the machine too; on a slow one it costs less than to fork this process, as ever."""

    def once() -> float:
        def join() -> float:
            begun = time.perf_counter()
            cgroup.join()
            return time.perf_counter() - begun

        begun = time.perf_counter()
        cgroup = delegation.create("quick", memory=64 * MIB, processes=64, cpus=1)
        made = time.perf_counter() - begun
        joined: float = answered(join)
        begun = time.perf_counter()
        cgroup.remove()
        return made + joined + time.perf_counter() - begun

    def fork() -> float:
        begun = time.perf_counter()
        ended(forked(lambda: None))
        return time.perf_counter() - begun

    costs, forks = zip(*((once(), fork()) for _ in range(20)), strict=True)
    assert min(costs) < max(0.002, min(forks))
