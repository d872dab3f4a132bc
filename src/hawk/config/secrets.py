"""Secrets as a person gives them: names of environment variables, and files in dotenv format.

Values live in memory and go to the runner by pipe; nothing here writes them, and no message shows one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from hawk.config.problems import Problem, config_error
from hawk.errors import ConfigError, SecretsNeededError, UsageError

_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


def gather_secrets(
    required: Iterable[str], *, names: Collection[str], files: Iterable[Path], environ: Mapping[str, str]
) -> dict[str, str]:
    """Collect the values of a job's secrets.

    Files come first, later ones over earlier ones; then the environment for what is named on the command
    line or by the eval set.

    Args:
        required: Names that the eval set declares.
        names: Names given as `--secret`.
        files: Files given as `--secrets-file`.
        environ: The submitter's environment.

    Raises:
        ConfigError: A file can't be read or is not in dotenv format.
        UsageError: A name is not one.
        SecretsNeededError: A name has no value anywhere. Field: `names`.
    """
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            shown = name.split("=", 1)[0]
            raise UsageError(
                f"--secret {shown!r}: give the name of an environment variable, without its value.",
                remedy=f"export {shown}=… and then --secret {shown}, or use --secrets-file.",
            )
    found: dict[str, str] = {}
    for file in files:
        found |= read_secrets_file(file)
    for name in (*required, *names):
        if name not in found and environ.get(name):
            found[name] = environ[name]
    return check_secrets((*required, *names), found)


def check_secrets(required: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The given secrets, if none of the required ones is missing.

    Raises:
        SecretsNeededError: Names of those that are. Field: `names`.
    """
    missing = [name for name in dict.fromkeys(required) if name not in given]
    if missing:
        flags = " ".join(f"--secret {name}" for name in missing)
        raise SecretsNeededError(
            f"Missing {'secret' if len(missing) == 1 else 'secrets'}: {', '.join(missing)}.",
            remedy=f"Set them in your environment and pass {flags}, or use --secrets-file FILE.",
            names=missing,
        )
    return dict(given)


def read_secrets_file(path: Path) -> dict[str, str]:
    """Read `NAME=value` lines: comments, `export`, quotes (escapes in double ones, line breaks in both).

    Raises:
        ConfigError: Unreadable or malformed; names file and line, never a value.
    """
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as ex:
        raise _malformed(path, None, "This is not a text file in UTF-8") from ex
    except OSError as ex:
        raise _malformed(path, None, f"The secrets file can't be read: {ex.strerror}") from ex
    lines = iter(enumerate(text.splitlines(), start=1))
    found: dict[str, str] = {}
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(line.strip())
        if match is None:
            raise _malformed(path, number, "not a line of the form NAME=value")
        name, value = match.groups()
        quote = value[:1]
        if quote not in ("'", '"'):
            found[name] = re.split(r"\s+#", value, maxsplit=1)[0].strip()
            continue
        while (end := _closing(value, quote)) is None:
            following = next(lines, None)
            if following is None:
                raise _malformed(path, number, f"the quote of {name} is never closed")
            value += "\n" + following[1]
        if not re.fullmatch(r"\s*(#.*)?", value[end + 1 :]):
            raise _malformed(path, number, f"something follows the closing quote of {name}")
        found[name] = _unescaped(value[1:end]) if quote == '"' else value[1:end]
    return found


def _closing(value: str, quote: str) -> int | None:
    """Place of the quote that ends a quoted value."""
    pattern = r'"(?:[^"\\]|\\.)*"' if quote == '"' else "'[^']*'"
    match = re.match(pattern, value, re.DOTALL)
    return match.end() - 1 if match else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text, flags=re.DOTALL)


def _malformed(path: Path, line: int | None, message: str) -> ConfigError:
    return config_error(str(path), [Problem(message, str(path), line)])
