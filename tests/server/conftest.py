from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.config.settings import Settings
from tests.bridge.conftest import finished, short_root
from tests.server.fakes import FakeEngine
from tests.server.serving import Service, serving
from tests.store.databases import database_url, postgres
from tests.store.runs import settings_in

__all__ = ["database_url", "finished", "postgres", "short_root"]


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return settings_in(tmp_path / "home", database_url)


@pytest.fixture
def engine(settings: Settings) -> FakeEngine:
    return FakeEngine(settings.root)


@pytest.fixture
def service(settings: Settings, engine: FakeEngine) -> Iterator[Service]:
    with serving(settings, engine) as running:
        yield running
