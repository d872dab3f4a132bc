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
