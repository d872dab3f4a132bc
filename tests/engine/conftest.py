"""A cluster in this process, and where a server keeps its things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk.config.settings import Settings, load_settings
from tests.engine.jobs_fake import Running, running


@pytest.fixture
def cluster() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"HAWK_HOME": str(tmp_path / "home")})
