"""What replicas tell each other in secret: sealed with the signing key, which all of them have."""

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
        purpose: What was sealed for another one can't be opened.

    Attributes:
        fingerprint: The same for the same key, and says nothing else of it.
    """

    def __init__(self, key: bytes, purpose: str = "keys of jobs") -> None:
        self.fingerprint = _derived(key, b"fingerprint").hex()[:32]
        self._key = OctKey.import_key(_derived(key, purpose.encode()))

    def seal(self, job: str, keys: dict[str, str]) -> str:
        """As JWE (RFC 7516), for a database row."""
        plain = msgspec.json.encode(_Sealed(job, keys))
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, plain, self._key, algorithms=_ALGORITHMS)

    def open(self, job: str, sealed: str) -> dict[str, str]:
        """Empty when it was sealed with another key, or for another job."""
        found = self.read(sealed)
        return found[1] if found is not None and found[0] == job else {}

    def read(self, sealed: str) -> tuple[str, dict[str, str]] | None:
        """The job and what was sealed for it; None when that was done with another key, or it is nothing of the kind."""
        try:
            found = jwe.decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS)
            content = msgspec.json.decode(found.plaintext or b"", type=_Sealed)
        except (JoseError, ValueError, msgspec.MsgspecError):
            return None
        return content.job, content.keys


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"hawk-middleman: " + purpose, hashlib.sha256).digest()
