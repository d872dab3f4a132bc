"""Fixtures: one server and one client for all of these tests, and the jobs that they look at."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.actors import PublicClient, Server, serve
from tests.compat.environment import client_directory

PACKAGE = Path(__file__).parent / "package"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.compat)


@pytest.fixture(scope="session")
def client_env() -> Path:
    return client_directory()


@pytest.fixture(scope="session")
def server(client_env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("hawk-home")) as running:
        yield running


@pytest.fixture
def hawk(client_env: Path, server: Server, tmp_path: Path) -> PublicClient:
    """The public client with a fresh home directory: no last ids, no cached server configuration."""
    home = tmp_path / "home"
    home.mkdir()
    return PublicClient(client_env, server, home)


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds the tiny eval as a file."""
    directory = tmp_path_factory.mktemp("tasks")
    shutil.copy(PACKAGE / "hawk_compat.py", directory)
    return directory


@pytest.fixture(scope="session")
def finished(server: Server, tasks: Path) -> str:
    """A job that has ended well: four samples, two attempts each."""
    job = server.submit("finished", "capitals", tasks, epochs=2)
    status = server.wait(job)
    assert status["status"] == "complete", status
    return job


@pytest.fixture(scope="session")
def broken(server: Server, tasks: Path) -> str:
    """A job whose attempts all errored."""
    job = server.submit("broken", "broken", tasks, retry_attempts=0, retry_on_error=0)
    status = server.wait(job)
    assert status["status"] == "failed", status
    return job


@pytest.fixture
def live(server: Server, tasks: Path, tmp_path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A job with three attempts in flight, and what lets them finish."""
    gate = tmp_path / "gate"
    job = server.submit("live", "gated", tasks, args={"gate": str(gate)})
    server.wait_running(job, 3)
    yield job, gate.touch
    server.request("DELETE", f"/eval_sets/{job}")
