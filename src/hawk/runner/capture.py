"""A worker's own stacks, taken by whichever thread of it asks: the event loop need not answer."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from datetime import UTC, datetime

from hawk.bridge import waiting
from hawk.core.recorder.stacks import StackRecord, Thread
from hawk.runner import awaits


class Capture:
    """Takes records of this process.

    Args:
        worker: Its index.
        who_of: Whose an asyncio task is, by its context.

    Attributes:
        loop: The event loop, as soon as there is one.
    """

    def __init__(self, worker: int, who_of: awaits.WhoOf) -> None:
        self._worker, self._who_of = worker, who_of
        self.loop: asyncio.AbstractEventLoop | None = None

    def record(self, why: str, loop_lag: float) -> StackRecord:
        """Every thread but the one that asks, and every await chain. Safe from any thread."""
        began = time.thread_time()
        record = StackRecord(
            at=datetime.now(UTC).isoformat(),
            worker=self._worker,
            pid=os.getpid(),
            why=why,
            threads=self._threads(),
            loop_lag=round(loop_lag, 1),
        )
        if self.loop is None:
            record.missing["await chains"] = "no task has started yet"
        else:
            record.chains, record.tasks = awaits.chains(self.loop, self._who_of)
            for chain in record.chains:
                chain.label, chain.helper = waiting.label(chain.frames), waiting.is_helper(chain.frames)
        record.cost_ms = round((time.thread_time() - began) * 1000, 2)
        return record

    def _threads(self) -> list[Thread]:
        known = {thread.ident: thread for thread in threading.enumerate()}
        loops = getattr(self.loop, "_thread_id", None)
        mine = threading.get_ident()
        found = []
        for ident, frame in sys._current_frames().items():
            if ident == mine:
                continue
            thread = known.get(ident)
            found.append(
                Thread(
                    name=thread.name if thread else "not Python's",
                    id=_kernel_id(thread),
                    frames=awaits.stack(frame),
                    loop=ident == loops,
                    attempt=awaits.current(self.loop, self._who_of) if ident == loops and self.loop else None,
                )
            )
        return sorted(found, key=lambda thread: (not thread.loop, thread.name))


def _kernel_id(thread: threading.Thread | None) -> int:
    """In a forked process the main thread still believes that it has the id it had before."""
    if thread is threading.main_thread():
        return os.getpid()
    return (thread.native_id if thread else None) or 0
