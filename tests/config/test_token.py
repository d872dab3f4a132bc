"""The local server's token: made once, private, and shaped as the public client wants it."""

import base64
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hawk.config.settings import Settings, load_settings
from hawk.config.token import ISSUER, current_user, ensure_token, new_token, token_user
from hawk.errors import StorageError


def _settings(home: Path, **environ: str) -> Settings:
    return load_settings({"HAWK_HOME": str(home), **environ})


def test_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    settings = _settings(tmp_path / "new" / "home")
    token = ensure_token(settings)
    assert ensure_token(settings) == token
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o700
    assert list(settings.home.iterdir()) == [settings.token_file]


def test_environment_wins_and_writes_nothing(tmp_path: Path) -> None:
    settings = _settings(tmp_path / "home", HAWK_ACCESS_TOKEN="given")
    assert ensure_token(settings) == "given"
    assert not settings.home.exists()


def test_token_has_the_claims_that_the_public_client_reads() -> None:
    token = new_token("ada")
    header, claims, signature = (_decoded(part) for part in token.split("."))
    assert isinstance(header, dict)
    assert isinstance(claims, dict)
    assert claims["iss"] == ISSUER
    assert claims["sub"] == "ada" == token_user(token)
    assert claims["exp"] > time.time() + 86400
    assert isinstance(signature, bytes)
    assert len(signature) == 32


def _decoded(part: str) -> dict[str, Any] | bytes:
    data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    try:
        value: dict[str, Any] = json.loads(data)
    except ValueError:
        return data
    return value


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "e30.e30.x", "e30.W10.x"])
def test_token_that_names_nobody(token: str) -> None:
    assert token_user(token) is None


def test_processes_that_start_together_share_one_token(tmp_path: Path) -> None:
    program = "from hawk.config.settings import load_settings as s; from hawk.config.token import *; print(ensure_token(s()))"
    environ = {**os.environ, "HAWK_HOME": str(tmp_path / "home")}
    environ.pop("HAWK_ACCESS_TOKEN", None)
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    assert len({process.communicate(timeout=30)[0] for process in started}) == 1


def test_home_that_is_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("in the way")
    with pytest.raises(StorageError, match=str(home)):
        ensure_token(_settings(home))


def test_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987654321)
    assert current_user() == "987654321"
