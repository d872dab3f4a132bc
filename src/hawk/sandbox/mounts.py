"""What a sandbox sees: from its specification to bwrap's arguments. Pure but for looking at the host's root.

Keeper side: standard library only. Paths of the host are the keeper's view, where everything it needs lies
below `/run/hawk` (`boot.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

KEEP = "/run/hawk"
STORE = f"{KEEP}/store"
BASE = f"{KEEP}/base"
"""Lowest layer without a rootfs: everything but `/usr`."""
ADDED = f"{KEEP}/added"
"""Layer above a rootfs: what every sandbox needs (`/etc/hosts`, …)."""
USR = f"{KEEP}/usr"
"""The host's `/usr`, with owners as the sandbox numbers them where the kernel can."""
UPPER = f"{KEEP}/upper"
"""Mount point of the sandbox's own tmpfs, in its own mount namespace."""

MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Links into `/usr` on most systems; directories on others."""

WHOLE = ("/nix/store",)
"""Where some systems keep what `/usr` has elsewhere."""


@dataclass(frozen=True)
class Upper:
    """Where a sandbox writes: overlayfs' upper and work directories, and for `/usr` the same where it may."""

    upper: str
    work: str
    usr: tuple[str, str] | None = None


def upper_of(storage: dict[str, Any]) -> Upper:
    """The directories of a storage specification (`kind`: memory, disk, build)."""
    match storage["kind"]:
        case "memory":
            return Upper(f"{UPPER}/upper", f"{UPPER}/work")
        case "disk":
            home = f"{STORE}/scratch/{storage['directory']}"
            return Upper(f"{home}/upper", f"{home}/work")
        case "build":
            home = f"{STORE}/{storage['directory']}"
            usr = (f"{home}/usr", f"{home}/.usr-work") if storage.get("usr") else None
            return Upper(f"{home}/root", f"{home}/.work", usr)
    raise ValueError(f"storage {storage['kind']!r}")


def arguments(spec: dict[str, Any], upper: Upper, *, single_id: bool) -> list[str]:
    """bwrap's arguments for a specification, without the program that it starts."""
    args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--as-pid-1"]
    args += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv", "--chdir", "/"]
    args += ["--hostname", spec["hostname"]]
    if spec["network"] == "none" and not spec.get("share"):
        args.append("--unshare-net")
    if single_id:
        uid = str(spec["uid"])
        args += ["--unshare-user", "--uid", uid, "--gid", uid, "--disable-userns"]
    rootfs, layers = spec.get("rootfs"), [f"{STORE}/layers/{key}" for key in spec.get("layers", ())]
    lowers = [f"{STORE}/layers/{rootfs}/root", ADDED] if rootfs else [BASE]
    args += _overlay([*lowers, *(f"{layer}/root" for layer in layers)], upper.upper, upper.work, "/")
    if not rootfs:
        args += _host(layers, upper)
    args += ["--proc", "/proc", "--dev", "/dev"]
    args += ["--perms", "1777", "--size", str(spec["shm"]), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    return args


def _overlay(lowers: list[str], upper: str | None, work: str | None, target: str) -> list[str]:
    sources = [part for lower in lowers for part in ("--overlay-src", lower)]
    if upper is None or work is None:
        return [*sources, "--ro-overlay", target]
    return [*sources, "--overlay", upper, work, target]


def _host(layers: list[str], upper: Upper) -> list[str]:
    """The host's programs: `/usr`, read-only but for a build that may install into it."""
    usr = USR if os.path.isdir(f"{USR}/bin") else "/usr"
    changed = [f"{layer}/usr" for layer in layers if os.path.isdir(f"{layer}/usr")]
    if upper.usr is not None:
        args = _overlay([usr, *changed], *upper.usr, "/usr")
    elif changed:
        args = _overlay([usr, *changed], None, None, "/usr")
    else:
        args = ["--ro-bind", usr, "/usr"]
    for path in (*(f"/{name}" for name in MERGED), *WHOLE):
        if os.path.isdir(path) and not os.path.islink(path):
            args += ["--ro-bind", path, path]
    return args
