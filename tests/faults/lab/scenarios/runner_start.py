"""What keeps a job from its first attempt: packages, imports, datasets, mistakes in the eval set."""

from __future__ import annotations

from hawk.core.diagnosis.causes import Severity
from tests.faults.lab.bench import Bench, Case
from tests.faults.lab.run import ended, marked, submitted
from tests.faults.lab.scenario import scenario


@scenario("runner.dataset_loading")
def dataset_takes_long(bench: Bench) -> Case:
    return bench.case(
        [bench.sample(["ask"])],
        task={"load": ["sleep", 300]},
        present=marked("load"),
        must=[bench.line("load")],
    )


_BACKEND = """
import sys, time

def get_requires_for_build_wheel(config_settings=None):
    return []

def _wait():
    {body}

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    _wait()

def build_wheel(directory, config_settings=None, metadata_directory=None):
    _wait()
"""


def _package(bench: Bench, body: str) -> str:
    """A package whose build does this. Returns its directory."""
    name = bench.word()
    folder = bench.folder / name
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        f"[project]\nname = '{name}'\nversion = '1'\n"
    )
    (folder / "backend.py").write_text(_BACKEND.format(body=body))
    return str(folder)


@scenario("runner.environment_install")
def package_takes_long_to_build(bench: Bench) -> Case:
    package = _package(bench, "time.sleep(300)")
    return bench.case([bench.sample(["ask"])], packages=[package], present=submitted, must=[package])


@scenario("runner.environment_install", least=Severity.FATAL)
def package_does_not_build(bench: Bench) -> Case:
    word = bench.word()
    package = _package(bench, f"raise SystemExit('error: {word} is missing')")
    return bench.case([bench.sample(["ask"])], packages=[package], present=ended, must=[package])


@scenario("runner.import_error", least=Severity.FATAL, quick=True)
def module_is_missing(bench: Bench) -> Case:
    name = bench.word()
    return bench.case([bench.sample(["ask"])], task={"load": ["import", name]}, present=ended, must=[name])


@scenario("runner.import_error", least=Severity.FATAL)
def module_of_the_file_is_missing(bench: Bench) -> Case:
    name = bench.word()
    text = bench.file.read_text()
    bench.file.write_text(text.replace("import asyncio\n", f"import asyncio\nimport {name}\n", 1))
    return bench.case([bench.sample(["ask"])], present=ended, must=[name])


@scenario("runner.config_error", least=Severity.FATAL)
def argument_that_no_task_has(bench: Bench) -> Case:
    name = bench.word()
    return bench.case([bench.sample(["ask"])], task={name: 1}, present=ended, must=[name])


@scenario("runner.config_error", least=Severity.FATAL)
def dataset_is_not_there(bench: Bench) -> Case:
    path = f"/nonexistent/{bench.word()}.jsonl"
    return bench.case([bench.sample(["ask"])], task={"load": ["open", path]}, present=ended, must=[path])
