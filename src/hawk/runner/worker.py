"""A worker: one forked process that enumerates an eval set, or runs a share of its tasks.

It needs nobody: output goes to a file, its lock tells that it lives, `exit.json` tells how it ended, whoever
looks. Modes: `enumerate` writes `enumeration.json`; `run` runs the tasks of its selection to their end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from hawk.config.upstreams import TOKEN_VARIABLE, URL_VARIABLE
from hawk.core.plan import Limits
from hawk.runner.wire import ENUMERATE, ForkRequest
from hawk.runner.workerhome import Exit, Share, directory
from hawk.store import actions
from hawk.store.locks import hold
from hawk.store.rundir import JobSpec, RunDir, read_json, write_json


def main(request: ForkRequest) -> NoReturn:
    """Run as the worker of a request, to the end of the process."""
    run_dir = RunDir(Path(request.run_dir))
    home = directory(run_dir, request.mode, request.index)
    _detach(request, home)
    lock = hold(home / "lock")
    if lock is None:
        sys.exit(75)  # another process is this worker
    outcome = _run(request, run_dir, home)
    write_json(home / "exit.json", outcome)
    _leave(outcome.code)


def _leave(code: int) -> NoReturn:
    """End the process after its exit handlers, without taking the interpreter apart.

    Freeing some thousand modules takes a second or two, and a thread that never ends would keep the process.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _detach(request: ForkRequest, home: Path) -> None:
    """Leave the zygote behind: session, signals, environment, directory, output."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.environ)
    os.chdir(request.cwd)
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(home / "output.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)


def _run(request: ForkRequest, run_dir: RunDir, home: Path) -> Exit:
    from hawk.bridge.live import PrerequisiteError
    from hawk.errors import HawkError

    try:
        spec = run_dir.read_spec()
        _reach_models()
        if request.mode == ENUMERATE:
            _enumerate(spec, run_dir, home)
        else:
            _work(spec, request, run_dir, home)
    except KeyboardInterrupt:
        return _exit(130, "interrupted", "KeyboardInterrupt")
    except SystemExit as ex:
        code = ex.code if isinstance(ex.code, int) else (0 if ex.code is None else 1)
        return _exit(code, "" if code == 0 else f"the definition exited with {ex.code!r}")
    except (PrerequisiteError, HawkError) as ex:
        return _exit(2, _plain(str(ex)), type(ex).__name__, getattr(ex, "remedy", None) or "")
    except BaseException as ex:
        sys.excepthook(type(ex), ex, ex.__traceback__)
        return _exit(1, f"{type(ex).__name__}: {_plain(str(ex))}".rstrip(": "), type(ex).__name__)
    return _exit(0)


def _reach_models() -> None:
    """Let every request to the middleman say which attempt it is of."""
    url, token = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    if url and token:
        from hawk.bridge.attribution import attribute

        attribute(url, token)


def _enumerate(spec: JobSpec, run_dir: RunDir, home: Path) -> None:
    from hawk.bridge.capture import enumerate_eval_set

    result = enumerate_eval_set(
        lambda: _define(spec, run_dir, Limits()), run_dir.logs, Path(os.environ["INSPECT_EVAL_SET_CAPTURE"])
    )
    write_json(home / "enumeration.json", result)


def _work(spec: JobSpec, request: ForkRequest, run_dir: RunDir, home: Path) -> None:
    from hawk.bridge import leftbuffers, retries, sandboxtrace, tracefile
    from hawk.bridge.attempts import watch
    from hawk.bridge.pausing import hold_from_start
    from hawk.runner.evidence import Evidence
    from hawk.runner.recorder import Recorder

    plan, share = run_dir.read_plan(), read_json(home / "worker.json", Share)
    kept = actions.read_kept(run_dir, spec.generation)
    hold_from_start(kept.paused, kept.models)
    tracefile.install(home)  # before the first heartbeat: it looks at the last one of the process before
    sandboxtrace.install()
    leftbuffers.install()
    Recorder(home, Path(os.environ["XDG_DATA_HOME"]), request.index).start()
    retries.record(run_dir.path / "spans" / f"worker-{request.index}.jsonl")
    if spec.rescore is not None:
        from hawk.runner.restoring import watch_restored

        watch_restored(run_dir, plan, share, request.index)
    elif plan is not None and share is not None:
        watch(Evidence(run_dir, plan, share, request.index))
    _define(spec, run_dir, plan.limits if plan else Limits())


def _define(spec: JobSpec, run_dir: RunDir, limits: Limits) -> None:
    from hawk.bridge.definition import run_definition, run_script

    if spec.script is not None:
        run_script(Path(spec.script), [])
    else:
        run_definition(
            spec.config,
            job_id=spec.job_id,
            base_dir=spec.base_dir,
            log_dir=str(run_dir.logs),
            defaults={
                "max_retries": limits.max_retries,
                "attempt_timeout": limits.attempt_timeout,
                "retry_on_error": limits.retry_on_error,
            },
            prices=read_json(run_dir.prices_file, dict[str, dict[str, float]]) or {},
        )


def _exit(code: int, reason: str = "", kind: str = "", remedy: str = "") -> Exit:
    return Exit(code=code, at=datetime.now(UTC).isoformat(), reason=reason[:2000], kind=kind, remedy=remedy)


def _plain(text: str) -> str:
    """One line without Inspect's console markup."""
    return " ".join(text.replace("[bold]", "").replace("[/bold]", "").split())
