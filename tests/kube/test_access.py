"""Keys that lie in a kubeconfig itself: each use has files of its own, which are gone afterwards."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from hawk.kube.access import find_access
from tests.middleman.certificate import self_signed

AT_ONCE = 8


def data_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_the_keys_of_a_kubeconfig_are_used_by_many_threads_and_left_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    self_signed(tmp_path)
    pem = data_of(tmp_path / "certificate.pem")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {
                "name": "here",
                "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": pem},
            }
        ],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "users": [
            {
                "name": "me",
                "user": {"client-certificate-data": pem, "client-key-data": pem},
            }
        ],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    (tmp_path / "keys").mkdir()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "keys"))

    def connect(_: int) -> int:
        access = asyncio.run(find_access())
        assert access.ssl is not None
        return access.ssl.cert_store_stats()["x509"]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert set(threads.map(connect, range(25 * AT_ONCE))) == {1}
    assert list((tmp_path / "keys").iterdir()) == []
