"""Which files of a run directory belong to one worker, where that worker has a pod, and so a copy, of its own.

What describes the job is the supervisor's, and given once, at the beginning; what the worker produces is its own from there
on. Everything else is not its business and is not carried.
"""

from __future__ import annotations

from collections.abc import Collection

from hawk.link import rules

_OF_THE_JOB = frozenset({"job.json", "plan.json", "prices.json", "settings.json", rules.SOURCE})
_TOLD = ("selection.json", "worker.json")
_BUFFER = "logs/.buffer/"


class WorkerShare:
    """Of one worker.

    Args:
        index: Of the worker.
        pairs: Directories of the attempts (`Pair.directory`) of its tasks; None: there are no others' here.
        logs: File names of the logs that it resumes from.
    """

    def __init__(self, index: int, pairs: Collection[str] | None = None, logs: Collection[str] = ()) -> None:
        self.index = index
        self._home = f"workers/{index}"
        self._pairs, self._logs = pairs, frozenset(logs)
        self._buffers = frozenset(name.removesuffix(".eval") for name in logs)

    def writes(self, path: str) -> bool:
        """Whether the worker writes a file, and so sends it."""
        top, _, rest = path.partition("/")
        match top:
            case "workers":
                return path.startswith(f"{self._home}/") and rest.partition("/")[2] not in _TOLD
            case "logs":
                return bool(rest)
            case "attempts":
                return self._pairs is None or rest.partition("/")[0] in self._pairs
            case "spans":
                return path == f"spans/worker-{self.index}.jsonl"
        return False

    def given(self, path: str) -> bool:
        """Whether it needs a file to begin."""
        if path in _OF_THE_JOB or path.startswith(f"{self._home}/"):
            return True
        if path.startswith(_BUFFER):
            return path.removeprefix(_BUFFER).partition("/")[0] in self._buffers
        if path.startswith("logs/"):
            return path.removeprefix("logs/") in self._logs
        return self.writes(path) and rules.wanted_to_begin(path)

    def concerns(self, path: str) -> bool:
        """Whether it has to do with a file at all."""
        return self.given(path) or self.writes(path)

    def enters(self, directory: str) -> bool:
        """Whether there may be such files in a directory."""
        top, _, rest = directory.partition("/")
        if not rules.enters(directory):
            return False
        match top:
            case "" | "logs" | "spans":
                return True
            case "workers":
                return not rest or directory == self._home or directory.startswith(f"{self._home}/")
            case "attempts":
                return not rest or self._pairs is None or rest.partition("/")[0] in self._pairs
        return False
