"""What Hawk brings to Inspect: loaded by its entry point, so that bare Inspect knows `hawk/folder_evals` too."""

from hawk.evals.scorer import verdict
from hawk.evals.task import folder_evals, prepare, shell_agent
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.provider import BubblewrapSandbox

__all__ = ["BubblewrapSandbox", "PodSandbox", "folder_evals", "prepare", "shell_agent", "verdict"]
