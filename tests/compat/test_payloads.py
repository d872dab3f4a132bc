"""Our payloads through the public client's own models and library: stricter than what its commands print."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.actors import PublicClient, Server, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.slow]

Live = tuple[str, Callable[[], None]]

READ_ALL = """
import asyncio, json, sys
import pydantic
from hawk.client import HawkClient, types
from hawk.core.types import monitoring

def rows(kind, items):
    # The library hands these out unchecked, and commands slice and subscript them: check every declared field.
    pydantic.TypeAdapter(list[kind]).validate_json(json.dumps(items), strict=True)
    return items

async def main(job):
    async with HawkClient() as client:
        status = await client.get_eval_set_status(job)
        brief = await client.get_job_status(job)
        report = await client.get_job_monitoring_data(job)
        logs = await client.fetch_logs(job, from_start=True, sort=monitoring.SortOrder.ASC, limit=10000)
        jobs = rows(types.JobListItem, await client.get_jobs(mine=True, limit=100))
        eval_sets = rows(types.EvalSetInfo, await client.get_eval_sets(limit=100))
        evals = rows(types.EvalInfo, await client.get_evals(job))
        samples = rows(types.SampleListItem, await client.get_all_samples_for_eval_set(job))
        found = [await client.get_sample_metadata(s["uuid"]) for s in samples]
        rows(types.SampleMetadata, found)
        me = await client.get_me()
        files = await client.get_log_files(job)
        urls = [pair async for pair in client.get_download_urls([f["name"] for f in files])]
        print(json.dumps({
            "status": status.model_dump(mode="json"), "brief": brief.model_dump(mode="json"),
            "report": report.model_dump(mode="json"), "logs": [e.model_dump(mode="json") for e in logs],
            "jobs": jobs, "eval_sets": eval_sets, "evals": evals, "samples": samples, "found": found,
            "me": me, "files": files, "urls": urls,
        }))

asyncio.run(main(sys.argv[1]))
"""

STREAM = """
import asyncio, json, sys
from hawk.client import HawkClient

async def main(job):
    async with HawkClient() as client:
        print(json.dumps([s.status async for s in client.stream_eval_set_status(job)]))

asyncio.run(main(sys.argv[1]))
"""

CONFIG = """
import json, os, sys, urllib.request
from hawk.core.types.client_config import ClientConfig

body = urllib.request.urlopen(os.environ["HAWK_API_URL"] + "/auth/config").read()
print(ClientConfig.model_validate_json(body).model_dump_json())
"""


@pytest.mark.parametrize("job", ["finished", "broken"])
def test_every_payload_of_an_ended_job(
    job: str, hawk: PublicClient, server: Server, request: pytest.FixtureRequest
) -> None:
    job_id = request.getfixturevalue(job)
    data = hawk.python(READ_ALL, job_id)
    _agree(data, job_id)
    samples = {s["uuid"] for task in data["status"]["tasks"] for s in task["samples"]}
    assert {s["uuid"] for s in data["samples"]} == samples
    assert data["brief"]["details"]["warehouse_sample_count"] == len(samples)
    assert not any(s["is_provisional"] for s in data["samples"])
    assert data["logs"] == sorted(data["logs"], key=lambda e: e["timestamp"])
    assert {f["name"] for f in data["files"]} == {f"{job_id}/{s['filename']}" for s in data["samples"]}
    assert len(data["urls"]) == len(data["files"])


def test_every_payload_of_a_running_job(hawk: PublicClient, live: Live) -> None:
    job_id, _ = live

    def indexed() -> dict[str, Any] | None:
        found: dict[str, Any] = hawk.python(READ_ALL, job_id)
        return found if found["evals"] else None

    data = wait_until("the job's log is indexed", indexed)
    _agree(data, job_id)
    assert data["status"]["status"] == "running"
    assert all(s["is_provisional"] for s in data["samples"])


def test_stream_ends_with_the_job(hawk: PublicClient, finished: str) -> None:
    assert hawk.python(STREAM, finished) == ["complete"]


def test_client_configuration_is_public(hawk: PublicClient) -> None:
    hawk.environ["HAWK_ACCESS_TOKEN"] = ""
    config = hawk.python(CONFIG)
    assert config["issuer"] == "hawk"


def _agree(data: dict[str, Any], job_id: str) -> None:
    """Every endpoint tells the same story about one job."""
    assert data["status"]["job_id"] == data["report"]["job_id"] == job_id
    assert data["brief"]["job_type"] == "eval_set"
    [job] = [j for j in data["jobs"] if j["job_id"] == job_id]
    assert job["status"] == data["brief"]["status"] == data["status"]["status"]
    assert job["created_by"] == data["me"]["sub"] == data["status"]["created_by"]
    assert job_id in {e["eval_set_id"] for e in data["eval_sets"]}
    assert {e["eval_set_id"] for e in data["evals"]} == {job_id}
    progress = data["status"]["progress"]
    assert progress["total"] == sum(count for name, count in progress.items() if name != "total")
    assert sum(e["total_samples"] for e in data["evals"]) == progress["total"]
