"""The middleman beside the runner of one job: `python -m hawk.runner.sidecar`.

It has the providers' keys, which no code of a task sees, and a signing key for this job alone: it takes no other job's
token. Everything else is in the environment (`HAWK_MIDDLEMAN_KEYS_DIR`, `HAWK_MIDDLEMAN_KEY_FILE`, `HAWK_ROOT`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOST, PORT = "127.0.0.1", 8989
DRAIN = "5"
"""Seconds that requests have at the end: the runner has ended before."""

KEYS = "/hawk/keys"
SIGNING_KEY, JOB_KEYS = "signing-key", "job-keys"
"""Files beside the keys of Hawk's own: by which tokens are checked, and keys that the job itself brought (JSON)."""

CONFIG = "job_upstreams: any\n"
"""Whatever task code reaches from this pod, its middleman may reach too."""


def environment() -> dict[str, str]:
    """The middleman's: where its keys are."""
    keys = Path(os.environ.get("HAWK_MIDDLEMAN_KEYS_DIR") or KEYS)
    found = {
        **os.environ,
        "HAWK_MIDDLEMAN_KEYS_DIR": str(keys),
        "HAWK_MIDDLEMAN_KEY_FILE": os.environ.get("HAWK_MIDDLEMAN_KEY_FILE") or str(keys / SIGNING_KEY),
    }
    if (keys / JOB_KEYS).exists():
        found.setdefault("HAWK_MIDDLEMAN_JOB_KEYS", str(keys / JOB_KEYS))
    return found


def main() -> None:
    """Become the middleman."""
    home = Path(os.environ.get("HAWK_HOME") or "/hawk/middleman")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = home / "middleman.yaml"
    if not config.exists():
        config.write_text(CONFIG)
    port = os.environ.get("HAWK_SIDECAR_PORT") or str(PORT)
    arguments = ["--host", HOST, "--port", port, "--drain", DRAIN]
    os.execve(  # noqa: S606  # no shell
        sys.executable, [sys.executable, "-m", "hawk.middleman", *arguments], environment()
    )


if __name__ == "__main__":
    main()
