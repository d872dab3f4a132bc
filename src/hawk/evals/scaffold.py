"""A new eval, small and whole: it passes its own check, and every part of it is there to be replaced."""

from __future__ import annotations

import re
from pathlib import Path

from hawk.errors import UsageError
from hawk.evals.frontmatter import WORD

_PROMPT = """\
---
# What may stand here is in docs/folder-evals.md; all of it may be left out.
description: Make a script greet whoever is named
suite: examples
tags: [shell]
time_limit: 10m
---
`greet` in your working directory is a shell script that greets nobody in particular.

Change it so that `./greet Ada` prints `Hello, Ada!`. A name may have several words: `./greet "Ada Lovelace"`.
Without a name it prints `Hello, world!`.
"""

_START = """\
#!/bin/sh
echo "Hello!"
"""

_SOLUTION = """\
#!/bin/sh
echo "Hello, ${1:-world}!"
"""

_SCORER = '''\
"""Scores what the agent left. It runs on this machine; commands run in the sandbox, in the agent's workspace."""


async def score(sandbox):
    checks = []

    async def greets(name, words, expected):
        ran = await sandbox.exec(["./greet", *words], timeout=10)
        said = ran.stdout.strip()
        notes = "" if said == expected else f"printed {ran.output[:200]!r}"
        checks.append({"name": name, "passed": said == expected, "notes": notes})

    await greets("greets the world", [], "Hello, world!")
    hidden = await sandbox.read(f"{sandbox.tests}/names.txt")
    for name in hidden.splitlines():
        await greets(f"greets {name}", [name], f"Hello, {name}!")
    return {"checks": checks}  # passed when every check is; 'passed' may say otherwise
'''

_NAMES = """\
Ada
Grace Hopper
*
"""

FILES: dict[str, tuple[str, bool]] = {
    "PROMPT.md": (_PROMPT, False),
    "EVAL.py": (_SCORER, False),
    "local/greet": (_START, True),
    "tests/names.txt": (_NAMES, False),
    "solution/greet": (_SOLUTION, True),
}
"""Path to (text, whether it is executable)."""


def scaffold(folder: Path, name: str) -> Path:
    """Write a new eval; its directory.

    Args:
        folder: Where to; made when it is missing.
        name: What it is called.

    Raises:
        UsageError: The name can't be one, or is taken.
    """
    if len(name) > 100 or re.fullmatch(WORD, name) is None:
        raise UsageError(
            f"{name!r} can't be an eval's name.",
            remedy="Use letters, digits, '.', '_' and '-', beginning with a letter or digit.",
        )
    path = folder / name
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{path} is there already.", remedy="Choose another name.") from None
    for file, (text, executable) in FILES.items():
        target = path / file
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, "utf-8")
        if executable:
            target.chmod(target.stat().st_mode | 0o111)
    return path
