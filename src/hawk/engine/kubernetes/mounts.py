"""Where things are in a runner pod: Hawk's own directories, the submitter's, and volumes that the eval set names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

JOB_DIR, KEYS_DIR = "/hawk/job", "/hawk/keys"
HOME, RUNS, SOURCE, MIDDLEMAN_HOME = "/hawk/home", "/hawk/runs", "/hawk/source", "/hawk/middleman"

_SYSTEM = (
    "bin",
    "boot",
    "dev",
    "etc",
    "hawk",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
)
"""First parts of paths that a mount would break, or that an ordinary user can't enter."""

_ALONE = ("/", "/home", "/mnt", "/opt", "/srv", "/tmp")  # noqa: S108
_PYTHON = ("/opt/hawk", "/opt/venv", "/app", "/venv")
"""Where images keep their Python."""

READABLE = 0o440


class Volume(NamedTuple):
    """A volume of a pod, and where a container mounts it."""

    volume: dict[str, Any]
    mount: dict[str, Any]


def source_dir(base_dir: str) -> str:
    """Where the submitter's directory is in the pod: the same path, so that Inspect's identity of tasks stays the same;
    another one where that would hide what the image needs."""
    path = PurePosixPath(base_dir)
    parts = path.parts
    if not path.is_absolute() or ".." in parts or ":" in base_dir or str(path) in _ALONE:
        return SOURCE
    if parts[1] in _SYSTEM or any(path.is_relative_to(python) for python in _PYTHON):
        return SOURCE
    return str(path)


def own(base_dir: str, secret: str, runs: Sequence[Volume] | None = None) -> list[Volume]:
    """Those of every runner.

    Args:
        base_dir: The submitter's directory.
        secret: Name of the job's Secret.
        runs: Where run directories are; None: in an empty directory.
    """
    return [
        _volume("job", {"secret": {"secretName": secret, "defaultMode": READABLE}}, JOB_DIR, read_only=True),
        _volume("home", {"emptyDir": {}}, HOME),
        *(runs or [_volume("runs", {"emptyDir": {}}, RUNS)]),
        _volume("tmp", {"emptyDir": {}}, "/tmp"),  # noqa: S108
        _volume("source", {"emptyDir": {}}, source_dir(base_dir)),
    ]


def on_claim(claim: str, job_id: str, rescored: str | None) -> list[Volume]:
    """The job's own run directory on the claim that has all, and no other's: code of its tasks could write there.

    Args:
        rescored: Id of the job whose attempts it scores again, which it may read.
    """
    there = {"persistentVolumeClaim": {"claimName": claim}}
    own = _volume("runs", there, f"{RUNS}/{job_id}", sub_path=job_id)
    if rescored is None:
        return [own]
    return [own, _volume("rescored", there, f"{RUNS}/{rescored}", read_only=True, sub_path=rescored)]


def of_worker(base_dir: str) -> list[Volume]:
    """Those of a worker's pod: what is in the run directory comes over its link, and no Secret is mounted."""
    return [
        _volume("home", {"emptyDir": {}}, HOME),
        _volume("runs", {"emptyDir": {}}, RUNS),
        _volume("tmp", {"emptyDir": {}}, "/tmp"),  # noqa: S108
        _volume("source", {"emptyDir": {}}, source_dir(base_dir)),
    ]


def shared(volumes: Sequence[Volume]) -> list[dict[str, Any]]:
    """Mounts of `own` that the middleman beside the runner has too: it writes spans, and replays what was recorded."""
    there = {v.volume["name"]: v.mount for v in volumes}
    return [there["runs"], {**there["source"], "readOnly": True}]


def keys(secret: str) -> list[Volume]:
    """Those of the middleman beside the runner, which no other container has."""
    return [
        _volume(
            "keys", {"secret": {"secretName": secret, "defaultMode": READABLE}}, KEYS_DIR, read_only=True
        ),
        _volume("middleman", {"emptyDir": {}}, MIDDLEMAN_HOME),
        _volume("middleman-tmp", {"emptyDir": {}}, "/tmp"),  # noqa: S108
    ]


def named(volumes: Sequence[Mapping[str, Any]]) -> list[Volume]:
    """Those that the eval set names."""
    return [_extra(i, volume) for i, volume in enumerate(volumes)]


def _extra(number: int, wanted: Mapping[str, Any]) -> Volume:
    if wanted.get("claim"):
        kind: dict[str, Any] = {"persistentVolumeClaim": {"claimName": wanted["claim"]}}
    elif wanted.get("secret"):
        kind = {"secret": {"secretName": wanted["secret"], "defaultMode": READABLE}}
    elif wanted.get("config_map"):
        kind = {"configMap": {"name": wanted["config_map"]}}
    else:
        kind = {"emptyDir": {"sizeLimit": wanted["size"]} if wanted.get("size") else {}}
    return _volume(f"extra-{number}", kind, wanted["mount"], read_only=bool(wanted.get("read_only")))


def _volume(
    name: str, kind: Mapping[str, Any], path: str, *, read_only: bool = False, sub_path: str | None = None
) -> Volume:
    mount: dict[str, Any] = {"name": name, "mountPath": path}
    if read_only:
        mount["readOnly"] = True
    if sub_path is not None:
        mount["subPath"] = sub_path
    return Volume({"name": name, **kind}, mount)
