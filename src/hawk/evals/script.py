"""An eval's scorer as a file: `EVAL.py`, a function of the finished sandbox, or `EVAL`, any program.

Looked at without being run, so that a mistake in it is found before any attempt is paid for.
"""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec

from hawk.config.problems import Problem, caret
from hawk.config.suggest import nearest

PYTHON = "EVAL.py"
PROGRAM = "EVAL"
FUNCTION = "score"
"""The function of `EVAL.py` that is called."""

MAX_SCRIPT = 10 << 20
_SIGNATURE = f"async def {FUNCTION}(sandbox)"
_ELF = b"\x7fELF"


class Script(msgspec.Struct, frozen=True):
    """A scorer.

    Attributes:
        path: Where it was read, absolute.
        content: What it said then: that is what scores, whatever becomes of the file.
        asks_judge: Whether it calls `sandbox.judge(…)`, as far as can be seen.
    """

    path: str
    content: bytes
    asks_judge: bool = False

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def interpreter(self) -> str | None:
        """What a program's first line says that it is run by; None for one that is run by itself."""
        if not self.content.startswith(b"#!"):
            return None
        words = self.content[2:].split(b"\n", 1)[0].decode(errors="replace").split()
        if len(words) > 1 and words[0].endswith("/env"):
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return words[0] if words else None


def read_script(directory: Path, shown: str) -> tuple[Script | None, list[Problem]]:
    """The scorer of an eval.

    Args:
        directory: The eval.
        shown: How messages call it.
    """
    there = [name for name in (PYTHON, PROGRAM) if (directory / name).is_file()]
    if len(there) != 1:
        message = f"has both {PYTHON} and {PROGRAM}: remove one" if there else _missing(directory)
        return None, [Problem(message, shown)]
    path, where = directory / there[0], f"{shown}/{there[0]}"
    try:
        with path.open("rb") as f:
            content = f.read(MAX_SCRIPT + 1)
    except OSError as ex:
        return None, [Problem(f"can't be read: {ex.strerror}", where)]
    if len(content) > MAX_SCRIPT:
        return None, [Problem(f"is larger than {MAX_SCRIPT >> 20} MiB", where)]
    if path.name == PROGRAM:
        script = Script(str(path.absolute()), content)
        return script, [] if _can_run(script) else [Problem(_NOT_A_PROGRAM, where, 1)]
    problems, asks_judge = _check_python(content, where)
    return Script(str(path.absolute()), content, asks_judge), problems


_NOT_A_PROGRAM = "is no program: its first line must say what runs it, as in '#!/bin/sh'"


def _missing(directory: Path) -> str:
    try:
        beside = [path.name for path in directory.iterdir() if path.is_file()]
    except OSError:
        beside = []
    near = nearest(PYTHON, beside) or nearest(PROGRAM, beside)
    hint = f"; rename {near}" if near else f"; write {PYTHON} with '{_SIGNATURE}', or a program {PROGRAM}"
    return f"has no scorer{hint}"


def _can_run(script: Script) -> bool:
    return script.interpreter is not None or script.content.startswith(_ELF)


def _check_python(content: bytes, where: str) -> tuple[list[Problem], bool]:
    try:
        tree = ast.parse(content, filename=where)
    except SyntaxError as ex:
        excerpt = caret(ex.text.rstrip(), (ex.offset or 1) - 1) if ex.text else None
        return [Problem(f"not valid Python: {ex.msg}", where, ex.lineno, excerpt=excerpt)], False
    except ValueError as ex:  # a null byte, on Python 3.11
        return [Problem(f"not valid Python: {ex}", where)], False
    asks = any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "judge"
        for node in ast.walk(tree)
    )
    return _check_function(tree, where), asks


def _check_function(tree: ast.Module, where: str) -> list[Problem]:
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    found = functions.get(FUNCTION)
    if found is None:
        if any(FUNCTION in _names(node) for node in tree.body):
            return []  # imported or assigned: what it is shows when it is called
        near = nearest(FUNCTION, functions)
        return [
            Problem(
                f"defines no function '{_SIGNATURE}'", where, suggestion=None if near is None else FUNCTION
            )
        ]
    if isinstance(found, ast.FunctionDef):
        return [Problem(f"'{FUNCTION}' must be '{_SIGNATURE}'", where, found.lineno)]
    if not (found.args.posonlyargs or found.args.args or found.args.vararg):
        return [Problem(f"'{FUNCTION}' must take the sandbox: '{_SIGNATURE}'", where, found.lineno)]
    return []


def _names(node: ast.stmt) -> set[str]:
    """Names that a statement brings into a module."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()
