"""`hawk image`: the container image that clusters run, without a registry or a daemon."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import click

from hawk.cli.context import note


@click.group(short_help="Make the image that a cluster runs.")
def image() -> None:
    """The container image of runner, server and middleman: one image, three commands."""


@image.command(short_help="Build it as a tar.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [default: hawk-runner.tar]",
)
@click.option("--tag", metavar="NAME:TAG", help="What it is called.  [default: hawk-runner:VERSION]")
@click.option(
    "--base",
    metavar="BASE",
    help="What it stands on: `debian`, `debian:RELEASE`, or a path: a directory, a tar of a root file system, or an "
    "image archive (docker save), with Python 3.11 to 3.14 in it.  [default: the Debian with this machine's Python]",
)
@click.option(
    "--package", "packages", multiple=True, metavar="REQ", help="One more Python package, as pip takes it."
)
@click.option("--apt", multiple=True, metavar="NAME", help="One more Debian package.")
@click.option(
    "--lock",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Install exactly what this requirements file lists, hashes checked, instead of the versions that are "
    "installed here.",
)
@click.option("--mirror", metavar="URL", help="Debian's archive.  [default: http://deb.debian.org/debian]")
def build(
    output: Path | None,
    tag: str | None,
    base: str | None,
    packages: tuple[str, ...],
    apt: tuple[str, ...],
    lock: Path | None,
    mirror: str | None,
) -> None:
    """Build the image as one tar file, which every cluster can load.

    It has a Debian with Python, the packages that are installed here in the same versions, and this Hawk. It runs as
    user 10001, and fetches nothing when it runs. Same inputs, same digest.

    \b
    hawk image build --tag hawk-runner:1 --package anthropic
    kind load image-archive hawk-runner.tar
    ctr --namespace k8s.io images import hawk-runner.tar     # on each node
    docker load -i hawk-runner.tar && docker push …          # where there is a registry
    """
    from hawk import __version__
    from hawk.cli.text import clean, plural, size
    from hawk.images import build as builder
    from hawk.images.debian import MIRROR

    began = time.monotonic()
    order = builder.Order(
        output=output or Path("hawk-runner.tar"),
        name=tag or f"hawk-runner:{__version__}",
        base=_base(base),
        packages=packages,
        apt=apt,
        lock=lock,
        mirror=mirror or MIRROR,
        epoch=builder.epoch_of(os.environ),
    )
    _show_steps(began)
    built = builder.build(order)
    for what, count in built.layers:
        note(f"  {size(count):>8}  {clean(what)}")
    if not built.compiled:
        note(
            "No Python {}.{} is here: modules are not compiled ahead, and pods start more slowly.".format(
                *built.python
            )
        )
    note(
        f"{plural(len(built.packages), 'package')}, listed in {builder.LOCK}; {time.monotonic() - began:.0f} s. "
        f"Load it: ctr --namespace k8s.io images import {order.output}"
    )
    click.echo(f"{order.output}  {order.name}  {built.digest}")


def _base(given: str | None) -> Path | str:
    import sys

    from hawk.images.debian import release_for

    name, _, release = (given or "debian").partition(":")
    if name == "debian":  # a directory of that name is ./debian
        return release or release_for(sys.version_info[:2])
    return Path(given or "").expanduser()


def _show_steps(began: float) -> None:
    """What the builder does next, with the time since the beginning."""

    class Steps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(f"{time.monotonic() - began:6.1f} s  {record.getMessage()}")

    logger = logging.getLogger("hawk.images")
    logger.addHandler(Steps())
    logger.setLevel(logging.INFO)
