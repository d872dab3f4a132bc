"""A file that a thread writes from what comes through a pipe: there whole and safe on the disk, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from hawk.errors import StorageError


class Piped(msgspec.Struct):
    """The file in the making.

    Attributes:
        write: The pipe's end to write to. Closed by whoever made it.
        size: Bytes of the file, once it is there.
    """

    write: int
    size: int = 0


@contextlib.asynccontextmanager
async def piped(
    target: Path,
    run: Callable[[int, Path], int],
    stop: Callable[[], None],
    executor: Executor | None = None,
) -> AsyncIterator[Piped]:
    """While inside, what is written to the pipe comes out in a thread; after it the file is in its place.

    Args:
        target: The file. One that is there is replaced.
        run: The thread's work: from the pipe's other end, which it closes, into a new file. Returns the file's bytes,
            which are safe on the disk by then.
        stop: Has `run` end soon: nobody wants the file any more.

    Raises:
        StorageError: The file can't be written. It stands for whatever the writer met because nobody reads any more.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    read, write = os.pipe()
    packing = asyncio.get_running_loop().run_in_executor(executor, run, read, temporary)
    file = Piped(write)
    try:
        try:
            yield file
        finally:
            os.close(write)  # the end of the stream
        file.size = await asyncio.shield(packing)
        await asyncio.to_thread(_put_in_place, temporary, target)
    except BaseException as ex:
        stop()
        await asyncio.wait([packing])  # the thread must not write on behind our back
        with contextlib.suppress(OSError):
            temporary.unlink()
        cause = packing.exception() or ex
        if isinstance(cause, OSError):
            raise _storage_error(target, cause) from cause
        raise


def _put_in_place(temporary: Path, target: Path) -> None:
    """Give a finished file its name, so that it has it after a power cut too."""
    temporary.rename(target)
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _storage_error(target: Path, ex: OSError) -> StorageError:
    full = ex.errno in (errno.ENOSPC, errno.EDQUOT)
    return StorageError(
        f"{target} can't be written: {ex.strerror or ex}.",
        remedy="Free some space on that disk." if full else "Make its directory writable for you.",
        path=str(target),
    )
