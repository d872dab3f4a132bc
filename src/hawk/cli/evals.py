"""`hawk eval`: evals that are directories, made and checked. Needs no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hawk.cli.text import clean, pad, plural
from hawk.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from hawk.evals.check import Checked
    from hawk.evals.folder import FolderEval

USUAL_FOLDER = "evals"
_COLOURS = {"ok": "green", "skipped": "yellow"}


@click.group("eval", short_help="Make and check folder evals.")
def eval_() -> None:
    """Folder evals: a directory for each, with its task, files and scorer. docs/folder-evals.md says what they are."""


@eval_.command("new", short_help="Make a new eval.")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(USUAL_FOLDER),
    show_default=True,
    help="Folder that it is put into.",
)
def new(name: str, folder: Path) -> None:
    """Make a small eval called NAME that works, to be changed into your own."""
    from hawk.evals.scaffold import FILES, scaffold

    path = scaffold(folder, name)
    click.echo(f"Made {path}: {', '.join(FILES)}.")
    click.echo(f"Check it: hawk eval check {path}")


@eval_.command("check", short_help="Check that evals can be passed, and are not passed by doing nothing.")
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FOLDER...")
@click.option(
    "--times",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Score each so often: finds scorers that do not always say the same.",
)
@click.option(
    "--judge",
    type=click.Choice(["pass", "fail"]),
    help="What a judge would say. Without it, evals that ask a judge are skipped.",
)
def check(folders: tuple[Path, ...], times: int, judge: str | None) -> None:
    """Run the scorer of evals on their solution (it must pass) and on the untouched start (it must fail).

    FOLDER is an eval, or a directory of evals; what is neither is passed over. No model is called. The exit code is
    1 when anything is wrong.

    \b
    hawk eval check evals                   all evals of a folder
    hawk eval check evals/rate-limiter      one of them
    hawk eval check evals --times 5         are they always of the same opinion?
    """
    evals, wrong = _read(folders)
    if not evals and not wrong:
        raise UsageError(
            f"No eval in {', '.join(map(str, folders))}: a directory with a PROMPT.md is one.",
            remedy="hawk eval new NAME makes one.",
        )
    for error in wrong:
        click.echo(f"{click.style('wrong', fg='red')}    {clean(error.render(), lines=True)}")
    code = _check(evals, times, None if judge is None else judge == "pass") if evals else 0
    _leave(1 if wrong else code)


def _read(folders: Sequence[Path]) -> tuple[list[FolderEval], list[ConfigError]]:
    """The evals of all folders, each once, and what is wrong with those that can't be read."""
    from hawk.evals.folder import find_evals, read_eval

    evals: dict[Path, FolderEval] = {}
    wrong: list[ConfigError] = []
    for folder in folders:
        if not folder.exists():
            raise UsageError(f"{folder} does not exist.")
        for path in find_evals(folder) if folder.is_dir() else []:
            try:
                evals.setdefault(path.resolve(), read_eval(path, str(path)))
            except ConfigError as ex:
                wrong.append(ex)
    return list(evals.values()), wrong


def _check(evals: Sequence[FolderEval], times: int, judge: bool | None) -> int:
    """Check and print; the exit code."""
    import asyncio

    from hawk.evals.check import check

    width = max(len(eval.name) for eval in evals)
    good = 0

    async def run() -> None:
        nonlocal good
        async for checked in check(evals, times=times, judge=judge):
            _print(checked, width)
            good += checked.state.good

    asyncio.run(run())
    if len(evals) > 1:
        bad = len(evals) - good
        click.echo(f"{plural(good, 'eval')} good{f', {bad} not' if bad else ''}.")
    return 0 if good == len(evals) else 1


def _print(checked: Checked, width: int) -> None:
    word = click.style(f"{checked.state.value:<7}", fg=_COLOURS.get(checked.state.value, "red"))
    said = "; ".join(clean(line) for line in checked.says)
    click.echo(f"{word}  {pad(checked.name, width)}  {said}  ({checked.seconds:.1f} s)")


def _leave(code: int) -> None:
    """End the command, with whatever a scorer that never returns left behind."""
    from hawk.evals.deadline import stuck_threads

    if stuck_threads():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise click.exceptions.Exit(code)
