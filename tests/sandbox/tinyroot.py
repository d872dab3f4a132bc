"""A root file system for tests: this machine's shell and a few programs, the libraries they need, and no `/usr`."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "id", "sleep", "uname", "mkdir", "touch", "rm", "ln")
MARK = "this is the tiny root\n"


def write(path: Path) -> Path:
    """Write it as a tar."""
    with tarfile.open(path, "w") as tar:
        for directory in ("bin", "lib", "lib64", "etc", "proc", "dev", "tmp", "root"):
            info = tarfile.TarInfo(directory)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, text in {
            "etc/passwd": "root:x:0:0::/root:/bin/sh\nguest:x:77:77::/tmp:/bin/sh\n",
            "etc/group": "root:x:0:\nguest:x:77:\n",
            "etc/tiny-release": MARK,
        }.items():
            _add(tar, name, text.encode(), 0o644)
        for name, source in _files().items():
            _add(tar, name, source.read_bytes(), 0o755)
    return path


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _files() -> dict[str, Path]:
    """Place in the root to file on this machine: the programs, and what `ldd` says they load."""
    found: dict[str, Path] = {}
    for program in PROGRAMS:
        path = shutil.which(program, path="/bin:/usr/bin")
        assert path is not None, f"no {program} on this machine"
        found[f"bin/{program}"] = Path(path).resolve()
        said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for library, interpreter in re.findall(r"=> (/\S+)|^\s+(/\S+) \(", said, re.MULTILINE):
            if interpreter:  # its path is written into the program
                found[interpreter.lstrip("/")] = Path(interpreter).resolve()
            else:
                found[f"lib/{Path(library).name}"] = Path(library).resolve()
    return found
