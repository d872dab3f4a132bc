"""The access token of the local server: a file that only its owner can read.

The server compares the whole string, so to us a token is opaque. It is shaped like a JSON Web Token because
the public client decodes it before it sends it: it wants `iss` equal to the issuer of `/auth/config`, an `exp`
ahead of now, and reads its own name, for "my jobs", from `sub`.
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import secrets

from hawk.config.once import write_once
from hawk.config.settings import Settings
from hawk.errors import StorageError

ISSUER = "hawk"
_EXPIRES = 4102444800  # 2100-01-01: the file's permissions guard it, not its age


def current_user() -> str:
    """Whose jobs the local server's are: the login name, or the number of a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no passwd entry, as in many containers
        return str(os.getuid())


def new_token(user: str) -> str:
    """A fresh token of 256 random bits for a user."""
    header = _encode(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    claims = _encode(json.dumps({"iss": ISSUER, "sub": user, "exp": _EXPIRES}).encode())
    return f"{header}.{claims}.{_encode(secrets.token_bytes(32))}"


def token_user(token: str) -> str | None:
    """The user that a token names (`sub`), or None when it names none."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return str(claims["sub"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def ensure_token(settings: Settings) -> str:
    """The token in use: `HAWK_ACCESS_TOKEN`, else the token file's, which is made if it is missing.

    Raises:
        StorageError: The file can't be read or made.
    """
    if settings.access_token:
        return settings.access_token
    path = settings.token_file
    try:
        write_once(path, new_token(current_user()).encode() + b"\n")
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as ex:
        reason = ex.strerror if isinstance(ex, OSError) else "not a token"
        raise StorageError(
            f"{path}: {reason}.", remedy="Set HAWK_HOME to a directory you may write.", path=str(path)
        ) from ex


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
