"""`PROMPT.md`: front matter in YAML between two lines `---`, which may be left out, and the task below it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from hawk.config.check import PROMPT_FILE
from hawk.config.explain import explain
from hawk.config.problems import Problem, config_error
from hawk.config.source import Source, parse_yaml
from hawk.config.suggest import nearest
from hawk.evals.frontmatter import FrontMatter

MAX_PROMPT = 1 << 20
_MARK = "---"


def read_prompt(path: Path, shown: str) -> str:
    """The text of an eval's `PROMPT.md`.

    Raises:
        ConfigError: There is none, it can't be read, or it is not text.
    """
    try:
        with (path / PROMPT_FILE).open("rb") as f:
            content = f.read(MAX_PROMPT + 1)
        if len(content) > MAX_PROMPT:
            raise config_error(shown, [Problem(f"is larger than {MAX_PROMPT >> 20} MiB", shown)])
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as ex:
        raise config_error(shown, [Problem("this is not a text file in UTF-8", shown)]) from ex
    except OSError as ex:
        message, near = str(ex.strerror), None
        if isinstance(ex, FileNotFoundError):
            message = "there is no such file: it holds the task"
            near = nearest(PROMPT_FILE, [entry.name for entry in path.iterdir()])
        raise config_error(shown, [Problem(message, shown, suggestion=near)]) from ex


def split(text: str, shown: str) -> tuple[Source, str]:
    """The front matter and the task below it.

    Raises:
        ConfigError: The front matter has no end or is no YAML, or there is no task.
    """
    lines = text.split("\n")
    end, source = 0, Source(shown, {})
    if lines[0].rstrip() == _MARK:
        rest = (i for i, line in enumerate(lines[1:], start=1) if line.rstrip() == _MARK)
        end = next(rest, 0)
        if end == 0:
            raise config_error(shown, [Problem(f"the front matter has no end: a line {_MARK!r}", shown, 1)])
        # the empty line in the mark's place keeps the numbers of lines right; ${X} stays: it may be a shell's
        yaml = "\n".join(["", *lines[1:end]])
        source = parse_yaml(yaml, shown, None, what="Front matter", may_be_empty=True)
    prompt = "\n".join(lines[end + 1 if end else 0 :]).strip()
    if not prompt or "\0" in prompt:
        message = (
            "holds no task: write it below the front matter" if not prompt else "this is not a text file"
        )
        raise config_error(shown, [Problem(message, shown, end + 1 if end else 1)])
    return source, prompt


def front_matter(source: Source) -> FrontMatter:
    """What the front matter says.

    Raises:
        ConfigError: A field is unknown, or has a value that it can't have.
    """
    problems = []
    if "limits" in source.data:  # a name that may mean two things
        message = (
            "unknown field 'limits': an attempt's are time_limit, message_limit, token_limit, …; "
            "those of its sandbox are written 'sandbox: {limits: …}'"
        )
        problems.append(source.problem(("limits",), message))
    known = {key: value for key, value in source.data.items() if key != "limits"}
    try:
        front = FrontMatter.model_validate(known)
    except ValidationError as ex:
        problems += explain(ex, Source(source.name, known, source.lines), FrontMatter)
    if problems:
        raise config_error(source.name, problems)
    return front
