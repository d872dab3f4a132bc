"""What an image stands on: a root file system with a Python in it, as layers, and what can be told from looking at it."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hawk.errors import HawkError, NotFoundError
from hawk.images.archive import EPOCH, Layer, file_layer
from hawk.images.trees import pack
from hawk.sandbox.imagearchive import Span, find_layers
from hawk.sandbox.tarinput import ArchiveError, decompressed

PYTHONS = ((3, 11), (3, 14))
"""Those that Hawk runs on."""

_PYTHON = re.compile(r"usr/(local/)?bin/python3\.(\d+)")
_LIBC = re.compile(r"(usr/)?lib(64)?/([a-z0-9_]+-linux-gnu/)?libc(-2\.(\d+))?\.so(\.6)?")
_LIBC_SAYS = re.compile(rb"release version 2\.(\d+)")
_OLDEST_GLIBC = (2, 28)
_LARGEST_CONFIG = 4 << 20


class ImageError(HawkError):
    """An image can't be built."""

    title = "Image"


@dataclass(frozen=True)
class Base:
    """A base.

    Attributes:
        layers: The lowest first.
        environ: Variables that the base's own image sets.
        python: Where its Python is, `/usr/bin/python3.11`.
        version: Of its Python.
        glibc: Of its C library: what wheels must fit.
        accounts: `/etc/passwd` and `/etc/group` by name.
        system: What it calls itself.
        root: Where it lies unpacked on this machine, so that its programs can be run; None: it doesn't.
    """

    layers: list[Layer]
    environ: dict[str, str]
    python: str
    version: tuple[int, int]
    glibc: tuple[int, int] = _OLDEST_GLIBC
    accounts: dict[str, str] = field(default_factory=dict)
    system: str = "unknown"
    root: Path | None = None


def base_from_path(path: Path, work: Path, *, epoch: int = EPOCH) -> Base:
    """A base from a directory, a tar of a root file system, or an image archive.

    Args:
        path: The file or directory.
        work: Directory for what is unpacked.
        epoch: The time that a directory's files get.

    Raises:
        ImageError: It can't be read, or holds no Python that Hawk runs on.
        NotFoundError: It is not there.
    """
    if not path.exists():
        raise NotFoundError(f"There is no base {str(path)!r}.", remedy="Name a tar or a directory.")
    try:
        if path.is_dir():
            layers = [
                pack(
                    path, work / "base.tar", "base", epoch=epoch, owner=None if os.geteuid() == 0 else (0, 0)
                )
            ]
            return look(layers, {})
        return _from_file(path, work)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, ArchiveError) as ex:
        raise ImageError(
            f"The base {path} can't be read: {ex}.",
            remedy="Give a tar of a root file system, an image archive (docker save), or a directory.",
        ) from ex


def _from_file(path: Path, work: Path) -> Base:
    plain = _plain(path, work / "base.plain.tar")
    with plain.open("rb") as f:
        spans = find_layers(f.fileno(), 0)
    if spans is None:
        return look([file_layer(plain, "base")], {})
    layers = [_layer(plain, span, work, number) for number, span in enumerate(spans)]
    return look(layers, _environ(plain, [layer.digest for layer in layers]))


def _layer(archive: Path, span: Span, work: Path, number: int) -> Layer:
    part = work / f"base.{number}.part"
    with archive.open("rb") as source, part.open("wb") as target:
        source.seek(span.start)
        left = span.size
        while left and (data := source.read(min(left, 1 << 20))):
            target.write(data)
            left -= len(data)
    if left:
        raise ImageError(f"The base {archive} ends within a layer.", remedy="Save or copy it again.")
    return file_layer(_plain(part, work / f"base.{number}.tar"), "base")


def _plain(path: Path, target: Path) -> Path:
    """The file itself where it is not compressed, else what is in it."""
    with path.open("rb", buffering=0) as raw:
        source, compressed = decompressed(raw)
        if not compressed:
            return path
        with target.open("wb") as f:
            shutil.copyfileobj(source, f, 1 << 20)
    return target


def _environ(archive: Path, digests: Sequence[str]) -> dict[str, str]:
    """Variables of the image's own configuration: of the JSON file that lists these very layers."""
    wanted = [f"sha256:{digest}" for digest in digests]
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isreg() or member.size > _LARGEST_CONFIG:
                continue
            source = tar.extractfile(member)
            try:
                found = json.loads(source.read()) if source else {}
                if found["rootfs"]["diff_ids"] == wanted:
                    return dict(line.split("=", 1) for line in (found["config"] or {}).get("Env") or ())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
    return {}


def look(layers: list[Layer], environ: dict[str, str]) -> Base:
    """What a base's layers hold.

    Raises:
        ImageError: No Python that Hawk runs on.
    """
    pythons: dict[str, int] = {}
    glibc, texts = _OLDEST_GLIBC, {}
    for layer in layers:
        with tarfile.open(layer.path) as tar:
            for member in tar:
                name = member.name.removeprefix("./").strip("/")
                if (match := _PYTHON.fullmatch(name)) and not member.isdir():
                    pythons[f"/{name}"] = int(match[2])
                elif name in ("etc/passwd", "etc/group", "usr/lib/os-release") and member.isreg():
                    texts[name.rsplit("/", 1)[-1]] = _read(tar, member).decode("utf-8", "replace")
                elif (match := _LIBC.fullmatch(name)) and member.isreg():
                    minor = match[5] or _said(_read(tar, member))
                    glibc = (2, int(minor)) if minor else glibc
    python = _best(pythons)
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', texts.pop("os-release", ""), re.M)
    return Base(
        layers, environ, python, (3, pythons[python]), glibc, texts, pretty[1] if pretty else "unknown"
    )


def _best(pythons: dict[str, int]) -> str:
    """The Python that would be found first: `/usr/local` before `/usr`, then the newest."""
    low, high = PYTHONS[0][1], PYTHONS[1][1]
    fitting = [path for path, minor in pythons.items() if low <= minor <= high]
    if not fitting:
        found = ", ".join(f"3.{minor}" for minor in sorted(set(pythons.values()))) or "none"
        raise ImageError(
            f"The base holds no Python from 3.{low} to 3.{high} in /usr/bin or /usr/local/bin (found: {found}).",
            remedy="Install python3 in it, or leave --base out for Debian's.",
        )
    return max(fitting, key=lambda path: ("/local/" in path, pythons[path]))


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    source = tar.extractfile(member)
    return source.read() if source is not None else b""


def _said(content: bytes) -> str:
    match = _LIBC_SAYS.search(content)
    return match[1].decode() if match else ""
