"""Stack records as text for a person: first where most attempts wait, then where, frame by frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from hawk.core.recorder.stacks import (
    RUNNING,
    Chain,
    Frame,
    StackRecord,
    Thread,
    Who,
    attempts_of,
    own_frame,
    waits,
)
from hawk.core.text import one_line

NAMED = 4
"""Attempts of one chain that are named; the others are counted."""

CHAINS = 12
"""Chains of one worker that are shown in full, unless all are asked for."""


def render(records: Sequence[StackRecord], *, everything: bool = False) -> str:
    """All records, the answer first.

    Args:
        everything: Every chain and every thread, also those that say nothing of an attempt's work.
    """
    parts = [headline(records), *("\n".join(_worker(record, everything)) for record in records)]
    return "\n\n".join(parts) + "\n"


def headline(records: Sequence[StackRecord]) -> str:
    """What holds a worker, and what most attempts of the others wait for: a line each."""
    held = [(record, thread) for record in records if (thread := record.blocked) is not None]
    lines = [
        f"Worker {record.worker}'s event loop is held{_for(record.loop_lag)} by {_innermost(thread.frames)}"
        f"{f' of {_name(thread.attempt)}' if thread.attempt else ''}: none of its attempts goes on."
        for record, thread in held
    ]
    others = [record for record in records if record.blocked is None]
    if others or not lines:
        lines.append(_most(others))
    return "\n".join(lines)


def _most(records: Sequence[StackRecord]) -> str:
    attempts = {who for record in records for who in attempts_of(record)}
    if not attempts:
        return "No attempt is in flight in any of these records."
    places: Counter[str] = Counter()
    for record in records:
        seen: dict[Who, str] = {}
        for chain in waits(record):
            for who in chain.attempts:
                seen.setdefault(who, _what(chain))
        places.update(seen.values())
    what, count = places.most_common(1)[0]
    return (
        f"{count} of {len(attempts)} attempts wait for {what}."
        if count > 1
        else (
            f"{len(attempts)} attempts, each waits for something else."
            if len(attempts) > 1
            else f"The attempt waits for {what}."
        )
    )


def _worker(record: StackRecord, everything: bool) -> Iterator[str]:
    when = _clock(record.at)
    state = f"as it is, {when}" if record.live else f"as it was last, {when}"
    yield f"worker {record.worker} (pid {record.pid}), {state}: {_state(record)}"
    if record.ended:
        yield f"  its process has ended: {one_line(record.ended, 300)}"
    for what, why in record.missing.items():
        yield f"  without {what}: {one_line(why, 300)}"
    if record.chains_at is not None:
        yield f"  await chains are of {_clock(record.chains_at)}"
    yield from _held(record)
    chains = waits(record)
    shown = record.chains if everything else chains[:CHAINS]
    for chain in shown:
        yield ""
        yield from _chain(chain)
    if len(chains) > len(shown):
        rest = sum(len(chain.attempts) for chain in chains[len(shown) :])
        yield f"\n  … and {len(chains) - len(shown)} more places where {rest} attempts wait (--all shows them)"
    threads = [t for t in record.threads if everything or _busy(t)]
    if threads:
        yield f"\n  threads{'' if everything else ' that are not idle'}, as {_source(record)}:"
    for thread in threads:
        yield from _thread(thread)


def _state(record: StackRecord) -> str:
    if record.blocked is not None:
        return f"its event loop is held{_for(record.loop_lag)}"
    count = len(attempts_of(record))
    return (
        f"{count} attempt{'' if count == 1 else 's'} in flight, {record.tasks} tasks; its event loop answers"
    )


def _held(record: StackRecord) -> Iterator[str]:
    thread = record.blocked
    if thread is None or not thread.frames:
        return
    own = own_frame(thread.frames)
    whose = f"  (attempt {_name(thread.attempt)})" if thread.attempt else ""
    yield f"  it executes {_frame(thread.frames[-1])}{whose}"
    if own is not None and own is not thread.frames[-1]:
        yield f"  called from {_frame(own)}"


def _chain(chain: Chain) -> Iterator[str]:
    names = ", ".join(_name(who) for who in chain.attempts[:NAMED])
    more = f" and {len(chain.attempts) - NAMED} more" if len(chain.attempts) > NAMED else ""
    count = len(chain.attempts) or chain.count
    noun = ("attempt" if chain.attempts else "task") + ("" if count == 1 else "s")
    yield f"  {count} {noun}: {_what(chain)}{f'  [{names}{more}]' if names else ''}"
    own = own_frame(chain.frames)
    for frame in chain.frames:
        yield f"    {'>' if frame is own else ' '} {_frame(frame)}"


def _thread(thread: Thread) -> Iterator[str]:
    marks = [
        mark
        for mark, on in (
            ("event loop", thread.loop),
            ("holds the interpreter", thread.gil),
            ("idle", thread.idle),
        )
        if on
    ]
    yield f"    {one_line(thread.name, 60)} ({thread.id}){': ' + ', '.join(marks) if marks else ''}"
    for frame in thread.frames:
        yield f"        {_frame(frame)}"


def _busy(thread: Thread) -> bool:
    """Not idle; the loop's own wait for events counts as idle, and is always there."""
    if thread.idle is not None:
        return not thread.idle
    return bool(thread.frames) and thread.frames[-1].function.rpartition(".")[2] not in (
        "select",
        "poll",
        "wait",
        "_worker",
    )


def _what(chain: Chain) -> str:
    if chain.awaits == RUNNING:
        return RUNNING
    if chain.label:
        return chain.label
    own = own_frame(chain.frames)
    last = chain.frames[-1]
    if own is not None and own is not last:
        return one_line(f"{last.function} in {own.place}")
    return one_line(f"{last.function} ({last.place})")


def _innermost(frames: Sequence[Frame]) -> str:
    frame = own_frame(frames) or (frames[-1] if frames else None)
    return f"{one_line(frame.function, 80)} ({one_line(frame.place, 120)})" if frame else "something unknown"


def _source(record: StackRecord) -> str:
    by = {"worker": "the worker sees them", "py-spy": "py-spy sees them", "faulthandler": "Python wrote them"}
    return by.get(record.threads_by, record.threads_by) + (", with native frames" if record.native else "")


def _for(seconds: float) -> str:
    return f" for {seconds:.0f} s" if seconds >= 1 else ""


def _clock(at: str) -> str:
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _frame(frame: Frame) -> str:
    return f"{one_line(frame.place, 120)}  {one_line(frame.function, 100)}"


def _name(who: Who) -> str:
    return one_line(who.name, 80)
