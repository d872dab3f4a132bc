"""`hawk image build`: the same inputs give the same image, which loads everywhere and holds what this machine runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hawk import __version__
from hawk.cli import cli
from hawk.errors import UsageError
from hawk.images.archive import qualified
from hawk.images.base import ImageError, base_from_path
from hawk.images.build import PREFIX, Built, Order, build
from hawk.images.packages import normal, pins, requirements
from hawk.sandbox.imagearchive import find_layers
from tests.cli.conftest import Run

PYTHON = f"python3.{sys.version_info.minor}"


def tar_of(files: dict[str, bytes], *, mtime: int = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), mtime, 0o755
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


ROOT = {
    "usr/lib/os-release": b'NAME=Tiny\nPRETTY_NAME="Tiny Linux 1"\n',
    f"usr/bin/{PYTHON}": b"",
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
    "etc/group": b"root:x:0:\n",
    "lib/x86_64-linux-gnu/libc.so.6": b"... GNU C Library stable release version 2.99.\n",
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path)


def make_wheel(directory: Path) -> Path:
    """A package with a module and a command, in a file of its own."""
    path = directory / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "def main() -> None:\n    print({'b', 'a', 'c'})\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny-1.0.dist-info/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture(autouse=True)
def small_hawk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Hawk of two modules and no index, except for the real image: compiling all of it takes seconds."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("hawk.images.build.SOURCE", make_hawk(tmp_path / "src"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")


def make_hawk(directory: Path) -> Path:
    package = directory / "hawk"
    (package / "cli").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "cli" / "__init__.py").write_text("def main() -> int:\n    return 0\n")
    return package


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    """An image of a tiny base, for all tests that only look at one."""
    directory = tmp_path_factory.mktemp("small")
    lock = directory / "lock.txt"
    lock.write_text(f"tiny @ {make_wheel(directory).as_uri()}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hawk.images.build.SOURCE", make_hawk(directory / "src"))
        patch.setenv("PIP_NO_INDEX", "1")
        built = build(order(directory, lock))
    return directory / "image.tar", built


@pytest.fixture
def lock(tmp_path: Path, wheel: Path) -> Path:
    path = tmp_path / "lock.txt"
    path.write_text(f"tiny @ {wheel.as_uri()}\n")
    return path


def order(tmp_path: Path, lock: Path, output: str = "image.tar", **more: Any) -> Order:
    base = tmp_path / "base.tar"
    base.write_bytes(tar_of(ROOT))
    return Order(output=tmp_path / output, name="hawk-runner:9", base=base, lock=lock, **more)


def contents(path: Path) -> tuple[dict[str, Any], dict[str, tarfile.TarInfo]]:
    """(the image's configuration, its files by name, upper layers over lower ones)"""
    files: dict[str, tarfile.TarInfo] = {}
    with tarfile.open(path) as tar:

        def document(name: str) -> Any:
            source = tar.extractfile(name)
            assert source is not None
            return json.load(source)

        manifest = document("manifest.json")[0]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                files |= {member.name: member for member in layer}
        return document(manifest["Config"]), files


def test_same_inputs_give_the_same_bytes(small: tuple[Path, Built], tmp_path: Path, lock: Path) -> None:
    first, built = small
    before = os.umask(0o077)  # what a file may be read by is not the builder's to say
    try:
        second = build(order(tmp_path, lock, "hawk.tar"))  # what one of its layers is called, too
    finally:
        os.umask(before)
    assert built.digest == second.digest
    one, two = first.read_bytes(), (tmp_path / "hawk.tar").read_bytes()
    assert hashlib.sha256(one).digest() == hashlib.sha256(two).digest()


def test_another_package_gives_another_digest(
    small: tuple[Path, Built], tmp_path: Path, lock: Path, wheel: Path
) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "x = 1\n")
    assert build(order(tmp_path, lock)).digest != small[1].digest


def test_what_is_in_it(small: tuple[Path, Built]) -> None:
    path, built = small
    config, files = contents(path)
    site = f"{PREFIX[1:]}/lib/{PYTHON}/site-packages"
    assert built.system == "Tiny Linux 1"
    assert built.packages == ["tiny==1.0"]
    assert [what for what, _ in built.layers] == ["base", "python packages", f"hawk {__version__}"]
    assert config["config"]["User"] == "10001:10001"
    assert f"PATH={PREFIX}/bin:" in "\n".join(config["config"]["Env"])
    assert files[f"{PREFIX[1:]}/bin/python"].linkname == f"/usr/bin/{PYTHON}"
    assert {f"{site}/tiny.py", f"{site}/hawk/cli/__init__.py", f"{PREFIX[1:]}/bin/tiny"} <= set(files)
    assert f"{site}/hawk_evals-{__version__}.dist-info/entry_points.txt" in files  # Inspect finds Hawk by it
    assert any(name.startswith(f"{site}/__pycache__/tiny.") for name in files)
    assert not any(name.endswith("direct_url.json") for name in files)
    ours = [member for name, member in files.items() if name.startswith(PREFIX[1:])]
    assert {(member.uid, member.gid, member.uname) for member in ours} == {(0, 0, "")}
    assert all(
        member.mode & 0o005 == (0o005 if member.isdir() else 0o004) or member.mode & 0o001 for member in ours
    )


def test_commands_start_the_images_python_and_not_this_machines(small: tuple[Path, Built]) -> None:
    with tarfile.open(small[0]) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][1])) as layer:
            script = layer.extractfile(f"{PREFIX[1:]}/bin/tiny").read()  # type: ignore[union-attr]
            passwd = layer.extractfile("etc/passwd").read()  # type: ignore[union-attr]
    assert script.startswith(f"#!{PREFIX}/bin/python\n".encode())
    assert sys.prefix.encode() not in script
    assert passwd == ROOT["etc/passwd"] + b"hawk:x:10001:10001::/tmp:/usr/sbin/nologin\n"


def test_both_ways_to_read_an_image_archive_find_the_same_layers(small: tuple[Path, Built]) -> None:
    path, _ = small
    with path.open("rb") as f:
        spans = find_layers(f.fileno(), 0)
    with tarfile.open(path) as tar:
        index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
        found = index["manifests"][0]
        manifest = tar.extractfile("blobs/sha256/" + found["digest"].removeprefix("sha256:")).read()  # type: ignore[union-attr]
        assert hashlib.sha256(manifest).hexdigest() == found["digest"].removeprefix("sha256:")
        for layer in json.loads(manifest)["layers"]:
            blob = tar.extractfile("blobs/sha256/" + layer["digest"].removeprefix("sha256:")).read()  # type: ignore[union-attr]
            assert hashlib.sha256(blob).hexdigest() == layer["digest"].removeprefix("sha256:")
    assert spans is not None
    assert [span.size for span in spans] == [layer["size"] for layer in json.loads(manifest)["layers"]]
    assert found["annotations"]["io.containerd.image.name"] == "docker.io/library/hawk-runner:9"


def test_an_image_can_stand_on_an_image(small: tuple[Path, Built], tmp_path: Path) -> None:
    """What a base image sets stays set, and its layers stay as they are."""
    first, built = small
    packed = tmp_path / "first.tar.gz"
    packed.write_bytes(gzip.compress(first.read_bytes(), 1))
    base = base_from_path(packed, tmp_path)
    assert base.environ["LANG"] == "C.UTF-8"
    assert base.version == sys.version_info[:2]
    assert [layer.size for layer in base.layers] == [size for _, size in built.layers]


def test_a_base_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "old.tar"
    path.write_bytes(gzip.compress(tar_of({"usr/bin/python3.9": b"", "bin/sh": b""})))
    with pytest.raises(ImageError, match=r"no Python from 3\.11 to 3\.14.*found: 3\.9") as caught:
        base_from_path(path, tmp_path)
    assert "python3" in (caught.value.remedy or "")
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(ImageError, match="can't be read"):
        base_from_path(path, tmp_path)


def test_an_unpacked_directory_is_a_base(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, content in ROOT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    os.mkfifo(root / "usr/pipe")
    base = base_from_path(root, tmp_path)
    assert (base.python, base.glibc) == (f"/usr/bin/{PYTHON}", (2, 99))


def test_versions_are_those_that_are_installed_here() -> None:
    found = dict(line.split("==") for line in pins())
    assert found["inspect-ai"] == "0.3.285"
    assert normal("hawk-evals") not in found
    assert "msgspec" not in dict(line.split("==") for line in pins(["msgspec>=0.1"]))
    wanted = " ".join(requirements())
    assert all(name in wanted for name in ("inspect-ai", "kubernetes-asyncio", "psycopg", "pip"))
    assert "extra ==" not in wanted


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hawk-runner", "docker.io/library/hawk-runner:latest"),
        ("me/hawk:1", "docker.io/me/hawk:1"),
        ("localhost:5000/hawk", "localhost:5000/hawk:latest"),
        ("registry.example.org/a/b:2", "registry.example.org/a/b:2"),
    ],
)
def test_names_are_those_that_clusters_look_for(given: str, meant: str) -> None:
    assert qualified(given) == meant


def test_the_command_says_what_it_made_and_what_is_wrong(
    run: Run, env: dict[str, str], tmp_path: Path, lock: Path
) -> None:
    made = order(tmp_path, lock)
    args = ["build", "-o", str(made.output), "--base", str(made.base), "--lock", str(lock)]
    done = CliRunner().invoke(cli, ["image", *args, "--tag", "mine:3"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "mine:3  sha256:" in done.stdout
    assert "images import" in done.stderr
    wrong = CliRunner().invoke(cli, ["image", *args, "--apt", "git"])
    assert isinstance(wrong.exception, UsageError)
    both = CliRunner().invoke(cli, ["image", *args, "--package", "anthropic"])
    assert isinstance(both.exception, UsageError)
    assert "has to list anthropic" in both.exception.message
    missing = run("image", "build", "--base", "./nowhere.tar", env=env)
    assert missing.returncode == 2
    assert "no base 'nowhere.tar'" in missing.stderr


# --- the real one


@pytest.fixture(scope="session")
def real_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Built]]:
    """Hawk's own image, on a Debian made here. HAWK_TEST_IMAGE_BASE: a base to use instead."""
    given = os.environ.get("HAWK_TEST_IMAGE_BASE")
    if not given and not os.environ.get("HAWK_TEST_IMAGE_BUILD"):
        pytest.skip(
            "NOT TESTED: the real image takes minutes; HAWK_TEST_IMAGE_BUILD=1 or HAWK_TEST_IMAGE_BASE=TAR"
        )
    if not given and (os.geteuid() != 0 or shutil.which("debootstrap") is None):
        pytest.skip("NOT TESTED: the real image needs debootstrap as root, or HAWK_TEST_IMAGE_BASE=TAR")
    path = tmp_path_factory.mktemp("image") / "hawk.tar"
    release = {11: "bookworm", 13: "trixie"}.get(sys.version_info.minor, "trixie")
    try:
        built = build(
            Order(output=path, name=f"hawk-runner:{__version__}", base=Path(given) if given else release)
        )
    except ImageError as ex:
        pytest.skip(f"NOT TESTED: no Debian for the real image: {ex.message}")
    yield path, built
    path.unlink()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_image_runs_without_network_as_another_user(
    real_image: tuple[Path, Built], tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a root file system is entered by chroot, as root")
    path, built = real_image
    root = tmp_path / "root"
    with tarfile.open(path) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                layer.extractall(root, numeric_owner=True, filter="fully_trusted")

    def inside(*command: str) -> str:
        done = subprocess.run(
            [
                "unshare",
                "--net",
                "chroot",
                "--userspec=10001:10001",
                str(root),
                "/usr/bin/env",
                "-i",
                *ENVIRON,
                *command,
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert inside("hawk", "--version") == f"hawk, version {__version__}\n"
        code = "import inspect_ai, psycopg, kubernetes_asyncio, pip, os, sys; print(sys.prefix, os.getuid())"
        assert inside("python", "-c", code) == f"{PREFIX} 10001\n"
        assert inside("python", "-c", "import hawk.server.app as a; print(a.__cached__)").startswith(PREFIX)
        assert (
            inside(
                "python",
                "-c",
                "import pathlib, hawk.server.app as a; print(pathlib.Path(a.__cached__).exists())",
            )
            == "True\n"
        )
        assert inside("python", "-m", "venv", "--without-pip", "/tmp/packages") == ""
    finally:
        shutil.rmtree(root)
    assert built.compiled


ENVIRON = (f"PATH={PREFIX}/bin:/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8")
