"""Files that a runner pod begins with: what it is told, the eval set's source, and where that is now."""

from __future__ import annotations

import os
import shutil
import tarfile
from io import RawIOBase
from pathlib import Path
from typing import IO, cast

import msgspec

from hawk.core.zstd import Unpacker, ZstdError
from hawk.errors import ConfigError
from hawk.link.rules import SOURCE
from hawk.link.start import Start
from hawk.store.rundir import RunDir, storage_error, write_json

_AT_ONCE = 1 << 18
LARGEST = 1 << 30
"""Bytes that a source may unpack to; the server packs far less."""


def read_job(directory: Path) -> tuple[Start, dict[str, str]]:
    """What the Secret says: the start, and secrets by name.

    Raises:
        ConfigError: A file is missing or is none of ours.
    """
    try:
        start = msgspec.json.decode((directory / "start.json").read_bytes(), type=Start)
        file = directory / "secrets.json"
        secrets = msgspec.json.decode(file.read_bytes(), type=dict[str, str]) if file.exists() else {}
    except OSError as ex:
        raise storage_error(directory, ex) from ex
    except (msgspec.MsgspecError, UnicodeDecodeError) as ex:
        raise ConfigError(f"{directory} does not say which job this is: {ex}.") from ex
    return start, secrets


def unpack_source(run_dir: RunDir, base_dir: Path) -> None:
    """Unpack the source into the submitter's directory; no-op where the job came without.

    Raises:
        ConfigError: The archive is damaged, or holds what it should not.
        StorageError: The directory can't be written.
    """
    archive = run_dir.path / SOURCE
    if not archive.exists():
        return
    try:
        base_dir.mkdir(parents=True, exist_ok=True)
        with (
            archive.open("rb") as packed,
            tarfile.open(fileobj=cast("IO[bytes]", _Unpacked(packed)), mode="r|") as tar,
        ):
            for member in tar:
                _extract(tar, member, base_dir)
    except (tarfile.TarError, ZstdError) as ex:
        raise ConfigError(f"The eval set's source can't be unpacked: {ex}.") from ex
    except OSError as ex:
        raise storage_error(base_dir, ex) from ex


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, base: Path) -> None:
    """One member, which must stay within the directory. By hand: the library's own filters are younger than some Pythons."""
    target = base / member.name
    inside = Path(os.path.normpath(target)).is_relative_to(base) and ".." not in target.parts
    if not inside or not target.parent.resolve().is_relative_to(base.resolve()):
        raise tarfile.ExtractError(f"{member.name!r} would lie outside of {base}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
    elif member.issym():
        aim = Path(os.path.normpath(target.parent / member.linkname))
        if Path(member.linkname).is_absolute() or not aim.is_relative_to(base):
            raise tarfile.ExtractError(f"{member.name!r} leads out of {base}")
        target.unlink(missing_ok=True)
        target.symlink_to(member.linkname)
    elif member.isreg() and (content := tar.extractfile(member)) is not None:
        target.unlink(missing_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file)
        target.chmod(0o700 if member.mode & 0o100 else 0o600)
        os.utime(target, (member.mtime, member.mtime))
    else:
        raise tarfile.ExtractError(f"{member.name!r} is neither a file nor a directory")


def relocate(run_dir: RunDir, start: Start) -> None:
    """Let the job's spec name the directory where its source is in this pod.

    Raises:
        ConfigError: It can't: the run directory is the server's own, or the script lies elsewhere.
    """
    spec = run_dir.read_spec()
    if spec.base_dir == start.base_dir:
        return
    if start.shared:
        raise ConfigError(
            f"{spec.base_dir} can't be a directory of a pod, and the run directory is shared with the server.",
            remedy="Submit from another directory, such as one below /home or /srv.",
        )
    if spec.script is not None:
        try:
            spec.script = str(Path(start.base_dir) / Path(spec.script).relative_to(spec.base_dir))
        except ValueError:
            raise ConfigError(
                f"The script {spec.script} is not in {spec.base_dir}, so it is not in the pod.",
                remedy="Submit it from the directory that it lies in.",
            ) from None
    spec.base_dir = start.base_dir
    write_json(run_dir.spec_file, spec)


class _Unpacked(RawIOBase):
    """What a compressed file holds, to be read once from its beginning."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self._unpacker = packed, Unpacker()
        self._buffer = bytearray()
        self._total = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._buffer) < size:
            data = self._packed.read(_AT_ONCE)
            if not data:
                break
            found = self._unpacker.feed(data)
            self._total += len(found)
            if self._total > LARGEST:
                raise tarfile.ReadError("it is far larger than it was when it was packed")
            self._buffer += found
        count = len(self._buffer) if size < 0 else min(size, len(self._buffer))
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
