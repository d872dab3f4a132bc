"""The Dockerfile: what can be told from reading it, and, where a docker engine answers, a real build of it.

The build takes a base image and packages: HAWK_TEST_DOCKER_BUILD has more options for `docker build`, where they come from
mirrors (`--network host --build-arg PYTHON_IMAGE=… --secret id=pip.conf,src=…`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawk import __version__
from hawk.images.archive import EPOCH
from hawk.images.build import LOCK, PATH, PREFIX, UID

HERE = Path(__file__).parents[2]

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """(word, the rest) of each instruction, continued lines joined, comments left out."""
    lines = [
        line
        for line in (HERE / "deploy/images/Dockerfile").read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0], line.split(None, 1)[1].strip()) for line in joined.splitlines() if line.strip()]


def stages() -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    name = ""
    for word, rest in instructions():
        if word == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", rest)
            assert match is not None
            name = match[2] or "final"
            found[name] = [(word, match[1])]
        elif name:
            found[name].append((word, rest))
    return found


def test_only_known_instructions() -> None:
    assert {word for word, _ in instructions()} <= {
        *("ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD", "EXPOSE"),
    }


def test_stages_stand_on_one_image_that_can_be_pinned() -> None:
    found = stages()
    base = "${PYTHON_IMAGE}"
    assert {name: steps[0][1] for name, steps in found.items()} == {
        **{"packages": base, "own": "packages", "runner": base, "server": "runner", "final": "runner"}
    }
    # a `# syntax=` line would have another image fetched, from a registry that a mirror does not stand in for
    assert not (HERE / "deploy/images/Dockerfile").read_text().startswith("# syntax")
    (default,) = [rest for word, rest in instructions() if word == "ARG" and rest.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"PYTHON_IMAGE=docker\.io/library/python:3\.1[1-4]-slim-\w+", default)


def test_it_runs_as_the_user_that_pods_have_and_where_they_look() -> None:
    runner = stages()["runner"]
    assert ("USER", f"{UID}:{UID}") in runner
    assert runner.index(("USER", f"{UID}:{UID}")) > max(
        i for i, (word, _) in enumerate(runner) if word == "RUN"
    )
    (environ,) = [rest for word, rest in runner if word == "ENV"]
    assert f"PATH={PATH} " in environ
    assert "HOME=/tmp" in environ


def test_nothing_of_the_build_stages_but_the_environment_is_in_it() -> None:
    assert [rest for word, rest in stages()["runner"] if word == "COPY"] == [
        f"--from=packages {PREFIX} {PREFIX}",
        f"--from=own /own {PREFIX}",
    ]


def test_a_step_that_fails_ends_the_build() -> None:
    for steps in stages().values():
        for rest in (rest for word, rest in steps if word == "RUN"):
            assert re.match(r"(--mount=\S+\s+)*set -eu;", rest), rest
            *before, last = rest.split("; ")
            assert not any("|| true" in step for step in before)
            assert "|| true" not in last or "compileall" in last


def test_what_a_mirror_needs_is_mounted_and_not_copied() -> None:
    found = stages()
    for rest in (rest for name in ("packages", "own") for word, rest in found[name] if word == "RUN"):
        assert "--mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt " in rest
    (environ,) = [rest for word, rest in found["packages"] if word == "ENV"]
    assert "PIP_CONFIG_FILE=/run/secrets/pip.conf" in environ
    assert not any(re.search(r"PIP_|SECRET|TOKEN", rest) for _, rest in found["runner"])


def test_what_it_copies_is_in_the_repository() -> None:
    sent = (HERE / ".dockerignore").read_text().splitlines()
    for rest in (rest for name in ("packages", "own") for word, rest in stages()[name] if word == "COPY"):
        *sources, _target = rest.split()
        for source in sources:
            if source.startswith("requirements"):  # a lock file is the builder's own
                assert "!requirements.lock" in sent
            else:
                assert (HERE / source).exists(), source
                assert f"!{source.split('/')[0]}" in sent, source


def test_it_installs_hawk_with_extras_that_there_are() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    text = " ".join(rest for word, rest in stages()["packages"] if word == "RUN")
    match = re.search(r'"\.\[([a-z,]+)\]"', text)
    assert match is not None
    assert set(match[1].split(",")) <= set(project["optional-dependencies"])
    assert LOCK in text


def test_builds_are_alike() -> None:
    packages = stages()["packages"]
    assert ("ARG", f"SOURCE_DATE_EPOCH={EPOCH}") in packages
    text = " ".join(rest for _, rest in packages)
    for needed in ("PIP_NO_CACHE_DIR=1", "--no-compile", "unchecked-hash", "PYTHONHASHSEED=0"):
        assert needed in text


@pytest.mark.parametrize("stage", ["server", "final"])
def test_the_other_images_are_the_same_files(stage: str) -> None:
    assert {word for word, _ in stages()[stage]} <= {"FROM", "EXPOSE", "CMD"}


# --- a real build

LOOK = r"""
import compileall, importlib.util, json, os, pathlib, subprocess, sys
import hawk
own = pathlib.Path(hawk.__file__).parent
def ends(*line):
    done = subprocess.run(line, capture_output=True, text=True)
    return [done.returncode, (done.stdout + done.stderr).strip()]
def writable(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "version": ends("hawk", "--version"),
    "runner": ends("python", "-m", "hawk.runner.pod"),
    "help": [ends("hawk", *line, "--help")[0] for line in (["server", "run"], ["middleman", "serve"], ["server", "migrate"])],
    "ids": [os.getuid(), os.getgid(), pathlib.Path.home().as_posix(), os.getcwd()],
    "name": ends("id", "-un"),
    "files": sorted(str(p.relative_to(own)) for p in own.rglob("*") if p.is_file() and "__pycache__" not in p.parts),
    "compiled": os.path.exists(importlib.util.cache_from_source(hawk.__file__)),
    "packages": pathlib.Path(sys.prefix, "requirements.txt").read_text().split(),
    "extras": [importlib.util.find_spec(name) is not None for name in ("kubernetes_asyncio", "psycopg", "tinydb")],
    "writable": [path for path in ("/opt/hawk/x", "/x", "/tmp/x") if writable(path)],
    "left": [path for path in ("/run/secrets", "/source", "/own", "/root/.cache") if os.path.exists(path)],
}))
"""
"""Run in a container of the image: what is there."""


def docker(*args: str, patience: float = 60) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "DOCKER_BUILDKIT": "1"}
    return subprocess.run(
        ["docker", *args], env=environ, capture_output=True, text=True, errors="replace", timeout=patience
    )


@pytest.fixture(scope="module")
def built() -> Iterator[str]:
    """The image, with a package more."""
    try:
        there = docker("version")
    except (OSError, subprocess.TimeoutExpired) as ex:
        pytest.skip(f"NOT TESTED: a real build of the Dockerfile: {ex}")
    if there.returncode:
        pytest.skip("NOT TESTED: a real build of the Dockerfile: no docker engine answers")
    name = f"hawk-test-{secrets.token_hex(4)}:1"
    options = shlex.split(os.environ.get("HAWK_TEST_DOCKER_BUILD", ""))
    line = ["build", "-f", str(HERE / "deploy/images/Dockerfile"), "-t", name]
    done = docker(*line, "--build-arg", "PACKAGES=tinydb==4.8.0", *options, str(HERE), patience=900)
    if "buildx component is missing" in done.stderr:
        pytest.skip("NOT TESTED: a real build of the Dockerfile: this docker has no BuildKit")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    yield name
    docker("image", "rm", name)


@pytest.mark.slow
@pytest.mark.timeout(960)
def test_what_is_built_starts_as_pods_start_it(built: str) -> None:
    """Not root, with a root file system that can't be written, no capabilities and no network."""
    pod = ["--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "ALL", "--network", "none"]
    done = docker("run", "--rm", *pod, "--security-opt", "no-new-privileges", built, "python", "-c", LOOK)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == [0, f"hawk, version {__version__}"]
    assert found["runner"][0] == 64  # there is no job, which it says
    assert found["help"] == [0, 0, 0]
    assert (found["ids"], found["name"]) == ([UID, UID, "/tmp", "/tmp"], [0, "hawk"])
    source = HERE / "src/hawk"
    files = (p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    assert found["files"] == sorted(str(path.relative_to(source)) for path in files)
    assert found["compiled"]
    assert found["extras"] == [True, True, True]
    assert "tinydb==4.8.0" in found["packages"]
    assert not any(line.startswith("hawk") for line in found["packages"])
    assert found["writable"] == ["/tmp/x"]
    assert found["left"] == []
    config = json.loads(docker("image", "inspect", built).stdout)[0]["Config"]
    assert (config["User"], config["WorkingDir"]) == (f"{UID}:{UID}", "/tmp")
    assert f"PATH={PATH}" in config["Env"]
