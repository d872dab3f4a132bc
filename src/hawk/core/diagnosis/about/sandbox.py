"""Causes that lie with sandboxes."""

from hawk.core.diagnosis.about.table import Table
from hawk.core.diagnosis.causes import Cause, Who

SANDBOX: Table = {
    Cause.IMAGE_PULL: (
        "the sandbox's image can't be had",
        "The image does not exist, the registry refuses, or it is still being fetched.",
        "The engine's or Docker's own words while a sandbox is made.",
        "Check name, tag and the registry's credentials",
        "hawk logs {job} --level warning",
        Who.OPERATOR,
    ),
    Cause.CREATE_FAILED: (
        "sandboxes can't be made",
        "Making a sandbox fails each time, so no attempt begins.",
        "The error with which attempts end before their agent runs.",
        "Do what the message says; `hawk doctor` checks the machine, with `--engine kubernetes` the namespace",
        "hawk doctor",
        Who.OPERATOR,
    ),
    Cause.CRASH_LOOP: (
        "a sandbox ends again and again",
        "The sandbox's main process ends soon after its start, and is started again.",
        "Repeated ends of the same sandbox.",
        "See why its command ends: run the image by hand",
        "hawk logs {job} --level warning",
        Who.AUTHOR,
    ),
    Cause.UNSCHEDULABLE: (
        "there is no room for the sandbox",
        "The cluster has no node with room for the pod.",
        "The scheduler's own message, past a grace of three minutes.",
        "Wait for the autoscaler, or ask for less",
        "hawk status {job}",
        Who.OPERATOR,
    ),
    Cause.START_TIMEOUT: (
        "sandboxes don't get ready",
        "The sandbox is being made for far longer than usual: a setup step or a health check that does not end.",
        "Attempts in their beginning for long, and what is still being done.",
        "See which step does not end",
        "hawk trace {job}",
        Who.AUTHOR,
    ),
    Cause.TOOL_HUNG: (
        "a command does not end",
        "A tool call's command runs, and does nothing: it waits for input, for a lock, for the network, or sleeps.",
        "Its process uses no CPU and moves no bytes, what the kernel says it sleeps in, and its own deadline, if any. "
        "A command that works or is within its deadline is progress.",
        "Cancel the call: the agent is told and goes on; give tools a time-out",
        "hawk fix {job} {n}",
        Who.OPERATOR,
    ),
    Cause.EXEC_LOST: (
        "the sandbox was restarted under a command",
        "The sandbox ended or was replaced while a command ran in it; the command will never answer.",
        "The sandbox that the attempt began with is not the one there now, or it is gone.",
        "Nothing: the attempt errors and is run again",
        "hawk logs {job} --sample {uuid}",
        Who.WAIT,
    ),
    Cause.SANDBOX_OOM_KILLED: (
        "commands run out of memory in the sandbox",
        "The kernel kills what goes over the sandbox's memory limit; the agent sees a command that was killed.",
        "The kernel's count for the sandbox.",
        "Raise memory in the sandbox's limits, if it was not meant",
        "hawk sandbox shell {uuid}",
        Who.AUTHOR,
    ),
    Cause.SANDBOX_DISK_FULL: (
        "the sandbox's disk is full",
        "The sandbox has written as much as its limit allows; what comes after fails.",
        "The sandbox's own count.",
        "Raise disk in the sandbox's limits, if it was not meant",
        "hawk sandbox shell {uuid}",
        Who.AUTHOR,
    ),
    Cause.NETWORK_DENIED: (
        "the sandbox has no way to the network",
        "Commands try to reach the network, which the sandbox does not allow.",
        "Their errors, and the sandbox's network setting.",
        "Allow what is needed in the sandbox's network setting, or bring it into the image",
        "hawk transcript {uuid}",
        Who.AUTHOR,
    ),
    Cause.LIMITER_STARVED: (
        "a few calls hold all places",
        "Attempts wait for a place at a limiter (commands at once, sandboxes at once), and those who hold the places don't end.",
        "Await chains that end at a limiter, and the age of what holds it.",
        "End what holds the places; raise the limit (max_subprocesses, max_sandboxes)",
        "hawk trace {job}",
        Who.OPERATOR,
    ),
}
