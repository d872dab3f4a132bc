"""What is asked of the cluster: the Job, its pod, its Secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawk.config.cluster import ClusterSettings, load_cluster_settings
from hawk.config.settings import load_settings
from hawk.engine.kubernetes import jobsecrets, manifests, mounts, names
from hawk.engine.kubernetes.sharing import require_shared
from hawk.errors import ConfigError, UsageError
from hawk.link.start import WORKER_POD, Start
from hawk.middleman.keys import KeyStore
from hawk.middleman.tokens import Verifier
from hawk.runner.workpods.pods import Owner
from hawk.runner.workpods.pods import manifest as worker_manifest
from hawk.store.rundir import JobSpec, RunDir

GPT: dict[str, Any] = {"models": [{"items": [{"name": "openai/gpt-4o"}]}]}


def spec(base_dir: str = "/srv/evals", **config: Any) -> JobSpec:
    return JobSpec(
        "my-evals", base_dir, config, created_by="ada <ada@example.org>", generation=3, engine="kubernetes"
    )


def cluster(**environ: str) -> ClusterSettings:
    return load_cluster_settings({f"HAWK_KUBE_{name}": value for name, value in environ.items()})


def made(settings: ClusterSettings | None = None, **config: Any) -> dict[str, Any]:
    return manifests.job(spec(**config), settings or cluster(), "root1")


def pod(settings: ClusterSettings | None = None, **config: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(settings, **config)["spec"]["template"]["spec"]
    return found


def runner(settings: ClusterSettings | None = None, **config: Any) -> dict[str, Any]:
    (found,) = pod(settings, **config)["containers"]
    result: dict[str, Any] = found
    return result


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def test_a_job_is_named_labelled_and_ends_by_itself() -> None:
    job = made()
    assert job["metadata"]["name"] == "hawk-my-evals-g3"
    labels = job["metadata"]["labels"]
    assert (labels["hawk/job"], labels["hawk/root"], labels["app.kubernetes.io/component"]) == (
        "my-evals",
        "root1",
        "runner",
    )
    assert job["metadata"]["annotations"]["hawk/created-by"] == "ada <ada@example.org>"
    assert job["spec"]["template"]["metadata"]["labels"]["hawk/job"] == "my-evals"
    assert job["spec"]["suspend"] is True
    assert job["spec"]["ttlSecondsAfterFinished"] < 60
    fails, ignores = job["spec"]["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [64])
    assert (ignores["action"], ignores["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")


def test_nothing_in_the_pod_has_more_rights_than_it_needs() -> None:
    found = pod(**GPT)
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in found
    for container in (*found["containers"], *found["initContainers"]):
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("sandbox", [{"type": "pod"}, {"type": "k8s"}])
def test_a_runner_whose_sandboxes_are_pods_has_an_account(sandbox: dict[str, Any]) -> None:
    found = pod(sandbox=sandbox)
    assert (found["automountServiceAccountToken"], found["serviceAccountName"]) == (True, "hawk-runner")


def test_keys_are_mounted_only_beside_the_runner() -> None:
    found = pod(**GPT)
    (sidecar,) = found["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert mounts.KEYS_DIR in [m["mountPath"] for m in sidecar["volumeMounts"]]
    assert mounts.KEYS_DIR not in [m["mountPath"] for m in found["containers"][0]["volumeMounts"]]
    assert mounts.JOB_DIR not in [m["mountPath"] for m in sidecar["volumeMounts"]]


@pytest.mark.parametrize(
    ("settings", "config"),
    [(cluster(MIDDLEMAN_URL="http://m:8989"), {}), (cluster(), {"middleman": {"off": True}})],
)
def test_there_is_no_second_middleman(settings: ClusterSettings, config: dict[str, Any]) -> None:
    assert "initContainers" not in pod(settings, **config)


def test_what_the_config_says_of_the_runner() -> None:
    wanted = {
        "memory": "8Gi", "cpu": "2", "disk": "20Gi", "gpu": 1, "node_selector": {"pool": "gpu"}, "deadline": 3600,
        "tolerations": [{"key": "gpu", "operator": "Exists", "value": None, "effect": "NoSchedule"}],
        "volumes": [{"mount": "/data", "claim": "data", "read_only": True}, {"mount": "/scratch", "size": "1Gi"}],
        "pull_secrets": ["mine"], "queue": "team", "priority": "high", "service_account": "special", "cleanup": False,
    }  # fmt: skip
    settings = cluster(PULL_SECRETS="ours, others", PULL_POLICY="Always")
    job = made(settings, runner=wanted)
    found = job["spec"]["template"]["spec"]
    (container,) = found["containers"]
    amounts = {"memory": "8Gi", "cpu": "2", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert found["nodeSelector"] == {"pool": "gpu"}
    assert found["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert {"name": "extra-0", "persistentVolumeClaim": {"claimName": "data"}} in found["volumes"]
    assert {"name": "extra-1", "mountPath": "/scratch"} in container["volumeMounts"]
    assert found["imagePullSecrets"] == [{"name": "ours"}, {"name": "others"}, {"name": "mine"}]
    assert (container["imagePullPolicy"], found["serviceAccountName"]) == ("Always", "special")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    assert job["spec"]["ttlSecondsAfterFinished"] > 3600


@pytest.mark.parametrize(
    ("said", "image"),
    [
        ({}, "reg:5000/hawk:1"),
        ({"image": "other/hawk"}, "other/hawk"),
        ({"image_tag": "2"}, "reg:5000/hawk:2"),
        ({"image": "reg:5000/mine", "image_tag": "2"}, "reg:5000/mine:2"),
        ({"image": "mine@sha256:ab", "image_tag": "2"}, "mine:2"),
    ],
)
def test_which_image(said: dict[str, str], image: str) -> None:
    found = runner(cluster(IMAGE="reg:5000/hawk:1"), runner=said)
    assert found["image"] == image
    assert environment(found)["HAWK_KUBE_IMAGE"] == image  # of which sandboxes may be made too


def test_a_pod_knows_its_owner_without_asking() -> None:
    found = environment(runner())
    owner = json.loads(found["HAWK_KUBE_OWNER"])
    assert owner == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "hawk-my-evals-g3",
        "uid": "$(HAWK_KUBE_OWNER_UID)",
    }
    order = [one["name"] for one in runner()["env"]]
    assert order.index("HAWK_KUBE_OWNER_UID") < order.index("HAWK_KUBE_OWNER")  # else it is not filled in


def test_variables_of_the_eval_set_mean_what_they_say_and_replace_none_of_ours() -> None:
    found = environment(runner(runner={"environment": {"A": "$(HOME) $", "HAWK_HOME": "/x"}}))
    assert (found["A"], found["HAWK_HOME"]) == ("$$(HOME) $", "/hawk/home")


@pytest.mark.parametrize(
    ("submitted", "there"),
    [
        ("/srv/evals", "/srv/evals"), ("/home/ada/evals", "/home/ada/evals"), ("/tmp/x", "/tmp/x"), ("/opt/evals", "/opt/evals"),
        ("/", "/hawk/source"), ("/tmp", "/hawk/source"), ("/usr/share/evals", "/hawk/source"), ("/root/evals", "/hawk/source"),
        ("/opt/venv/x", "/hawk/source"), ("/home", "/hawk/source"), ("/a/../etc", "/hawk/source"), ("rel", "/hawk/source"),
    ],
)  # fmt: skip
def test_where_the_submitters_directory_is(submitted: str, there: str) -> None:
    assert mounts.source_dir(submitted) == there
    assert there in [v.mount["mountPath"] for v in mounts.own(submitted, "s")]


def test_of_a_shared_volume_a_runner_has_its_own_run_directory_and_reads_the_one_that_it_scores_again() -> (
    None
):
    found = manifests.job(msgspec.structs.replace(spec(), rescore="earlier"), cluster(VOLUME="runs"), "root")
    made = found["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in made["volumes"]}
    assert volumes["runs"]["persistentVolumeClaim"] == {"claimName": "runs"}
    shown = [m for m in made["containers"][0]["volumeMounts"] if m["mountPath"].startswith(mounts.RUNS)]
    job = spec().job_id
    assert shown == [
        {"name": "runs", "mountPath": f"{mounts.RUNS}/{job}", "subPath": job},
        {"name": "rescored", "mountPath": f"{mounts.RUNS}/earlier", "readOnly": True, "subPath": "earlier"},
    ]


def test_a_run_directory_that_pods_can_not_share_is_refused_before_there_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "j")
    run.create()
    monkeypatch.setattr(manifests, "USER", run.path.stat().st_uid)
    for good in ("/srv/evals", f"{mounts.RUNS}/j"):
        require_shared(run, JobSpec("j", good))
    with pytest.raises(ConfigError, match="/root/evals"):
        require_shared(run, JobSpec("j", "/root/evals"))
    monkeypatch.setattr(manifests, "USER", run.path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="HAWK_KUBE_VOLUME"):
        require_shared(run, JobSpec("j", "/srv/evals"))


def test_names_fit() -> None:
    longest = names.job_name("x" * 43, 123456)
    assert len(longest) <= 57
    assert longest != names.job_name("x" * 43, 123457)
    assert names.label("0.8.0+local.äé") == "0.8.0-local"


# --- secrets


def gathered(
    home: Path, given: dict[str, str], settings: ClusterSettings | None = None, **config: Any
) -> jobsecrets.JobSecrets:
    return jobsecrets.gather(
        spec(**config), given, load_settings({"HAWK_HOME": str(home)}), settings or cluster()
    )


def test_the_runner_gets_a_token_and_only_its_middleman_the_keys(tmp_path: Path) -> None:
    KeyStore(tmp_path, {}).set("anthropic", "sk-kept")
    models = {"models": [{"items": [{"name": "openai/gpt-4o"}, {"name": "anthropic/claude"}]}]}
    given = {"OPENAI_API_KEY": "sk-given", "GROQ_API_KEY": "sk-unused", "DATA_TOKEN": "t"}
    found = gathered(tmp_path, given, **models)
    assert json.loads(found.own["secrets.json"]) == {"DATA_TOKEN": "t"}
    assert set(found.keys) == {"ANTHROPIC_API_KEY", jobsecrets.JOB_KEYS, manifests.SIGNING_KEY}
    assert found.keys["ANTHROPIC_API_KEY"] == b"sk-kept"
    assert json.loads(found.keys[jobsecrets.JOB_KEYS]) == {
        "OPENAI_API_KEY": "sk-given"
    }  # no other provider's
    start = msgspec.json.decode(found.own["start.json"], type=Start)
    assert start.middleman_token is not None
    key = found.keys[manifests.SIGNING_KEY]
    bearer = Verifier(key, person="p", user="u").who(start.middleman_token, 0.0)
    assert bearer.job == "my-evals"
    assert gathered(tmp_path, given, **models).keys[manifests.SIGNING_KEY] != key  # of this launch only


def test_without_a_middleman_secrets_are_as_given(tmp_path: Path) -> None:
    found = gathered(tmp_path, {"OPENAI_API_KEY": "sk"}, middleman={"off": True}, **GPT)
    assert (json.loads(found.own["secrets.json"]), found.keys) == ({"OPENAI_API_KEY": "sk"}, {})
    assert msgspec.json.decode(found.own["start.json"], type=Start).middleman is None


def test_a_middleman_for_all_has_keys_of_its_own(tmp_path: Path) -> None:
    found = gathered(
        tmp_path, {"OPENAI_API_KEY": "sk", "T": "t"}, cluster(MIDDLEMAN_URL="http://m:1/"), **GPT
    )
    start = msgspec.json.decode(found.own["start.json"], type=Start)
    assert (start.middleman, start.spans) == ("http://m:1", False)
    assert (json.loads(found.own["secrets.json"]), found.keys) == ({"T": "t"}, {})


# --- settings


def test_settings_come_from_the_environment() -> None:
    assert cluster().namespace is None
    assert cluster().image.startswith("hawk-runner:")
    assert cluster(SERVER_URL="http://s:1/").server_url == "http://s:1"
    with pytest.raises(UsageError, match="HAWK_KUBE_PULL_POLICY"):
        cluster(PULL_POLICY="Sometimes")
    with pytest.raises(UsageError, match="no address"):
        cluster(SERVER_URL="server:80")


def worker_pod(settings: ClusterSettings | None = None, **config: Any) -> dict[str, Any]:
    found = manifests.worker(spec(**config), settings or cluster())
    assert found is not None
    return found


def test_workers_are_processes_unless_an_eval_set_says_pods() -> None:
    assert manifests.worker(spec(), cluster()) is None
    given = jobsecrets.gather(spec(middleman={"off": True}), {}, load_settings({}), cluster())
    assert WORKER_POD not in given.own


def test_a_workers_pod_has_what_the_eval_set_asks_for_and_no_secret(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        **GPT,
        "runner": {
            "workers": "pods",
            "memory": "8Gi",
            "cpu": 2,
            "gpu": 1,
            "image": "mine:1",
            "volumes": [{"mount": "/data", "claim": "data"}],
            "tolerations": [{"key": "gpu", "operator": "Exists", "value": None}],
            "environment": {"OPENAI_API_KEY": "not-so-secret"},
        },
    }
    made = worker_pod(**config)
    labels = made["metadata"]["labels"]
    assert (labels["hawk/job"], labels["hawk/generation"]) == ("my-evals", "3")
    assert labels["app.kubernetes.io/component"] == "worker"
    assert "batch.kubernetes.io/controller-uid" not in labels, "the Job would count it as its own"
    (container,) = made["spec"]["containers"]
    assert container["image"] == "mine:1"
    assert container["resources"]["limits"] == {"memory": "8Gi", "cpu": 2, "nvidia.com/gpu": "1"}
    assert not [volume for volume in made["spec"]["volumes"] if "secret" in volume]
    assert "not-so-secret" not in json.dumps(made)
    assert made["spec"]["automountServiceAccountToken"] is False
    assert made["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert made["spec"]["securityContext"] == pod(**config)["securityContext"]
    assert container["securityContext"] == runner(**config)["securityContext"]
    # the runner's own pod makes pods, and needs no GPU for that
    assert pod(**config)["serviceAccountName"] == "hawk-runner"
    assert runner(**config)["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"memory": "8Gi"},
    }
    given = jobsecrets.gather(spec(**config), {}, load_settings({"HAWK_HOME": str(tmp_path)}), cluster())
    assert json.loads(given.own[WORKER_POD]) == made


def test_sandboxes_of_a_worker_belong_to_its_pod() -> None:
    made = worker_pod(runner={"workers": "pods"}, sandbox={"type": "pod"})
    assert made["spec"]["serviceAccountName"] == "hawk-runner"
    of_four = worker_manifest(made, Owner("hawk-my-evals-g3", "uid-1"), 4, "hawk-my-evals-g3-w4-abc")
    owner = json.loads(environment(of_four["spec"]["containers"][0])["HAWK_KUBE_OWNER"])
    assert owner == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "$(HAWK_POD_NAME)",
        "uid": "$(HAWK_POD_UID)",
    }


def test_a_workers_pod_is_named_and_owned_by_the_runner_that_makes_it() -> None:
    template = worker_pod(runner={"workers": "pods"})
    made = worker_manifest(template, Owner("hawk-my-evals-g3", "uid-1"), 4, "hawk-my-evals-g3-w4-abc")
    assert made["metadata"]["labels"]["hawk/worker"] == "4"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "uid-1", False)
    assert environment(made["spec"]["containers"][0])["HAWK_POD_WORKER"] == "4"
    assert made["kind"] == "Pod"
    assert "name" not in template["metadata"]
