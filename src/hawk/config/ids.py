"""Eval-set ids: what one looks like, how one is made from a name."""

from __future__ import annotations

import re
import secrets

from hawk.errors import UsageError

MAX_LENGTH = 43  # pod names add a prefix and stay below 63
_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
PATTERN = f"^{_PATTERN.pattern}$"
"""What an id looks like, for a JSON Schema; at most `MAX_LENGTH` characters."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def check_id(eval_set_id: str) -> str:
    """Return the id if it is one.

    Raises:
        UsageError: Too long, empty, or with characters other than lower-case letters, digits and `-`.
    """
    if len(eval_set_id) > MAX_LENGTH:
        raise UsageError(
            f"Eval set id {eval_set_id!r} has {len(eval_set_id)} characters; {MAX_LENGTH} are allowed.",
            remedy="Shorten eval_set_id (or --name).",
        )
    if not _PATTERN.fullmatch(eval_set_id):
        raise UsageError(
            f"Eval set id {eval_set_id!r} is not valid: lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit.",
            remedy=f"Try {slug(eval_set_id) or 'my-eval-set'!r}.",
        )
    return eval_set_id


def slug(name: str) -> str:
    """A name as the beginning of an id: lower case, `-` for everything else, at most 25 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:25].strip("-")


def new_id(name: str | None) -> str:
    """A fresh id: the name's slug and 12 random characters (62 bits)."""
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    return f"{slug(name or '') or 'eval-set'}-{tail}"
