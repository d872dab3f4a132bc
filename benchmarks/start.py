"""How long the command takes to start, against the public `hawk` and against `inspect`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.bars import Bar, missing
from benchmarks.processes import BIN, environment, timed
from benchmarks.reference import VERSION, public_hawk

FORBIDDEN = ("inspect_ai", "fastapi", "sqlalchemy", "httpx", "pydantic", "msgspec", "rich")
IMPORTS = """
import sys
from hawk.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sorted(set(name.partition(".")[0] for name in sys.modules)), file=sys.stderr)
"""


def measure(rounds: int) -> list[Bar]:
    commands: dict[str, Path] = {"hawk": BIN / "hawk", "inspect": BIN / "inspect"}
    absent: Bar | None = None
    try:
        commands["public"] = public_hawk()
    except RuntimeError as ex:
        absent = missing("hawk --help / public hawk", 1 / 3, "x", str(ex))
    times = _interleaved(commands, rounds)
    ours = median(times["hawk"])
    against_public = absent or Bar(
        "hawk --help / public hawk",
        _ratio(times["hawk"], times["public"]),
        1 / 3,
        "x",
        f"{ours * 1000:.0f} ms against {median(times['public']) * 1000:.0f} ms of hawk {VERSION}, {rounds} rounds",
    )
    against_inspect = Bar(
        "hawk --help / inspect --help",
        _ratio(times["hawk"], times["inspect"]),
        1 / 10,
        "x",
        f"{ours * 1000:.0f} ms against {median(times['inspect']) * 1000:.0f} ms, {rounds} rounds",
    )
    return [against_public, against_inspect, _hygiene()]


def _interleaved(commands: dict[str, Path], rounds: int) -> dict[str, list[float]]:
    """Each command in turn, so that what else the machine does hits all alike. The first round only warms up."""
    env = environment()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(rounds + 1):
        for name, command in commands.items():
            took = timed([command, "--help"], env)
            if i:
                times[name].append(took)
    return times


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _hygiene() -> Bar:
    """Packages on the path of `hawk --help` that do not belong there."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = sorted(set(done.stderr.split()) & set(FORBIDDEN))
    return Bar(
        "heavy imports of hawk --help",
        len(found),
        0,
        "",
        ", ".join(found) or f"none of {', '.join(FORBIDDEN)}",
    )
