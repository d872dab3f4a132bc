"""The same pairs under a bare `inspect eval-set`, everything at once: what Hawk is measured against."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.attempts_runs import TASKS, Course
from benchmarks.bars import Bar
from benchmarks.processes import BIN, environment, timed


def bare(base: Path, data: Course) -> Bar:
    """Its wall clock over the slowest attempt. No bar of ours: the row is there to be compared with."""
    tasks = base / "bare.py"
    names = list(dict.fromkeys(task for task, _ in data.pairs))
    tasks.write_text(
        f"import sys\nsys.path.insert(0, {str(TASKS.parents[1])!r})\n"
        "from inspect_ai import eval_set\nfrom benchmarks.replayed import replay\n"
        f"done, _ = eval_set([replay(name) for name in {names!r}], log_dir={str(base / 'bare-logs')!r}, epochs=2,\n"
        "    model=None, max_tasks=100, max_samples=474, max_sandboxes=474, max_subprocesses=474, display='none')\n"
        "sys.exit(0 if done else 1)\n"
    )
    env = environment(
        XDG_DATA_HOME=str(base / "data"), HAWK_HOME=str(base / "bare-home"), REPLAY_SCALE=str(data.scale)
    )
    took = timed([BIN / "python", tasks], {**env, "INSPECT_EVAL_MODEL": "none/none"}, cwd=base)
    print(f"  {took:.1f} s", file=sys.stderr, flush=True)
    note = f"{took:.1f} s against {data.slowest:.1f} s; to be compared with, no bar of ours"
    return Bar("bare Inspect, 474 at once / slowest attempt", took / data.slowest, float("inf"), "x", note)
