"""Keys: kept by their owner alone, found in order, and shown nowhere."""

from __future__ import annotations

import subprocess
import sys
import traceback
import types
from pathlib import Path

import pytest

from hawk.config.providers import PROVIDERS, named_provider
from hawk.errors import HawkError, NotFoundError, StorageError, UsageError
from hawk.middleman.keys import KeyStore

SECRET = "sk-test-0123456789abcdefWXYZ"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_key_is_kept_for_its_owner_alone(home: Path) -> None:
    store = KeyStore(home, {})
    info = store.set("openai", f" {SECRET}\n")
    assert (info.provider, info.account, info.source, info.tail) == ("openai", "default", "file", "WXYZ")
    assert store.get("openai") == SECRET
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o077 == 0
    assert [k.tail for k in KeyStore(home, {}).list()] == ["WXYZ"]


def test_a_file_that_others_can_read_is_refused(home: Path) -> None:
    store = KeyStore(home, {})
    store.set("openai", SECRET)
    store.path.chmod(0o640)
    for use in (store.list, store.snapshot, lambda: store.set("groq", SECRET)):
        with pytest.raises(StorageError, match="read by others") as caught:
            use()
        assert "chmod 600" in str(caught.value.remedy)


def test_keys_are_looked_for_in_order(home: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    (mounted / "..data" / "GEMINI_API_KEY").write_text("mounted-gemini-key\n")
    (mounted / "GEMINI_API_KEY").symlink_to(mounted / "..data" / "GEMINI_API_KEY")
    environ = {
        "HAWK_MIDDLEMAN_KEYS_DIR": str(mounted),
        "OPENAI_API_KEY": "environment-openai-key",
        "GEMINI_API_KEY": "environment-gemini-key",
        "ANTHROPIC_API_KEY": "environment-anthropic-key",
        "LOCAL_API_KEY": "short",
        "LOCAL_BASE_URL": "http://127.0.0.1:1/v1",
    }
    store = KeyStore(home, environ)
    store.set("openai", SECRET)
    assert store.get("openai") == SECRET
    assert store.get("gemini") == "mounted-gemini-key"
    assert store.get("anthropic") == "environment-anthropic-key"
    assert store.get("local") == "short"
    assert store.get("groq") is None
    assert store.get("openai", "batch") is None
    assert [(k.provider, k.source, k.variable, k.tail) for k in store.list()] == [
        ("openai", "file", None, "WXYZ"),
        ("anthropic", "environment", "ANTHROPIC_API_KEY", "-key"),
        ("gemini", "directory", "GEMINI_API_KEY", "-key"),
        ("local", "environment", "LOCAL_API_KEY", ""),
    ]
    store.remove("openai")
    assert store.get("openai") == "environment-openai-key"
    with pytest.raises(NotFoundError):
        store.remove("openai")


def test_any_name_that_people_use_means_the_provider(home: Path) -> None:
    store = KeyStore(home, {})
    for called, name in (("My_Host", "my-host"), ("google", "gemini"), ("admin", "admin-openai")):
        assert store.set(called, SECRET).provider == name
        assert store.get(name) == SECRET
    assert store.snapshot().get(named_provider("my-host")) == SECRET


@pytest.mark.parametrize("bad", ["", "two words", "a\r\nx-injected: 1", "ключ", "\x1b[31m", "k" * 5000])
def test_what_can_be_no_key_is_refused_and_not_repeated(home: Path, bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        KeyStore(home, {}).set("openai", bad)
    if len(bad) > 3:
        assert bad not in "".join(traceback.format_exception(caught.value, limit=0)) + caught.value.render()
    with pytest.raises(UsageError):
        KeyStore(home, {"OPENAI_API_KEY": bad or "a b"}).snapshot().get(PROVIDERS["openai"])


@pytest.mark.parametrize(("provider", "account"), [("../x", "default"), ("openai", "../x"), ("openai", "")])
def test_names_that_can_be_none_are_refused(home: Path, provider: str, account: str) -> None:
    with pytest.raises(UsageError):
        KeyStore(home, {}).set(provider, SECRET, account)


def test_nothing_that_holds_keys_shows_them(home: Path) -> None:
    store = KeyStore(home, {"ANTHROPIC_API_KEY": SECRET[::-1]})
    store.set("openai", SECRET)
    shown = f"{store!r} {store.snapshot()!r} {store.list()!r} {store._read()!r}"
    assert SECRET not in shown
    assert SECRET[::-1] not in shown


def test_a_damaged_file_is_said_without_its_content(home: Path) -> None:
    store = KeyStore(home, {})
    store.set("openai", SECRET)
    store.path.write_text(f'{{"openai": {{"default": {{"value": "{SECRET}", "added_at": 5}}}}}}')
    with pytest.raises(StorageError, match="damaged") as caught:
        store.list()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_writers_do_not_lose_each_others_keys(home: Path) -> None:
    """Processes, as commands are, that all begin at once."""
    code = (
        "import sys; from pathlib import Path; from hawk.middleman.keys import KeyStore; sys.stdin.read(1)\n"
        "for i in range(8): KeyStore(Path(sys.argv[1]), {}).set('openai', 'k' * 20, f'{sys.argv[2]}-{i}')"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(home), f"writer{n}"], stdin=subprocess.PIPE)
        for n in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4
    assert len(KeyStore(home, {}).list()) == 32


class Ring(types.ModuleType):
    """The keyring package with a keyring in memory."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_the_keyring_keeps_the_value_where_it_is_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring()
    monkeypatch.setitem(sys.modules, "keyring", ring)
    store = KeyStore(home, {"HAWK_KEYRING": "1"})
    store.set("openai", SECRET)
    assert SECRET not in store.path.read_text()
    assert (store.get("openai"), store.list()[0].source, store.list()[0].tail) == (SECRET, "keyring", "WXYZ")
    store.remove("openai")
    assert ring.kept == {}


def test_a_missing_keyring_is_said_instead_of_writing_a_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = KeyStore(home, {"HAWK_KEYRING": "1"})
    with pytest.raises(HawkError, match="keyring"):
        store.set("openai", SECRET)
    assert not store.path.exists()
