"""The table of a sandbox's fields, for the manual: `python -m hawk.sandbox.manual` writes it into `docs/sandboxes.md`."""

from __future__ import annotations

from pathlib import Path

from hawk.config.schema import fill, tables
from hawk.sandbox.options import BubblewrapConfig

MANUAL_FILE = "sandboxes.md"


def render(manual: str) -> str:
    """The manual with its tables made anew."""
    return fill(manual, tables("sandbox.yaml", BubblewrapConfig))


def main(docs: Path) -> None:
    """Write the manual's tables."""
    manual = docs / MANUAL_FILE
    manual.write_text(render(manual.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path("docs"))
