"""`deploy/` as kubectl renders it."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
OVERLAYS = ("single-node", "production")


@functools.cache
def rendered(directory: str) -> tuple[dict[str, Any], ...]:
    """All objects of a kustomization below `deploy/`."""
    if shutil.which("kubectl") is None:
        pytest.skip("NOT TESTED: kubectl, which renders deploy/, is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / directory)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(objects: tuple[dict[str, Any], ...], kind: str, name: str | None = None) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])]


def pod_specs(objects: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """Pod template by `Kind/name`."""
    return {
        f"{one['kind']}/{one['metadata']['name']}": one["spec"]["template"]
        for one in objects
        if one["kind"] in ("Deployment", "StatefulSet", "Job")
    }


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All of a pod's containers, those that run first included."""
    return [*spec.get("initContainers", ()), *spec["containers"]]
