"""A file that is made once: tokens and keys, which several processes may want at the same moment."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_once(path: Path, data: bytes) -> None:
    """Put a whole file in place, for its owner only, unless another process was first: its content then counts.

    Raises:
        OSError: It can't be made.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(name, path)  # unlike a rename, it can't replace what is there
    finally:
        Path(name).unlink(missing_ok=True)
