"""Which processes of this machine have pods in a cluster, noted on disk: so that whoever sweeps later knows the dead ones.

A guard deletes a dead worker's pods, unless it was killed with it (`hawk delete` ends everything that a job has started).
Nothing heavy here: the server and the supervisor look often.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from hawk.sandbox.names import LABELS, store_directory, store_path
from hawk.sandbox.pod.names import Owner, is_dead, this_host

GUARD = "from hawk.sandbox.pod.guard import main; main()"
"""What a guard runs. Arguments: namespace, token of the worker, its note."""

_CLUSTER = ("KUBECONFIG", "HAWK_KUBE_CONTEXT")


def note(owner: Owner, namespace: str) -> Path:
    """Write down that this process may have pods. Returns the note, to be removed when it has none any more."""
    folder = store_directory() / "pods"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"{owner.runner}.json"
    cluster = {name: os.environ[name] for name in _CLUSTER if name in os.environ}
    path.write_text(json.dumps({"process": owner.process, "namespace": namespace, "environ": cluster}))
    return path


def sweep(store: Path | None = None) -> list[str]:
    """Have the pods of dead processes deleted, by a process for each that nobody waits for.

    Args:
        store: Directory of the notes; this user's when left out.

    Returns:
        The tokens of the dead.
    """
    swept = []
    for path in sorted(((store or store_path()) / "pods").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):  # somebody else is quicker, or it is torn
            about = json.loads(path.read_text())
            if is_dead(about["process"], this_host()) is not True:
                continue
            mine = path.with_suffix(".swept")
            path.rename(mine)
            start(
                about["namespace"], path.stem, mine, about.get("environ", {}), stdin=subprocess.DEVNULL
            ).wait()
            swept.append(path.stem)
    return swept


def start(
    namespace: str, runner: str, path: Path, environ: dict[str, str], *, stdin: int
) -> subprocess.Popen[bytes]:
    """Start a guard: its first process ends at once, and leaves the second to whoever adopts it.

    Args:
        stdin: It acts when this ends without a word.
    """
    return subprocess.Popen(
        [sys.executable, "-c", GUARD, namespace, runner, str(path)],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**{name: value for name, value in os.environ.items() if name not in LABELS}, **environ},
        cwd="/",
        start_new_session=True,
    )
