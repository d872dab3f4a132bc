"""Putting files into a sandbox, and taking the agent's processes out of it."""

from __future__ import annotations

import errno
import posixpath
import secrets
from base64 import b64encode

from inspect_ai.util import SandboxEnvironment, SandboxUserUnsupportedError

from hawk.evals.errors import ScorerError
from hawk.evals.folder import FolderEval
from hawk.evals.tree import Tree
from hawk.evals.verdict import end_of
from hawk.sandbox.provider import BubblewrapSandbox

START_TIMEOUT = 600
"""Seconds that the `start` commands of an eval may take."""

_PATIENCE = 60  # seconds for commands that take none
_ARRANGE = """
count=$1; shift
while [ "$count" -gt 0 ]; do chmod +x -- "$1" || exit 1; shift; count=$((count - 1)); done
while [ $# -gt 0 ]; do
  mkdir -p -- "$(dirname -- "$2")" && ln -sfn -- "$1" "$2" || exit 1
  shift 2
done
"""
"""What writing files leaves out: who may run them, and links. Arguments: n, n executables, then (target, link)s."""

_NO_ROOM = ("No space left on device", "Disk quota exceeded")


class NoRoomError(Exception):
    """The agent has filled its sandbox so that nothing can be put in any more."""


async def lay(tree: Tree, sandbox: SandboxEnvironment, directory: str = "") -> None:
    """Write files as they are on disk.

    Args:
        directory: Where to; relative to the workspace, which is the default.

    Raises:
        RuntimeError: A command in the sandbox failed.
        OSError: A file can't be written.
    """
    for name, file in tree.files.items():
        await sandbox.write_file(posixpath.join(directory, name), file.content)
    await arrange(tree.executables, tree.links, sandbox, directory)


async def arrange(
    executables: list[str], links: dict[str, str], sandbox: SandboxEnvironment, directory: str = ""
) -> None:
    """Make files executable and make links, where the files themselves are written already.

    Raises:
        RuntimeError: It did not work; says what the command said.
    """
    if not executables and not links:
        return
    pairs = [word for name, target in links.items() for word in (target, name)]
    command = ["sh", "-c", _ARRANGE, "sh", str(len(executables)), *executables, *pairs]
    done = await sandbox.exec(command, cwd=directory or None, timeout=_PATIENCE)
    if not done.success:
        raise RuntimeError(f"The eval's files could not be put in order: {done.stderr.strip()[-500:]}")


async def begin(eval: FolderEval, sandbox: SandboxEnvironment) -> None:
    """Do what is left to do before an attempt begins, when the files of `local/` are written.

    Raises:
        RuntimeError: The eval's `start` failed, or took too long.
    """
    await arrange(eval.local.executables, eval.local.links, sandbox)
    if eval.front.start is None:
        return
    try:
        done = await sandbox.exec(["sh", "-c", eval.front.start], timeout=START_TIMEOUT, timeout_retry=False)
    except TimeoutError:
        raise RuntimeError(f"`start` of {eval.name} did not end within {START_TIMEOUT} s") from None
    if not done.success:
        said = end_of(f"{done.stdout}\n{done.stderr}")
        raise RuntimeError(f"`start` of {eval.name} ended with {done.returncode}: {said}".rstrip(": "))


def data_uris(tree: Tree) -> dict[str, str]:
    """Files as Inspect's `Sample.files` takes them, whatever bytes they hold."""
    # Inspect takes what stands before a colon for the sandbox's name
    return {
        f"default:{name}" if ":" in name else name: (
            f"data:application/octet-stream;base64,{b64encode(file.content).decode()}"
        )
        for name, file in tree.files.items()
    }


def workspace_of(sandbox: SandboxEnvironment) -> str:
    """Where commands start, as an absolute path; empty where the provider does not say."""
    ours = _as_ours(sandbox)
    return "" if ours is None else ours.box.workspace


def _as_ours(sandbox: SandboxEnvironment) -> BubblewrapSandbox | None:
    try:
        return sandbox.as_type(BubblewrapSandbox)
    except TypeError:
        return None


# All but itself, and but the first, which no signal from inside reaches. What is killed does nothing more, but is still
# seen until it gets a processor to end on.
_END_PROCESSES = """
kill -9 -1
n=0
while [ $n -lt 100 ]; do
  living=
  for p in /proc/[0-9]*; do
    case $p in /proc/1 | /proc/$$) continue ;; esac
    { read -r row < $p/stat; } 2>/dev/null || continue
    case ${row##*") "} in [ZX]*) ;; *) living=$p ;; esac
  done
  [ -n "$living" ] || exit 0
  sleep 0.02 2>/dev/null || { sleep 1; n=$((n + 49)); }
  n=$((n + 1))
done
exit 0
"""


async def end_processes(sandbox: SandboxEnvironment) -> None:
    """Kill what the agent has left running, which could watch for the hidden tests and read them, and see it end.

    Only where all processes of a sandbox are certain to be its own: in ours.
    """
    if _as_ours(sandbox) is None:
        return
    command = ["sh", "-c", _END_PROCESSES]
    try:
        if (await sandbox.exec(command, cwd="/", user="root", timeout=_PATIENCE)).success:
            return
    except SandboxUserUnsupportedError:
        pass
    await sandbox.exec(command, cwd="/", timeout=_PATIENCE)  # there is no other user than the agent's


async def private_directory(sandbox: SandboxEnvironment) -> str:
    """A directory outside the workspace whose name nobody could foresee.

    Raises:
        NoRoomError: There is no room for it.
        ScorerError: It can't be made.
    """
    path = f"/tmp/hawk-{secrets.token_hex(12)}"  # noqa: S108 - of the sandbox
    done = await sandbox.exec(["mkdir", "-m", "700", "--", path], cwd="/", timeout=_PATIENCE)
    if done.success:
        return path
    said = done.stderr.strip()[-500:]
    if any(sign in said for sign in _NO_ROOM):
        raise NoRoomError(said)
    raise ScorerError(f"no place for the scorer's files can be made in the sandbox: {said}")


async def lay_privately(tree: Tree, sandbox: SandboxEnvironment) -> str:
    """Put a scorer's files where the agent could not expect them; the directory.

    Raises:
        NoRoomError: There is no room for them.
        ScorerError: They can't be put there.
    """
    directory = await private_directory(sandbox)
    try:
        await lay(tree, sandbox, directory)
    except (OSError, RuntimeError) as ex:
        full = getattr(ex, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if full or any(sign in str(ex) for sign in _NO_ROOM):
            raise NoRoomError(str(ex)) from ex
        raise ScorerError(f"the scorer's files can't be put into the sandbox: {ex}") from ex
    return directory
