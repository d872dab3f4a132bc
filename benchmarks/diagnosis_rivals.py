"""The same scenario, side by side: what `hawk diagnose`, `inspect ctl task list`, `inspect trace anomalies` and
`steward status` say of it. Printed, not judged."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from tests.faults.lab.__main__ import chosen
from tests.faults.lab.lab import Lab
from tests.faults.lab.trial import Trial

from benchmarks.bars import Bar, missing
from benchmarks.processes import BIN, environment
from benchmarks.reference import cache
from hawk.runner.datahome import link_path

SCENARIOS = ("synchronous-sleep", "command-sleeps", "rate-limit-with-a-date")
VERSION = "0.2.11"
PYTHONS = (
    "python3.13",
    "python3.12",
    "~/.pyenv/versions/3.13*/bin/python",
    "~/.pyenv/versions/3.12*/bin/python",
)
SHOWN = 25
"""Lines of an answer."""

LOOKED = 40.0
"""Seconds for which steward's run is left alone before it is asked: longer than our verdict took."""

EVALSET = """\
from inspect_ai import eval_set
from {module} import {task}

eval_set(tasks=[{task}(**{args!r})], model={model!r}, log_dir="logs", sandbox={sandbox!r}, max_retries=100)
"""


def show(options: argparse.Namespace) -> list[Bar]:
    """Run the scenarios one by one, and ask each rival while the fault is there."""
    try:
        steward: Path | None = _steward()
    except RuntimeError as ex:
        steward, why = None, str(ex)
    for name in SCENARIOS:
        lab = Lab(options.seed, jobs=1, deaths=False, seen=lambda trial: _ask_all(trial, steward))
        lab.run(chosen(name))
    if steward is None:
        return [missing("steward, side by side", 0, "", why, needed=False)]
    return []


def _ask_all(trial: Trial, steward: Path | None) -> None:
    print(f"\n=== {trial.scenario.name}: {trial.scenario.cause} ===")
    system = trial.room.system
    diagnosed = system.hawk("diagnose", trial.job, check=False)
    _print("hawk diagnose", diagnosed.stdout + diagnosed.stderr)
    home = system.run_dir(trial.job).worker(0)
    data = environment(XDG_DATA_HOME=str(link_path(system.links, home)))
    _print("inspect ctl task list --json", _said([BIN / "inspect", "ctl", "task", "list", "--json"], data))
    trace = next(iter(sorted(home.glob("trace*.jsonl"))), home / "trace.jsonl")
    _print("inspect trace anomalies", _said([BIN / "inspect", "trace", "anomalies", trace], data))
    if steward is None:
        print("--- steward status: NOT SHOWN, it can't be installed here")
    else:
        with tempfile.TemporaryDirectory(prefix="hks-", ignore_cleanup_errors=True) as folder:
            _print(f"steward status (after {LOOKED:.0f} s)", _of_steward(trial, steward, Path(folder)))


def _said(
    command: list[str | Path], env: dict[str, str], cwd: Path | None = None, timeout: float = 120
) -> str:
    words = [str(word) for word in command]
    began = time.monotonic()
    try:
        done = subprocess.run(
            words, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"(no answer within {timeout:g} s)"
    return f"{done.stdout}{done.stderr}\n({time.monotonic() - began:.1f} s, exit code {done.returncode})"


def _print(name: str, text: str) -> None:
    lines = [line[:200] for line in text.strip().splitlines()]
    print(f"--- {name}")
    print("\n".join(lines[:SHOWN]))
    if len(lines) > SHOWN:
        print(f"… and {len(lines) - SHOWN} lines more")


# --- steward


def _steward() -> Path:
    """Its environment, made once and kept.

    Raises:
        RuntimeError: It can't be installed here.
    """
    home = cache() / f"steward-{VERSION}"
    if (home / ".installed").exists():
        return home
    python = _python()
    print(f"Installing inspect-steward {VERSION} into {home} (once) …", file=sys.stderr, flush=True)
    for command in (
        [python, "-m", "venv", home],
        [home / "bin" / "python", "-m", "pip", "install", "-qq", f"inspect-steward=={VERSION}", "openai"],
    ):
        done = subprocess.run([str(w) for w in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"inspect-steward {VERSION} can't be installed: {done.stderr.strip()[-300:]}")
    (home / ".installed").touch()
    return home


def _python() -> Path:
    """One that it runs on: 3.12 or newer."""
    for pattern in PYTHONS:
        expanded = Path(pattern).expanduser()
        if "*" in pattern:
            found = sorted(expanded.parent.parent.parent.glob(f"{expanded.parent.parent.name}/bin/python"))
        else:
            found = [expanded]
        for candidate in found:
            check = "import sys; sys.exit(sys.version_info < (3, 12))"
            try:
                if not subprocess.run(
                    [str(candidate), "-c", check], capture_output=True, check=False
                ).returncode:
                    return candidate
            except OSError:
                continue
    raise RuntimeError("inspect-steward needs Python 3.12 or newer, and there is none on this machine")


def _of_steward(trial: Trial, home: Path, folder: Path) -> str:
    """What it says of the same task, with the same provider, in a workspace of its own."""
    item: dict[str, Any] = trial.case.config["tasks"][0]["items"][0]
    gate = folder / "gate"
    gate.mkdir()
    (folder / trial.bench.file.name).write_text(trial.bench.file.read_text())
    (folder / "evalset.py").write_text(
        EVALSET.format(
            module=trial.bench.file.stem,
            task=item["name"],
            args={**item["args"], "gate": str(gate)},
            model=trial.bench.models[0].name,
            sandbox="local" if "sandbox" in trial.case.config else None,
        )
    )
    env = {
        **environment(HOME=str(folder), XDG_DATA_HOME=str(folder / "d"), INSPECT_DISPLAY="none"),
        **trial.case.secrets,
        **{
            f"GIT_{who}_{what}": "lab@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    for command in (
        ["init", "."],
        ["launch", "--no-timer", "--no-notification", "--no-scan-model", "evalset.py"],
    ):
        said = _said([home / "bin" / "steward", *command], env, folder, 600)
        if "exit code 0" not in said:
            return f"steward {shlex.join(command)} failed:\n{said}"
    try:
        time.sleep(LOOKED)
        return _said([home / "bin" / "steward", "status"], env, folder, 180)
    finally:
        _end(folder)


def _end(folder: Path) -> None:
    """Kill what steward left running: its workers are detached."""
    for process in psutil.process_iter():
        try:
            mine = process.pid != os.getpid() and process.environ().get("HOME") == str(folder)
        except (psutil.Error, OSError):
            continue
        if mine:
            process.send_signal(signal.SIGKILL)
