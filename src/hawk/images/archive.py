"""An image as one tar file: the OCI layout, with Docker's `manifest.json` in it, so that everything can load it.

`docker load`, `podman load`, `ctr images import`, `k3s ctr images import`, `kind load image-archive` and `skopeo copy`
read it. The same content is the same bytes: members are in a fixed order, and bear one time.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from hawk.sandbox.imagearchive import machine

EPOCH = 1767225600
"""Seconds: 2026-01-01, the time of everything in an image unless SOURCE_DATE_EPOCH says another."""

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_INDEX = "application/vnd.oci.image.index.v1+json"


class Layer(NamedTuple):
    """A layer as a tar that is not compressed.

    Attributes:
        path: The file.
        digest: Its SHA-256, in hexadecimal digits.
        size: Bytes.
        made_by: What it is, for `docker history`.
    """

    path: Path
    digest: str
    size: int
    made_by: str


@dataclass(frozen=True)
class ImageConfig:
    """How the image's programs start.

    Attributes:
        environ: Variables.
        user: `UID:GID`.
        command: What is run where a pod names nothing.
        directory: Where.
        labels: Facts about the image.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    command: Sequence[str] = ()
    directory: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)


def file_layer(path: Path, made_by: str) -> Layer:
    """A tar file that is there, as a layer."""
    with path.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    return Layer(path, digest, path.stat().st_size, made_by)


def write_archive(
    target: Path, name: str, layers: Sequence[Layer], config: ImageConfig, *, epoch: int = EPOCH
) -> str:
    """Write the image.

    Args:
        target: The file; gzipped where its name ends so.
        name: `NAME:TAG`, with or without a registry.
        layers: The lowest first.
        epoch: The time that everything bears, in seconds.

    Returns:
        The image's digest (of its manifest), `sha256:…`.

    Raises:
        OSError: It can't be written.
    """
    configuration = _json(_configuration(layers, config, epoch))
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, _digest(configuration), len(configuration)),
            "layers": [_descriptor(_LAYER, layer.digest, layer.size) for layer in layers],
        }
    )
    with target.open("wb") as raw:
        if target.name.endswith((".gz", ".tgz")):
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                _write(packed, name, layers, configuration, manifest, epoch)
        else:
            _write(raw, name, layers, configuration, manifest, epoch)
    return f"sha256:{_digest(manifest)}"


def qualified(name: str) -> str:
    """A name as clusters know it: `docker.io/library/` before one that names no registry, `:latest` after one without tag."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def _write(
    out: IO[bytes] | gzip.GzipFile,
    name: str,
    layers: Sequence[Layer],
    configuration: bytes,
    manifest: bytes,
    epoch: int,
) -> None:
    full = qualified(name)
    notes = {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": full.rsplit(":", 1)[-1]}
    described = {**_descriptor(_MANIFEST, _digest(manifest), len(manifest)), "annotations": notes}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [described]})
    docker = [
        {
            "Config": _blob(_digest(configuration)),
            "RepoTags": [full.removeprefix("docker.io/library/")],
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    documents = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": index,
        "manifest.json": _json(docker),
        _blob(_digest(configuration)): configuration,
        _blob(_digest(manifest)): manifest,
    }
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in documents.items():
            tar.addfile(_member(member, len(content), epoch), io.BytesIO(content))
        for digest, layer in {layer.digest: layer for layer in layers}.items():
            with layer.path.open("rb") as f:
                tar.addfile(_member(_blob(digest), layer.size, epoch), f)


def _configuration(layers: Sequence[Layer], config: ImageConfig, epoch: int) -> dict[str, Any]:
    at = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": at,
        "architecture": machine(),
        "os": "linux",
        "config": {
            "User": config.user,
            "Env": [f"{key}={value}" for key, value in sorted(config.environ.items())],
            "Cmd": list(config.command),
            "WorkingDir": config.directory,
            "Labels": dict(sorted(config.labels.items())),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        "history": [{"created": at, "created_by": layer.made_by} for layer in layers],
    }


def _member(name: str, size: int, epoch: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, epoch, 0o644
    return member


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
