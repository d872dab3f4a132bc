"""Why a machine refuses namespaces, and what its owner can do about it."""

from __future__ import annotations

import errno
from pathlib import Path

from hawk.sandbox.errors import KeeperRefusedError

OTHERWISE = (
    "use docker (`sandbox: docker`). Without isolation, and only for code you trust: `sandbox: local`."
)


def ways_out(ex: KeeperRefusedError) -> str:
    """What to change so that sandboxes work, from the error and what this machine says of itself."""
    return f"{_way(ex)}; or {OTHERWISE}"


def _way(ex: KeeperRefusedError) -> str:
    if _reads("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "Allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1"
    if _reads("/proc/sys/user/max_user_namespaces") == "0":
        return "Allow user namespaces: sysctl -w user.max_user_namespaces=10000"
    if _reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor restricts user namespaces: allow them to Python with a profile (docs/sandboxes.md), "
            "or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if "proc" in ex.detail.lower() and in_container():
        return "In a container, /proc must not be masked: docker run --security-opt systempaths=unconfined"
    if ex.number in (errno.EPERM, errno.EACCES) and in_container():
        return (
            "In a container, namespaces must be allowed: docker run --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    if ex.number in (errno.ENOSPC, errno.EUSERS):
        return "Too many namespaces are in use: raise the limits under /proc/sys/user/"
    return "See docs/sandboxes.md for what the kernel must allow"


def in_container() -> bool:
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()


def _reads(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
