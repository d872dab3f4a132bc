"""Whole images are unpacked layer by layer, whoever wrote them."""

from __future__ import annotations

import gzip
import lzma
import stat
import tempfile
from pathlib import Path

import pytest

from hawk.sandbox.imagearchive import machine
from hawk.sandbox.untar import extract
from tests.sandbox.archives import (
    Layout,
    docker_image,
    folder,
    member,
    symlink,
    tar,
)
from tests.sandbox.rooms import (
    needs_chroot,
    rooted,
)
from tests.sandbox.unpacked import files_in, target, unpack

__all__ = ["target"]


BASE = tar(
    folder("bin"),
    member("bin/sh", "sh"),
    folder("etc", mode=0o700),
    member("etc/keep", "base"),
    member("etc/gone", "base"),
    folder("opt"),
    member("opt/a", "a"),
    folder("opt/sub"),
    member("opt/sub/b", "b"),
    folder("srv"),
    folder("srv/old"),
    member("srv/old/file", "x"),
    symlink("sbin", "bin"),
)
CHANGES = tar(
    member("etc/.wh.gone"),
    member("etc/.wh.never-there"),
    member("opt/new", "new"),
    folder("opt/sub"),
    member("opt/sub/new", "new"),
    member("opt/.wh..wh..opq"),
    member("srv/.wh.old"),
    member("srv/old", "now a file"),
    member("sbin/init", "init"),
    folder("etc", mode=0o755),
    member(".wh..wh.plnk", ""),
)
AFTER = {"bin/sh", "bin/init", "etc/keep", "opt/new", "opt/sub/new", "srv/old", "sbin"}


def oci(compress: bool) -> bytes:
    layout = Layout()
    digest = layout.image(BASE, CHANGES, compress=compress)
    return layout.tar({"digest": digest})


IMAGES = {
    "docker": tar(*docker_image(BASE, CHANGES)),
    "docker, gzip": gzip.compress(tar(*docker_image(BASE, CHANGES))),
    "docker, layers compressed": tar(*docker_image(gzip.compress(BASE), lzma.compress(CHANGES))),
    "docker, below ./": tar(folder("./"), *docker_image(BASE, CHANGES)),
    "oci": oci(compress=False),
    "oci, layers compressed": oci(compress=True),
}


@needs_chroot
@pytest.mark.parametrize("data", IMAGES.values(), ids=IMAGES)
def test_the_layers_of_an_image_are_applied_in_order(target: Path, data: bytes) -> None:
    result = unpack(target, data)
    assert result.get("error") is None
    assert files_in(target) == AFTER
    assert (target / "srv/old").read_text() == "now a file"
    assert stat.S_IMODE((target / "etc").stat().st_mode) == 0o755
    assert (target / "etc").stat().st_mtime == 1_600_000_000


@needs_chroot
def test_an_archive_is_read_from_where_its_descriptor_stands(target: Path) -> None:
    with tempfile.TemporaryFile() as f:
        f.write(b"prefix" + IMAGES["docker"])
        f.seek(len("prefix"))
        result = rooted(target, lambda: extract(f.fileno(), all_ids=False))
    assert result.get("error") is None
    assert files_in(target) == AFTER


@needs_chroot
def test_a_layer_that_is_used_twice_is_applied_twice(target: Path) -> None:
    again = tar(member("etc/gone", "again"))
    assert unpack(target, tar(*docker_image(again, CHANGES, again))).get("error") is None
    assert (target / "etc/gone").read_text() == "again"


@needs_chroot
def test_of_several_images_the_one_for_this_machine_is_taken(target: Path) -> None:
    layout = Layout()
    other = layout.image(tar(member("etc/other")), architecture="s390x")
    ours = layout.image(tar(member("etc/ours")))
    note = layout.json({"config": {"digest": layout.json({})}, "layers": []})
    inner = layout.json(
        {
            "manifests": [
                {"digest": other, "platform": {"architecture": "s390x"}},
                {"digest": ours, "platform": {"architecture": machine()}},
                {"digest": note, "platform": {"architecture": "unknown", "os": "unknown"}},
                {"digest": "sha256:" + "0" * 64, "platform": {"architecture": "riscv64"}},
            ]
        }
    )
    assert unpack(target, layout.tar({"digest": inner})).get("error") is None
    assert files_in(target) == {"etc/ours"}


@needs_chroot
def test_the_only_image_is_taken_whatever_its_machine(target: Path) -> None:
    data = tar(*docker_image(tar(member("etc/other")), architecture="s390x"))
    assert unpack(target, data).get("error") is None
    assert files_in(target) == {"etc/other"}


@needs_chroot
def test_several_images_for_this_machine_are_an_error_that_names_them(target: Path) -> None:
    layout = Layout()
    entries = [
        {
            "digest": layout.image(tar(member(f"etc/{name}"))),
            "annotations": {"org.opencontainers.image.ref.name": name},
        }
        for name in ("first:1", "second:2")
    ]
    result = unpack(target, layout.tar(*entries))
    assert "first:1" in result["error"]
    assert "second:2" in result["error"]
    assert files_in(target) == set()


@needs_chroot
def test_an_image_through_a_pipe_is_an_error_that_says_what_to_do(target: Path) -> None:
    assert "must come from a file" in unpack(target, IMAGES["docker"], pipe=True)["error"]


@needs_chroot
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tar(member("manifest.json", "[{")), "valid JSON"),
        (
            tar(member("manifest.json", '[{"Layers": 7, "Config": "c"}]'), member("c", "{}")),
            "not as it should be",
        ),
        (tar(member("manifest.json", '[{"Layers": ["../x"], "Config": "c"}]'), member("c", "{}")), "lacks x"),
        (tar(member("manifest.json", "[" * 100_000)), "valid JSON"),
        (tar(*docker_image(BASE[:3000])), "cut short"),
        (
            tar(
                symlink("a", "b"),
                symlink("b", "a"),
                member("manifest.json", '[{"Layers": [], "Config": "a"}]'),
            ),
            "lacks a",
        ),
        (
            tar(member("oci-layout", "{}"), member("index.json", '{"manifests": [{"digest": "../x"}]}')),
            "digest",
        ),
    ],
    ids=["json", "types", "upwards", "deep json", "cut layer", "links in a circle", "digest"],
)
def test_a_damaged_image_is_an_error_that_says_so(target: Path, data: bytes, words: str) -> None:
    assert words in unpack(target, data).get("error", "")
