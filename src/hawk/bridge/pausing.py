"""Holding a run before it begins: Inspect's latches are closed while nothing runs yet, so not one call slips through.

Told over its control socket, a worker would be paused only once it answers, and by then its attempts have begun.
Imports Inspect: for code that runs inside a worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from inspect_ai._control import pause


def hold_from_start(process: bool | None, models: Mapping[str, bool]) -> None:
    """Close the latches of this process; they are opened as any others, over the control socket.

    Args:
        process: Everything is paused, and whether model calls are held as well; None: it is not.
        models: Models that are paused, and whether their calls are held as well.
    """
    if process is not None:
        pause._process_gate.pause(process)
    for model, hold in models.items():
        pause._model_gate(model).pause(hold)
