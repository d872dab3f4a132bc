"""What a sandbox may reach, as a NetworkPolicy that selects by label: one per kind of network, not one per pod."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from hawk.sandbox.errors import SandboxError
from hawk.sandbox.pod import names
from hawk.sandbox.pod.names import Owner
from hawk.sandbox.pod.options import Network


@dataclass(frozen=True)
class Resolved:
    """A network with its domains looked up.

    Attributes:
        blocks: Networks that may be reached.
        hosts: Address to the domains that mean it: a pod gets them as its own table, so that it needs no name server.
    """

    blocks: tuple[str, ...]
    hosts: tuple[tuple[str, tuple[str, ...]], ...] = ()


async def resolve(network: Network) -> Resolved:
    """Look the domains up.

    Raises:
        SandboxError: One is not known.
    """
    blocks: list[str] = []
    hosts: dict[str, list[str]] = {}
    for entry in network.allow:
        try:
            blocks.append(str(ipaddress.ip_network(entry)))
            continue
        except ValueError:
            pass
        try:
            found = await asyncio.get_running_loop().getaddrinfo(entry, None, type=socket.SOCK_STREAM)
        except OSError as ex:
            raise SandboxError(
                f"The sandbox may reach {entry}, which is not known here: {ex.strerror or ex}.",
                remedy="Correct `network`, or give its address.",
            ) from ex
        for address in dict.fromkeys(str(row[4][0]).partition("%")[0] for row in found):
            blocks.append(f"{address}/{128 if ':' in address else 32}")
            hosts.setdefault(address, []).append(entry)
    return Resolved(tuple(dict.fromkeys(blocks)), tuple((a, tuple(n)) for a, n in hosts.items()))


def policy(network: Network, resolved: Resolved, owner: Owner, key: str) -> dict[str, Any] | None:
    """The policy for all sandboxes with this network; None where nothing is kept from them."""
    if network.open:
        return None
    egress = [{"to": [{"ipBlock": {"cidr": block}} for block in resolved.blocks]}] if resolved.blocks else []
    scope = {names.NETWORK: key, names.RUNNER: owner.runner}
    return _manifest(owner, owner.name("net", key, owner.runner), scope, [], egress)


def among(owner: Owner, group: str) -> dict[str, Any]:
    """The policy that lets the pods of one attempt reach each other."""
    peers = [{"podSelector": {"matchLabels": {names.GROUP: group}}}]
    return _manifest(
        owner,
        owner.name(group, "net"),
        {names.GROUP: group},
        [{"from": peers}],
        [{"to": peers}],
        {names.GROUP: group},
    )


def key_of(network: Network, resolved: Resolved) -> str:
    """The value of the label by which a policy selects."""
    return "open" if network.open else names.short_hash(repr(resolved.blocks))


def _manifest(
    owner: Owner,
    name: str,
    selector: dict[str, str],
    ingress: list[dict[str, Any]],
    egress: list[dict[str, Any]],
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "kind": "NetworkPolicy",
        "metadata": owner.meta(name, labels or {}, {}),
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }
