"""The tables of `middleman.yaml`, for the manual: `python -m hawk.middleman.manual` writes them into `docs/middleman.md`."""

from __future__ import annotations

from pathlib import Path

from hawk.config.schema import fill, tables
from hawk.middleman.settings import MiddlemanConfig

MANUAL_FILE = "middleman.md"


def render(manual: str) -> str:
    """The manual with its tables made anew."""
    return fill(manual, tables("middleman.yaml", MiddlemanConfig))


def main(docs: Path) -> None:
    """Write the manual's tables."""
    manual = docs / MANUAL_FILE
    manual.write_text(render(manual.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path("docs"))
