"""Attempts at files of the machine, of its devices, and of other sandboxes: each is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from hawk.sandbox.box import Box
from hawk.sandbox.errors import KeeperRefusedError
from tests.sandbox.escapes.attacks import SECRET, THEIRS, Host, attack, output
from tests.sandbox.programs import needs_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_python,
]


async def test_files_of_the_host_can_not_be_reached(box: Box, host: Host) -> None:
    script = """
    found = {}
    tries = []
    for path in GIVEN:
        tries += [path, "/proc/1/root" + path, "/proc/self/root" + path, "/proc/self/cwd/../../../.." + path,
                  "/oldroot" + path, "/newroot" + path, "/run/hawk/.." + path, "/proc/1/cwd" + path]
    for path in tries:
        found[path] = attempt(read, path)
        found[path + " written"] = attempt(write, path, "overwritten")
    tell({k: v for k, v in found.items() if not k.endswith("written")})
    """
    paths = [str(host.home / "token"), str(host.public / "file")]
    found = await attack(box, script, paths)
    assert set(found.values()) <= {"ENOENT", "EACCES", "ENOTDIR"}


async def test_a_sandbox_has_no_directories_of_the_machine_but_its_programs(box: Box, host: Host) -> None:
    mine = set((await output(box, "ls -A /; ls -A /home; ls -A /mnt /srv /opt /run /tmp /var/lib")).split())
    assert "user" in mine
    assert not mine & {"boot", "media", "lost+found", "work", host.public.name, "docker.sock"}
    assert set((await output(box, "ls -A /root /sys /mnt /srv 2>/dev/null | grep -v :")).split()) == set()


async def test_accounts_are_the_sandboxs_own(box: Box) -> None:
    shadow = await output(box, "cat /etc/shadow")
    if os.geteuid() == 0:
        hashes = [row.split(":")[1] for row in Path("/etc/shadow").read_text().splitlines() if "$" in row]
        assert not any(h in shadow for h in hashes)
    assert "$" not in shadow
    people = [row.split(":") for row in (await output(box, "cat /etc/passwd")).splitlines()]
    assert [row[0] for row in people if 1000 <= int(row[2]) < 65534] == ["user"]


async def test_programs_of_the_machine_can_not_be_changed(box: Box) -> None:
    before = os.stat("/usr/bin"), os.stat("/usr/bin/env")
    script = """
    tell([
        attempt(write, "/usr/bin/planted", "x"), attempt(os.chmod, "/usr/bin/env", 0o777),
        attempt(os.chown, "/usr/bin/env", os.getuid(), -1), attempt(os.unlink, "/usr/bin/env"),
        attempt(os.rename, "/usr/bin/env", "/usr/bin/planted"), attempt(os.symlink, "/tmp", "/usr/lib/planted"),
        attempt(os.setxattr, "/usr/bin/env", "user.x", b"x"), attempt(os.utime, "/usr/bin/env"),
        attempt(os.open, "/usr/bin/env", os.O_RDWR), attempt(os.mknod, "/usr/planted"),
        attempt(os.link, "/usr/bin/env", "/usr/bin/planted"), attempt(os.mkdir, "/usr/planted"),
    ])
    """
    results = await attack(box, script)
    assert set(results) <= {"EROFS", "EACCES", "EPERM", "EXDEV"}
    assert [(s.st_mtime_ns, s.st_mode, s.st_uid) for s in before] == [
        (s.st_mtime_ns, s.st_mode, s.st_uid) for s in (os.stat("/usr/bin"), os.stat("/usr/bin/env"))
    ]


async def test_overlay_attributes_can_not_be_forged(box: Box) -> None:
    script = """
    os.makedirs("/workspace/forged", exist_ok=True)
    result = {}
    for name in ("redirect", "opaque", "metacopy", "origin", "whiteout"):
        for prefix in ("user.overlay.", "trusted.overlay."):
            result[prefix + name] = attempt(os.setxattr, "/workspace/forged", prefix + name, b"/etc")
    tell([result, os.listdir("/workspace/forged")])
    """
    results, listed = await attack(box, script)
    # `user.overlay.…` is stored under an escaped name by newer kernels: it then means nothing.
    assert {v for k, v in results.items() if k.startswith("trusted")} <= {"EPERM", "EOPNOTSUPP"}
    assert listed == []
    assert SECRET not in await output(box, "ls -R /workspace/forged; cat /workspace/forged/* 2>/dev/null")


async def test_device_nodes_can_not_be_made(box: Box) -> None:
    script = """
    def make(kind, major, minor):
        path = f"/workspace/node-{kind}-{major}-{minor}"
        result = attempt(os.mknod, path, 0o666 | kind, os.makedev(major, minor))
        return result if result else attempt(os.open, path, os.O_RDWR)
    tell([make(stat.S_IFCHR, 1, 1), make(stat.S_IFCHR, 5, 1), make(stat.S_IFCHR, 10, 229), make(stat.S_IFBLK, 8, 0),
          make(stat.S_IFBLK, 254, 0), make(stat.S_IFBLK, 259, 0), attempt(os.mkfifo, "/workspace/fifo")])
    """
    *devices, fifo = await attack(box, script)
    assert set(devices) == {"EPERM"}
    assert fifo is None
    await output(box, "rm -f /workspace/fifo")


async def test_devices_are_the_harmless_ones(box: Box) -> None:
    names = set((await output(box, "ls -A /dev")).split())
    assert names == {
        *("core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"),
        *("urandom", "zero"),
    }
    script = """
    tell([attempt(write, "/dev/planted", "x"), attempt(os.open, "/dev/tty", os.O_RDWR), attempt(read, "/dev/core")])
    """
    written, terminal, memory = await attack(box, script)
    assert written in ("EROFS", "EACCES")
    assert terminal == "ENXIO"
    assert memory in ("EPERM", "EACCES", "ENOENT")


async def test_files_of_another_sandbox_can_not_be_reached(box: Box, other: Box) -> None:
    found = await output(
        box,
        f"grep -rlsF {THEIRS} /workspace /tmp /home /run /var /etc /mnt /srv /opt /root /dev/shm;"
        "find / -xdev -name upper -o -xdev -name hawk 2>/dev/null | grep -v ^/usr; true",
    )
    assert found == ""
    assert (await other.read("file", limit=1000)) == THEIRS.encode()


async def test_what_the_worker_reads_and_writes_leads_out_by_no_link(
    box: Box, other: Box, host: Host
) -> None:
    """A scorer that reads an answer must not be made to read what the keeper has open."""
    for number in range(48):
        ways_up = f"/proc/self/fd/{number}/../../../../../../.."
        for target in (
            f"/proc/self/fd/{number}/workspace/file",
            f"{ways_up}{host.public}/file",
            f"/proc/self/fd/{number}",
        ):
            await box.run(["ln", "-sfn", target, "answer"])
            with contextlib.suppress(KeeperRefusedError):
                content = await box.read("answer", limit=1 << 20)
                assert THEIRS.encode() not in (content or b"")
                assert SECRET.encode() not in (content or b"")
            with contextlib.suppress(KeeperRefusedError):
                await box.write("answer", b'{"errno"')
    await box.run(["rm", "-f", "answer"])
    assert await other.read("file", limit=1000) == THEIRS.encode()
    assert (host.public / "file").read_text() == SECRET
    assert await output(box, "echo on") == "on\n"


async def test_memory_is_not_shared_between_sandboxes(box: Box, other: Box) -> None:
    await output(other, "echo there > /dev/shm/name; echo there > /tmp/name")
    assert await output(box, "cat /dev/shm/name /tmp/name 2>/dev/null; ls -A /dev/shm") == ""
    assert (await output(box, "cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem")).count("\n") == 3
