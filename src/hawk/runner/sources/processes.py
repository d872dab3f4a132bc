"""What runs in the sandboxes of attempts that wait for a command: whether it works, or what it sleeps in.

Commands in bubblewrap sandboxes are processes of this machine, and are found by their pid namespace. Those that a worker
starts itself (`sandbox: local`) are its children. What runs in a container or a pod can't be seen from here.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hawk.core.diagnosis.causes import Source
from hawk.core.diagnosis.evidence import Attempt, Evidence, Process
from hawk.core.states import ActivityType
from hawk.core.text import one_line
from hawk.runner.sources.context import Context
from hawk.runner.sources.proctable import ProcessTable, Stat, is_first, read_command, read_io, read_stat
from hawk.runner.sources.sleeping import sleeps_in

WAITED = 5.0
"""Seconds for which an attempt has waited before anybody looks: most commands are over by then."""

PERIOD, SHARE = 4.0, 100.0
"""Seconds between looks, or as many more as keep them below 1/SHARE of a core."""

MOST = 2000
"""Processes that one look reads more of than their parent."""

SHOWN = 6
"""Processes of one attempt in the evidence."""

MOVED = 0.02
"""Share of a core above which a command works: a loop that looks around twice a second stays below."""

_CLIENTS = frozenset({"docker", "docker-compose", "podman", "kubectl", "nerdctl", "ssh"})
"""Programs that only hand a command on: what they sleep in says nothing of it."""

_TICK = float(os.sysconf("SC_CLK_TCK"))
_WAITING = (ActivityType.TOOL, ActivityType.SANDBOX, ActivityType.SCORING, ActivityType.SOLVER)
_BOUND = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(slots=True)
class _Node:
    """A process at one look."""

    pid: int
    stat: Stat
    children: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.stat.start


@dataclass(slots=True)
class _Watched:
    """A command, with all that it started, between looks. `moved`: when it last did anything; monotonic."""

    at: float
    used: float
    io: int
    members: frozenset[tuple[int, int]]
    moved: float
    busy: float = 0.0
    rate: float = 0.0


class ProcessReader:
    """See the module."""

    source = Source.SANDBOX

    def __init__(self) -> None:
        self._table = ProcessTable()
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._last: dict[tuple[str, str, int], list[Process]] = {}
        self._missing = ""
        self._next = 0.0

    def fill(self, evidence: Evidence, context: Context) -> None:
        wanted = [attempt for attempt in evidence.attempts if _waits(attempt, context)]
        if not wanted:
            self._watched, self._last = {}, {}
            return
        if time.monotonic() >= self._next:
            began = time.thread_time()
            self._look(wanted, [worker.pid for worker in context.workers])
            self._next = time.monotonic() + max(PERIOD, SHARE * (time.thread_time() - began))
        for attempt in wanted:
            attempt.processes = self._last.get(_key(attempt), [])
        if self._missing:
            evidence.missing[self.source] = self._missing

    def _look(self, wanted: Sequence[Attempt], workers: Sequence[int]) -> None:
        now, booted = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        labels: dict[str, list[str]] = {}
        by_label = self._table.look()
        for label in by_label:
            labels.setdefault(label.rpartition(".")[0] or label, []).append(label)
        watched: dict[tuple[int, int], _Watched] = {}
        self._last = {}
        left = MOST
        local = _Local(self._table, workers)
        unseen = 0
        for attempt in wanted:
            its: list[tuple[str, dict[int, _Node]]] = []
            if attempt.sandbox is not None:
                base = attempt.sandbox.label.rpartition(".")[0] or attempt.sandbox.label
                for label in labels.get(base, ()):
                    nodes = _nodes(by_label[label][:left])
                    left -= len(nodes)
                    its.append((label.rpartition(".")[2], nodes))
                unseen += not its
            else:
                found, handed_on = local.of(attempt)
                its, unseen = ([("default", found)] if found else []), unseen + handed_on
            rows = [p for service, nodes in its for p in self._rows(service, nodes, watched, now, booted)]
            rows.sort(key=lambda process: (process.background, bool(process.service), process.age))
            self._last[_key(attempt)] = rows[:SHOWN]
        self._watched = watched
        self._missing = self._why_missing(unseen)

    def _why_missing(self, unseen: int) -> str:
        if not unseen:
            return ""
        if self._table.closed:
            return f"what runs in {unseen} sandboxes can't be seen: this user may not look at their processes"
        return f"what runs in {unseen} sandboxes can't be seen from this machine's processes"

    def _rows(
        self,
        service: str,
        nodes: Mapping[int, _Node],
        watched: dict[tuple[int, int], _Watched],
        now: float,
        booted: float,
    ) -> Iterator[Process]:
        """The leaves of one sandbox; what they do is measured on the whole command."""
        for root in nodes.values():
            if root.stat.parent in nodes or root.stat.state in "ZX" or _is_init(root, nodes):
                continue
            members = list(_below(root, nodes))
            seen = self._measure(root, members, now)
            watched[root.key] = seen
            yield from _leaves(members, nodes, seen, service, now, booted, background=False)
        for init in nodes.values():
            if not _is_init(init, nodes):
                continue
            for child in init.children:
                members = list(_below(nodes[child], nodes))
                seen = self._measure(nodes[child], members, now)
                watched[nodes[child].key] = seen
                yield from _leaves(members, nodes, seen, service, now, booted, background=True)

    def _measure(self, root: _Node, members: Sequence[_Node], now: float) -> _Watched:
        used = sum(node.stat.used if node is root else node.stat.own for node in members) / _TICK
        io = sum(read_io(node.pid) for node in members[:50])
        keys = frozenset(node.key for node in members)
        before = self._watched.get(root.key)
        if before is None:
            return _Watched(now, used, io, keys, now)
        past = max(now - before.at, 0.001)
        busy, rate = max(0.0, used - before.used) / past, max(0, io - before.io) / past
        moved = busy > MOVED or rate > 0 or keys != before.members
        return _Watched(now, used, io, keys, now if moved else before.moved, busy, rate)


class _Local:
    """Commands that workers started themselves, told apart by their command line."""

    def __init__(self, table: ProcessTable, workers: Sequence[int]) -> None:
        self._table, self._workers = table, set(workers)
        self._nodes: dict[int, _Node] | None = None

    def of(self, attempt: Attempt) -> tuple[dict[int, _Node], bool]:
        """The processes of an attempt's command; whether it is in a container or elsewhere instead."""
        lines = [call.detail for call in attempt.calls if call.action == "Subprocess"]
        if not lines:
            return {}, any(call.action == "Sandbox Exec" for call in attempt.calls)
        if self._nodes is None:
            self._nodes = _nodes(self._table.outside())
        for pid, node in self._nodes.items():
            if node.stat.parent not in self._workers:
                continue
            words = read_command(pid)
            if not words or one_line(shlex.join(words), 300) not in lines:
                continue
            if words[0].rpartition("/")[2] in _CLIENTS:
                return {}, True
            return {member.pid: member for member in _below(node, self._nodes)}, False
        return {}, False


def _waits(attempt: Attempt, context: Context) -> bool:
    if attempt.activity not in _WAITING or (attempt.idle is not None and attempt.idle < WAITED):
        return False
    if attempt.activity is ActivityType.SOLVER and attempt.sandbox is None:
        return False
    try:
        then = time_of(attempt.since)
    except ValueError:
        return True
    return then is None or context.now.timestamp() - then > WAITED


def time_of(text: str | None) -> float | None:
    """Seconds since the epoch. Raises: ValueError for nonsense."""
    from datetime import datetime

    return None if text is None else datetime.fromisoformat(text).timestamp()


def _key(attempt: Attempt) -> tuple[str, str, int]:
    return attempt.task, attempt.sample, attempt.epoch


def _nodes(pids: Sequence[int]) -> dict[int, _Node]:
    nodes = {pid: _Node(pid, stat) for pid in pids if (stat := read_stat(pid)) is not None}
    for node in nodes.values():
        if node.stat.parent in nodes:
            nodes[node.stat.parent].children.append(node.pid)
    return nodes


def _is_init(node: _Node, nodes: Mapping[int, _Node]) -> bool:
    """The first process of a sandbox, which sleeps for ever and is given what commands leave behind."""
    return node.stat.parent not in nodes and is_first(node.pid)


def _below(root: _Node, nodes: Mapping[int, _Node]) -> Iterator[_Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += [nodes[child] for child in node.children]


def _leaves(
    members: Sequence[_Node],
    nodes: Mapping[int, _Node],
    seen: _Watched,
    service: str,
    now: float,
    booted: float,
    *,
    background: bool,
) -> Iterator[Process]:
    deadline = _deadline(members, booted)
    leaves = [node for node in members if not node.children and node.stat.state not in "ZX"]
    for node in leaves[:SHOWN]:
        words = read_command(node.pid)
        if not words:
            continue
        yield Process(
            command=one_line(" ".join(words), 200),
            state=node.stat.state,
            waits="" if node.stat.state == "R" else sleeps_in(node.pid),
            age=round(max(0.0, booted - node.stat.start / _TICK), 1),
            cpu=round(node.stat.own / _TICK, 2),
            busy=round(seen.busy, 3),
            io=round(seen.rate, 1),
            quiet=round(now - seen.moved, 1),
            deadline=deadline,
            background=background,
            service="" if service == "default" else one_line(service, 60),
        )


def _deadline(members: Sequence[_Node], booted: float) -> float | None:
    """Seconds left of a `timeout N` among the members of a command."""
    found: list[float] = []
    for node in members[:20]:
        if not node.children:
            continue
        words = read_command(node.pid, 512)
        if not words or words[0].rpartition("/")[2] != "timeout":
            continue
        bound = next((match for word in words[1:] if (match := _BOUND.fullmatch(word))), None)
        if bound is not None:
            found.append(float(bound[1]) * _UNITS[bound[2]] - (booted - node.stat.start / _TICK))
    return round(min(found), 1) if found else None
