"""YAML with positions, so that every complaint can name its line, and `${VAR}` filled in.

The text is parsed into nodes, which know where they were written; the nodes are checked (a key given twice
would silently lose its first value), variables are replaced in them, and only then do they become data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from hawk.config.problems import FieldPath, Problem, caret, config_error, field_path
from hawk.config.suggest import nearest

_VARIABLE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}|\$\{")
_SENSITIVE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:$|_)", re.IGNORECASE)
_MOST_NODES = 200_000  # far above any real eval set: aliases of aliases grow without end
_STRING = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Plain YAML in which dates stay text: everything must fit into JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass
class Source:
    """A parsed file.

    Attributes:
        name: As the person named it.
        data: Its content, variables replaced.
        lines: Line of each field, from 1.
        warnings: What is worth a second look.
    """

    name: str
    data: dict[str, Any]
    lines: dict[FieldPath, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def line(self, path: FieldPath) -> int | None:
        """Line of a field, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(
        self,
        path: FieldPath,
        message: str,
        *,
        found: str | None = None,
        allowed: str | None = None,
        suggestion: str | None = None,
    ) -> Problem:
        """Something wrong with a field of this file."""
        return Problem(message, self.name, self.line(path), field_path(path), found, allowed, suggestion)


def parse_yaml(
    text: str,
    name: str,
    environ: Mapping[str, str] | None,
    secrets: Collection[str] = (),
    *,
    what: str = "An eval set",
    may_be_empty: bool = False,
) -> Source:
    """Parse an eval-set file, or another one that is a mapping of fields.

    Args:
        text: The file's content.
        name: How messages call it.
        environ: Where `${VAR}` comes from; None: such text stays as it is.
        secrets: Names whose values must never get into the config, besides those the file declares.
        what: How messages call what the file holds.
        may_be_empty: Whether a file that says nothing is right.

    Raises:
        ConfigError: It is not YAML, not a mapping, has a key twice, or names an unset variable.
    """
    if "\0" in text:
        _fail(name, "This is not a text file")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None and may_be_empty:
            return Source(name, {})
        if node is None:
            _fail(name, "The file is empty", remedy=f"{what} needs at least `tasks:`; see docs/config.md.")
        if not isinstance(node, yaml.MappingNode):
            _fail(name, f"{what} is a mapping of fields to values", line=node.start_mark.line + 1)
        walk = _Walk(name, environ, {*secrets, *_declared_secrets(node, set())}, loader)
        walk.visit(node, (), ())
        if walk.problems:
            raise config_error(name, walk.problems)
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as ex:
        raise _syntax_error(text, name, ex, variables=environ is not None) from ex
    except yaml.reader.ReaderError as ex:
        line = text.count("\n", 0, int(ex.position)) + 1
        _fail(name, f"The character {ex.character!r} is not allowed in YAML", line=line)
    return Source(name, data, walk.lines, sorted(walk.warnings))


class _Walk:
    """One pass over the nodes: positions, double keys, variables."""

    def __init__(
        self, name: str, environ: Mapping[str, str] | None, secrets: Collection[str], loader: yaml.SafeLoader
    ) -> None:
        self.lines: dict[FieldPath, int] = {}
        self.problems: list[Problem] = []
        self.warnings: set[str] = set()
        self._name = name
        self._environ = environ
        self._secrets = secrets
        self._loader = loader
        self._visited = 0
        self._done: set[int] = set()

    def visit(self, node: yaml.Node, path: FieldPath, above: tuple[int, ...]) -> None:
        self._visited += 1
        if id(node) in above:
            self._complain(node, path, "An alias must not refer to what it is part of")
        elif self._visited > _MOST_NODES:
            _fail(self._name, "The file is far too large once its aliases are filled in")
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node, path, (*above, id(node)))
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.lines.setdefault((*path, i), item.start_mark.line + 1)
                self.visit(item, (*path, i), (*above, id(node)))
        elif isinstance(node, yaml.ScalarNode) and id(node) not in self._done:
            self._done.add(id(node))
            if "${" in node.value and self._environ is not None:
                self._substitute(node, path, self._environ)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath, above: tuple[int, ...]) -> None:
        first: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._complain(key, path, "A field's name must be a word")
                continue
            line = key.start_mark.line + 1
            below = (*path, key.value)
            if key.value in first:
                self._complain(key, below, f"given twice (first in line {first[key.value]})")
            first.setdefault(key.value, line)
            self.lines.setdefault(below, line)
            self.visit(value, below, above)
        for other in merged:
            self.visit(other, path, above)

    def _substitute(self, node: yaml.ScalarNode, path: FieldPath, environ: Mapping[str, str]) -> None:
        value = _VARIABLE.sub(lambda match: self._value(match, node, path, environ), node.value)
        if value != node.value and node.style is None and value:
            # a plain scalar means what its new text means: ${N} may be a number
            node.tag = self._loader.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
        elif node.style is None:
            node.tag = _STRING
        node.value = value

    def _value(
        self, match: re.Match[str], node: yaml.Node, path: FieldPath, environ: Mapping[str, str]
    ) -> str:
        name = match["name"]
        if match["escape"]:
            return "${"
        if name is None:
            self._complain(
                node, path, "'${' begins no ${VAR} or ${VAR:-default}; write '$${' to keep it as text"
            )
        elif name in self._secrets:
            self._complain(
                node,
                path,
                f"${{{name}}} would store a secret in the config; leave it out, "
                f"the runner has {name} in its environment",
            )
        elif name in environ and not (match["default"] is not None and not environ[name]):
            if _SENSITIVE.search(name):
                self.warnings.add(
                    f"${{{name}}} is stored with the eval set; if it is secret, name it under `secrets`."
                )
            return environ[name]
        elif match["default"] is not None:
            return match["default"]
        else:
            self.problems.append(
                Problem(
                    f"the variable {name} is not set; set it, or write ${{{name}:-default}}",
                    self._name,
                    node.start_mark.line + 1,
                    field_path(path),
                    suggestion=nearest(name, environ),
                )
            )
        return ""

    def _complain(self, node: yaml.Node, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(message, self._name, node.start_mark.line + 1, field_path(path)))


def _declared_secrets(node: yaml.Node, seen: set[int]) -> set[str]:
    """Names under every `secrets:` of the file, before anything is checked."""
    if id(node) in seen or not isinstance(node, yaml.MappingNode | yaml.SequenceNode):
        return set()
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        return set().union(*(_declared_secrets(item, seen) for item in node.value))
    found: set[str] = set()
    for key, value in node.value:
        if key.value == "secrets" and isinstance(value, yaml.SequenceNode):
            for item in value.value:
                pairs = item.value if isinstance(item, yaml.MappingNode) else [(None, item)]
                found |= {
                    v.value for k, v in pairs if (k is None or k.value == "name") and isinstance(v.value, str)
                }
        else:
            found |= _declared_secrets(value, seen)
    return found


def _syntax_error(text: str, name: str, ex: yaml.MarkedYAMLError, *, variables: bool) -> Exception:
    mark = ex.problem_mark or ex.context_mark
    what = (ex.problem or ex.context or "not valid YAML").rstrip(".").removeprefix("but ")
    if mark is None:
        return config_error(name, [Problem(f"bad YAML: {what}", name)])
    lines = text.splitlines()
    excerpt = caret(lines[mark.line], mark.column) if mark.line < len(lines) else None
    message = f"bad YAML at column {mark.column + 1}: {what}"
    if excerpt is not None and variables and "${" in lines[mark.line]:
        message += " (put ${VAR} in quotes inside [ ] and { })"
    return config_error(name, [Problem(message, name, mark.line + 1, excerpt=excerpt)])


def _fail(name: str, message: str, *, line: int | None = None, remedy: str | None = None) -> NoReturn:
    raise config_error(name, [Problem(message, name, line)], remedy)
