"""The Dockerfile can't be built where there is no registry. What can be told from reading it is tested here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

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
    assert list(found) == ["build", "runner", "server", "final"]
    assert [found[name][0][1] for name in found] == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}", "runner", "runner"]
    (default,) = [rest for word, rest in instructions() if word == "ARG" and rest.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"PYTHON_IMAGE=docker\.io/library/python:3\.1[1-4]-slim-\w+", default)


def test_it_runs_as_the_user_that_pods_have_and_where_they_look() -> None:
    runner = stages()["runner"]
    assert ("USER", f"{UID}:{UID}") in runner
    assert runner.index(("USER", f"{UID}:{UID}")) > max(
        i for i, (word, _) in enumerate(runner) if word == "RUN"
    )
    (environ,) = [rest for word, rest in runner if word == "ENV"]
    assert f"PATH={PREFIX}/bin:" in environ
    assert "HOME=/tmp" in environ
    assert PATH.startswith(f"{PREFIX}/bin:")


def test_nothing_of_the_build_stage_but_the_environment_is_in_it() -> None:
    assert [rest for word, rest in stages()["runner"] if word == "COPY"] == [
        f"--from=build {PREFIX} {PREFIX}"
    ]


def test_what_it_copies_is_in_the_repository() -> None:
    for word, rest in stages()["build"]:
        if word != "COPY":
            continue
        *sources, _target = rest.split()
        for source in sources:
            if not source.startswith("requirements"):  # a lock file is the builder's own
                assert (HERE / source).exists(), source


def test_it_installs_hawk_with_extras_that_there_are() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    text = " ".join(rest for word, rest in stages()["build"] if word == "RUN")
    match = re.search(r'"\.\[([a-z,]+)\]"', text)
    assert match is not None
    assert set(match[1].split(",")) <= set(project["optional-dependencies"])
    assert LOCK in text


def test_builds_are_alike() -> None:
    build = stages()["build"]
    assert ("ARG", f"SOURCE_DATE_EPOCH={EPOCH}") in build
    text = " ".join(rest for _, rest in build)
    for needed in ("PIP_NO_CACHE_DIR=1", "--no-compile", "unchecked-hash", "PYTHONHASHSEED=0"):
        assert needed in text


@pytest.mark.parametrize("stage", ["server", "final"])
def test_the_other_images_are_the_same_files(stage: str) -> None:
    assert {word for word, _ in stages()[stage]} <= {"FROM", "EXPOSE", "CMD"}
