"""A middleman and a scriptable provider, shared by the tests of a run; each test gets models of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.middleman.certificate import self_signed
from tests.middleman.provider import Provider
from tests.middleman.running import Middleman, settings

QUICK = {"connect": 0.5, "first_byte": 0.6, "idle": 0.6, "total": 2.0}
"""Deadlines of the provider called `quick`, in seconds."""


@pytest.fixture(scope="session")
def running_provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: Provider) -> Iterator[Provider]:
    """The provider, without the rules and requests of other tests."""
    running_provider.reset()
    yield running_provider
    running_provider.reset()


@pytest.fixture(scope="session")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """A provider with a certificate that nobody has signed."""
    with Provider(tls=self_signed(tmp_path_factory.mktemp("tls"))) as provider:
        yield provider


@pytest.fixture(scope="session")
def middleman(
    running_provider: Provider, untrusted: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Middleman]:
    """The real process. At its end no key and no token may be in anything that it wrote."""
    found = Middleman(
        tmp_path_factory.mktemp("middleman") / "home", shared(running_provider.url, untrusted.url)
    )
    found.start()
    try:
        yield found
    finally:
        status = found.stop()
    assert status == 0
    assert found.leaks() == []


def shared(url: str, untrusted: str) -> dict[str, Any]:
    """Settings of the shared middleman: providers with short deadlines, and ones that can't be reached."""
    ample = {"start": 256, "adaptive": False}
    return settings(
        url,
        job_upstreams="any",
        defaults={"limits": ample},
        providers={
            "quick": {"base_url": f"{url}/v1", "deadlines": QUICK},
            "fragile": {"base_url": f"{url}/v1", "breaker": {"failures": 3, "over": 0.3, "seconds": 0.5}},
            "narrow": {
                "base_url": f"{url}/v1",
                "limits": {"most": 1, "start": 1},
                "deadlines": {"queue": 0.4},
            },
            "single": {"base_url": f"{url}/v1", "limits": {"most": 1, "start": 1}},
            "ten": {"base_url": f"{url}/v1", "limits": {"most": 10, "start": 10}},
            "adaptive": {"base_url": f"{url}/v1", "limits": {"start": 8, "adaptive": True}},
            "keyless": {"base_url": f"{url}/v1", "needs_key": True},
            "untrusted": {"base_url": f"{untrusted}/v1"},
            "closed": {"base_url": "http://127.0.0.1:1/v1"},
            "nowhere": {"base_url": "http://no-such-host.invalid/v1"},
        },
    )


@pytest.fixture
def another(tmp_path: Path, provider: Provider) -> Iterator[Callable[..., Middleman]]:
    """Makes middlemen that a test may end: `another(config)`, with `provider` where it says nothing else."""
    made: list[Middleman] = []

    def make(config: dict[str, Any] | None = None, **environ: str) -> Middleman:
        found = Middleman(tmp_path / f"home-{len(made)}", config or settings(provider.url), **environ)
        made.append(found)
        return found

    yield make
    for found in made:
        if found.process is not None and found.process.poll() is None:
            found.kill()
        assert found.leaks() == []


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """A model that only this test asks for: queues and breakers are kept by model."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
