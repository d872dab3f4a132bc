"""Which file is whose, how it changes, and which paths there may be at all.

Each file of a run directory has one side that writes it. Only requests are handed over: the server makes them, and from
their delivery on they are the runner's, which updates and at last removes them.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePosixPath

from hawk.link.frames import ProtocolError
from hawk.store.borrowed import RESCORED

SOURCE = "source.tar.zst"
"""What was in the directory that the eval set was submitted from."""

JOURNAL = "journal.jsonl"
SNAPSHOT = "snapshot.json"
TAIL_CHECKED = 4096
LINES_COMPARED = 256

LONGEST_PATH = 1024
LONGEST_NAME = 255
DEEPEST = 16
LARGEST = 64 * 2**30
"""Bytes of one file."""

MOST_FILES = 2_000_000

_SERVERS = frozenset(
    {"job.json", "history.json", "eval-set.yaml", "eval-set.py", "pods.json", "events.jsonl", SOURCE}
)
_AT_HOME = frozenset({"events.jsonl", "workspace.tar.zst"})
"""Names of files that no runner reads: what the cluster said, and what agents left, which is large."""

_SPANS = frozenset({"spans/middleman.jsonl", "spans/spend.json"})
_REQUESTS = re.compile(r"(stop|actions)/[0-9A-Za-z_-]{1,64}\.json")
_PIECE = re.compile(r"trace-\d{15}\.jsonl")
_FLEETING = frozenset(
    {SNAPSHOT, "evidence.json", "learnt.json", "heartbeat.json", "trace.open.json", "last.json", "spend.json"}
)


class Owner(Enum):
    """Who writes a file."""

    SERVER = "server"
    RUNNER = "runner"
    REQUEST = "request"


class Kind(Enum):
    """How a file changes: replaced whole, only added to, or added to by both sides."""

    WHOLE = "whole"
    TAIL = "tail"
    LINES = "lines"


def check_path(path: str) -> str:
    """The path itself, where it may be the name of a file in a run directory.

    Raises:
        ProtocolError: It leads out of it, or is no path at all.
    """
    if not _possible(path):
        raise ProtocolError(f"{path[:200]!r} is not the path of a file in a run directory")
    return path


def _possible(path: str) -> bool:
    parts = path.split("/")
    return (
        path.isprintable()
        and len(path) <= LONGEST_PATH
        and len(parts) <= DEEPEST
        and all(part not in ("", ".", "..") and len(part.encode()) <= LONGEST_NAME for part in parts)
    )


def carried(path: str) -> bool:
    """Whether a file is carried at all: not sockets, locks, temporary files and what only the machine itself needs."""
    parts = path.split("/")
    if not _possible(path):
        return False
    if any(part.startswith(".") and part != ".keep" for part in parts if part != ".buffer"):
        return False
    if ".buffer" in parts and parts[:2] != ["logs", ".buffer"]:
        return False
    name, top = parts[-1], parts[0]
    if name == "lock" or name.endswith((".lock", ".sock")):
        return False
    if top == "buffer" or top.startswith("logs."):
        return False
    return not (top == "workers" and len(parts) > 3 and parts[2] == "data")


def enters(directory: str) -> bool:
    """Whether there can be files in a directory that are carried."""
    return carried(f"{directory}/x")


def wanted_to_begin(path: str) -> bool:
    """Whether a runner that begins anew needs a file."""
    return carried(path) and (borrowed(path) or PurePosixPath(path).name not in _AT_HOME)


def borrowed(path: str) -> bool:
    """Whether a file is another job's, of which this one scores the attempts again."""
    return path.startswith(f"{RESCORED}/")


def owner(path: str, *, spans: bool) -> Owner:
    """Who writes a file.

    Args:
        spans: The middleman writes spans beside the runner.
    """
    if path in _SERVERS or borrowed(path) or (path in _SPANS and not spans):
        return Owner.SERVER
    return Owner.REQUEST if _REQUESTS.fullmatch(path) else Owner.RUNNER


def kind(path: str) -> Kind:
    """How a file changes."""
    if path == JOURNAL:
        return Kind.LINES
    name = path.rsplit("/", 1)[-1]
    grows = name.endswith((".jsonl", ".log")) and not _PIECE.fullmatch(name)
    return Kind.TAIL if grows or name == "fatal.txt" else Kind.WHOLE


def renamed_only(directory: str) -> bool:
    """Whether what is in a directory changes by renaming only, so that the directory's own time tells."""
    return directory == "attempts" or directory.startswith("attempts/")


def in_place(path: str) -> bool:
    """Whether a file may change without its directory's time changing."""
    return not path.endswith((".eval", ".zip", ".zst")) and not renamed_only(path.rpartition("/")[0])


def durable(path: str) -> bool:
    """Whether a file must survive a power cut, as it does on one machine."""
    if kind(path) is not Kind.WHOLE:
        return False
    return path.rsplit("/", 1)[-1] not in _FLEETING and "/stacks/" not in path
