"""What is wrong with an eval set, said so that it can be mended without looking anything up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from hawk.errors import ConfigError

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: What, in a few words.
        file: Where it was written.
        line: Line there, from 1; None when it did not come from a file.
        field: Path of the field (`tasks[0].items[1].name`).
        found: What is there, where that helps and can't be a secret.
        allowed: What may be there.
        suggestion: The nearest right spelling.
        excerpt: The line itself, with a caret below.
    """

    message: str
    file: str
    line: int | None = None
    field: str = ""
    found: str | None = None
    allowed: str | None = None
    suggestion: str | None = None
    excerpt: str | None = None

    def render(self) -> str:
        """One line, and the excerpt below it."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [f"{where}: " + (f"{self.field}: " if self.field else "") + self.message]
        if self.found is not None:
            parts.append(f"Found: {self.found}.")
        if self.suggestion is not None:
            parts.append(f"Did you mean {self.suggestion!r}?")
        if self.allowed is not None:
            parts.append(f"Allowed: {self.allowed}.")
        text = " ".join(part if part.endswith((".", "?")) else f"{part}." for part in parts)
        return text if self.excerpt is None else f"{text}\n{self.excerpt}"


def config_error(name: str, problems: Sequence[Problem], remedy: str | None = None) -> ConfigError:
    """The error that says all of them at once."""
    ordered = sorted(problems, key=lambda p: (p.line is None, p.line or 0))
    if len(ordered) == 1:
        message = ordered[0].render()
    else:
        listed = "\n".join(f"  {problem.render()}".replace("\n", "\n  ") for problem in ordered)
        message = f"{name} has {len(ordered)} problems:\n{listed}"
    return ConfigError(message, remedy=remedy, problems=[asdict(problem) for problem in ordered])


def field_path(path: Iterable[str | int]) -> str:
    """`("tasks", 0, "name")` as `tasks[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def caret(line: str, column: int) -> str:
    """A line with a mark under one column (from 0); long lines are cut around it."""
    start = max(0, column - 60)
    shown = line[start : start + 100].replace("\t", " ")
    return f"    {shown}\n    {' ' * (column - start)}^"
