"""Addresses that a job may not send the middleman to: what only this machine can reach is not a job's to ask.

A name is checked twice: as it is written, before anything is looked up (`forbidden_url`), and each address that it
resolves to, at the moment of the connection (`forbidden_address`), since the answer may change in between.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Literal
from urllib.parse import SplitResult, urlsplit

Policy = Literal["any", "public", "none"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA_NAMES = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
        "kubernetes.default.svc",
        "kubernetes.default",
    }
)
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "168.63.129.16",  # Azure's host
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def forbidden_address(
    ip: str, *, policy: Policy, port: int | None = None, own: Collection[tuple[str, int]] = ()
) -> str | None:
    """Why a job may not reach an address, or None.

    Args:
        ip: IPv4 or IPv6, as a resolver gives it; a zone (`%eth0`) may follow.
        policy: `any` leaves out only what no model can be behind; `public` leaves the open Internet; `none` nothing.
        port: Where the connection goes.
        own: Addresses and ports at which the middleman listens; `0.0.0.0` and `::` are every address of this machine.
    """
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return f"{ip!r} is not an address"
    if policy == "none":
        return "jobs may not bring providers along"
    for one in _inside(address):
        why = _never(one) or (_not_public(one) if policy == "public" else None)
        if why is not None:
            return f"{ip} is {why}"
        if any(port == own_port and _same(one, mine) for mine, own_port in own):
            return f"{ip}, port {port}, is the middleman itself"
    return None


def forbidden_url(
    url: str,
    *,
    policy: Policy | None,
    own: Collection[tuple[str, int]] = (),
    host_names: Collection[str] = (),
) -> str | None:
    """Why a base URL may not be used, or None. Nothing is looked up.

    Args:
        url: What somebody wrote.
        policy: What a job may reach; None: an operator wrote it, who may reach everything.
        own: As in `forbidden_address`.
        host_names: Names under which the middleman itself is known.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "a base URL is plain ASCII without spaces or backslashes"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "this is not a URL"
    wrong = _malformed(parts)
    if wrong is not None or policy is None:
        return wrong
    if policy == "none":
        return "jobs may not bring providers along"
    host = (parts.hostname or "").rstrip(".")
    if host in _METADATA_NAMES:
        return f"{host} is a cloud's metadata service"
    if is_own(url, own, host_names):
        return f"{host}, port {port}, is the middleman itself"
    literal = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else _literal(host)
    return None if literal is None else forbidden_address(literal, policy=policy, port=port, own=own)


def is_own(url: str, own: Collection[tuple[str, int]], host_names: Collection[str] = ()) -> bool:
    """Whether a well-formed base URL leads back to the middleman; names are not looked up."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").rstrip(".")
    if not any(port == own_port for _, own_port in own):
        return False
    literal = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else _literal(host)
    if literal is None:
        return host in host_names
    return any(_same(one, mine) for one in _inside(ipaddress.ip_address(literal)) for mine, _ in own)


def _malformed(parts: SplitResult) -> str | None:
    if parts.scheme not in ("http", "https"):
        return "a base URL begins with http:// or https://"
    if not parts.hostname:
        return "the base URL has no host"
    if parts.username is not None or parts.password is not None:
        return "a base URL must not have a name or password in it"
    if parts.query or parts.fragment:
        return "a base URL has no query or fragment"
    if any(
        segment in (".", "..") for segment in parts.path.replace("%2e", ".").replace("%2E", ".").split("/")
    ):
        return "a base URL has no dot segments"
    return None


def _literal(host: str) -> str | None:
    """The address that a host part says in figures, in all the ways in which a resolver reads it (`0x7f.1`, `2130706433`)."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def _inside(address: Address) -> list[Address]:
    """An address, and those that are wrapped up in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    wrapped = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        wrapped.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if 1 < int(address) <= 0xFFFFFFFF:  # ::a.b.c.d, long out of use and still understood
        wrapped.append(ipaddress.IPv4Address(int(address)))
    return [address, *(one for one in wrapped if one is not None)]


def _never(address: Address) -> str | None:
    if address in _METADATA:
        return "a cloud's metadata service"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or (isinstance(address, ipaddress.IPv4Address) and address.packed[0] == 0):
        return "no address of a host"
    return None


def _not_public(address: Address) -> str | None:
    if address.is_loopback:
        return "this machine"
    return None if address.is_global else "not on the Internet"


def _same(address: Address, mine: str) -> bool:
    """Whether the middleman hears what is sent to an address; one that listens everywhere hears every local one."""
    try:
        own = ipaddress.ip_address(mine)
    except ValueError:
        return False
    return address == own or (address.is_loopback and (own.is_unspecified or own.is_loopback))
