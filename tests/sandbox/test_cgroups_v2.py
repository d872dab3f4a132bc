"""Cgroups of version 2, where the machine has none with controllers.

Two halves. On a version 2 mount without controllers, as hybrid machines have one, the kernel itself says who
may move whom, kills and removes. Limits, counts and the handing down of controllers are tested against
`Mimic`: plain directories with files of the same names, and those rules of the kernel that the code depends
on. It shows that the right files are read and written, not that a kernel agrees.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.sandbox import cgroupfs
from hawk.sandbox.cgroupfs import Hierarchy
from hawk.sandbox.cgroups import (
    Cgroup,
    Delegation,
    Unavailable,
    delegate,
    delegate_in,
    leftovers,
    remove_tree,
)
from tests.sandbox.forked import answered, drop, ended, forked, idle
from tests.system import until

USER = 1879048192
MIB = 1 << 20
REAL = next((item.root for item in cgroupfs.find() if item.version == 2), None)

real = [
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: making cgroups in their root needs root"),
    pytest.mark.skipif(REAL is None, reason="NOT TESTED: no cgroup version 2 is mounted here"),
]


@pytest.fixture
def delegation() -> Iterator[Delegation]:
    """One without controllers, as far as the kernel is concerned."""
    assert REAL is not None
    path = REAL / f"hawk-test-{secrets.token_hex(6)}"
    path.mkdir()
    for target in (path, path / "cgroup.procs", path / "cgroup.subtree_control"):
        os.chown(target, USER, USER)
    made = Delegation(2, {"memory": path, "pids": path})
    try:
        yield made
    finally:
        for label in cgroupfs.children(path) if path.exists() else ():  # of a test that failed
            Cgroup(2, {"pids": path / label}).kill()
        assert made.remove(), f"left behind: {path}"


class TestKernel:
    pytestmark = real

    @pytest.mark.parametrize("at_once", [True, False])
    def test_kill_ends_every_process(
        self, delegation: Delegation, monkeypatch: pytest.MonkeyPatch, at_once: bool
    ) -> None:
        cgroup = delegation.create("one", memory=None, processes=None, cpus=None)
        if not at_once:
            monkeypatch.setattr(cgroup, "_kill_at_once", lambda: False)

        def several() -> None:
            cgroup.join()
            for _ in range(5):
                forked(signal.pause)
            signal.pause()

        pid = forked(several)
        until("all have started", lambda: len(cgroup.processes()) == 6)
        assert cgroup.kill()
        assert ended(pid) == -signal.SIGKILL
        cgroup.remove()
        assert not cgroup.directories["pids"].exists()

    def test_unprivileged_keeper_moves_its_children_once_it_is_in_the_delegation(
        self, delegation: Delegation
    ) -> None:
        ready, told = os.pipe()
        go, tell_go = os.pipe()

        def attempt(cgroup: Cgroup) -> bool:
            with idle() as child:
                try:
                    cgroup.enter(child)
                except PermissionError:
                    return False
                return cgroup.processes() == {child}

        def keeper() -> list[bool]:
            drop(USER)
            cgroup = delegation.create("one", memory=None, processes=None, cpus=None)
            outside = attempt(cgroup)
            os.write(told, f"{os.getpid()}".encode())
            os.read(go, 1)
            inside = attempt(cgroup)
            cgroup.remove()
            return [outside, inside]

        def starter() -> None:
            delegation.adopt_keeper(int(os.read(ready, 20)))
            os.write(tell_go, b"1")

        pid = forked(starter)
        assert answered(keeper) == [False, True]
        assert ended(pid) == 0

    def test_delegation_in_use_is_not_removed(self, delegation: Delegation) -> None:
        path = delegation.directories["pids"]
        with idle() as pid:
            delegation.adopt_keeper(pid)
            assert path in leftovers(REAL)
            assert not delegation.remove()
            assert not remove_tree(path)
        assert remove_tree(path)
        assert path not in leftovers(REAL)

    def test_mount_without_controllers_is_no_use(self) -> None:
        assert REAL is not None
        if {"memory", "pids"} <= set(cgroupfs.words(REAL / "cgroup.controllers")):
            pytest.skip("NOT TESTED: version 2 has controllers here")
        with pytest.raises(Unavailable, match=r"^controllers missing in .*: memory, pids$"):
            delegate("test", USER, USER, mount=REAL)
        assert not (REAL / "hawk-test").exists()


class Mimic:
    """A cgroup file system in plain directories.

    Args:
        root: Where to put it.
        controllers: What its root offers.
    """

    def __init__(self, root: Path, controllers: str) -> None:
        self.root = root
        root.mkdir()
        self._fill(root, controllers)
        (root / "cgroup.type").unlink()

    def _fill(self, path: Path, controllers: str) -> None:
        files = {
            "cgroup.controllers": controllers,
            "cgroup.subtree_control": "",
            "cgroup.procs": "",
            "cgroup.threads": "",
            "cgroup.type": "domain",
            "cpu.stat": "usage_usec 0\nuser_usec 0\n",
        }
        if "memory" in controllers:
            files |= {
                "memory.max": "max",
                "memory.current": "0",
                "memory.swap.max": "max",
                "memory.oom.group": "0",
            }
        if "pids" in controllers:
            files |= {"pids.max": "max", "pids.current": "0", "pids.events": "max 0\n"}
        if "cpu" in controllers.split():
            files |= {"cpu.max": "max 100000"}
        for name, text in files.items():
            (path / name).write_text(text)

    def make(self, path: Path) -> None:
        path.mkdir()
        self._fill(path, (path.parent / "cgroup.subtree_control").read_text())

    def unmake(self, path: Path, patience: float = 0) -> None:
        if path.exists():
            shutil.rmtree(path)

    def write(self, path: str | Path, text: str) -> None:
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if path.name == "cgroup.subtree_control":
            assert text.startswith("+")
            if text[1:] not in (path.parent / "cgroup.controllers").read_text().split():
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            if (path.parent / "cgroup.type").exists() and (path.parent / "cgroup.procs").read_text():
                raise OSError(errno.EBUSY, "Device or resource busy", str(path))
            text = f"{path.read_text()} {text[1:]}".strip()
        path.write_text(text)

    def put(self, path: Path, *enabled: str, processes: str = "") -> Path:
        """A cgroup below the root, with all above it, that has these controllers for its children."""
        for part in reversed([path, *itertools.takewhile(lambda p: p != self.root, path.parents)]):
            if not part.exists():
                self.make(part)
        (path / "cgroup.subtree_control").write_text(" ".join(enabled))
        (path / "cgroup.procs").write_text(processes)
        return path


@pytest.fixture
def mimic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mimic:
    made = Mimic(tmp_path / "cgroup", "cpuset cpu io memory pids")
    for name in ("make", "unmake", "write"):
        monkeypatch.setattr(cgroupfs, name, getattr(made, name))
    return made


def ask(mimic: Mimic, own: Path | None = None) -> Delegation:
    """A delegation for a process in this cgroup."""
    found = Hierarchy(2, frozenset(), mimic.root, own or mimic.root)
    return delegate_in([found], "one", os.getuid(), os.getgid())


def test_root_may_have_processes_and_children_with_controllers(mimic: Mimic) -> None:
    mimic.put(mimic.root, processes="1\n")
    delegation = delegate("one", os.getuid(), os.getgid(), mount=mimic.root)
    place = mimic.root / "hawk-one"
    assert delegation == Delegation(2, {"memory": place, "pids": place, "cpu": place})
    for path in (mimic.root, place):
        assert (path / "cgroup.subtree_control").read_text() == "memory pids cpu"


def test_own_cgroup_without_processes_is_used(mimic: Mimic) -> None:
    mimic.put(mimic.root, "memory", "pids", "cpu")
    own = mimic.put(mimic.root / "service")
    assert ask(mimic, own).directories["memory"] == own / "hawk-one"


def test_own_cgroup_with_processes_yields_to_its_parent(mimic: Mimic) -> None:
    mimic.put(mimic.root, "memory", "pids")
    session = mimic.put(mimic.root / "session", "memory", "pids")
    own = mimic.put(session / "run.scope", processes="7\n")
    assert ask(mimic, own).directories["memory"] == session / "hawk-one"
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_processes_all_the_way_up_are_the_reason_given(mimic: Mimic) -> None:
    mimic.put(mimic.root, "memory", "pids")
    own = mimic.put(mimic.root / "session", processes="7\n")
    found = Hierarchy(2, frozenset(), own, own)  # a container sees no further than its own cgroup
    with pytest.raises(Unavailable, match="session has processes of its own"):
        delegate_in([found], "one", os.getuid(), os.getgid())
    assert cgroupfs.children(own) == []


def test_process_that_comes_in_between_is_the_reason_given(
    mimic: Mimic, monkeypatch: pytest.MonkeyPatch
) -> None:
    mimic.put(mimic.root, "memory", "pids")
    own = mimic.put(mimic.root / "session", processes="7\n")
    monkeypatch.setattr(cgroupfs, "processes", lambda directory: set())
    with pytest.raises(Unavailable, match="session has processes of its own"):
        delegate_in([Hierarchy(2, frozenset(), own, own)], "one", os.getuid(), os.getgid())


def test_missing_controllers_are_named_with_the_cgroup_that_lacks_them(mimic: Mimic) -> None:
    own = mimic.put(mimic.root / "session")
    (mimic.root / "cgroup.controllers").write_text("cpu pids")
    with pytest.raises(Unavailable, match=r"^controllers missing in .*/session: memory, pids$"):
        ask(mimic, own)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can become a user without rights")
def test_cgroup_of_somebody_else_is_the_reason_given(mimic: Mimic) -> None:
    for path in (mimic.root, *mimic.root.parents[:3]):
        path.chmod(0o755)

    def refused() -> str:
        drop(USER)
        with pytest.raises(Unavailable) as caught:
            ask(mimic)
        return caught.value.reason

    assert answered(refused) == f"no permission to make cgroups in {mimic.root} as uid {USER}"


def test_session_without_processor_time_to_divide_gets_the_rest(mimic: Mimic) -> None:
    (mimic.root / "cgroup.controllers").write_text("memory pids")
    delegation = ask(mimic)
    assert set(delegation.directories) == {"memory", "pids"}
    with pytest.raises(Unavailable, match="controllers missing: cpu"):
        delegation.create("one", memory=MIB, processes=3, cpus=1)
    assert cgroupfs.children(delegation.directories["memory"]) == []
    delegation.create("one", memory=MIB, processes=3, cpus=None)


def test_limits_go_into_the_files_of_version_2(mimic: Mimic) -> None:
    cgroup = ask(mimic).create("one", memory=64 * MIB, processes=9, cpus=1.5)
    place = mimic.root / "hawk-one/one"
    assert cgroup.procs_files() == cgroup.join_files() == [f"{place}/cgroup.procs"]
    names = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max")
    assert [(place / name).read_text() for name in names] == [str(64 * MIB), "0", "0", "9", "150000 100000"]


def test_machine_without_swap_accounting_still_limits_memory(
    mimic: Mimic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(path: Path) -> None:
        mimic.make(path)
        (path / "memory.swap.max").unlink()

    delegation = ask(mimic)
    monkeypatch.setattr(cgroupfs, "make", without)
    cgroup = delegation.create("one", memory=MIB, processes=None, cpus=None)
    assert (cgroup.directories["memory"] / "memory.max").read_text() == str(MIB)


def test_usage_is_read_from_the_files_of_version_2(mimic: Mimic) -> None:
    cgroup = ask(mimic).create("one", memory=None, processes=None, cpus=None)
    place = cgroup.directories["memory"]
    (place / "memory.current").write_text("1000\n")
    (place / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    (place / "pids.current").write_text("4\n")
    (place / "pids.events").write_text("max 5\n")
    (place / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert cgroup.usage()._asdict() == {
        "memory": 1000,
        "memory_peak": 1000,
        "oom_kills": 1,
        "processes": 4,
        "fork_failures": 5,
        "cpu_seconds": 2.5,
    }
    (place / "memory.peak").write_text("3000\n")
    assert cgroup.usage().memory_peak == 3000


def test_version_1_is_used_where_both_are_mounted(mimic: Mimic, tmp_path: Path) -> None:
    first = []
    for controller in ("memory", "pids"):
        root = tmp_path / controller
        root.mkdir()
        (root / "cgroup.subtree_control").write_text("")
        first.append(Hierarchy(1, frozenset({controller}), root, root))
    found = [Hierarchy(2, frozenset(), mimic.root, mimic.root), *first]
    assert delegate_in(found, "one", os.getuid(), os.getgid()).version == 1


def test_version_2_is_used_where_version_1_has_other_controllers_only(mimic: Mimic, tmp_path: Path) -> None:
    other = Hierarchy(1, frozenset({"net_cls"}), tmp_path, tmp_path)
    found = [other, Hierarchy(2, frozenset(), mimic.root, mimic.root)]
    assert delegate_in(found, "one", os.getuid(), os.getgid()).version == 2
