"""What an error's text says of where and why it failed: the words of sandbox providers, Docker, containerd, Kubernetes. Pure."""

from __future__ import annotations

import re

_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "…"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "…"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,}\b", re.IGNORECASE), "…"),
    (re.compile(r"(/tmp/|/var/folders/)[^\s'\",:;)]+"), r"\1…"),
    (re.compile(r"\d+"), "N"),
)

_SIGNS: dict[str, re.Pattern[str]] = {
    "image_pull": re.compile(
        r"pull access denied|manifest (?:for \S+ )?(?:unknown|not found)|manifest unknown|toomanyrequests"
        r"|reached your pull rate limit|ImagePullBackOff|ErrImagePull|InvalidImageName|ErrImageNeverPull"
        r"|failed to (?:resolve reference|pull and unpack image|pull image)|no matching manifest for"
        r"|unauthorized: (?:authentication required|incorrect username)|requested access to the resource is denied"
        r"|invalid reference format|No such image|Failed to pull docker images"
        r"|Head \"https://[^\"]+/manifests/|repository does not exist or may require",
        re.IGNORECASE,
    ),
    "unschedulable": re.compile(
        r"Unschedulable|FailedScheduling|\d+/\d+ nodes are available|Insufficient (?:cpu|memory)"
    ),
    "crash_loop": re.compile(
        r"CrashLoopBackOff|back-off \S+ restarting failed container|is restarting, wait until"
    ),
    "lost": re.compile(
        r"the sandbox \S+ is gone|SandboxUnavailable|The sandbox is not running|pod UID mismatch"
        r"|service \"[^\"]*\" is not running|container \S+ is not running|No such container"
        r"|cannot exec in a (?:stopped|deleted)|container not found|container has been restarted"
        r"|process that keeps (?:the )?sandboxes has ended|OCI runtime exec failed",
        re.IGNORECASE,
    ),
    "disk": re.compile(
        r"No space left on device|workspace limit was reached|Disk quota exceeded|ephemeral.storage",
        re.IGNORECASE,
    ),
    "memory": re.compile(r"OOMKilled|memory limit was reached|Out of memory: Killed process"),
    "timeout": re.compile(
        r"services startup timeout|context deadline exceeded|was not ready after|Timed? ?out waiting for|startup timed out"
        r"|timed out.{0,40}(?:pods?|containers?|services?|sandbox).{0,20}(?:ready|start)|container \S+ is unhealthy"
        r"|dependency failed to start",
        re.IGNORECASE,
    ),
    "setup": re.compile(
        r"Failed to execute setup script|executing setup command in sandbox|Failed to write sample file"
        r"|Failed to copy file|The setup (?:script )?failed|sample setup",
        re.IGNORECASE,
    ),
    "create": re.compile(
        r"could not be made|holds no root file system|sandbox's setup failed|OCI runtime create failed|Error response from daemon|Cannot connect to the Docker daemon"
        r"|CreateContainer(?:Config)?Error|RunContainerError|failed to create (?:shim task|task for container|network)"
        r"|bwrap|No sandboxes on this machine|docker compose|is the docker daemon running|unshare|user namespaces?"
        r"|ended before it was ready|FailedCreatePodSandBox",
        re.IGNORECASE,
    ),
}
"""By what they speak of; the first that fits counts."""


def sign_of(text: str) -> str:
    """What an error's text speaks of: a key of the table above; empty for none of them."""
    return next((name for name, pattern in _SIGNS.items() if pattern.search(text)), "")


def is_sandbox_text(text: str) -> bool:
    """Whether an error is a sandbox provider's, by its words."""
    return sign_of(text) not in ("", "setup", "disk", "memory", "timeout")


def normalised(text: str, most: int = 200) -> str:
    """An error's text without what differs from one time to the next: numbers, ids, temporary paths."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text[:most]
