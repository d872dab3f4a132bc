"""A job's own keys on their way to the other replicas: sealed with the signing key, which all of them have."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

_ALGORITHMS = ["dir", "A256GCM"]


class _Sealed(msgspec.Struct):
    job: str
    keys: dict[str, str]


class Sealer:
    """Seals and opens.

    Args:
        key: The signing key. What is used is derived from it.

    Attributes:
        fingerprint: The same for the same key, and says nothing else of it.
    """

    def __init__(self, key: bytes) -> None:
        self.fingerprint = _derived(key, b"fingerprint").hex()[:32]
        self._key = OctKey.import_key(_derived(key, b"keys of jobs"))

    def seal(self, job: str, keys: dict[str, str]) -> str:
        """As JWE (RFC 7516), for a database row."""
        plain = msgspec.json.encode(_Sealed(job, keys))
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, plain, self._key, algorithms=_ALGORITHMS)

    def open(self, job: str, sealed: str) -> dict[str, str]:
        """Empty when it was sealed with another key, or for another job."""
        try:
            found = jwe.decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS)
            content = msgspec.json.decode(found.plaintext or b"", type=_Sealed)
        except (JoseError, ValueError, msgspec.MsgspecError):
            return {}
        return content.keys if content.job == job else {}


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"hawk-middleman: " + purpose, hashlib.sha256).digest()
