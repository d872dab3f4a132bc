"""Files that a command writes for a person: whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from hawk.errors import HawkError, StorageError


def write_whole(path: Path, parts: bytes | Iterable[bytes]) -> None:
    """Replace a file in one step; what is no ordinary file (a pipe, /dev/stderr) is written to as it is.

    Args:
        path: A link is followed.
        parts: The content, whole or piece by piece.

    Raises:
        StorageError: It can't be written. An old file is untouched.
    """
    pieces = [parts] if isinstance(parts, bytes) else parts
    try:
        if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
            with path.open("ab") as odd:
                odd.writelines(pieces)
        else:
            _replace(path.resolve(), pieces)
    except OSError as ex:
        raise unwritable(path, ex) from ex


def _replace(target: Path, pieces: Iterable[bytes]) -> None:
    draft = target.with_name(f".hawk-{secrets.token_hex(6)}")
    try:
        with draft.open("xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def unwritable(path: Path, ex: OSError) -> HawkError:
    """What is wrong with a place to write to."""
    remedy = (
        "Name a directory that is there." if isinstance(ex, FileNotFoundError) else "Choose another place."
    )
    return StorageError(f"{path}: {ex.strerror or ex}.", remedy=remedy, path=str(path))
