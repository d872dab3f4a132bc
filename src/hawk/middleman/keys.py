"""The providers' keys: where they come from, and the one file in which `hawk middleman keys` keeps them.

A key is looked for in this order; the first that is found is used:

1. what `hawk middleman keys set` stored: `<home>/middleman-keys.json`, readable by its owner only, or the
   system's keyring where `HAWK_KEYRING=1`;
2. a directory of files (`HAWK_MIDDLEMAN_KEYS_DIR`), each named after a variable: a Kubernetes Secret as it is mounted;
3. the environment.

A key itself is in no message, list or `repr`: those show its last four characters.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from hawk.config.providers import PROVIDERS, Provider, find_provider, provider_called
from hawk.errors import HawkError, NotFoundError, StorageError, UsageError
from hawk.store.rundir import storage_error, write_json

DEFAULT = "default"
"""The account of a provider that has only one."""

SERVICE = "hawk-middleman"
"""Under which the system's keyring keeps our keys."""

TAIL = 4
_SHORT = 12  # of a key shorter than this, four characters would be too much of it
KEY = re.compile(r"[\x21-\x7e]{1,4096}")
ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_LARGEST = 64 * 1024

Source = Literal["file", "keyring", "environment", "directory"]


class KeyInfo(msgspec.Struct, frozen=True):
    """What may be told about a key.

    Attributes:
        provider: Whose.
        account: Which of the provider's accounts.
        source: Where it is kept.
        tail: Its last four characters, or nothing where it is short.
        added_at: ISO 8601; None where it was not stored by us.
        variable: Environment variable or file that holds it.
    """

    provider: str
    account: str
    source: Source
    tail: str
    added_at: str | None = None
    variable: str | None = None


class _Stored(msgspec.Struct, omit_defaults=True):
    """One key in the file; `value` is None where the keyring has it."""

    added_at: str
    value: str | None = None
    tail: str = ""

    def __repr__(self) -> str:
        return f"_Stored(…{self.tail})"


class Keys:
    """All keys at one moment."""

    def __init__(
        self,
        stored: Mapping[tuple[str, str], str],
        variables: Mapping[str, str],
        directory: Mapping[str, str],
    ) -> None:
        self._stored = dict(stored)
        self._variables = {**variables, **directory}

    def __repr__(self) -> str:
        return f"<Keys: {len(self._stored)} stored>"

    def get(self, provider: Provider, account: str = DEFAULT) -> str | None:
        """The key of a provider's account; the default account's may come from the provider's own variables.

        Raises:
            UsageError: It can't be a key.
        """
        stored = self._stored.get((provider.name, account))
        if stored is not None or account != DEFAULT:
            return stored
        found = next((v for v in provider.key_variables if self._variables.get(v, "").strip()), None)
        return None if found is None else self.variable(found)

    def variable(self, name: str) -> str | None:
        """The key that a variable of the environment, or a file of the directory, holds.

        Raises:
            UsageError: It can't be a key.
        """
        text = self._variables.get(name, "").strip()
        return plain_key(text, name) if text else None

    def accounts(self, provider: str) -> list[str]:
        """Accounts of a provider that have a stored key, the default one first."""
        found = [account for name, account in self._stored if name == provider]
        return sorted(found, key=lambda account: (account != DEFAULT, account))


class KeyStore:
    """The keys of one home. Several processes may change them at once.

    Args:
        home: `HAWK_HOME`.
        environ: Where `HAWK_KEYRING`, `HAWK_MIDDLEMAN_KEYS_DIR` and the providers' variables come from.
    """

    def __init__(self, home: Path, environ: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._environ = dict(os.environ if environ is None else environ)
        self.path = home / "middleman-keys.json"

    def __repr__(self) -> str:
        return f"<KeyStore {self.path}>"

    def list(self) -> list[KeyInfo]:
        """Every key that is in use, and where it is kept.

        Raises:
            StorageError: The file can't be read, or others can read it.
        """
        stored = [
            KeyInfo(provider, account, "file" if entry.value else "keyring", entry.tail, entry.added_at)
            for provider, accounts in sorted(self._read().items())
            for account, entry in sorted(accounts.items())
        ]
        named = {(info.provider, info.account) for info in stored}
        return [*stored, *(info for info in self._found() if (info.provider, info.account) not in named)]

    def get(self, provider: str, account: str = DEFAULT) -> str | None:
        """The key of a provider's account, or None.

        Raises:
            StorageError: The file can't be read, or others can read it.
        """
        known = find_provider(provider)
        return None if known is None else self.snapshot().get(known, account)

    def snapshot(self) -> Keys:
        """All keys as they are now. Raises: StorageError as `get`."""
        stored: dict[tuple[str, str], str] = {}
        for provider, accounts in self._read().items():
            for account, entry in accounts.items():
                value = entry.value or self._from_keyring(provider, account)
                if value:
                    stored[provider, account] = value
        return Keys(stored, self._environ, self._directory())

    def set(self, provider: str, value: str, account: str = DEFAULT) -> KeyInfo:
        """Store a key, instead of the one that was there.

        Raises:
            UsageError: No such provider or account can be, or the value can't be a key.
            StorageError: The file can't be written.
        """
        provider, account = names(provider, account)
        value = plain_key(value.strip(), f"The key of {provider}")
        entry = _Stored(datetime.now(UTC).isoformat(timespec="seconds"), tail=_tail(value))
        ring = self._keyring(asked=True)
        if ring is None:
            entry.value = value
        else:
            ring.set_password(SERVICE, f"{provider}/{account}", value)
        with self._changing() as stored:
            stored.setdefault(provider, {})[account] = entry
        return KeyInfo(provider, account, "file" if ring is None else "keyring", entry.tail, entry.added_at)

    def remove(self, provider: str, account: str = DEFAULT) -> None:
        """Forget a stored key.

        Raises:
            NotFoundError: None is stored; those of the environment are not ours to remove.
            StorageError: The file can't be written.
        """
        provider, account = names(provider, account)
        with self._changing() as stored:
            entry = stored.get(provider, {}).pop(account, None)
            if entry is None:
                raise NotFoundError(
                    f"No key of {provider}/{account} is stored.",
                    remedy="hawk middleman keys list shows them.",
                )
            if not stored[provider]:
                del stored[provider]
        ring = None if entry.value else self._keyring(asked=False)
        if ring is not None:
            ring.delete_password(SERVICE, f"{provider}/{account}")

    # --- the file

    def _read(self) -> dict[str, dict[str, _Stored]]:
        try:
            with self.path.open("rb") as f:
                status = os.fstat(f.fileno())
                if status.st_mode & 0o077 or status.st_uid not in (os.geteuid(), 0):
                    raise StorageError(
                        f"{self.path} can be read by others: it holds keys.",
                        remedy=f"chmod 600 {self.path}, and replace the keys if others are on this machine.",
                        path=str(self.path),
                    )
                return msgspec.json.decode(f.read(), type=dict[str, dict[str, _Stored]])
        except FileNotFoundError:
            return {}
        except OSError as ex:
            raise storage_error(self.path, ex) from ex
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StorageError(
                f"{self.path} is damaged.",
                remedy="Move it away and set the keys again: hawk middleman keys set.",
                path=str(self.path),
            ) from None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, _Stored]]]:
        """The content of the file, written back at the end; one process at a time."""
        try:
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._home / "middleman-keys.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as ex:
            raise storage_error(self._home, ex) from ex
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = self._read()
            yield stored
            write_json(self.path, stored)
        finally:
            os.close(lock)

    # --- elsewhere

    def _found(self) -> Iterator[KeyInfo]:
        """Keys of the directory and of the environment, of every provider that has one there."""
        directory = self._directory()
        variables = {**self._environ, **directory}
        for provider in self._providers(variables):
            for name in provider.key_variables:
                value = variables.get(name, "").strip()
                if value:
                    source: Source = "directory" if name in directory else "environment"
                    yield KeyInfo(provider.name, DEFAULT, source, _tail(value), None, name)
                    break

    def _providers(self, variables: Mapping[str, str]) -> Iterator[Provider]:
        """Those of the table, and those that have a key and an address in variables of their name."""
        yield from PROVIDERS.values()
        known = {variable for provider in PROVIDERS.values() for variable in provider.url_variables}
        for variable in sorted(variables):
            if variable.endswith("_BASE_URL") and variable not in known:
                provider = find_provider(variable.removesuffix("_BASE_URL").lower().replace("_", "-"))
                if provider is not None:
                    yield provider

    def _directory(self) -> dict[str, str]:
        """Content of the files of `HAWK_MIDDLEMAN_KEYS_DIR` by name.

        Raises:
            StorageError: The directory or a file in it can't be read.
        """
        where = self._environ.get("HAWK_MIDDLEMAN_KEYS_DIR")
        if not where:
            return {}
        found: dict[str, str] = {}
        try:
            for path in sorted(Path(where).iterdir()):
                if (
                    not path.name.startswith(".") and path.is_file()
                ):  # `..data` is how Kubernetes swaps a Secret
                    found[path.name] = read_key_file(path)
        except OSError as ex:
            raise storage_error(Path(where), ex) from ex
        return found

    def _keyring(self, *, asked: bool) -> Any:
        """The keyring's module where it is wanted, else None.

        Raises:
            HawkError: It is wanted for a new key and is not installed.
        """
        if self._environ.get("HAWK_KEYRING", "") in ("", "0"):
            return None
        try:
            return importlib.import_module("keyring")
        except ImportError:
            if not asked:
                return None
            raise HawkError(
                "HAWK_KEYRING is set, and the package keyring is not installed.",
                remedy="pip install keyring, or unset HAWK_KEYRING.",
            ) from None

    def _from_keyring(self, provider: str, account: str) -> str | None:
        ring = self._keyring(asked=False)
        return None if ring is None else ring.get_password(SERVICE, f"{provider}/{account}")


def read_key_file(path: Path) -> str:
    """The key that a file holds, without space around it.

    Raises:
        OSError: It can't be read, or is far too large for a key.
    """
    with path.open("rb") as f:
        data = f.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise OSError(errno.EFBIG, "too large for a key", str(path))
    return data.decode("utf-8", "replace").strip()


def plain_key(text: str, what: str) -> str:
    """A key as it may stand in a header.

    Args:
        what: How the message calls it; the value is in no message.

    Raises:
        UsageError: It is empty, or holds spaces, line breaks or other characters that no key has.
    """
    if KEY.fullmatch(text) is None:
        raise UsageError(
            f"{what} does not hold a key: {'it is empty' if not text else 'it has characters that no key has'}.",
            remedy="A key is one word of plain ASCII; set it again.",
        )
    return text


def names(provider: str, account: str) -> tuple[str, str]:
    """Provider and account as keys are stored under.

    Raises:
        UsageError: One of them can't be a name.
    """
    known = provider_called(provider)
    if known is None:
        raise UsageError(
            f"{provider!r} can't be the name of a provider.", remedy="Use letters, digits, - and ."
        )
    if ACCOUNT.fullmatch(account) is None:
        raise UsageError(
            f"{account!r} can't be the name of an account.",
            remedy="Use letters, digits, '.', '_', '@' and '-'.",
        )
    return known.name, account


def _tail(value: str) -> str:
    return value[-TAIL:] if len(value) >= _SHORT else ""
