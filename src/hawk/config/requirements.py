"""Packages that lie in a directory: `./mypkg` among those that an eval set names. Nothing heavy: the supervisor imports it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LOCAL = re.compile(
    r"(?P<option>(?:-e|--editable)\s+)?(?P<path>\.{1,2}(?:/[^\[]*)?|/[^\[]*)(?P<extras>\[.*\])?"
)
_ADDRESS = re.compile(r"(?:-e\s+|[\w.-]+(?:\[.*\])?\s*@\s*)?file://(?P<path>/[^#?]*)")


def directory_of(requirement: str) -> str | None:
    """The path in a requirement as pip takes it; None where it is a name or an address elsewhere."""
    found = _LOCAL.fullmatch(requirement.strip()) or _ADDRESS.match(requirement.strip())
    return found["path"] if found else None


def located(requirement: str, base: str) -> str:
    """The same requirement with an absolute path.

    Args:
        base: Directory that relative paths are relative to.
    """
    found = _LOCAL.fullmatch(requirement.strip())
    if found is None or found["path"].startswith("/"):
        return requirement
    path = os.path.normpath(Path(base) / found["path"])
    return f"{found['option'] or ''}{path}{found['extras'] or ''}"
