"""The attempts folder of a run directory: what every attempt came to, and what the agent left.

```
<run>/attempts/<pair>/<k>/
  result.json          Result: there when the attempt is final, written last
  workspace.tar.zst    what the agent left
  earlier/<n>/         the same two of earlier tries, n from 1
```

A `result.json` is written whole and after its workspace, so an attempt that has one is complete whatever was killed.
What it replaces is kept under `earlier/` first. One writer a time for one attempt; readers need no lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from hawk.core.attempts.results import Pair, Result
from hawk.core.plan import Plan
from hawk.core.text import one_line
from hawk.store.rundir import RunDir, storage_error, write_json

FOLDER = "attempts"
RESULT = "result.json"
WORKSPACE = "workspace.tar.zst"
EARLIER = "earlier"

VERSION = 1
"""Of the file `result.json`; a newer one may mean something else by the same words."""

LARGEST = 16 * 1024 * 1024
"""Bytes of a `result.json` that are read: explanations in it are cut, so a real one has some thousand."""

LEFT_BEHIND = 3600.0
"""Seconds after which a draft is nobody's: to keep a workspace and score it takes less."""

# Neither a link nor a pipe may stand in the way.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ResultFile(NamedTuple):
    """Where a result is, or would be: directory of the pair, name of the attempt's, path of the file."""

    pair: str
    attempt: str
    path: str


def attempts_folder(run_dir: RunDir) -> Path:
    """The folder of all attempts, there or not."""
    return run_dir.path / FOLDER


def attempt_directory(run_dir: RunDir, pair: Pair, k: int) -> Path:
    """The directory of attempt k (from 1) at a pair, there or not."""
    return run_dir.path / FOLDER / pair.directory / str(k)


def planned_pairs(plan: Plan) -> list[tuple[Pair, int]]:
    """The plan's pairs in its order, each with the number of attempts at it."""
    return [(task.pair(sample), task.epochs) for task in plan.tasks for sample in task.sample_ids]


# --- reading


def read_results(run_dir: RunDir) -> tuple[list[Result], list[str]]:
    """Every result there is, by name of its pair's directory and by attempt.

    Returns:
        The results, and a line for everything that can't be one: torn, damaged, foreign, in another's place.
    """
    results: list[Result] = []
    problems: list[str] = []
    decoder = msgspec.json.Decoder(Result)
    homes: dict[Pair, str] = {}
    for file in result_files(run_dir, problems):
        try:
            result = _read(file.path, decoder)
            if result is None:
                continue
            home = homes.get(result.pair)
            if home is None:
                home = homes[result.pair] = result.pair.directory
            _check(result, file, home)
        except _UnusableError as ex:
            problems.append(_problem(file.pair, file.attempt, RESULT, why=str(ex)))
        else:
            results.append(result)
    return results, problems


def result_files(run_dir: RunDir, problems: list[str] | None = None) -> Iterator[ResultFile]:
    """Where results may be, in the order of their directories' names and of the attempts.

    Args:
        problems: Takes a line for everything that is no attempt. Names that begin with a dot are nobody's concern.
    """
    said = problems if problems is not None else []
    folder = os.fspath(attempts_folder(run_dir))
    for pair in _directories(folder, (), said):
        inside = f"{folder}/{pair}"
        names = _directories(inside, (pair,), said)
        for name in sorted((name for name in names if _is_number(name, said, pair)), key=int):
            yield ResultFile(pair, name, f"{inside}/{name}/{RESULT}")


def _directories(path: str, shown: tuple[str, ...], problems: list[str]) -> list[str]:
    """Names of the directories in one, sorted; the rest is named."""
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append(entry.name)
                else:
                    problems.append(_problem(*shown, entry.name, why="is no directory of attempts"))
    except FileNotFoundError:
        return []
    except OSError as ex:
        problems.append(_problem(*shown, why=f"can't be read: {ex.strerror}"))
    return sorted(found)


def _is_number(name: str, problems: list[str], pair: str) -> bool:
    if name.isascii() and name.isdigit() and name[0] != "0":
        return True
    problems.append(_problem(pair, name, why="is not the number of an attempt"))
    return False


class _UnusableError(Exception):
    """A file that is no result; says why."""


def _read(path: str, decoder: msgspec.json.Decoder[Result]) -> Result | None:
    """The result in a file; None when there is none yet."""
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as ex:
        why = "is a link" if ex.errno == errno.ELOOP else f"can't be read: {ex.strerror}"
        raise _UnusableError(why) from ex
    if not data:
        raise _UnusableError("is empty")
    if len(data) > LARGEST:
        raise _UnusableError(f"is larger than {LARGEST // 2**20} MiB")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as ex:
        raise _UnusableError(f"is torn or damaged: {ex}") from ex


def _content(path: str) -> bytes:
    """Up to `LARGEST` bytes of a file, and one more when there are more."""
    fd = os.open(path, _READ)
    try:
        data = os.read(fd, 1 << 16)
        if len(data) < 1 << 16:
            return data
        parts, length = [data], len(data)
        while length <= LARGEST and (data := os.read(fd, LARGEST + 1 - length)):
            parts.append(data)
            length += len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


def _check(result: Result, file: ResultFile, home: str) -> None:
    """Whether a result is where it belongs."""
    if result.version > VERSION:
        raise _UnusableError(f"was written by a newer Hawk (version {result.version} of the file)")
    if home != file.pair:
        raise _UnusableError(f"belongs to another pair: {result.pair}")
    if str(result.attempt) != file.attempt:
        raise _UnusableError(f"is of attempt {result.attempt}")


def _problem(*names: str, why: str) -> str:
    return f"{one_line('/'.join([FOLDER, *names]), 300)}: {one_line(why, 300)}"


# --- writing


def workspace_draft(run_dir: RunDir, pair: Pair, k: int) -> Path:
    """A name to write a workspace under before its result is known; `write_result` puts it in its place.

    The directory is made. A draft that is left behind is nobody's concern, and removed with the next result.

    Raises:
        StorageError: The directory can't be made.
    """
    directory = attempt_directory(run_dir, pair, k)
    _make(directory)
    return directory / f".{WORKSPACE}.{secrets.token_hex(4)}"


def write_result(run_dir: RunDir, result: Result, *, workspace: Path | None = None) -> None:
    """Make an attempt final: its result, and its workspace if one is given, durably.

    An earlier result and workspace are kept in `earlier/<n>/`. Whatever is killed, and whenever: there is the old
    result, or the new one, or none and the attempt runs again; never a result beside another's workspace.

    Args:
        workspace: A finished draft in the attempt's directory. Without one, a workspace that is there already stays
            if the result speaks of one (it was scored again), and is set aside if not.

    Raises:
        StorageError: It can't be written. What was there is still there.
    """
    directory = attempt_directory(run_dir, result.pair, result.attempt)
    _make(directory)
    final, home = directory / RESULT, directory / WORKSPACE
    replaced = workspace is not None or result.workspace is None
    try:
        if workspace is not None:
            _sync(workspace)  # one that is not there must leave everything as it is
        if final.exists() or (replaced and home.exists()):
            set_aside(directory)
        if replaced:
            final.unlink(missing_ok=True)
            home.unlink(missing_ok=True)
        if workspace is not None:
            workspace.replace(home)
            _sync(directory)  # a result must not survive a power cut that its workspace does not
        write_json(final, result)
        _sync(directory)
    except OSError as ex:
        raise storage_error(directory, ex) from ex
    _tidy(directory, every=workspace is not None)


def set_aside(directory: Path) -> Path | None:
    """Keep an attempt's result and workspace, as they are, under the next `earlier/<n>`.

    They stay where they are as well: they are linked, and appear there together or not at all.

    Returns:
        Where they are kept; None when there was nothing to keep.

    Raises:
        OSError: They can't be kept.
    """
    present = [name for name in (WORKSPACE, RESULT) if (directory / name).exists()]
    if not present:
        return None
    earlier = directory / EARLIER
    _make(earlier)
    numbers = [int(kept.name) for kept in earlier.iterdir() if kept.name.isdigit()]
    if numbers and _kept(directory, earlier / str(max(numbers)), present):
        return earlier / str(max(numbers))  # a writer was killed after this step
    draft = earlier / f".{secrets.token_hex(4)}"
    draft.mkdir(mode=0o700)
    for name in present:
        _keep(directory / name, draft / name)
    _sync(draft)
    kept = earlier / str(max(numbers, default=0) + 1)
    draft.rename(kept)
    _sync(earlier)
    return kept


def _kept(directory: Path, kept: Path, names: list[str]) -> bool:
    """Whether these very files are kept there already."""
    return all((kept / name).exists() and (directory / name).samefile(kept / name) for name in names)


def _keep(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError as ex:
        if ex.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        with source.open("rb") as old, target.open("xb") as new:  # a file system without links
            shutil.copyfileobj(old, new, 1 << 20)
            new.flush()
            os.fsync(new.fileno())


def _tidy(directory: Path, *, every: bool) -> None:
    """Remove what killed writers have left: drafts, and temporary names of either kind.

    Args:
        every: The attempt's own worker writes, so that nobody else's draft is still wanted. Else only old ones go.
    """
    newest = float("inf") if every else time.time() - LEFT_BEHIND
    for parent in (directory, directory / EARLIER):
        with contextlib.suppress(OSError):
            for path in [path for path in parent.iterdir() if path.name.startswith(".")]:
                if path.lstat().st_mtime > newest:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


def sweep_drafts(run_dir: RunDir) -> None:
    """Remove every draft and temporary file below `attempts/`: for when nobody can be writing there any more."""
    for directory in attempts_folder(run_dir).glob("*/*"):
        _tidy(directory, every=True)


def _make(directory: Path) -> None:
    """Make a directory and its parents, so that they are there after a power cut too."""
    if directory.is_dir():
        return
    _make(directory.parent)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync(directory.parent)
    except OSError as ex:
        raise storage_error(directory, ex) from ex


def _sync(path: Path) -> None:
    """Make a file's content, or a directory's names, survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
