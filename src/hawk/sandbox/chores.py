"""Work on files that a child of the keeper does: export, unpack, copy, measure, remove. Standard library only.

The child is "root" of the keeper's namespaces: it may touch what sandboxes own, and nothing of the host's.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, NoReturn

from hawk.sandbox.changes import write_changes
from hawk.sandbox.descent import remove_tree, usage
from hawk.sandbox.mounts import STORE
from hawk.sandbox.untar import copy_tree, extract

if TYPE_CHECKING:
    from hawk.sandbox.living import Sandbox

CHORES = ("export", "unpack", "copy", "measure", "remove")


def run_chore(
    message: dict[str, Any], fds: list[int], told: int, sandbox: Sandbox | None, single_id: bool
) -> NoReturn:
    """Do it, tell the result as JSON on `told`, and end."""
    try:
        result = {"ok": True, **_chore(message, fds, sandbox, single_id)}
    except OSError as ex:
        result = {"errno": ex.errno or 5, "stage": message["op"], "detail": str(ex)}
    except BaseException as ex:
        result = {"errno": 5, "stage": message["op"], "detail": f"{type(ex).__name__}: {ex}"}
    with contextlib.suppress(OSError):
        os.write(told, json.dumps(result).encode())
    os._exit(0)


def _chore(
    message: dict[str, Any], fds: list[int], sandbox: Sandbox | None, single_id: bool
) -> dict[str, Any]:
    match message["op"]:
        case "export":
            if sandbox is None:
                raise FileNotFoundError(2, "no such sandbox", message["label"])
            changes = write_changes(
                sandbox.upper_fd, fds[0], prefix=message.get("prefix", ""), max_bytes=message.get("max_bytes")
            )
            return {
                "files": changes.files,
                "bytes": changes.bytes,
                "skipped": [note[-300:] for note in changes.skipped[:100]],
                "truncated": changes.truncated,
            }
        case "unpack" | "copy":
            target = f"{STORE}/{message['directory']}"
            os.makedirs(target, exist_ok=True)
            os.chroot(target)
            os.chdir("/")
            unpacked = (
                extract(fds[0], all_ids=not single_id) if message["op"] == "unpack" else copy_tree(fds[0])
            )
            return {"files": unpacked.files, "bytes": unpacked.bytes, "skipped": unpacked.skipped}
        case "measure":
            if sandbox is None:
                raise FileNotFoundError(2, "no such sandbox", message["label"])
            return {"bytes": usage(sandbox.upper_fd)}
        case "remove":
            parent, _, name = f"{STORE}/{message['directory']}".rpartition("/")
            fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
            remove_tree(name, dir_fd=fd)
            return {}
    raise OSError(38, "no such chore", message["op"])
