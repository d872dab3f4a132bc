"""A server's own token on a real cluster: it expires, or its account is taken away, and another is there in its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hawk.errors import ClusterError
from hawk.kube.api import Cluster
from tests.engine.jobs_fake import until
from tests.kubernetes.test_engine_jobs import STAYS, Place, does, place

__all__ = ["does", "place"]

ACCOUNT = Path(__file__).parents[2] / "deploy/base/server-account.yaml"


async def account(cluster: Cluster) -> str:
    """Makes the server's account, with the rights of `deploy/base` and no others; a token of it."""
    for manifest in yaml.safe_load_all(ACCOUNT.read_text()):
        await cluster.create(manifest, exist_ok=True)
    path = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts/hawk-server/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await cluster.requests.send("POST", path, body=body, what="ask for a token")
    return str(answer["status"]["token"])


def test_a_token_that_is_good_no_more_is_said_and_the_next_one_taken_up(
    place: Place,
    does: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    does(STAYS)
    token = tmp_path / "token"
    token.write_text(place.ask(account))
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    for user in config["users"]:
        user["user"] = {"tokenFile": str(token)}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    with monkeypatch.context() as there:
        there.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        server = Place(tmp_path / "server", place.namespace)
    try:
        server.job("a")
        server.engine.launch("a", {})
        runner = until(lambda: server.engine.runner_pod("a"), 60)
        until(lambda: server.engine.leading, 30)
        place.ask(
            lambda cluster: cluster.delete("ServiceAccount", "hawk-server")
        )  # and all its tokens with it
        until(lambda: not server.engine.leading, 60)  # what it watches goes on for minutes; it acts no more
        assert server.engine.liveness("a").alive
        assert "lease can't be renewed" in caplog.text
        server.job("b")
        with pytest.raises(ClusterError) as caught:
            server.engine.launch("b", {})
        assert caught.value.fields["reason"] == "unauthorized"
        token.write_text(place.ask(account))
        until(lambda: server.engine.leading, 90)
        assert server.engine.liveness("a").alive
        assert server.engine.runner_pod("a") == runner
        server.engine.launch("b", {})
        until(lambda: server.engine.runner_pod("b"), 60)
    finally:
        token.write_text(place.ask(account))
        for job in ("a", "b"):
            server.engine.kill(job)
        server.engine.close()
