"""One image for everything on a cluster: runner, server and middleman. Three layers: base, packages, Hawk itself.

The last one is small and is all that changes when only Hawk did.
"""

from __future__ import annotations

import importlib.metadata
import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hawk
from hawk import __version__
from hawk.errors import UsageError
from hawk.images.archive import EPOCH, ImageConfig, Layer, write_archive
from hawk.images.base import Base, base_from_path
from hawk.images.debian import MIRROR, debian
from hawk.images.packages import PROJECT, compile_tree, install, requirements, settle
from hawk.images.trees import pack, walk, write

PREFIX = "/opt/hawk"
"""The virtual environment in the image."""

UID = 10001
PATH = f"{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCK = f"{PREFIX}/requirements.txt"
"""Where an image lists its packages."""

SOURCE = Path(hawk.__file__).parent
"""This Hawk."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """What is to be built.

    Attributes:
        output: The tar to write; gzipped where it is called so.
        name: `NAME:TAG`.
        base: A directory, a tar or an image archive; or the name of a Debian release.
        packages: More Python packages, as pip takes them.
        apt: More Debian packages; only where the base is made here.
        lock: Requirements file that pins everything.
        mirror: Debian's archive.
        epoch: The time that everything in it bears, in seconds.
    """

    output: Path
    name: str
    base: Path | str
    packages: Sequence[str] = ()
    apt: Sequence[str] = ()
    lock: Path | None = None
    mirror: str = MIRROR
    epoch: int = EPOCH


@dataclass(frozen=True)
class Built:
    """What came of it: the manifest's digest, bytes by layer, `name==version` of the packages, and about its Python."""

    digest: str
    system: str
    python: tuple[int, int]
    compiled: bool
    packages: list[str] = field(default_factory=list)
    layers: list[tuple[str, int]] = field(default_factory=list)


def epoch_of(environ: Mapping[str, str]) -> int:
    """SOURCE_DATE_EPOCH, or ours. Raises: UsageError when it is no number."""
    text = environ.get("SOURCE_DATE_EPOCH") or str(EPOCH)
    if not text.isdigit():
        raise UsageError(
            f"SOURCE_DATE_EPOCH={text!r} is no number of seconds.", remedy="Unset or correct it."
        )
    return int(text)


def build(order: Order) -> Built:
    """Build an image.

    Raises:
        ImageError: The base can't be made or read, or holds no fitting Python.
        EnvironmentInstallError: A package does not install.
        UsageError: What is wished does not go together.
    """
    if order.lock is not None and order.packages:
        raise UsageError(
            f"A lock file is all that is installed: {order.lock} has to list {', '.join(order.packages)} too.",
            remedy="Leave out --package, or --lock.",
        )
    order.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hawk-image-", dir=order.output.parent) as directory:
        work = Path(directory)
        base = _base(order, work)
        _log.info("python %d.%d of %s; packages", *base.version, base.system)
        packages, names, compiled = _packages(order, base, work)
        _log.info("hawk %s", __version__)
        own = _hawk(order, base, work)
        layers = [*base.layers, packages, own]
        draft = work / "image" / order.output.name  # not beside the layers: it may be called like one
        draft.parent.mkdir()
        _log.info("writing")
        digest = write_archive(draft, order.name, layers, _config(order, base), epoch=order.epoch)
        draft.replace(order.output)
    sizes = [(layer.made_by, layer.size) for layer in layers]
    return Built(digest, base.system, base.version, compiled, names, sizes)


def _base(order: Order, work: Path) -> Base:
    if isinstance(order.base, Path):
        if order.apt:
            raise UsageError("--apt is for a Debian that is made here, not for a base that is given.")
        return base_from_path(order.base, work, epoch=order.epoch)
    _log.info("debian %s from %s", order.base, order.mirror)
    return debian(order.base, work, packages=order.apt, mirror=order.mirror, epoch=order.epoch)


def _site(base: Base) -> str:
    return "{}/lib/python{}.{}/site-packages".format(PREFIX, *base.version)


def _packages(order: Order, base: Base, work: Path) -> tuple[Layer, list[str], bool]:
    tree = work / "packages"
    site, bin_directory = tree / _site(base)[1:], tree / PREFIX[1:] / "bin"
    site.mkdir(parents=True)
    install(base, site, [*requirements(), *order.packages], work, lock=order.lock)
    names = settle(site, bin_directory, f"{PREFIX}/bin/python")
    _environment(tree, base)
    write(tree, LOCK, "".join(f"{name}\n" for name in names))
    _accounts(tree, base)
    compiled = compile_tree(tree, _site(base), base.version, base.root)
    layer = pack(tree, work / "packages.tar", "python packages", epoch=order.epoch, plain=True)
    shutil.rmtree(tree)
    return layer, names, compiled


def _environment(tree: Path, base: Base) -> None:
    """What makes a directory a virtual environment of the base's Python."""
    low, high = base.version
    home = base.python.rsplit("/", 1)[0]
    write(
        tree,
        f"{PREFIX}/pyvenv.cfg",
        f"home = {home}\ninclude-system-site-packages = false\nversion = {low}.{high}\n",
    )
    bin_directory = tree / PREFIX[1:] / "bin"
    bin_directory.mkdir(parents=True, exist_ok=True)
    (bin_directory / "python").symlink_to(base.python)
    for name in ("python3", f"python{low}.{high}"):
        (bin_directory / name).symlink_to("python")


def _accounts(tree: Path, base: Base) -> None:
    """The user that everything runs as, for programs that look up its name."""
    for name, row, fallback in (
        ("passwd", f"hawk:x:{UID}:{UID}::/tmp:/usr/sbin/nologin\n", "root:x:0:0:root:/root:/bin/sh\n"),
        ("group", f"hawk:x:{UID}:\n", "root:x:0:\n"),
    ):
        text = base.accounts.get(name, fallback)
        taken = any(line.split(":")[2:3] == [str(UID)] for line in text.splitlines())
        write(tree, f"/etc/{name}", text if taken else f"{text.rstrip()}\n{row}")


def _hawk(order: Order, base: Base, work: Path) -> Layer:
    """Hawk's own files as they are here, be it installed or a checkout: no wheel has to be built."""
    tree = work / "hawk"
    site = tree / _site(base)[1:]
    for path in walk(SOURCE):
        relative = path.relative_to(SOURCE)
        if path.is_file() and "__pycache__" not in relative.parts:
            target = site / "hawk" / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    info = f"{site}/{PROJECT.replace('-', '_')}-{__version__}.dist-info"
    distribution = importlib.metadata.distribution(PROJECT)
    for name in ("METADATA", "entry_points.txt"):
        write(Path(info), name, distribution.read_text(name) or "")
    write(Path(info), "INSTALLER", "hawk\n")
    write(
        Path(info), "WHEEL", "Wheel-Version: 1.0\nGenerator: hawk\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    write(Path(info), "RECORD", "")
    start = f"#!{PREFIX}/bin/python\nimport sys\nfrom hawk.cli import main\nsys.exit(main())\n"
    write(tree, f"{PREFIX}/bin/hawk", start, 0o755)
    compile_tree(tree, _site(base), base.version, base.root)
    return pack(tree, work / "hawk.tar", f"hawk {__version__}", epoch=order.epoch, plain=True)


def _config(order: Order, base: Base) -> ImageConfig:
    environ = {
        **base.environ,
        "PATH": PATH,
        "HOME": "/tmp",  # noqa: S108  # the one directory that can be written to in every pod of ours
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": PREFIX,
    }
    labels = {
        "org.opencontainers.image.title": "hawk",
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.description": "Hawk: runner, server and middleman",
        "org.opencontainers.image.base.name": base.system,
    }
    return ImageConfig(
        environ,
        user=f"{UID}:{UID}",
        command=("hawk", "--help"),
        directory="/tmp",  # noqa: S108
        labels=labels,
    )
