"""`hawk server deploy --secrets`: Secrets with keys that are made here and nowhere kept."""

from __future__ import annotations

import json
import secrets

from hawk.config.token import new_token
from hawk.errors import UsageError

USER = "hawk"
"""Whose jobs those are that are submitted with the server's token."""

NAMES = {
    "hawk-server": ("token",),
    "hawk-signing-key": ("key",),
    "hawk-database": ("url",),
}
"""Secrets that server and middleman need, and what is in each."""

PROVIDER_KEYS = "hawk-provider-keys"
"""Keys of model providers, by variable. Without it only models that need none can be used."""


def manifest(database_url: str | None) -> str:
    """The Secrets as a list for `kubectl apply`, in JSON (which is YAML).

    Args:
        database_url: Of a database that is there; None: the bundled one, with a fresh password.

    Raises:
        UsageError: The URL is none of PostgreSQL.
    """
    database = _bundled() if database_url is None else _theirs(database_url.strip())
    data = {
        "hawk-server": {"token": new_token(USER), "link": secrets.token_hex(32)},
        "hawk-signing-key": {"key": secrets.token_hex(32)},
        "hawk-database": database,
    }
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/part-of": "hawk"},
            },
            "stringData": values,
        }
        for name, values in data.items()
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"


def _bundled() -> dict[str, str]:
    password = secrets.token_hex(24)
    return {"password": password, "url": f"postgresql://hawk:{password}@hawk-postgres:5432/hawk"}


def _theirs(url: str) -> dict[str, str]:
    if not url.startswith(("postgresql://", "postgres://")):
        raise UsageError(
            "The database's URL must begin with postgresql://.",
            remedy="postgresql://USER:PASSWORD@HOST:5432/NAME, in a file or on standard input (-).",
        )
    return {"url": url}
