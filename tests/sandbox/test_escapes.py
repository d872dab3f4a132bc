"""Attempts to get out of a sandbox, or at others, by what runs in one: each is refused or contained.

As root this is a sandbox with many users; `test_as_ordinary_user.py` runs the same with one.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio

from hawk.sandbox.box import Box
from hawk.sandbox.client import Keeper
from tests.sandbox.attacks import attack, output
from tests.sandbox.conftest import MakeBox, boxes_of, new_home, new_keeper
from tests.sandbox.programs import needs_python
from tests.sandbox.traces import keeper_processes, processes_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60), needs_python]

SECRET = f"secret-{secrets.token_hex(16)}"
"""Of the host: in files, and in the worker's environment."""
THEIRS = f"theirs-{secrets.token_hex(16)}"
"""Of another sandbox."""


class Host(NamedTuple):
    """What there is to be had outside."""

    home: Path
    public: Path
    """A directory with a file, which everybody on the machine may read and write."""


@pytest.fixture(scope="module")
def host(supported: None) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch, new_home() as home:
        patch.setenv("HAWK_ACCESS_TOKEN", SECRET)
        patch.setenv("OPENAI_API_KEY", SECRET)
        home.mkdir(parents=True, exist_ok=True)
        (home / "token").write_text(SECRET)
        with tempfile.TemporaryDirectory(prefix="hk-public-") as place:
            public = Path(place)
            public.chmod(0o777)
            (public / "file").write_text(SECRET)
            (public / "file").chmod(0o666)
            yield Host(home, public)
            assert (public / "file").read_text() == SECRET
            assert (home / "token").read_text() == SECRET
            assert sorted(path.name for path in public.iterdir()) == ["file"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeper(host: Host) -> AsyncIterator[Keeper]:
    async with new_keeper() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def make(keeper: Keeper) -> AsyncIterator[MakeBox]:
    async with boxes_of(keeper) as maker:
        yield maker


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["user", "root"])
async def box(request: pytest.FixtureRequest, make: MakeBox) -> Box:
    """Where attacks run: as an ordinary user of the sandbox, and as its root."""
    return await make(user=request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other(make: MakeBox) -> Box:
    """Somebody else's sandbox, with something to be had and something that runs."""
    box = await make()
    await box.write("file", THEIRS.encode())
    await box.run(["sh", "-c", f"cd /tmp; OTHER={THEIRS} nohup sleep 7777 >/dev/null 2>&1 &"])
    return box


async def is_root(box: Box) -> bool:
    return (await output(box, "id -u")).strip() == "0"


# --- files


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
    found = await attack(box, _flush(script), paths)
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
    results = await attack(box, _flush(script))
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
    results, listed = await attack(box, _flush(script))
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
    *devices, fifo = await attack(box, _flush(script))
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
    written, terminal, memory = await attack(box, _flush(script))
    assert written in ("EROFS", "EACCES")
    assert terminal == "ENXIO"
    assert memory in ("EPERM", "EACCES", "ENOENT")


# --- processes


async def test_other_processes_can_be_neither_seen_nor_signalled(box: Box, other: Box) -> None:
    script = """
    mine = processes()
    for pid in range(2, 70000):
        if pid not in mine:
            assert attempt(os.kill, pid, signal.SIGKILL) == "ESRCH", pid
    tell([{pid: read(f"/proc/{pid}/cmdline") for pid in mine}, os.getpid()])
    """
    lines, me = await attack(box, _flush(script))
    assert str(me) in lines
    assert not any("sleep" in line or "hawk" in line or "bwrap" in line for line in lines.values())
    assert "sleep" in await output(other, "cat /proc/[0-9]*/comm")


async def test_a_kill_of_everything_leaves_the_sandbox(box: Box, other: Box) -> None:
    await output(box, "nohup sleep 7788 >/dev/null 2>&1 &")
    done = await box.run(
        ["sh", "-c", "trap '' TERM; kill -9 -1; kill -9 1; kill -STOP 1; kill -INT 1; echo on"]
    )
    assert done.stdout in (b"", b"on\n")  # the shell itself may be among the killed
    assert await output(box, "echo alive; cat /proc/[0-9]*/comm | grep -c sleep") == "alive\n0\n"
    assert "sleep" in await output(other, "cat /proc/[0-9]*/comm")


async def test_the_first_process_gives_nothing_away(box: Box, host: Host) -> None:
    script = """
    PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
    told = {name: attempt(read, f"/proc/1/{name}") for name in ("environ", "cmdline", "maps", "mountinfo", "cgroup")}
    told["fds"] = attempt(lambda: {fd: attempt(os.readlink, f"/proc/1/fd/{fd}") for fd in os.listdir("/proc/1/fd")})
    told["root"] = attempt(os.listdir, "/proc/1/root/")
    tell([told, os.listdir("/")])
    """
    told, root = await attack(box, _flush(script))
    text = str(told)
    assert SECRET not in text
    assert str(host.home) not in text
    if isinstance(told["fds"], dict):
        assert not [t for t in told["fds"].values() if not re.match(r"/dev/null|/memfd:|E[A-Z]+$", t)]
    assert told["root"] in ("EACCES", "EPERM") or sorted(told["root"]) == sorted(root)


async def test_what_the_first_process_inherited_can_not_be_changed(box: Box) -> None:
    script = """
    tell({fd: attempt(lambda: os.write(os.open(f"/proc/1/fd/{fd}", os.O_RDWR), b"changed"))
          for fd in attempt(os.listdir, "/proc/1/fd") if "init" in str(attempt(os.readlink, f"/proc/1/fd/{fd}"))})
    """
    results = await attack(box, _flush(script)) if await is_root(box) else {}
    assert set(results.values()) <= {"EPERM", "EACCES", "ETXTBSY"}


async def test_commands_that_enter_show_nothing_before_they_have_changed(box: Box) -> None:
    """A process of the keeper's becomes the command; meanwhile it may give away nothing of what it came from."""
    script = """
    seen, deadline, known = set(), time.monotonic() + 2, set(processes())
    while time.monotonic() < deadline:
        for pid in processes():
            if pid not in known:
                for name in ("environ", "maps"):
                    seen.add(str(attempt(read, f"/proc/{pid}/{name}")))
                for fd in attempt(os.listdir, f"/proc/{pid}/fd"):
                    seen.add(attempt(os.readlink, f"/proc/{pid}/fd/{fd}"))
                for name in ("cwd", "exe"):
                    seen.add(attempt(os.readlink, f"/proc/{pid}/{name}"))
                seen.add(" ".join(attempt(os.listdir, f"/proc/{pid}/root/")))
    tell(sorted(seen))
    """
    seen = "\n".join(await _meanwhile(box, script))
    assert "bin/true" in seen
    for word in (SECRET, "HAWK", "hawk", "site-packages", "python", "memfd", "pidfd", "eventpoll", "socket:"):
        assert word not in seen, [line for line in seen.split("\n") if word in line][:5]


async def test_commands_that_enter_can_not_be_traced_before_they_have_changed(box: Box) -> None:
    """Else a tracer had a process that is not under the filter yet."""
    script = """
    PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    caught, deadline, last, turn = {}, time.monotonic() + 2, max(processes()), 0
    while time.monotonic() < deadline:
        turn += 1
        for pid in range(last + 1, last + 4):
            if libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0:
                libc.ptrace(PTRACE_INTERRUPT, pid, 0, 0)
                attempt(os.waitpid, pid, 0)
                program = attempt(os.readlink, f"/proc/{pid}/exe")
                caught[program] = caught.get(program, 0) + 1
                libc.ptrace(PTRACE_DETACH, pid, 0, 0)
                last = max(last, pid)
        if turn % 50 == 0:
            last = max(processes())
    tell(caught)
    """
    caught = await _meanwhile(box, script)
    assert {program for program in caught if "bin/true" not in program} <= {"ENOENT"}  # which had ended


async def _meanwhile(box: Box, script: str) -> Any:
    """What an attack tells while commands enter its sandbox."""
    running = asyncio.create_task(attack(box, _flush(script)))
    while not running.done():
        await box.run(["true"])
        await box.write("x", b"x")
        await box.read("x", limit=10)
    return await running


async def test_only_the_three_standard_streams_are_inherited(box: Box) -> None:
    script = """
    fds = {int(fd): attempt(os.readlink, f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    tell(sorted(fd for fd, target in fds.items() if target != "ENOENT"))
    """
    for options in ({}, {"stdin": b"x"}, {"user": "0" if await is_root(box) else "1000"}):
        assert await attack(box, _flush(script), **options) == [0, 1, 2]
    done = await box.run(["sh", "-c", "ls -l /proc/self/fd"])
    assert len(re.findall(r"^\S+ .* -> ", done.stdout.decode(), re.MULTILINE)) == 4  # and the listing itself


async def test_no_secret_of_the_worker_is_in_any_process(box: Box, keeper: Keeper) -> None:
    inside = await output(box, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; env")
    assert SECRET not in inside
    looked_at = 0
    for process in (*keeper_processes(keeper.pid), *processes_of(keeper.pid, box.label)):
        for name in ("environ", "cmdline"):
            assert SECRET.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        looked_at += _memory_lacks(process.pid, SECRET.encode())
    assert looked_at >= 3


def _memory_lacks(pid: int, secret: bytes) -> bool:
    """Whether all of a process's memory was looked at; fails when the secret is in it."""
    with Path(f"/proc/{pid}/maps").open() as maps:
        areas = [row.split()[:2] for row in maps if "[v" not in row]
    try:
        with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
            for area, rights in areas:
                first, last = (int(number, 16) for number in area.split("-"))
                if rights.startswith("rw"):
                    memory.seek(first)
                    assert secret not in memory.read(last - first)
    except OSError:
        return False
    return bool(areas)


# --- privileges and namespaces


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
    told = await attack(box, _flush(script))
    assert set(told.values()) == {"EPERM"}, told
    shown = await output(box, "unshare -Ur id 2>&1; unshare -m true 2>&1; nsenter -t 1 -a true 2>&1")
    assert "uid=0" not in shown or await is_root(box) and "Operation not permitted" in shown


async def test_keyrings_of_the_machine_can_not_be_reached(box: Box) -> None:
    script = """
    KEYCTL_GET_KEYRING_ID, KEYCTL_DESCRIBE, KEYCTL_READ = 0, 6, 11
    tell([call("keyctl", KEYCTL_GET_KEYRING_ID, -3, 0), call("keyctl", KEYCTL_DESCRIBE, -4, 0, 0),
          call("keyctl", KEYCTL_READ, -5, 0, 0), call("add_key", b"user", b"x", b"x", 1, -3),
          call("request_key", b"user", b"x", None, 0)])
    """
    assert set(await attack(box, _flush(script))) == {"EPERM"}
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
    told = await attack(box, _flush(script))
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
    told = await attack(box, _flush(script), names)
    own_network = told.pop("net/ipv4/ip_forward")
    assert own_network in ("OK", "EACCES", "EPERM", "EROFS")  # the sandbox has a network of its own
    assert set(told.values()) <= {"EACCES", "EPERM", "EROFS", "ENOENT"}, told
    assert {name: Path("/proc/sys", name).read_text() for name in before} == before


def _can_be_read(path: str) -> bool:
    return os.access(path, os.R_OK) and bool(Path(path).stat().st_mode & 0o444)


# --- networks and sockets


async def test_nothing_of_the_machines_network_can_be_reached(box: Box, host: Host) -> None:
    name = f"hawk-test-{secrets.token_hex(4)}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        path = socket.socket(socket.AF_UNIX)
        path.bind(str(host.public / "socket"))
        path.listen()
        script = """
        def connect(family, address):
            with socket.socket(family, socket.SOCK_STREAM) as s:
                s.settimeout(2)
                s.connect(address)
                return "connected"
        port, name, path, addresses = GIVEN
        told = {a: attempt(connect, socket.AF_INET, (a, port)) for a in ("127.0.0.1", "0.0.0.0", *addresses)}
        told["outside"] = attempt(connect, socket.AF_INET, ("1.1.1.1", 53))
        told["metadata"] = attempt(connect, socket.AF_INET, ("169.254.169.254", 80))
        told["ipv6"] = attempt(connect, socket.AF_INET6, ("::1", port))
        told["abstract"] = attempt(connect, socket.AF_UNIX, "\\0" + name)
        told["path"] = attempt(connect, socket.AF_UNIX, path)
        for family in ("AF_PACKET", "AF_VSOCK", "AF_ALG"):
            told[family] = attempt(lambda: socket.socket(getattr(socket, family), socket.SOCK_DGRAM).close())
        told["unix"] = [row.split()[-1] for row in read("/proc/net/unix", 100000).splitlines()[1:]]
        told["interfaces"] = [row.split(":")[0].strip() for row in read("/proc/net/dev").splitlines()[2:]]
        tell(told)
        """
        addresses = [
            a.address for rows in psutil.net_if_addrs().values() for a in rows if a.family == socket.AF_INET
        ]
        told = await attack(
            box, _flush(script), [listener.getsockname()[1], name, str(host.public / "socket"), addresses]
        )
        path.close()
        (host.public / "socket").unlink()
    assert told.pop("interfaces") == ["lo"]
    assert not [row for row in told.pop("unix") if "hawk" in row or row.startswith("@")]
    for family in ("AF_PACKET", "AF_VSOCK", "AF_ALG"):
        assert told.pop(family) == "EPERM"
    assert set(told.values()) <= {"ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL", "ENOENT"}, told


async def test_the_keepers_door_is_out_of_reach(box: Box, host: Host) -> None:
    doors = [str(path) for path in (host.home / "sandbox" / "keepers").iterdir() if path.suffix == ".sock"]
    assert doors
    script = """
    def knock(path):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
    names = [path.rpartition("/")[2] for path in GIVEN]
    tell([attempt(knock, path) for path in [*GIVEN, *(f"/run/hawk/store/keepers/{name}" for name in names)]])
    """
    assert set(await attack(box, _flush(script), doors)) == {"ENOENT"}


# --- other sandboxes


async def test_files_of_another_sandbox_can_not_be_reached(box: Box, other: Box) -> None:
    found = await output(
        box,
        f"grep -rlsF {THEIRS} /workspace /tmp /home /run /var /etc /mnt /srv /opt /root /dev/shm;"
        "find / -xdev -name upper -o -xdev -name hawk 2>/dev/null | grep -v ^/usr; true",
    )
    assert found == ""
    assert (await other.read("file", limit=1000)) == THEIRS.encode()


async def test_memory_is_not_shared_between_sandboxes(box: Box, other: Box) -> None:
    await output(other, "echo there > /dev/shm/name; echo there > /tmp/name")
    assert await output(box, "cat /dev/shm/name /tmp/name 2>/dev/null; ls -A /dev/shm") == ""
    assert (await output(box, "cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem")).count("\n") == 3


def _flush(script: str) -> str:
    """A script without its indentation."""
    lines = script.strip("\n").split("\n")
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)
