"""By which names the things of keepers are found again, and where. The supervisor imports it: nothing heavy here."""

from __future__ import annotations

from pathlib import Path

from hawk.config.settings import Settings, load_settings

LABELS = ("HAWK_JOB_ID", "HAWK_WORKER")
"""Variables of a worker by which what it left behind is found; the keeper and bwrap carry them on."""

NAME = "HAWK_KEEPER"
"""Variable that names the keeper, in the environment of its processes."""


def store_path(settings: Settings | None = None) -> Path:
    """`<HAWK_HOME>/sandbox`, which may not be there yet."""
    return (settings or load_settings()).home / "sandbox"


def store_directory() -> Path:
    """The same, made when it is missing."""
    path = store_path()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
