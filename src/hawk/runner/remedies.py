"""Remedies as a worker carries them out, asked over its control socket. Each may wait: they run on threads of their own.

Every function can be called again after it was interrupted: what has been done already is found done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hawk.bridge.control import (
    ControlBusy,
    ControlError,
    ControlGone,
    ControlRefused,
    ControlSocket,
    SampleRow,
)
from hawk.store.actions import Kept, Outcome

PATIENCE = 5.0
"""Seconds that one call may take: longer than a look's, since somebody waits for what comes of it."""

LETS_GO = 20.0
"""Seconds in which an attempt that is canceled must have ended; its sandbox is gone in five."""

POLL = 0.2

SPEAKS = 60.0
"""Seconds in which a worker that was started again answers at its socket: it imports first."""

OVER = ("drained", "already finished", "between attempts")
"""In what Inspect says when a task takes nothing more: the attempt was the last of it."""


@dataclass(frozen=True)
class Target:
    """An attempt that something is done to, as it was found."""

    uuid: str
    name: str
    identifier: str
    data_home: Path
    eval_id: str
    sample_id: str
    epoch: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.identifier, self.sample_id, self.epoch

    @property
    def socket(self) -> ControlSocket:
        return ControlSocket(self.data_home, PATIENCE)


def calls_in_flight(target: Target) -> list[str]:
    """Tool calls of an attempt to cancel: the oldest, and what was begun along with it.

    Raises:
        ControlError: Its worker does not say.
    """
    row = _row(target)
    calls = row.activity.calls if row is not None and row.activity is not None else None
    if not calls:
        return []
    now = time.time()
    ages = {call.id: now - call.started_at if call.started_at else 0.0 for call in calls}
    return [call for call, age in ages.items() if age >= max(ages.values()) / 2]


def cancel_tool_calls(target: Target, calls: Iterable[str]) -> Outcome:
    """Time tool calls of an attempt out."""
    ended, asked = [], list(calls)
    try:
        for call in asked:
            answer = target.socket.cancel_tool_call(target.eval_id, target.sample_id, target.epoch, call)
            if answer.get("changed") or "already requested" in str(answer.get("reason")):
                ended.append(str(answer.get("function") or "a tool"))
    except ControlError as ex:
        return Outcome(target.name, False, _why(ex))
    if not ended:
        return Outcome(target.name, False, "no tool call of it is in flight any more")
    return Outcome(
        target.name, True, f"{', '.join(ended)}: canceled; the agent is told that the call timed out"
    )


def score(target: Target) -> Outcome:
    """End an attempt and score what it has."""
    try:
        target.socket.cancel_sample(target.eval_id, target.sample_id, target.epoch, "score")
    except ControlError as ex:
        return Outcome(target.name, False, _why(ex))
    return Outcome(target.name, True, "it is ended and scored as it is")


def requeue(target: Target, again: set[tuple[str, str, int]]) -> Outcome:
    """End an attempt and run it again.

    Inspect takes it again in the live run while its task has others that have not ended. Where it was the last one,
    it stays in `again`, and its worker is started again for it once it has ended.

    Args:
        again: Attempts that are to run again though they were canceled.
    """
    again.add(target.key)  # before: its worker may end with it
    canceled = False
    try:
        # Inspect refuses `error` for an attempt that has retries left; a canceled one is taken again just the same.
        target.socket.cancel_sample(target.eval_id, target.sample_id, target.epoch, "cancel")
        canceled = True
        outcome = _taken_again(target)
    except ControlRefused as ex:
        if _over(ex) or (canceled and ex.fields.get("status") == 404):  # its task may be gone already
            return Outcome(
                target.name,
                True,
                "ended; it was the last of its task, so it runs again as soon as its worker is done",
            )
        outcome = Outcome(target.name, False, _why(ex))
    except ControlGone:  # it was the last of its worker, which has ended
        return Outcome(target.name, True, "ended, with its worker; it runs again in the next")
    except ControlError as ex:
        outcome = Outcome(target.name, False, _why(ex))
    again.discard(target.key)
    return outcome


def _over(ex: ControlRefused) -> bool:
    """Whether a refusal says that nothing of the attempt's task runs any more."""
    return ex.fields.get("status") == 409 and any(word in str(ex.fields.get("reason")) for word in OVER)


def _taken_again(target: Target) -> Outcome:
    """Ask for a canceled attempt again, until it has let go. Raises: ControlError."""
    deadline = time.monotonic() + LETS_GO
    while time.monotonic() < deadline:
        if target.socket.requeue(target.eval_id, target.sample_id, target.epoch).get("changed"):
            return Outcome(target.name, True, "ended, and begun again")
        time.sleep(POLL)
    return Outcome(
        target.name,
        False,
        f"it was told to end and has not within {LETS_GO:.0f} s: its code does not let itself be canceled. "
        "Restart its worker",
    )


def _row(target: Target) -> SampleRow | None:
    rows = target.socket.samples(target.eval_id)
    return next((row for row in rows if row.key == (target.sample_id, target.epoch)), None)


# --- a whole worker


def pause(name: str, data_home: Path, models: Iterable[str], *, hold: bool) -> Outcome:
    """Pause models in a worker, or all of it.

    Args:
        models: None of them: the whole worker.
        hold: Hold the model calls of attempts in flight as well.

    Raises:
        ControlError: It does not answer.
    """
    socket = ControlSocket(data_home, PATIENCE)
    return _of_each(name, models, "paused", lambda model: socket.pause(model, now=hold))


def resume(name: str, data_home: Path, models: Iterable[str]) -> Outcome:
    """Take a pause back. Raises: ControlError."""
    socket = ControlSocket(data_home, PATIENCE)
    return _of_each(name, models, "goes on", socket.resume)


def _of_each(name: str, models: Iterable[str], word: str, do: Callable[[str | None], object]) -> Outcome:
    done = []
    for model in _each(models):
        try:
            do(model)
        except ControlRefused as ex:
            if ex.fields.get("status") == 404:
                continue  # this worker has nothing to do with it
            return Outcome(name, False, _why(ex))
        done.append(model or "everything")
    return Outcome(name, True, f"{word}: {', '.join(done)}" if done else "does not use it")


def _each(models: Iterable[str]) -> list[str | None]:
    named: list[str | None] = list(models)
    return named or [None]


def retune(name: str, data_home: Path, settings: Mapping[str, int], *, by: str) -> Outcome:
    """Change settings of the model calls of a worker. Raises: ControlError."""
    socket = ControlSocket(data_home, PATIENCE)
    try:
        knobs: dict[str, int | str | None] = {
            **settings,
            "author": "hawk",
            "reason": f"asked by {by or 'nobody'}",
        }
        view = socket.patch_config(None, **knobs)
        warnings = [str(text) for text in view.get("warnings") or []]
        most = settings.get("max_connections")
        if most is not None and warnings and _set_connections(socket, view, most):
            warnings = []
    except ControlRefused as ex:
        return Outcome(name, False, _why(ex))
    said = ", ".join(f"{setting} is {value}" for setting, value in settings.items())
    return Outcome(name, not warnings, "; ".join(warnings) or said)


def _set_connections(socket: ControlSocket, view: Mapping[str, Any], most: int) -> bool:
    """Bound model calls where the eval set fixed their number: then each model has a lane of that name, with a slash."""
    lanes = [row for row in view.get("concurrency") or [] if "/" in str(row.get("name"))]
    for row in lanes:
        socket.patch_config(key=str(row["name"]), key_limit=most)
    return bool(lanes)


@dataclass(frozen=True)
class Limit:
    """Limits of the attempts of a task, by their names."""

    task_id: str
    task: str
    values: Mapping[str, int]


def raise_limits(data_home: Path, limits: Iterable[Limit], *, by: str) -> list[Outcome]:
    """Set limits of attempts. Raises: ControlError."""
    socket, done = ControlSocket(data_home, PATIENCE), []
    for limit in limits:
        what = ", ".join(f"{name} is {value:,}" for name, value in limit.values.items())
        try:
            knobs: dict[str, int | str | None] = {
                **limit.values,
                "author": "hawk",
                "reason": f"asked by {by or 'nobody'}",
            }
            view = socket.patch_config(limit.task_id, **knobs)
            warnings = "; ".join(map(str, view.get("warnings") or []))
            done.append(Outcome(limit.task, not warnings, warnings or what))
        except ControlRefused as ex:
            done.append(Outcome(limit.task, False, _why(ex)))
    return done


def wait_for(data_home: Path, enough: Callable[[], bool]) -> set[str]:
    """Tasks of a worker that may be just starting, once it answers; none: it has none yet.

    Args:
        enough: Whether it is not to be waited for that it has some.

    Raises:
        ControlError: It does not answer in time.
    """
    socket = ControlSocket(data_home, PATIENCE)
    deadline = time.monotonic() + SPEAKS
    while True:
        try:
            if (known := {row.task_id for row in socket.tasks()}) or enough():
                return known
        except ControlError:
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            return set()
        time.sleep(POLL)


def tell(
    name: str, data_home: Path, kept: Kept, limits: Iterable[Limit], models: Iterable[str]
) -> list[Outcome]:
    """Make a worker do what is set for the rest of the job, whatever it was told before.

    Args:
        models: All models of the job.

    Returns:
        What it refused.

    Raises:
        ControlError: It does not answer.
    """
    outcomes = []
    for model, hold in [(None, kept.paused), *((model, kept.models.get(model)) for model in models)]:
        named = [model] if model else []
        if hold is None:
            outcomes.append(resume(name, data_home, named))
        else:
            outcomes.append(pause(name, data_home, named, hold=hold))
    if kept.settings:
        outcomes.append(retune(name, data_home, kept.settings, by="an earlier request"))
    outcomes += raise_limits(data_home, limits, by="an earlier request")
    return [outcome for outcome in outcomes if not outcome.done]


def refused(name: str, ex: ControlError) -> Outcome:
    """What a failed call means for a person."""
    return Outcome(name, False, _why(ex))


def _why(ex: ControlError) -> str:
    """Why a worker did not do it, for a person."""
    if isinstance(ex, ControlBusy):
        return "its worker does not answer: its event loop does not turn. Restart the worker"
    if isinstance(ex, ControlGone):
        return "its worker has ended, or is just starting"
    if ex.fields.get("status") == 404:
        return (
            "it is not in its worker, which was started again: it begins there anew. Ask again once it runs"
        )
    return f"its worker refused: {ex.fields.get('reason') or ex.message}"
