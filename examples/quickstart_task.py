"""A coding eval for Inspect's own command: the sandbox is there wherever Hawk is installed.

    inspect eval examples/quickstart_task.py --sandbox bubblewrap
    inspect eval examples/quickstart_task.py --sandbox bubblewrap --model openai/gpt-5-mini

Without `--model` a script plays the agent: offline, and without a key.
"""

import sys
from pathlib import Path

from inspect_ai import Task, task, task_with
from inspect_ai.model import get_model

sys.path.insert(0, str(Path(__file__).resolve().parent / "coding"))

import scripted_model  # noqa: F401 - registers the provider
from coding import coding


@task
def quickstart(message_limit: int = 30) -> Task:
    """Twelve small Python problems.

    Args:
        message_limit: Messages after which an attempt is halted and scored as it is.
    """
    problems = coding(message_limit)
    if str(get_model()) == "none/none":
        task_with(problems, model=get_model("scripted/agent", drops=False))
    return problems
