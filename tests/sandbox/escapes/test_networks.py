"""Attempts to reach the machine's network and sockets: each is refused."""

from __future__ import annotations

import secrets
import socket

import psutil
import pytest

from hawk.sandbox.box import Box
from tests.sandbox.escapes.attacks import Host, attack
from tests.sandbox.programs import needs_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
    needs_python,
]


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
        try:
            told = await attack(
                box, script, [listener.getsockname()[1], name, str(host.public / "socket"), addresses]
            )
        finally:
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
    assert set(await attack(box, script, doors)) == {"ENOENT"}
