"""Link tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from hawk.errors import StorageError
from hawk.link.tokens import good, link_key, mint


def test_a_token_opens_its_own_job_and_generation_only(tmp_path: Path) -> None:
    key = link_key(tmp_path / "home")
    assert link_key(tmp_path / "home") == key
    assert (tmp_path / "home/link.key").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["link.key"]
    token = mint(key, "a", 2)
    assert good(key, token, "a", 2)
    for other in (("a", 1), ("a", 3), ("b", 2), ("2:a", 2)):
        assert not good(key, token, *other)
    assert not good(link_key(tmp_path / "another"), token, "a", 2)
    for wrong in ("", "ä", token[:-1], token + "0", "\udc80"):
        assert not good(key, wrong, "a", 2)


def test_a_damaged_key_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "link.key").write_text("")
    with pytest.raises(StorageError, match="damaged"):
        link_key(tmp_path)


def test_a_key_that_is_given_outlives_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "mounted" / "key"
    monkeypatch.setenv("HAWK_LINK_KEY_FILE", str(given))
    own = link_key(tmp_path / "home")  # it is not there: the server's own, which it makes
    given.parent.mkdir()
    given.write_text("k" * 64 + "\n")
    token = mint(link_key(tmp_path / "home"), "a", 1)
    assert not good(own, token, "a", 1)
    assert good(link_key(tmp_path / "another"), token, "a", 1)
    given.write_text("short")
    with pytest.raises(StorageError):
        link_key(tmp_path / "home")
