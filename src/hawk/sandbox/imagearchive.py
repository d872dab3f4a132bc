"""Image archives: where the layers are in what `docker save`, podman, skopeo, buildah and Bazel write.

Keeper side: standard library only. Two ways to say it, often both in one archive: Docker's `manifest.json`, and the
OCI layout's `index.json`, which leads to manifests by digest.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
import tarfile
from dataclasses import dataclass
from typing import Any

from hawk.sandbox.rootdir import inside
from hawk.sandbox.tarinput import CHUNK, ArchiveError, Part, TarInput, members, printable

_ROOT_NAME = re.compile(
    r"\.dockerenv|bin|boot|dev|etc|home|lib|lib32|lib64|libx32|media|mnt|nix|opt|proc|root|run|sbin|srv|sys|tmp|usr|var"
)
"""Every root file system has some of these; no image archive has any."""

_MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "loongarch64": "loong64",
}
"""What the kernel calls a machine, and images; others have one name."""

_LARGEST_DOCUMENT = 16 << 20
_DEEPEST_INDEX = 4
_MOST_HOPS = 16
_DIGEST = re.compile(r"([a-z0-9]+):([0-9a-f]{32,128})")


@dataclass(frozen=True)
class Span:
    """Part of a file."""

    start: int
    size: int


@dataclass(frozen=True)
class _Image:
    name: str
    platform: str
    layers: tuple[str, ...]


def machine() -> str:
    """This machine's architecture, as images call it."""
    name = os.uname().machine
    return _MACHINES.get(name, name)


def is_root_name(name: str) -> bool:
    """Whether a member's name can only be of a root file system, not of an image archive."""
    return any(map(_ROOT_NAME.fullmatch, inside(name)[:1]))


def find_layers(fd: int, start: int) -> list[Span] | None:
    """Find the layers of the image in an archive, lowest first.

    Args:
        fd: The archive, not compressed.
        start: Where it begins in the file.

    Returns:
        None when it is no image archive.

    Raises:
        ArchiveError: It is damaged, or holds several images of which none or more than one is for this machine.
    """
    archive = _Archive(fd, start)
    if not archive.read_names():
        return None
    if archive.has("manifest.json"):
        images = _docker_images(archive, archive.document("manifest.json"))
    elif archive.has("index.json") and archive.has("oci-layout"):
        images = _oci_images(archive, archive.document("index.json"), "", 0)
    else:
        return None
    if images is None:
        return None
    return [archive.span(layer) for layer in _choose(images).layers]


class _Archive:
    """An image archive's files, by name."""

    def __init__(self, fd: int, start: int) -> None:
        self._fd, self._start = fd, start
        self._spans: dict[str, Span] = {}
        self._links: dict[str, str] = {}

    def read_names(self) -> bool:
        """False as soon as it can't be an image archive."""
        source = TarInput(io.BufferedReader(Part(self._fd, self._start), CHUNK), jumps=True)
        for member in members(source):
            if is_root_name(member.name):
                return False
            self._add("/".join(inside(member.name)), member)
        return True

    def _add(self, name: str, member: tarfile.TarInfo) -> None:
        if member.issym():
            self._links[name] = "/".join(inside(posixpath.join(posixpath.dirname(name), member.linkname)))
        elif member.islnk():
            self._links[name] = "/".join(inside(member.linkname))
        elif member.isreg() and not member.issparse():
            self._spans[name] = Span(self._start + member.offset_data, member.size)

    def has(self, name: str) -> bool:
        return name in self._spans or name in self._links

    def span(self, name: str) -> Span:
        wanted = name = "/".join(inside(name))
        for _ in range(_MOST_HOPS):
            if name in self._spans:
                return self._spans[name]
            name = self._links.get(name, "")
        raise ArchiveError(f"the image archive lacks {printable(wanted)}, which its manifest names")

    def document(self, name: str) -> Any:
        """A JSON file. Raises: ArchiveError when it is none."""
        span = self.span(name)
        if span.size > _LARGEST_DOCUMENT:
            raise ArchiveError(f"{printable(name)} is {span.size} bytes long")
        try:
            return json.loads(os.pread(self._fd, span.size, span.start).decode("utf-8"))
        except (ValueError, RecursionError) as ex:
            raise ArchiveError(f"{printable(name)} is not valid JSON") from ex


def _docker_images(archive: _Archive, manifest: Any) -> list[_Image] | None:
    """Images as `manifest.json` names them; None when it is another kind of file of that name."""
    if not isinstance(manifest, list) or not all(isinstance(x, dict) and "Layers" in x for x in manifest):
        return None
    images = []
    for entry in manifest:
        config = archive.document(_text(entry.get("Config")))
        tags = _list(entry.get("RepoTags") or [])
        layers = tuple(_text(layer) for layer in _list(entry["Layers"]))
        images.append(
            _Image(", ".join(map(str, tags)) or _text(entry.get("Config")), _platform(config), layers)
        )
    return images


def _oci_images(archive: _Archive, index: Any, name: str, depth: int) -> list[_Image]:
    if depth > _DEEPEST_INDEX:
        raise ArchiveError("the image archive's indexes lead nowhere")
    images: dict[str, _Image] = {}
    for descriptor in _list(_dict(index).get("manifests")):
        digest = _text(_dict(descriptor).get("digest"))
        if not archive.has(_blob(digest)) or _platform(descriptor.get("platform") or {}) == "unknown":
            # An index may list what was not saved; and signatures travel as images of no machine.
            continue
        notes = _dict(descriptor.get("annotations") or {})
        called = str(notes.get("org.opencontainers.image.ref.name") or name or digest)
        manifest = _dict(archive.document(_blob(digest)))
        if "manifests" in manifest:
            for image in _oci_images(archive, manifest, called, depth + 1):
                images.setdefault(repr(image.layers), image)
            continue
        config = archive.document(_blob(_text(_dict(manifest.get("config")).get("digest"))))
        layers = tuple(_blob(_text(_dict(x).get("digest"))) for x in _list(manifest.get("layers")))
        images.setdefault(repr(layers), _Image(called, _platform(config), layers))
    return list(images.values())


def _choose(images: list[_Image]) -> _Image:
    """The image for this machine, or the only one."""
    fitting = [image for image in images if image.platform == machine()]
    if len(fitting) == 1 or len(images) == 1:
        return (fitting or images)[0]
    names = printable("; ".join(f"{image.name} ({image.platform})" for image in images)) or "none"
    raise ArchiveError(f"the archive must hold one image for this machine ({machine()}); it holds {names}")


def _blob(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ArchiveError(f"{printable(digest)!r} in the image archive is not a digest")
    return f"blobs/{match[1]}/{match[2]}"


def _platform(config: Any) -> str:
    return str(_dict(config).get("architecture") or "")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ArchiveError("the image archive's manifest is not as it should be")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ArchiveError("the image archive's manifest is not as it should be")
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ArchiveError("the image archive's manifest is not as it should be")
    return value
