"""What a person does with the public client: submit, resume, stop, delete."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.compat.actors import PublicClient, Server, wait_until
from tests.compat.conftest import PACKAGE

pytestmark = [pytest.mark.compat, pytest.mark.slow]

Live = tuple[str, Callable[[], None]]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny eval as a package that pip can install from a directory."""
    directory = tmp_path_factory.mktemp("package") / "hawk-compat-tasks"
    shutil.copytree(PACKAGE, directory, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def _config(package: Path, **fields: object) -> dict[str, object]:
    """An eval set in the public format, which names tasks and models by package."""
    return {
        "name": "public",
        "tasks": [{"package": str(package), "name": "hawk_compat", "items": [{"name": "capitals"}]}],
        "models": [{"package": str(package), "name": "hawk_compat", "items": [{"name": "small"}]}],
        "epochs": {"epochs": 2, "reducer": ["mean"]},
        **fields,
    }


def _write(path: Path, config: dict[str, object]) -> str:
    path.write_text(yaml.safe_dump(config))
    return str(path)


def _submitted(output: str) -> str:
    return next(line.split(": ")[1] for line in output.splitlines() if line.startswith("Eval set ID: "))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eval_set_in_the_public_format_runs(
    hawk: PublicClient, server: Server, package: Path, tmp_path: Path
) -> None:
    job = _submitted(hawk.run("eval-set", _write(tmp_path / "public.yaml", _config(package))))
    assert job.startswith("public-")
    status = server.wait(job, 480)
    assert status["status"] == "complete", status
    assert "Complete — 6/8 complete" in hawk.run("watch", "--no-follow")  # the last job is remembered

    output = hawk.run("eval-set", "resume", job)
    assert f"Resuming eval set: {job}" in output
    again = server.wait(job, 480)
    assert _uuids(again) == _uuids(status)  # nothing that had finished ran twice


def test_stop_scores_what_is_there(hawk: PublicClient, live: Live, server: Server) -> None:
    job, _ = live
    assert hawk.run("stop", job) == ""
    server.wait(job)
    samples = hawk.json("list", "samples", job, "--json")
    assert any(s["scores"] for s in samples)
    assert not any(s["status"] == "error" for s in samples)


def test_stop_of_one_sample_leaves_the_others(hawk: PublicClient, live: Live, server: Server) -> None:
    job, open_gate = live
    sample = next(s for s in server.status(job)["tasks"][0]["samples"] if s["id"] == "two")
    hawk.run("stop", job, "--sample", sample["uuid"])
    status = server.wait_running(job, 2)
    assert {s["id"] for s in status["tasks"][0]["samples"] if s["phase"] == "running"} == {"one", "three"}
    open_gate()
    server.wait(job)


def test_stop_with_error_can_be_resumed(hawk: PublicClient, live: Live, server: Server) -> None:
    job, open_gate = live
    hawk.run("stop", job, "--error")
    status = server.wait(job, 45)  # nothing is scored, so nothing is waited for
    assert status["status"] == "failed", status
    assert status["progress"]["completed"] == 0
    open_gate()
    assert f"Resuming eval set: {job}" in hawk.run("eval-set", "resume", job)

    def complete() -> bool:
        return bool(server.status(job)["progress"]["completed"] == 3)

    wait_until("resumed attempts complete", complete)
    assert "Complete — 3/3 complete" in hawk.run("watch", job)


def test_delete_ends_the_job(hawk: PublicClient, tasks: Path, server: Server, tmp_path: Path) -> None:
    job = server.submit("doomed", "gated", tasks, args={"gate": str(tmp_path / "never")})
    server.wait_running(job, 3)
    assert "--yes" in hawk.run("delete", job, code=1)  # no terminal to ask at
    assert f"Eval set {job} deleted." in hawk.run("delete", job, "-y")
    assert not (server.home / "runs" / job).exists()
    assert job not in hawk.run("list", "eval-sets")


def test_delete_of_an_unknown_job(hawk: PublicClient) -> None:
    output = hawk.run("delete", "no-such-job", "-y", code=1)
    assert "No deletable eval set or scan found with ID no-such-job" in output


def test_invalid_config_is_refused_with_the_reason(hawk: PublicClient, package: Path, tmp_path: Path) -> None:
    config = _config(package, eval_set_id="x" * 43, log_level="shout", message_limit=-1)
    output = hawk.run("eval-set", _write(tmp_path / "bad.yaml", config), "--skip-confirm", code=1)
    assert "message_limit" in output


def test_fields_without_meaning_here_are_warned_about(
    hawk: PublicClient, package: Path, tmp_path: Path
) -> None:
    config = _write(tmp_path / "priority.yaml", _config(package, name="warned"))
    started = time.monotonic()
    output = hawk.run("eval-set", config, "--image-tag", "v1", "--force")
    assert time.monotonic() - started < 30  # installing happens in the job, not in the request
    assert "force" in output
    assert "image_tag" in output
    hawk.run("delete", _submitted(output), "-y")


def _uuids(status: dict[str, list[dict[str, list[dict[str, str]]]]]) -> set[str]:
    return {sample["uuid"] for task in status["tasks"] for sample in task["samples"]}
