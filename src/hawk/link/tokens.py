"""Link tokens: what the runner of one job, in one generation, opens its link with.

A token is an HMAC of the job's id and generation under a key that only the server has; nothing has to be stored.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from hawk.config.once import write_once
from hawk.errors import StorageError
from hawk.store.rundir import storage_error

KEY_FILE = "link.key"
KEY_FILE_VARIABLE = "HAWK_LINK_KEY_FILE"
_PREFIX = "hawk-link-"


def link_key(home: Path) -> bytes:
    """The key in the file that `HAWK_LINK_KEY_FILE` names, where that is there: it outlives the disk of a server on a cluster.

    Else that of a HAWK_HOME; made at the first use, readable by its owner only.

    Raises:
        StorageError: It can't be read or made, or is damaged.
    """
    given = os.environ.get(KEY_FILE_VARIABLE)
    path = Path(given) if given and Path(given).exists() else home / KEY_FILE
    try:
        if path.parent == home:
            write_once(path, secrets.token_hex(32).encode())
        key = path.read_bytes().strip()
    except OSError as ex:
        raise storage_error(path, ex) from ex
    if len(key) < 32:
        raise StorageError(f"{path} is damaged.", remedy="Remove it: runners that live lose their link.")
    return key


def mint(key: bytes, job: str, generation: int) -> str:
    """The token of a job's runner."""
    return _PREFIX + hmac.new(key, f"{generation}:{job}".encode(), "sha256").hexdigest()


def good(key: bytes, token: str, job: str, generation: int) -> bool:
    """Whether it is that token; takes the same time whatever is wrong with it."""
    return hmac.compare_digest(token.encode("utf-8", "replace"), mint(key, job, generation).encode())
