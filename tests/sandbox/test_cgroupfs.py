"""Where cgroups are looked for, from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`; and what is
made there, in plain directories that stand for version 1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hawk.sandbox.cgroupfs import Hierarchy, field, hierarchies
from hawk.sandbox.cgroups import Unavailable, delegate_in


def mounted(point: str, *, top: str = "/", kind: str = "cgroup", options: str = "rw") -> str:
    return f"32 31 0:29 {top} {point} rw,relatime shared:9 - {kind} {kind} {options}\n"


def test_controllers_mounted_together_are_one_hierarchy() -> None:
    found = hierarchies(
        mounted("/sys/fs/cgroup/cpu,cpuacct", options="rw,cpu,cpuacct"),
        "4:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/session-1.scope\n",
    )
    assert found == [
        Hierarchy(
            1,
            frozenset({"cpu", "cpuacct"}),
            Path("/sys/fs/cgroup/cpu,cpuacct"),
            Path("/sys/fs/cgroup/cpu,cpuacct/user.slice"),
        )
    ]


def test_hybrid_machine_has_both_versions() -> None:
    found = hierarchies(
        mounted("/sys/fs/cgroup", kind="tmpfs")
        + mounted("/sys/fs/cgroup/memory", options="rw,memory")
        + mounted("/sys/fs/cgroup/unified", kind="cgroup2"),
        "4:memory:/job\n0::/elsewhere\n",
    )
    assert [(item.version, str(item.own)) for item in found] == [
        (1, "/sys/fs/cgroup/memory/job"),
        (2, "/sys/fs/cgroup/unified/elsewhere"),
    ]


@pytest.mark.parametrize(
    ("top", "path", "own"),
    [
        ("/", "/", "/m"),
        ("/docker/abc", "/docker/abc", "/m"),
        ("/docker/abc", "/docker/abc/inner", "/m/inner"),
        ("/docker/abc", "/docker/abcdef", "/m"),
        ("/", "/../other", "/m"),
        ("/", "/gone (deleted)", "/m/gone"),
    ],
)
def test_own_cgroup_is_found_below_what_is_mounted(top: str, path: str, own: str) -> None:
    [found] = hierarchies(mounted("/m", top=top, options="rw,memory"), f"4:memory:{path}\n")
    assert str(found.own) == own


def test_mount_points_with_blanks_are_read() -> None:
    [found] = hierarchies(mounted("/my\\040cgroups", kind="cgroup2"), "0::/\n")
    assert found.root == Path("/my cgroups")


def test_of_two_mounts_on_one_directory_the_later_counts() -> None:
    [found] = hierarchies(
        mounted("/m", options="rw,memory") + mounted("/m", options="rw,pids"), "4:memory:/\n5:pids:/\n"
    )
    assert found.controllers == {"pids"}


def hierarchy(root: Path, *controllers: str, own: str = "own") -> Hierarchy:
    (root / "own").mkdir(parents=True)
    return Hierarchy(1, frozenset(controllers), root, root / own)


def test_hierarchy_of_several_controllers_gets_one_directory(tmp_path: Path) -> None:
    found = [
        hierarchy(tmp_path / "memory", "memory"),
        hierarchy(tmp_path / "pids", "pids"),
        hierarchy(tmp_path / "cpu,cpuacct", "cpu", "cpuacct", "cpuset"),
    ]
    delegation = delegate_in(found, "one", os.getuid(), os.getgid())
    assert delegation.directories == {
        "memory": tmp_path / "memory/own/hawk-one",
        "pids": tmp_path / "pids/own/hawk-one",
        "cpu": tmp_path / "cpu,cpuacct/own/hawk-one",
        "cpuacct": tmp_path / "cpu,cpuacct/own/hawk-one",
    }


def test_root_of_the_hierarchy_serves_where_the_own_cgroup_does_not(tmp_path: Path) -> None:
    found = [hierarchy(tmp_path / "m", "memory", own="missing"), hierarchy(tmp_path / "p", "pids")]
    delegation = delegate_in(found, "one", os.getuid(), os.getgid())
    assert delegation.directories["memory"] == tmp_path / "m/hawk-one"
    assert "cpu" not in delegation.directories


def test_missing_controllers_are_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^controllers missing: pids$"):
        delegate_in([hierarchy(tmp_path, "memory")], "one", os.getuid(), os.getgid())
    with pytest.raises(Unavailable, match=r"^controllers missing: memory, pids$"):
        delegate_in([], "one", os.getuid(), os.getgid())


def test_refused_delegation_leaves_nothing_behind(tmp_path: Path) -> None:
    gone = Hierarchy(1, frozenset({"pids"}), tmp_path / "gone", tmp_path / "gone")
    with pytest.raises(Unavailable, match="gone: No such file"):
        delegate_in([hierarchy(tmp_path / "m", "memory"), gone], "one", os.getuid(), os.getgid())
    assert list((tmp_path / "m/own").iterdir()) == []


def test_count_that_a_kernel_does_not_keep_is_zero(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    assert field(tmp_path / "memory.oom_control", "oom_kill") == 0
    assert field(tmp_path / "pids.events", "max") == 0
