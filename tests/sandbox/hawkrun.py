"""The command `hawk sandbox` as a person runs it, and sandboxes for it to find."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hawk.sandbox.config import load
from hawk.sandbox.handheld import own_sandbox

HAWK = [sys.executable, "-m", "hawk.cli"]
JOB = "some-eval-set"
TEXTS = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\n",
    "/etc/group": "root:x:0:\n",
    "/etc/motd": "a small one\n",
}
"""Files of a small root file system."""


def hawk(
    *args: str | Path, stdin: str | bytes = b"", cwd: Path | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[bytes]:
    """Run `hawk sandbox ARGS` with this process's environment."""
    return subprocess.run(
        [*HAWK, "sandbox", *map(str, args)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def said(*args: str | Path, code: int = 0, cwd: Path | None = None) -> str:
    """What it prints, errors included, after it has ended with `code`."""
    done = hawk(*args, cwd=cwd)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == code, text
    return text


def listed() -> Any:
    return json.loads(hawk("list", "--json").stdout)


@contextmanager
def living(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Iterator[str]:
    """The label of a sandbox of a worker of `JOB`, for which this process stands in."""
    with monkeypatch.context() as patch:
        patch.setenv("HAWK_JOB_ID", JOB)
        patch.setenv("HAWK_WORKER", "3")
        with own_sandbox(load({"inspect_tools": False, **fields})) as label:
            yield label


def write_config(directory: Path, text: str, name: str = "sandbox.yaml") -> Path:
    path = directory / name
    path.write_text(f"inspect_tools: false\n{text}")
    return path


def small_root(*programs: str) -> bytes:
    """A tar of a root file system in which a few of this machine's programs run."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        sources = {f"/bin/{name}": shutil.which(name, path="/usr/bin:/bin") for name in ("sh", *programs)}
        for program in list(sources.values()):
            assert program is not None, f"this machine lacks one of {sources}"
            linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
            sources |= {library: library for library in re.findall(r"(/\S+) \(0x", linked)}
        parents = {str(parent) for place in (*sources, *TEXTS) for parent in Path(place).parents}
        for place in sorted(parents - {"/"}):
            info = tarfile.TarInfo(place)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for place, source in sources.items():
            tar.add(str(source), place)
        for place, text in TEXTS.items():
            info = tarfile.TarInfo(place)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()
