"""Imports run one way, and each heavy library stays behind its own door."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hawk"

MAY_IMPORT = {
    "core": {"config"},
    "config": set(),
    "parcel": {"core", "config"},
    "bridge": {"evals", "core", "config"},
    "store": {"bridge", "core", "config"},
    "images": {"sandbox", "core", "config"},
    "kube": {"core", "config"},
    "link": {"store", "core", "config"},
    "runner": {"bridge", "sandbox", "store", "core", "config", "middleman", "link", "parcel", "kube"},
    "middleman": {"store", "core", "config"},
    "sandbox": {"bridge", "kube", "core", "config"},
    "evals": {"sandbox", "core", "config"},
    "engine": {"sandbox", "store", "core", "config", "kube", "link", "middleman"},
    "server": {"engine", "store", "core", "config", "bridge", "middleman", "link", "parcel"},
    "cli": {"client", "core", "config", "sandbox", "evals", "middleman", "store", "kube", "images", "parcel"},
    "client": {"core", "config"},
}
"""Folder of `hawk` to the folders it may import; `errors` and the package itself are everybody's."""

COMMON_GROUND = {
    "actions",
    "rundir",
    "locks",
    "marks",
    "stoprequests",
    "attempts",
    "borrowed",
    "desk",
    "disks",
    "sockets",
    "stacks",
    "tails",
}
"""Files of the store without a database: the run directory is common ground of server, engine and runner."""

OPEN_DOORS = {
    "runner": {"presence", "calls", "tokens"},
    "server": {"presence", "calls", "shared_spans"},
    "engine": {"tokens", "keys"},
    "cli": {"presence", "calls", "keys", "catalog", "pricelist", "settings", "probe"},
}
"""Files of the middleman for others: where it is, what it is asked, a job's token, its spans, what an operator sets up."""


FILES_OF_THE_CLI = {"bundles", "evidence"}
"""Files of the store for the command line: a bundle is read without a server."""


def modules() -> Iterator[tuple[Path, str, str]]:
    """(file, folder of `hawk` it is in, module that it imports)"""
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                yield path, folder, name


def test_imports_run_one_way() -> None:
    wrong = []
    for path, folder, name in modules():
        parts = name.split(".")
        if parts[0] != "hawk" or len(parts) < 2 or folder not in MAY_IMPORT:
            continue
        target = parts[1]
        if target in MAY_IMPORT and target != folder and target not in MAY_IMPORT[folder]:
            wrong.append(f"{path.relative_to(SOURCE)}: {name}")
        if (
            folder not in ("middleman", target)
            and target == "middleman"
            and parts[2] not in OPEN_DOORS[folder]
        ):
            wrong.append(f"{path.relative_to(SOURCE)}: {name}")
        if (
            folder in ("runner", "engine", "middleman", "link")
            and target == "store"
            and parts[2] not in COMMON_GROUND
        ):
            wrong.append(f"{path.relative_to(SOURCE)}: {name}")
        if folder == "cli" and target == "store" and parts[2] not in FILES_OF_THE_CLI:
            wrong.append(f"{path.relative_to(SOURCE)}: {name}")
    assert wrong == []


def test_only_the_bridge_knows_inspects_private_modules() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, folder, name in modules()
        if name.startswith("inspect_ai") and "._" in name and folder != "bridge"
    ]
    assert wrong == []


LIGHT = {
    "hawk.cli": ["inspect_ai", "fastapi", "sqlalchemy", "pydantic", "httpx", "msgspec", "rich"],
    "hawk.client": ["inspect_ai", "fastapi", "sqlalchemy", "pydantic", "httpx", "rich"],
    "hawk.runner.supervisor": [
        "inspect_ai",
        "fastapi",
        "sqlalchemy",
        "pydantic",
        "httpx",
        "asyncio",
        "click",
    ],
    "hawk.engine.local": ["inspect_ai", "fastapi", "sqlalchemy", "pydantic", "httpx"],
    "hawk.server.app": ["inspect_ai"],
    "hawk.evals.folder": ["inspect_ai"],
}
"""Module to the packages that importing it must not load: start-up time and memory."""


@pytest.mark.parametrize("module", LIGHT)
def test_importing_a_module_does_not_load_heavy_packages(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in LIGHT[module] if name in loaded] == []
