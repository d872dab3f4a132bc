"""Attempts to gain privileges, to leave namespaces, and to change the kernel's settings: each is refused."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from tests.sandbox.conftest import MakeBox
from tests.sandbox.escapes.attacks import attack, is_root, output
from tests.sandbox.programs import needs_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_python,
]


async def test_calls_that_make_or_enter_namespaces_or_mounts_are_refused(box: Box) -> None:
    script = """
    flags = {"NEWNS": 0x20000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000, "NEWUSER": 0x10000000, "NEWPID": 0x20000000,
             "NEWNET": 0x40000000, "NEWCGROUP": 0x2000000, "NEWTIME": 0x80}
    told = {f"unshare {name}": call("unshare", flag) for name, flag in flags.items()}
    told |= {f"clone {name}": call("clone", flag | 17, 0, 0, 0, 0) for name, flag in flags.items() if flag != 0x80}
    for name in os.listdir("/proc/self/ns"):
        fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
        told[f"setns {name}"] = call("setns", fd, 0)
    told["mount"] = call("mount", b"none", b"/mnt", b"tmpfs", 0, None)
    told["bind"] = call("mount", b"/etc", b"/mnt", None, 4096, None)
    told["remount"] = call("mount", None, b"/usr", None, 32, None)
    told["proc"] = call("mount", b"proc", b"/mnt", b"proc", 0, None)
    told["umount"] = call("umount2", b"/proc", 2)
    told["umount usr"] = call("umount2", b"/usr", 2)
    told["pivot_root"] = call("pivot_root", b"/", b"/mnt")
    told["open_tree"] = call("open_tree", -100, b"/", 1)
    told["fsopen"] = call("fsopen", b"tmpfs", 0)
    told["open_by_handle_at"] = call("open_by_handle_at", -100, None, 0)
    tell(told)
    """
    told = await attack(box, script)
    assert set(told.values()) == {"EPERM"}, told
    shown = await output(box, "unshare -Ur id 2>&1; unshare -m true 2>&1; nsenter -t 1 -a true 2>&1")
    assert "uid=0" not in shown or (await is_root(box) and "Operation not permitted" in shown)


async def test_keyrings_of_the_machine_can_not_be_reached(box: Box) -> None:
    script = """
    KEYCTL_GET_KEYRING_ID, KEYCTL_DESCRIBE, KEYCTL_READ = 0, 6, 11
    tell([call("keyctl", KEYCTL_GET_KEYRING_ID, -3, 0), call("keyctl", KEYCTL_DESCRIBE, -4, 0, 0),
          call("keyctl", KEYCTL_READ, -5, 0, 0), call("add_key", b"user", b"x", b"x", 1, -3),
          call("request_key", b"user", b"x", None, 0)])
    """
    assert set(await attack(box, script)) == {"EPERM"}
    assert (await output(box, "cat /proc/keys")).strip() == ""


async def test_nothing_gains_privileges(box: Box) -> None:
    status = await output(box, "cat /proc/self/status")
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    if not await is_root(box):
        assert all(re.search(rf"Cap{kind}:\t0+\n", status) for kind in ("Inh", "Prm", "Eff", "Amb"))
    programs = [path for path in Path("/usr/bin").iterdir() if _is_setuid(path)]
    for path in programs[:5]:
        assert "nosuid" in await output(box, f"grep ' /usr ' /proc/self/mounts; test -u {path} || echo gone")
    own = "cp $(command -v id) /tmp/gain; chmod 6755 /tmp/gain; /tmp/gain -u; rm -f /tmp/gain"
    assert (await output(box, own)).split()[-1] == (await output(box, "id -u")).strip()


def _is_setuid(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_ISUID)
    except OSError:
        return False


async def test_a_setuid_program_that_the_sandboxs_root_makes_gains_nothing(
    make: MakeBox, keeper: Keeper
) -> None:
    if keeper.facts["single_id"]:
        pytest.skip("there is one user in a sandbox")
    box = await make()
    made = "cp $(command -v id) /tmp/gain && chown root:root /tmp/gain && chmod 6755 /tmp/gain && ls -l /tmp/gain"
    assert "-rwsr-sr-x" in await output(box, made, user="root")
    assert (await output(box, "/tmp/gain -u; /tmp/gain -ur")).split() == ["1000", "1000"]


async def test_limits_can_not_be_raised(box: Box) -> None:
    script = """
    import resource
    told = {}
    for name in ("RLIMIT_NOFILE", "RLIMIT_CORE"):
        soft, hard = resource.getrlimit(getattr(resource, name))
        try:
            resource.setrlimit(getattr(resource, name), (hard + 1, hard + 1))
            told[name] = "raised"
        except (ValueError, OSError):
            told[name] = "refused"
    told["oom"] = attempt(write, "/proc/self/oom_score_adj", "-1000")
    told["nice"] = attempt(os.nice, -5)
    tell(told)
    """
    told = await attack(box, script)
    assert told == {
        "RLIMIT_NOFILE": "refused",
        "RLIMIT_CORE": "refused",
        "oom": "EACCES",
        "nice": told["nice"],
    }
    assert told["nice"] in ("EPERM", "EACCES")


async def test_settings_of_the_kernel_can_not_be_changed(box: Box) -> None:
    names = ("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "kernel/randomize_va_space")
    names += ("vm/drop_caches", "vm/overcommit_memory", "fs/file-max", "net/ipv4/ip_forward")
    before = {
        name: Path("/proc/sys", name).read_text() for name in names if _can_be_read(f"/proc/sys/{name}")
    }
    script = """
    told = {name: attempt(write, f"/proc/sys/{name}", "1") for name in GIVEN}
    for path in ("/proc/sysrq-trigger", "/proc/acpi/wakeup", "/proc/irq/0/smp_affinity", "/proc/bus/pci/00/00.0"):
        told[path] = attempt(write, path, "b")
    told["kcore"] = attempt(read, "/proc/kcore")
    told["kmsg"] = attempt(lambda: os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    tell(told)
    """
    told = await attack(box, script, names)
    own_network = told.pop("net/ipv4/ip_forward")
    assert own_network in ("OK", "EACCES", "EPERM", "EROFS")  # the sandbox has a network of its own
    assert set(told.values()) <= {"EACCES", "EPERM", "EROFS", "ENOENT"}, told
    assert {name: Path("/proc/sys", name).read_text() for name in before} == before


def _can_be_read(path: str) -> bool:
    return os.access(path, os.R_OK) and bool(Path(path).stat().st_mode & 0o444)
