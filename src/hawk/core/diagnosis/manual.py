"""The causes, for people: `python -m hawk.core.diagnosis.manual` writes them into `docs/why-is-my-eval-stuck.md`.

They are made from the table that verdicts are made from, so that they can't be out of date; verdicts link to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from hawk.core.diagnosis.about import ABOUT, About
from hawk.core.diagnosis.causes import Layer

MANUAL_FILE = "why-is-my-eval-stuck.md"

_MARKS = re.compile(r"(<!-- causes -->\n).*?(<!-- end of causes -->)", re.DOTALL)

_LAYERS = {
    Layer.PROVIDER: "The provider of the model",
    Layer.MIDDLEMAN: "The middleman, between workers and providers",
    Layer.RUNNER: "The runner: supervisor and workers",
    Layer.SANDBOX: "The sandbox",
    Layer.ATTEMPT: "The attempt itself",
    Layer.SCHEDULER: "Waiting for a turn",
    Layer.HEALTHY: "Nothing is wrong",
}

_WHO = {
    "wait": "nobody: it ends by itself",
    "operator": "who runs the eval set",
    "author": "who wrote the task, the agent or the scorer",
    "provider": "the provider",
}


def render(manual: str) -> str:
    """The manual with its sections about causes made anew."""
    parts = []
    for layer, title in _LAYERS.items():
        parts.append(f"### {title}\n")
        parts += [_section(about) for about in ABOUT.values() if about.layer is layer]
    body = "\n".join(parts)
    return _MARKS.sub(lambda m: f"{m[1]}\n{body}\n{m[2]}", manual)


def _section(about: About) -> str:
    command = about.next.format(job="ID", uuid="UUID", model="MODEL", n="N")
    return (
        f'<a id="{about.anchor}"></a>\n\n#### `{about.word}`: {about.title}\n\n{about.meaning}\n\n'
        f"- **Seen by:** {about.seen}\n"
        f"- **What to do:** {about.remedy}.\n"
        f"- **Who can:** {_WHO[about.who]}.\n"
        f"- **Next:** `{command}`\n"
    )


def main(docs: Path) -> None:
    """Write the manual's sections."""
    manual = docs / MANUAL_FILE
    manual.write_text(render(manual.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path("docs"))
