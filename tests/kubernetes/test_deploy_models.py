"""Models through the middlemen that all jobs of a cluster share: what they noted is in the run directory of each job.

What it takes: `tests.kubernetes.deployment`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.conftest import IMAGE
from tests.kubernetes.deployment import Deployment, fresh, kubectl, needed, until
from tests.kubernetes.sandbox_task import __file__ as sandbox_task
from tests.middleman.asking import __file__ as asking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TASK = Path(sandbox_task)
SAMPLES, CALLS = 8, 3
"""Connections are kept, and the cluster deals them out at random: so many are hardly ever all at one middleman."""

PROVIDER = """
import http.server, json, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(2.0)
        answer = {"id": "a", "object": "chat.completion", "created": 1, "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


def provider(image: str) -> list[dict[str, Any]]:
    """A model that says yes, after two seconds."""
    labels = {"app": "provider"}
    safe = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "image": image, "command": ["python", "-c", PROVIDER], "securityContext": safe}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "provider", "labels": labels},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "provider"},
        "spec": {"selector": labels, "ports": [{"port": 8000}]},
    }
    return [pod, service]


def with_provider(one: dict[str, Any]) -> None:
    if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "hawk-middleman":
        there = {"base_url": "http://provider:8000/v1"}
        one["data"] = {"middleman.yaml": yaml.safe_dump({"providers": {"local": there}})}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    image = needed()
    found = Deployment(fresh("models"), "single-node", image, tmp_path_factory.mktemp("home"), with_provider)
    try:
        found.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(provider(image)))
        found.apply()
        found.ready()
        yield found
    finally:
        found.close()


def submit(deployed: Deployment, job: str) -> None:
    directory = deployed.home / job
    directory.mkdir(parents=True)
    shutil.copy(asking, directory)
    items = [{"name": "plain", "args": {"samples": SAMPLES, "calls": CALLS}}]
    config = {
        "tasks": [{"file": Path(asking).name, "items": items}],
        "models": ["openai-api/local/x"],
        "runner": {"cpu": "200m", "memory": "768Mi"},
    }
    (directory / "evals.yaml").write_text(yaml.safe_dump(config))
    deployed.hawk("eval-set", str(directory / "evals.yaml"), "--name", job)


def in_server(deployed: Deployment, *command: str) -> str:
    return deployed.kubectl("exec", deployed.names("server")[-1], "-c", "server", "--", *command)


def in_runner(deployed: Deployment, job: str, *command: str) -> str:
    return deployed.kubectl("exec", deployed.runners(job)[0], "-c", "runner", "--", *command)


def ended(deployed: Deployment, job: str) -> Any:
    return until(f"{job} ends", lambda: s if (s := deployed.status(job)).status.terminal else None)


def test_spans_of_both_middlemen_reach_server_and_runner(
    deployed: Deployment,
) -> None:
    job = "asks"
    submit(deployed, job)
    spans = ("cat", f"runs/{job}/spans/middleman.jsonl")
    there = until("the runner has spans", lambda: in_runner(deployed, job, "cat", f"/hawk/{spans[1]}"))
    assert json.loads(there.splitlines()[0])["provider"] == "local"
    evidence = ("cat", f"/hawk/runs/{job}/evidence.json")

    def open_calls() -> int:
        found = json.loads(in_runner(deployed, job, *evidence))
        assert "middleman" not in found.get("missing", {})
        return sum(len(model.get("open", ())) for model in found.get("models", ()))

    until("its diagnosis has the calls of all attempts", lambda: open_calls() == SAMPLES)
    end = ended(deployed, job)
    assert (end.status, end.models.requests) == ("complete", SAMPLES * CALLS)

    def lines() -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in in_server(deployed, "cat", f"/hawk/home/{spans[1]}").splitlines()
        ]

    until("the server has all", lambda: len(lines()) == SAMPLES * CALLS)
    assert len({line["id"] for line in lines()}) == SAMPLES * CALLS
    uuid = end.tasks[0].samples[0].uuid
    shown = json.loads(deployed.hawk("timeline", str(uuid), "--json"))
    assert sum(span["category"] == "provider" for span in shown["spans"]) == CALLS


def test_what_agents_left_is_scored_again_in_a_pod_that_is_given_it(deployed: Deployment) -> None:
    job, directory = "leaves", deployed.home / "leaves"
    directory.mkdir()
    shutil.copy(TASK, directory)
    # sandboxes of root
    kubectl(
        "label", "--overwrite", "namespace", deployed.namespace, "pod-security.kubernetes.io/enforce=baseline"
    )
    box = {"image": IMAGE, "pull_policy": "IfNotPresent", "working_dir": "/srv/w"}
    work = "mkdir -p /srv/w && cd /srv/w && echo made >made; rm given"
    config = {
        "tasks": [{"file": TASK.name, "items": [{"name": "works", "args": {"command": work}}]}],
        "models": ["mockllm/model"],
        "sandbox": {"type": "pod", "config": box},
        "runner": {"cpu": "200m", "memory": "768Mi"},
    }
    (directory / "evals.yaml").write_text(yaml.safe_dump(config))
    deployed.hawk("eval-set", str(directory / "evals.yaml"), "--name", job)
    first = ended(deployed, job)
    assert (first.status, first.reason) == ("complete", None), deployed.hawk("report", job, "--json")
    deployed.hawk("rescore", job, "--name", "again")
    again = ended(deployed, "again")
    assert (again.status, again.progress.completed) == ("complete", 1), deployed.hawk(
        "report", "again", "--json"
    )
    found = in_server(deployed, "sh", "-c", "cat /hawk/home/runs/again/attempts/*/*/result.json")
    result = json.loads(found)
    assert (result["rescored_from"], result["outcome"], result.get("workspace_error")) == (job, "pass", None)
    kept = "cd /hawk/home/runs; cat %s/attempts/*/*/workspace.tar.zst | md5sum"
    assert in_server(deployed, "sh", "-c", kept % job) == in_server(deployed, "sh", "-c", kept % "again")
