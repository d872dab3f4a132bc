"""What a Python file defines, without running it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PythonFile:
    """The outline of a Python file.

    Attributes:
        defined: Names registered with one of the decorators that were asked for.
        imported: Names that it imports: they may be registered elsewhere.
        calls: Names of functions that it calls anywhere.
    """

    defined: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)


def outline(path: Path, decorators: Collection[str] = ()) -> PythonFile:
    """Read a file's outline.

    Args:
        path: The file.
        decorators: Names of decorators (`task`), with or without a module before them.

    Raises:
        OSError: It can't be read.
        SyntaxError: It is not Python (also when it is not UTF-8 or not text).
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except ValueError as ex:  # a null byte, on Python 3.11
        raise SyntaxError(str(ex)) from ex
    found = PythonFile()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.defined.extend(_registered(node, decorators))
        elif isinstance(node, ast.ImportFrom):
            found.imported.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Call):
            found.calls.add(_last_name(node.func))
    return found


def _registered(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, decorators: Collection[str]
) -> Iterator[str]:
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if _last_name(call.func if call else decorator) not in decorators:
            continue
        given = [k.value for k in call.keywords if k.arg == "name"] if call else []
        named = given[0] if given else None
        yield named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else node.name


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
