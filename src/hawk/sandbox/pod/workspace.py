"""What an agent left in a pod's working directory: read out of it as `workspace.tar.zst`, and put back into another.

A pod has no layer of changes that could be looked at from outside, so the whole directory is taken, by a `tar` of its
image. Where that directory is the root of the file system, only what was changed since the container began is. Nothing
of the stream is trusted: what has the pod has its programs too. It is taken apart and written anew, member by member.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from hawk.bridge.sandboxtools import SANDBOX_TOOLS_DIR
from hawk.core.text import one_line
from hawk.core.zstd import ZstdError
from hawk.kube.exec import ExecTimeoutError
from hawk.sandbox.errors import SandboxError
from hawk.sandbox.export import Exported
from hawk.sandbox.piped import piped
from hawk.sandbox.pod.box import CONTAINERS, BoxGoneError
from hawk.sandbox.pod.repacking import Repacking
from hawk.sandbox.restore import Plain, RestoreError
from hawk.sandbox.tarinput import write_all

if TYPE_CHECKING:
    from hawk.kube.exec import ByteStream
    from hawk.sandbox.pod.box import PodBox

_THREADS = 8  # more than are kept at once
_SH = ("/bin/sh", "-c")
_CHUNK = 1 << 18
_LONGEST_PATH = 4096
_NO_TAR = 42
_NOTHING_TO_READ_WITH = "its image has neither tar nor python to read its working directory with"
_NOTES = 95  # things that were left out, and are named
_COMPLAINTS, _WORDS = 5, 300  # lines, and characters, of what the pod's programs complained of

_FROM = r"""
LC_ALL=C; export LC_ALL
if [ -n "$1" ]; then cd -- "$1" || exit 41; fi
d=$(pwd -P)
"""

# $1 directory or empty, $2 what is nobody's concern. The directory is the first line, then comes the archive, of names
# relative to the root.
_PACK = (
    _FROM
    + r"""
cd /
if [ "$d" != / ]; then
  printf '%s\n' "$d"
  if command -v tar >/dev/null; then exec tar -cf - -- "${d#/}"; fi
  for p in python3 python; do
    command -v $p >/dev/null && exec $p -c 'import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as t: t.add(sys.argv[1])' "${d#/}"
  done
  exit 42
fi
printf '/\n'
command -v tar >/dev/null && command -v find >/dev/null || exit 42
n=-cnewer; find /etc/hosts $n /etc/hosts >/dev/null 2>&1 || n=-newer
z= p=-print; if tar --version 2>/dev/null | grep -q GNU; then z=--null p=-print0; fi
find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ".$2" \) -prune -o \
  ! -type d $n /etc/hosts $p | tar -cf - $z -T -
"""
)

# $1 directory or empty, $2 empty where the archive, which is its input, is not whole: else what is in the directory and not
# in the archive was deleted by the attempt.
_UNPACK = (
    _FROM
    + r"""
if command -v tar >/dev/null; then t=tar; else
  for p in python3 python; do command -v $p >/dev/null && t=$p; done
fi
[ -n "${t-}" ] || exit 42
if [ -n "$2" ] && [ "$d" != / ]; then
  if command -v find >/dev/null; then find "$d" -mindepth 1 -delete || exit 43
  else rm -rf -- "$d"/* "$d"/.[!.]* "$d"/..?* || exit 43; fi
fi
cd /
if [ "$t" = tar ]; then exec tar -xpf -; fi
exec $t -c 'import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as t: t.extractall("/", numeric_owner=True)'
"""
)

_threads: ThreadPoolExecutor | None = None


class WorkspaceError(SandboxError):
    """A workspace could not be read out of its pod."""


async def keep_workspace(box: PodBox, target: Path, *, max_bytes: int, seconds: float) -> Exported:
    """Write what is in a pod's working directory as a packed tar, of paths relative to the root.

    The pod may run on; what changes meanwhile is in it as it was at some moment. The file is there whole, or not at all.

    Args:
        target: The file. One that is there is replaced.
        max_bytes: The most that the tar may have, before it is packed. What does not fit is left out.
        seconds: How long reading it may take. What has not come by then is left out.

    Raises:
        WorkspaceError: The image has nothing to make an archive with, its working directory can't be read or not in
            time, or the pod is gone.
        StorageError: The file can't be written.
    """
    command = [*_SH, _PACK, "hawk", box.options.working_dir or "", SANDBOX_TOOLS_DIR]
    repacking = Repacking(max_bytes)
    try:
        async with piped(target, repacking.run, repacking.stop, _executor()) as file:
            try:
                async with asyncio.timeout(seconds), box.stream(command) as output:
                    await _pass_on(output, repacking, file.write)
            except TimeoutError:
                if not repacking.begun:
                    raise WorkspaceError(f"it could not be kept within {seconds:.0f} s") from None
                repacking.cut(f"what had not come within {seconds:.0f} s is missing")
    except BoxGoneError as ex:
        raise WorkspaceError(f"its sandbox is gone: {ex}") from ex
    changes = repacking.changes
    skipped = (*changes.skipped[:_NOTES], *repacking.complaints)
    return Exported(changes.files, changes.bytes, file.size, skipped, changes.truncated)


async def _pass_on(output: ByteStream, repacking: Repacking, write: int) -> None:
    """From the stream into the pipe, no faster than what comes out of it is written.

    Raises:
        WorkspaceError: There was no archive.
    """
    directory, data = await _first_line(output)
    if directory is None:
        outcome = output.outcome.message if output.outcome is not None else ""
        said = (
            output.stderr.decode(errors="replace").strip()[-_WORDS:] or outcome or "no word came from the pod"
        )
        raise WorkspaceError(f"its working directory can't be read: {one_line(said, _WORDS)}")
    repacking.begin(directory)
    received = 0
    while data:
        writing = asyncio.ensure_future(asyncio.to_thread(_put_into, write, data))
        try:
            going_on = await asyncio.shield(writing)
        finally:
            await asyncio.wait([writing])  # the pipe is not closed under it
        received += len(data)
        if not going_on:
            return
        if received > 2 * repacking.max_bytes:
            repacking.cut(f"what came after {received:,} bytes was not looked at")
            return
        data = await output.read()
    code = output.outcome.code if output.outcome is not None else None
    if code == _NO_TAR:
        raise WorkspaceError(_NOTHING_TO_READ_WITH)
    if code != 0:
        lines = output.stderr.decode(errors="replace").splitlines()[-_COMPLAINTS:]
        repacking.complaints = [one_line(line, _WORDS) for line in lines]


async def _first_line(output: ByteStream) -> tuple[str | None, bytes]:
    """The directory's path, and what came after it."""
    data = b""
    while b"\n" not in data and len(data) <= _LONGEST_PATH and (more := await output.read()):
        data += more
    line, end, rest = data.partition(b"\n")
    if not end or not line.startswith(b"/"):
        return None, b""
    return line.decode("utf-8", "surrogateescape"), rest or await output.read()


def _put_into(fd: int, data: bytes) -> bool:
    """Write to a pipe. False when nobody reads any more."""
    try:
        write_all(fd, data)
    except BrokenPipeError:
        return False
    return True


def _executor() -> ThreadPoolExecutor:
    """Threads of their own: waiting for a slow pod must keep nobody else from the usual ones."""
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(_THREADS, "hawk-workspace")
    return _threads


async def put_back(box: PodBox, archive: Path, *, whole: bool, seconds: float) -> None:
    """Make a fresh pod's working directory what `keep_workspace` found in an earlier one.

    Args:
        whole: Nothing was left out of it. Else what it lacks may be there all the same, and nothing is deleted for that.
        seconds: How long it may take.

    Raises:
        RestoreError: The file can't be read, or the pod can't take what is in it. A part of it may be there.
    """
    command = [*_SH, _UNPACK, "hawk", box.options.working_dir or "", "whole" if whole else ""]
    try:
        done, _ = await box.run(
            command, stdin=_content(archive), user=CONTAINERS, timeout=seconds, limit=1 << 14
        )
    except (BoxGoneError, ExecTimeoutError, ZstdError, OSError) as ex:
        raise RestoreError(f"What was kept of its workspace can't be put back ({archive}): {ex}.") from ex
    if done.code == _NO_TAR:
        raise RestoreError("The sandbox's image has neither tar nor python to put its workspace back with.")
    if done.code:
        said = done.stderr.decode(errors="replace").strip()[-_WORDS:]
        raise RestoreError(f"What was kept of its workspace can't be put back ({archive}): {said}")


async def _content(archive: Path) -> AsyncIterator[bytes]:
    """What a packed file holds, bit by bit."""
    plain = await asyncio.to_thread(Plain, archive)
    try:
        while data := await asyncio.to_thread(plain.read, _CHUNK):
            yield data
    finally:
        plain.close()
