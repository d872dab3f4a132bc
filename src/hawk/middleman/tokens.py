"""Job tokens: what a worker bears instead of a provider's key.

A token says which job it is, which models it may use, what it may spend and where its own providers are: signed, so
that nothing has to be looked up, and nothing in it can be changed by who bears it. A revoked job is remembered in a
file, so that a restart forgives nothing.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from hawk.config.once import write_once
from hawk.core.traffic.ledger import Budget
from hawk.errors import ConfigError
from hawk.middleman.refusals import Refusal
from hawk.store.rundir import read_json, storage_error, write_json

ISSUER = "hawk-middleman"
LIFETIME = 30 * 86400.0
"""Seconds. Longer than any run; a stopped job's token is revoked, not waited for."""

SKEW = 60.0
"""Seconds by which the clocks of two machines may differ."""

KEY_FILE = "HAWK_MIDDLEMAN_KEY_FILE"

_SHORTEST_KEY = 32
_ALGORITHMS = ["HS256"]


class Upstream(msgspec.Struct, frozen=True):
    """A provider that a job brings along: `kind` is one of `hawk.config.providers.Kind`, `prefix` as in its table."""

    base_url: str
    kind: str = "openai"
    prefix: str = "/v1"


class Cassette(msgspec.Struct, frozen=True):
    """Answers are recorded to a file, or come from it. `mode`: `record` or `replay`. `speed`: 1 as recorded, 0 at once."""

    mode: str
    path: str
    speed: float = 0.0


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job token says. `iat` and `exp` are seconds since the epoch; `models` are shell patterns of Inspect's names."""

    iss: str
    sub: str
    job: str
    iat: float
    exp: float
    jti: str
    models: tuple[str, ...] = ("*",)
    groups: tuple[str, ...] | None = None
    budget: Budget = Budget()
    upstreams: dict[str, Upstream] = {}
    cassette: Cassette | None = None


class Principal(msgspec.Struct, frozen=True):
    """Who asks: a job (`claims`), or a person."""

    user: str
    claims: Claims | None = None

    @property
    def job(self) -> str:
        return self.claims.job if self.claims is not None else ""

    @property
    def groups(self) -> frozenset[str] | None:
        """Model groups that it is in; None: all of them."""
        if self.claims is None or self.claims.groups is None:
            return None
        return frozenset(self.claims.groups)


def signing_key(home: Path) -> bytes:
    """The key that signs job tokens: in the file that `HAWK_MIDDLEMAN_KEY_FILE` names, else one of the home's own.

    The home's is made at the first use; only its owner can read it.

    Raises:
        StorageError: It can't be read or made.
        ConfigError: The file that is named holds no key.
    """
    if named := os.environ.get(KEY_FILE):
        return _named_key(Path(named))
    path = home / "middleman.key"
    try:
        write_once(path, secrets.token_hex(32).encode())
        return path.read_bytes().strip()
    except OSError as ex:
        raise storage_error(path, ex) from ex


def _named_key(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as ex:
        raise storage_error(path, ex) from ex
    if len(key) < _SHORTEST_KEY:
        raise ConfigError(
            f"{KEY_FILE}={path} holds no key of at least {_SHORTEST_KEY} characters.",
            remedy="Make one: openssl rand -hex 32",
        )
    return key


def mint(
    key: bytes,
    *,
    job: str,
    user: str,
    now: float | None = None,
    lifetime: float = LIFETIME,
    models: tuple[str, ...] = ("*",),
    groups: tuple[str, ...] | None = None,
    budget: Budget | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
    cassette: Cassette | None = None,
) -> str:
    """A token for a job, from now on for so many seconds."""
    at = time.time() if now is None else now
    claims = Claims(
        iss=ISSUER,
        sub=user,
        job=job,
        iat=at,
        exp=at + lifetime,
        jti=secrets.token_hex(8),
        models=models,
        groups=groups,
        budget=budget or Budget(),
        upstreams=dict(upstreams or {}),
        cassette=cassette,
    )
    data: dict[str, Any] = msgspec.to_builtins(claims)
    return jwt.encode({"alg": "HS256"}, data, OctKey.import_key(key), algorithms=_ALGORITHMS)


class Verifier:
    """Tells who bears a token. A token that was good is good until it expires or its job is revoked: one dictionary look.

    Args:
        revoked_file: Where revoked jobs are remembered; None: in memory only.
        person: The person's access token, which may use everything.
    """

    def __init__(self, key: bytes, *, person: str, user: str, revoked_file: Path | None = None) -> None:
        self._key = OctKey.import_key(key)
        self.person = person
        self.owner = Principal(user)
        self._person = person.encode()
        self._file = revoked_file
        self._known: dict[str, Principal] = {}
        self._revoked: dict[str, float] = (
            read_json(revoked_file, dict[str, float]) if revoked_file else None
        ) or {}

    def who(self, token: str | None, now: float) -> Principal:
        """The bearer of a token at a time in seconds since the epoch.

        Raises:
            Refusal: There is none, or it is not valid (any more).
        """
        if token is None:
            raise Refusal(
                "hawk_token_missing", "No credential: send a job token or an access token as the API key."
            )
        principal = self._known.get(token)
        if principal is None:
            principal = self._read(token)
            if principal.claims is None:
                return principal
            if len(self._known) > 20_000:
                self._known.clear()
            self._known[token] = principal
        claims = principal.claims
        assert claims is not None
        if now > claims.exp + SKEW:
            why = f"The token of job {claims.job} has expired."
            raise Refusal("hawk_token_expired", why, no_retry=True, bearer=principal)
        revoked = self._revoked.get(claims.job)
        if revoked is not None and claims.iat <= revoked:
            why = f"The token of job {claims.job} is revoked: the job has ended or was stopped."
            raise Refusal("hawk_token_revoked", why, no_retry=True, bearer=principal)
        return principal

    def is_person(self, token: str | None) -> bool:
        return token is not None and token.isascii() and hmac.compare_digest(token.encode(), self._person)

    def revoke(self, job: str, now: float) -> float:
        """No token that this job was given up to now is good any more, though its maker's clock be ahead.

        Returns until when one must have been given, to be revoked.
        """
        seen = [p.claims.iat for p in self._known.values() if p.claims is not None and p.job == job]
        at = max([now, *seen])
        for known in [t for t, p in self._known.items() if p.job == job]:
            del self._known[known]
        self.learn({job: at}, now)
        return at

    def learn(self, revoked: Mapping[str, float], now: float) -> None:
        """These jobs were revoked at these times, maybe elsewhere."""
        self._revoked.update(revoked)
        if self._file is not None:
            expired = now - LIFETIME - SKEW
            self._revoked = {job: at for job, at in self._revoked.items() if at > expired}
            write_json(self._file, self._revoked)

    def revoked_at(self, job: str) -> float:
        """When the job was revoked last; 0: never."""
        return self._revoked.get(job, 0.0)

    def _read(self, token: str) -> Principal:
        if self.is_person(token):
            return self.owner
        try:
            if not token.isascii():
                raise ValueError("not a token")
            claims = msgspec.convert(jwt.decode(token, self._key, algorithms=_ALGORITHMS).claims, Claims)
        except (JoseError, ValueError, TypeError) as ex:
            raise Refusal(
                "hawk_token_invalid", "The token is not one of this middleman's.", no_retry=True
            ) from ex
        if claims.iss != ISSUER:
            raise Refusal("hawk_token_invalid", "The token is not one of this middleman's.", no_retry=True)
        return Principal(claims.sub, claims)
