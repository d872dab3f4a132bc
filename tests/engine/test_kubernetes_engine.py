"""The engine against a cluster in this process: launch, liveness, kill, and what goes wrong around them."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawk.config.cluster import load_cluster_settings
from hawk.config.settings import Settings, load_settings
from hawk.core.cluster import PodsSeen
from hawk.engine.kubernetes import kubernetes, leases, names, removal, watches
from hawk.engine.kubernetes.kubernetes import KubernetesEngine
from hawk.errors import ClusterError, ConflictError
from hawk.kube.api import Cluster
from hawk.link.start import Start
from hawk.store.rundir import JobSpec, RunDir, read_json, write_json
from tests.engine.jobs_fake import Running, until
from tests.kube.fake import Object, refuse

Make = Callable[..., KubernetesEngine]


@pytest.fixture
def make(cluster: Running, settings: Settings) -> Iterator[Make]:
    """Makes engines, and ends them."""
    made: list[KubernetesEngine] = []

    def one(at: Settings = settings, **environ: str) -> KubernetesEngine:
        made.append(KubernetesEngine(at, load_cluster_settings(environ), access=cluster.access))
        return made[-1]

    yield one
    for engine in made:
        engine.close()


def job(settings: Settings, job_id: str = "a", **more: Any) -> RunDir:
    run = RunDir(settings.root / job_id)
    run.create()
    config = {"tasks": [], **more.pop("config", {})}
    write_json(run.spec_file, JobSpec(job_id, "/srv/evals", config, engine="kubernetes", **more))
    return run


def secrets_of(cluster: Running, name: str) -> dict[str, bytes]:
    found = cluster.fake.named("Secret", name)
    assert found is not None
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


def pods(cluster: Running) -> list[Object]:
    return list(cluster.fake.of("Pod").values())


def left(cluster: Running) -> list[str]:
    return [
        f"{kind} {name}"
        for kind, items in cluster.fake.objects.items()
        for _, name in items
        if kind not in ("Lease", "Event")
    ]


def seen(run: RunDir) -> PodsSeen | None:
    return read_json(run.pods_file, PodsSeen)


# --- launch and kill


def test_a_launched_job_runs_with_its_secrets_and_is_killed_without_a_trace(
    cluster: Running, settings: Settings, make: Make
) -> None:
    run = job(settings, config={"models": [{"items": [{"name": "openai/gpt-4o"}]}]})
    engine = make()
    engine.launch("a", {"TOKEN": "t1", "OPENAI_API_KEY": "sk-1"})
    assert engine.liveness("a").alive
    assert engine.liveness("a").elsewhere
    runner = until(lambda: engine.runner_pod("a"))
    own = secrets_of(cluster, "hawk-a")
    assert json.loads(own["secrets.json"]) == {"TOKEN": "t1"}  # the key is where no task's code runs
    assert json.loads(secrets_of(cluster, "hawk-a-keys")["job-keys"]) == {"OPENAI_API_KEY": "sk-1"}
    start = msgspec.json.decode(own["start.json"], type=Start)
    assert (start.job, start.base_dir, start.middleman) == ("a", "/srv/evals", "http://127.0.0.1:8989")
    made = cluster.fake.named("Job", "hawk-a-g1")
    assert made is not None
    for name in ("hawk-a", "hawk-a-keys"):
        secret = cluster.fake.named("Secret", name)
        assert secret is not None
        assert secret["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    written = until(lambda: (s := seen(run)) is not None and s.runner is not None and s)
    assert written.runner is not None
    assert (written.runner.name, written.runner.phase) == (runner, "Running")
    assert engine.report("a")["processes"][0]["name"] == runner
    engine.kill("a")
    assert left(cluster) == []
    assert not engine.liveness("a").alive


def test_launching_again_while_it_runs_makes_nothing(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    before = cluster.fake.version
    engine.launch("a", {})
    assert len(cluster.fake.of("Job")) == 1
    assert [c for c in cluster.fake.log if c["version"] > before and c["kind"] == "Job"] == []


def test_two_servers_that_launch_at_once_start_one_runner(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    engines = [make(), make()]
    failures: list[BaseException] = []

    def launch(engine: KubernetesEngine) -> None:
        try:
            engine.launch("a", {})
        except BaseException as ex:
            failures.append(ex)

    threads = [threading.Thread(target=launch, args=[engine]) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for engine in engines:
        until(lambda engine=engine: engine.runner_pod("a"))  # type: ignore[misc]
    assert len(cluster.fake.of("Job")) == 1
    assert len(pods(cluster)) == 1


def test_of_two_servers_one_acts_and_the_other_takes_over(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(leases, "EVERY", 0.1)
    job(settings)
    first = make()
    until(lambda: first.leading)
    second = make(replace(settings, home=tmp_path / "of-another-machine"))
    second.launch("a", {})
    until(lambda: second.runner_pod("a"))
    assert (first.liveness("a").mine, second.liveness("a").mine) == (True, False)
    first.close()
    until(lambda: second.liveness("a").mine)


def test_a_server_that_does_not_lead_writes_and_removes_nothing(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job(settings)
    held = lease("elsewhere_abcdef_5_ab")
    held["metadata"]["name"] = f"hawk-{names.root_mark(settings.root)}"
    cluster.do(cluster.fake.put("ADDED", "Lease", held))
    monkeypatch.setattr(watches, "LOOK", 0.01)
    engine = make()
    looks: list[bool] = []
    engine._watches._leading = lambda: (looks.append(True), engine.leading)[1]
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    begun = len(looks)
    until(lambda: len(looks) > begun + 5)
    assert not engine.liveness("a").mine
    assert not run.pods_file.exists()


def test_a_hawk_with_other_run_directories_is_not_adopted(
    cluster: Running, settings: Settings, make: Make, tmp_path: Path
) -> None:
    job(settings)
    make().launch("a", {})
    other = load_settings({"HAWK_HOME": str(tmp_path / "other")})
    job(other)
    with pytest.raises(ConflictError, match="Another Hawk"):
        make(other).launch("a", {})


# --- how runners end


def ends(cluster: Running, code: int, reason: str = "Error", **status: Any) -> None:
    """Runner pods end at once."""

    async def scenario(pod: Object) -> None:
        await cluster.fake.run_pod(pod)
        pod["status"] |= status
        done = {
            "exitCode": code,
            "reason": reason,
            "message": "its last words",
            "finishedAt": cluster.fake.now(),
        }
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        pod["status"]["containerStatuses"] = [
            {"name": "runner", "ready": False, "restartCount": 0, "state": {"terminated": done}}
        ]
        await cluster.fake.put("MODIFIED", "Pod", pod)

    cluster.fake.scenario = scenario


def test_a_runner_that_says_it_is_no_use_is_final_at_once(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    ends(cluster, 64)
    engine = make()
    engine.launch("a", {})
    until(lambda: not engine.liveness("a").alive)
    found = engine.liveness("a")
    assert found.final
    assert found.detail == "its runner exited with code 64: its last words"
    assert len(pods(cluster)) == 1


def test_a_runner_out_of_memory_is_tried_again_and_then_told_of(
    cluster: Running, settings: Settings, make: Make
) -> None:
    run = job(settings, config={"runner": {"memory": "2Gi"}})
    ends(cluster, 137, "OOMKilled")
    engine = make()
    engine.launch("a", {})
    until(lambda: not engine.liveness("a").alive)
    found = engine.liveness("a")
    assert (found.detail, found.final, found.tries) == (
        "its runner ran out of memory (OOMKilled, limit 2Gi)",
        False,
        3,
    )
    assert found.remedy is not None
    assert "runner.memory" in found.remedy
    until(lambda: (s := seen(run)) is not None and s.job is not None and s.job.ended)


def test_a_failed_job_is_replaced_when_it_is_launched_again(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    ends(cluster, 64)
    engine = make()
    engine.launch("a", {})
    until(lambda: not engine.liveness("a").alive)
    before = cluster.fake.named("Job", "hawk-a-g1")
    cluster.fake.scenario = None
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    after = cluster.fake.named("Job", "hawk-a-g1")
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert engine.liveness("a").alive


def test_what_ended_is_known_after_the_cluster_has_forgotten_it(
    cluster: Running, settings: Settings, make: Make
) -> None:
    run = job(settings)
    ends(cluster, 64)
    engine = make()
    engine.launch("a", {})
    until(lambda: (s := seen(run)) is not None and s.job is not None and s.job.ended)
    engine.close()
    item = cluster.fake.named("Job", "hawk-a-g1")
    assert item is not None
    cluster.do(cluster.fake.remove("Job", item))
    again = make()
    until(lambda: not again.liveness("a").alive)
    assert again.liveness("a").final


def test_a_job_that_somebody_deleted_is_dead(cluster: Running, settings: Settings, make: Make) -> None:
    job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    until(lambda: engine.liveness("a").alive)
    item = cluster.fake.named("Job", "hawk-a-g1")
    assert item is not None
    cluster.do(cluster.fake.remove("Job", item))
    until(lambda: not engine.liveness("a").alive)
    assert engine.liveness("a").detail == "its Job was deleted from the cluster"


def test_a_launch_that_was_cut_short_is_dead_and_can_be_finished(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    cluster.fake.refusals.append(
        lambda method, path: refuse(403, "Forbidden", "no") if method == "PATCH" else None
    )
    engine = make()
    with pytest.raises(ClusterError):
        engine.launch("a", {})
    until(lambda: not engine.liveness("a").alive)
    assert engine.liveness("a").detail == "its launch was cut short"
    cluster.fake.refusals.clear()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    assert len(cluster.fake.of("Job")) == 1


def test_sandboxes_of_an_earlier_runner_are_removed(cluster: Running, settings: Settings, make: Make) -> None:
    job(settings)
    labels = {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": "sandbox", "hawk/job": "a"}
    engine = make()
    engine.launch("a", {})
    first = until(lambda: engine.runner_pod("a"))
    cluster.do(cluster.fake.add("Pod", "box", labels))
    cluster.fake.retry = 1.5  # times are in whole seconds
    cluster.do(cluster.fake.end_pod(first))
    until(lambda: (name := engine.runner_pod("a")) is not None and name != first)
    until(lambda: cluster.fake.named("Pod", "box") is None)


# --- the API


def test_a_server_that_starts_while_the_api_is_away_takes_nobody_for_dead(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    cluster.fake.away = True
    engine = make()
    assert engine.liveness("a").alive
    until(lambda: engine.liveness("a").problem is not None)
    assert not engine.liveness("a").mine
    cluster.fake.away = False
    until(lambda: not engine.liveness("a").alive, 20)
    assert engine.liveness("a").problem is None


def test_an_api_that_goes_away_is_said_and_kills_nobody(
    cluster: Running, settings: Settings, make: Make
) -> None:
    run = job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    until(lambda: engine.leading)
    cluster.fake.away = True
    cluster.soon(cluster.fake.drop_watches)
    until(lambda: engine.liveness("a").problem is not None)
    assert engine.liveness("a").alive
    job(settings, "b")
    assert engine.liveness("b").alive  # nobody can tell
    until(lambda: (s := seen(run)) is not None and s.problem is not None)
    cluster.fake.away = False
    until(lambda: engine.liveness("a").problem is None, 20)
    until(lambda: (s := seen(run)) is not None and s.problem is None)


@pytest.mark.parametrize("status", [429, 500])
def test_a_busy_api_only_delays_a_launch(
    cluster: Running, settings: Settings, make: Make, status: int
) -> None:
    job(settings)
    first: set[tuple[str, str]] = set()

    def refusal(method: str, path: str) -> Any:
        if method != "POST" or (method, path) in first:
            return None
        first.add((method, path))
        return refuse(status, "Busy", "slow down", Retry_After="0")

    cluster.fake.refusals.append(refusal)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    assert len(first) >= 2


def test_a_watch_that_is_too_old_lists_again(cluster: Running, settings: Settings, make: Make) -> None:
    job(settings)
    engine = make()
    engine.launch("a", {})
    first = until(lambda: engine.runner_pod("a"))

    async def expire() -> None:
        cluster.fake.oldest = cluster.fake.version + 1
        cluster.fake.version += 1
        cluster.fake.drop_watches()
        await cluster.fake.end_pod(first)

    cluster.do(expire())
    until(lambda: (name := engine.runner_pod("a")) is not None and name != first)


def test_an_expired_token_is_said_with_what_to_do(cluster: Running, settings: Settings, make: Make) -> None:
    job(settings)
    engine = make()
    cluster.fake.tokens = {"another"}
    with pytest.raises(ClusterError) as caught:
        engine.launch("a", {})
    assert caught.value.fields["reason"] == "unauthorized"
    assert caught.value.remedy is not None
    assert "Sign in" in caught.value.remedy


def test_a_namespace_that_is_being_deleted_refuses_a_launch(
    cluster: Running, settings: Settings, make: Make
) -> None:
    job(settings)
    message = "unable to create new content in namespace test because it is being terminated"
    cluster.fake.refusals.append(
        lambda method, path: refuse(403, "Forbidden", message) if method == "POST" else None
    )
    with pytest.raises(ClusterError) as caught:
        make().launch("a", {})
    assert caught.value.fields["reason"] == "terminating"


def test_secrets_that_are_refused_leave_no_job(cluster: Running, settings: Settings, make: Make) -> None:
    job(settings)
    cluster.fake.refusals.append(
        lambda method, path: (
            refuse(403, "Forbidden", "no") if method == "POST" and path.endswith("secrets") else None
        )
    )
    with pytest.raises(ClusterError):
        make().launch("a", {})
    assert left(cluster) == []


def test_ages_are_by_the_clock_of_the_api_server(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "EVERY", 0.1)
    cluster.fake.skew = 3600.0

    async def pending(pod: Object) -> None:
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available",
            }
        ]
        await cluster.fake.put("MODIFIED", "Pod", pod)

    cluster.fake.scenario = pending
    run = job(settings)
    engine = make()
    until(lambda: engine.skew)
    assert 3590 < engine.skew < 3610
    engine.launch("a", {})
    found = until(lambda: (s := seen(run)) is not None and s.runner is not None and s)
    assert found.runner is not None
    since = found.local(found.runner.created)
    assert since is not None
    assert abs(datetime.fromisoformat(since).timestamp() - time.time()) < 60


# --- others in the namespace, and what nobody owns


def test_a_thousand_pods_of_another_team_are_never_listed(
    cluster: Running, settings: Settings, make: Make
) -> None:
    async def crowd() -> None:
        for i in range(1000):
            await cluster.fake.add("Pod", f"theirs-{i}", {"app.kubernetes.io/name": "theirs"})

    cluster.do(crowd())
    listed: list[int] = []
    whole = cluster.fake.do_get

    async def counted(request: Any, kind: str, namespace: str, name: str) -> Any:
        answer = await whole(request, kind, namespace, name)
        if not name and not request.query.get("watch"):
            listed.append(len(json.loads(answer.text)["items"]))
        return answer

    cluster.fake.do_get = counted  # type: ignore[method-assign]
    job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    engine.kill("a")
    assert listed
    assert max(listed) < 10
    assert len(pods(cluster)) == 1000


def test_a_kill_catches_pods_that_are_being_created(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(settings)
    labels = {"app.kubernetes.io/name": "hawk", "app.kubernetes.io/component": "sandbox", "hawk/job": "a"}
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))
    made: list[str] = []
    whole = cluster.fake.do_delete

    async def late(request: Any, kind: str, namespace: str, name: str) -> Any:
        answer = await whole(request, kind, namespace, name)
        if kind == "Job" or (kind == "Pod" and len(made) < 4):  # what the runner had asked for just before
            made.append(f"late-{len(made)}")
            await cluster.fake.add("Pod", made[-1], labels)
        return answer

    looked: list[str] = []
    get = cluster.fake.do_get

    async def later(request: Any, kind: str, namespace: str, name: str) -> Any:
        answer = await get(request, kind, namespace, name)
        if kind == "Pod" and not request.query.get("watch") and not looked and not cluster.fake.of("Pod"):
            looked.append("all seemed gone")
            await cluster.fake.add("Pod", "latest", labels)
        return answer

    cluster.fake.do_delete = late  # type: ignore[method-assign]
    cluster.fake.do_get = later  # type: ignore[method-assign]
    engine.kill("a")
    assert (len(made), len(looked)) == (4, 1)
    assert left(cluster) == []


def test_a_kill_that_does_not_get_done_says_what_is_left(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal.remove_all, "__kwdefaults__", {"patience": 0.5})
    job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.runner_pod("a"))

    async def stays(*_: Any) -> Any:
        from aiohttp import web

        return web.json_response({"kind": "Status", "status": "Success"})

    cluster.fake.do_delete = stays  # type: ignore[method-assign, assignment]
    with pytest.raises(ClusterError, match="did not go within"):
        engine.kill("a")


def test_a_job_without_a_run_directory_is_swept(
    cluster: Running, settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "ORPHANED", -10.0)
    run = job(settings)
    engine = make()
    engine.launch("a", {})
    until(lambda: engine.leading and engine.runner_pod("a"))
    engine.sweep()
    assert cluster.fake.named("Job", "hawk-a-g1") is not None
    run.spec_file.unlink()
    engine.sweep()
    assert left(cluster) == []


def test_a_queued_job_stays_suspended_and_alive(cluster: Running, settings: Settings, make: Make) -> None:
    run = job(settings, config={"runner": {"queue": "team", "priority": "high"}})
    engine = make()
    engine.launch("a", {})
    found = until(lambda: (s := seen(run)) is not None and s.job is not None and s)
    assert found.job is not None
    assert (found.job.suspended, found.job.queue, found.job.priority) == (True, "team", "high")
    assert engine.liveness("a").alive


# --- the lease


def lease(holder: str) -> Object:
    return {
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "test", "uid": "u"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


@pytest.mark.parametrize(
    ("holder", "taken"),
    [
        ("", True),
        ("{place}_999999999_ab", True),
        ("{place}_1_ab", False),
        ("elsewhere_abcdef_999999999_ab", False),
    ],
)
def test_a_lease_is_taken_at_once_only_from_a_server_that_is_known_to_be_dead(
    cluster: Running, holder: str, taken: bool
) -> None:
    async def tried() -> bool:
        async with Cluster(cluster.access) as connection:
            one = leases.Leadership(connection, "l", "/home")
            place = one.identity.rsplit("_", 2)[0]
            await cluster.fake.put("ADDED", "Lease", lease(holder.format(place=place)))
            await one.step()
            return one.leading

    assert cluster.do(tried()) is taken


def test_a_lease_runs_out_by_what_is_seen_and_not_by_what_clocks_say(
    cluster: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])

    async def tried() -> list[bool]:
        async with Cluster(cluster.access) as connection:
            one = leases.Leadership(connection, "l", "/home")
            held = lease("elsewhere_abcdef_5_ab")
            held["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"  # its clock is wrong
            await cluster.fake.put("ADDED", "Lease", held)
            found = []
            for _ in range(2):
                await one.step()
                found.append(one.leading)
                clock[0] += 14
            await cluster.fake.put("MODIFIED", "Lease", held)  # it lives
            for _ in range(3):
                await one.step()
                found.append(one.leading)
                clock[0] += 14
            return found

    assert cluster.do(tried()) == [False, False, False, False, True]
