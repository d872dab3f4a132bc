"""`overlays/production` on a cluster: a database in another namespace, a bucket, and a server that loses its disk.

The bucket is a server of this machine: HAWK_TEST_HOST is its address as pods see it.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator

import boto3
import pytest
import yaml
from moto.server import ThreadedMotoServer

from tests.kubernetes.deployment import Deployment, Object, fresh, kubectl, moved, needed, small, until

HOST = os.environ.get("HAWK_TEST_HOST", "")
BUCKET = "evals"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HOST, reason="NOT TESTED: HAWK_TEST_HOST names no address that pods reach"),
]


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of an object storage with a bucket, for this machine and for pods."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request otherwise
    server = ThreadedMotoServer(ip_address=HOST, port=0)
    server.start()
    address = f"http://{HOST}:{server.get_host_and_port()[1]}"
    try:
        objects(address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        server.stop()


def objects(address: str) -> boto3.client:
    return boto3.client(
        "s3",
        endpoint_url=address,
        region_name=KEYS["AWS_DEFAULT_REGION"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """URL of a PostgreSQL in a namespace of its own."""
    namespace, password = fresh("db"), secrets.token_hex(12)
    kubectl("create", "namespace", namespace)
    try:
        parts = [
            one
            for one in moved("overlays/single-node", namespace)
            if one["metadata"]["name"] == "hawk-postgres" and one["kind"] in ("StatefulSet", "Service")
        ]
        for one in parts:
            small(one, "")
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hawk-database"},
            "stringData": {"password": password},
        }
        kubectl("-n", namespace, "apply", "-f", "-", stdin=yaml.safe_dump_all([secret, *parts]))
        kubectl("-n", namespace, "rollout", "status", "statefulset/hawk-postgres", "--timeout=240s")
        yield f"postgresql://hawk:{password}@hawk-postgres.{namespace}:5432/hawk"
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, bucket: str, database: str) -> Iterator[Deployment]:
    def change(one: Object) -> None:
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "hawk-server":
            (server,) = one["spec"]["template"]["spec"]["containers"]
            server["env"].append({"name": "HAWK_BUCKET", "value": f"s3://{BUCKET}/hawk"})

    home = tmp_path_factory.mktemp("home")
    found = Deployment(fresh("prod"), "production", needed(), home, change)
    try:
        keys = [f"--from-literal={name}={value}" for name, value in KEYS.items()]
        at = f"--from-literal=AWS_ENDPOINT_URL={bucket}"
        found.kubectl("create", "secret", "generic", "hawk-bucket", at, *keys)
        found.apply(database)
        found.ready()
        yield found
    finally:
        found.close()


def test_a_server_that_lost_its_disk_goes_on_with_what_the_bucket_has(
    deployed: Deployment, bucket: str
) -> None:
    deployed.submit("ended")
    deployed.complete("ended")
    deployed.submit("under-way", seconds=8.0)
    until("some are done", lambda: deployed.status("under-way").progress.completed >= 2)

    def stored(job: str) -> set[str]:
        found = objects(bucket).list_objects_v2(Bucket=BUCKET, Prefix=f"hawk/{job}/").get("Contents", [])
        return {str(one["Key"]).removeprefix(f"hawk/{job}/") for one in found}

    until("its end is stored", lambda: {"snapshot.json", "journal.jsonl"} <= stored("ended"), 60)
    until("the other is stored", lambda: "plan.json" in stored("under-way"), 60)
    deployed.kubectl("scale", "deployment/hawk-server", "--replicas=0")
    until("the server is gone", lambda: deployed.pods("app.kubernetes.io/component=server") == [], 60)
    deployed.kubectl("delete", "pvc", "hawk-server")
    deployed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(deployed.objects))
    deployed.ready()
    assert deployed.status("ended").progress.completed == 16
    assert deployed.hawk("report", "ended")
    deployed.complete("under-way")
    for job in ("ended", "under-way"):
        deployed.hawk("delete", job, "-y")
        until("the bucket forgets it", lambda job=job: stored(job) == set(), 60)  # type: ignore[misc]


@pytest.mark.skipif(
    not os.environ.get("HAWK_TEST_NETWORK_POLICIES"), reason="NOT TESTED: no HAWK_TEST_NETWORK_POLICIES=1"
)
def test_only_runners_and_the_ingress_reach_the_server(deployed: Deployment) -> None:
    server = "hawk-server:8080"
    runner = {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": "runner"}
    assert deployed.knocks("stranger", {}, server) == {server: False}
    assert deployed.knocks("runner", runner, server) == {server: True}
