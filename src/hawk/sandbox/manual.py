"""The tables of a sandbox's fields, for the manuals: `python -m hawk.sandbox.manual` writes them into `docs/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from hawk.config.schema import fill, tables
from hawk.sandbox.options import BubblewrapConfig
from hawk.sandbox.pod.options import PodConfig

MANUALS: dict[str, tuple[str, type[BaseModel]]] = {
    "sandboxes.md": ("sandbox.yaml", BubblewrapConfig),
    "pod-sandboxes.md": ("pod.yaml", PodConfig),
}
"""The document in `docs/`, and which configuration it has every field of."""


def render(manual: str, file: str) -> str:
    """A manual with its tables made anew.

    Args:
        manual: The text as it is.
        file: The manual's name, of `MANUALS`.
    """
    title, config = MANUALS[file]
    return fill(manual, tables(title, config))


def main(docs: Path) -> None:
    """Write the tables of all manuals."""
    for file in MANUALS:
        manual = docs / file
        manual.write_text(render(manual.read_text("utf-8"), file), "utf-8")


if __name__ == "__main__":
    main(Path("docs"))
