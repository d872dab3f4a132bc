"""The configuration: files, data, compose, and what they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspect_ai.util import ComposeConfig
from inspect_ai.util._sandbox.environment import deserialize_sandbox_specific_config

from hawk.config.options import SandboxEntry
from hawk.errors import ConfigError
from hawk.evals import registry
from hawk.sandbox.pod import manifest, names, network
from hawk.sandbox.pod.config import load
from hawk.sandbox.pod.options import PodConfig

OWNER = names.this_owner({"HAWK_JOB_ID": "job"})
COMPOSE = """
services:
  web:
    image: nginx:1
    x-default: true
    working_dir: /srv
    environment: [A=1, B]
    mem_limit: 512m
    cpus: 0.5
    user: "1000"
  db:
    image: postgres:16
    command: postgres -c fsync=off
    healthcheck: {test: [CMD, pg_isready]}
x-hawk: {warm: 2}
"""


def spec_of(config: PodConfig) -> dict[str, Any]:
    placing = manifest.Placing("g", "n", {}, {})
    pods = manifest.pods(config, OWNER, placing, network.Resolved(()), manifest.Defaults(), "ns")
    spec: dict[str, Any] = pods["default"]["spec"]
    return spec


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "image: python:3.12\nresources: {memory: 512Mi, cpu: 1, ephemeral_storage: none}\nnetwork: [10.0.0.0/8, pypi.org]\n"
        "runtime_class: gvisor\nlifetime: 2h\nuser: 1000\n"
    )
    config = load(str(path))
    assert load(path) is config
    assert config.network.allow == ["10.0.0.0/8", "pypi.org"]
    assert hash(config) == hash(PodConfig.model_validate(config.model_dump(mode="json")))
    spec = spec_of(config)
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["activeDeadlineSeconds"] == 7200
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": str(512 << 20), "cpu": "1000m"},
        "requests": {"memory": str(256 << 20), "cpu": "50m"},
    }


def test_a_sandbox_may_be_made_of_the_runners_own_image() -> None:
    config = PodConfig.model_validate({"image": "runner", "services": {"db": {"image": "postgres:16"}}})
    placing = manifest.Placing("g", "n", {}, {})
    defaults = manifest.Defaults(runner_image="registry.test/hawk-runner:7")
    pods = manifest.pods(config, OWNER, placing, network.Resolved(()), defaults, "ns")
    images = [c["image"] for pod in pods.values() for c in pod["spec"]["containers"]]
    assert sorted(images) == ["postgres:16", "registry.test/hawk-runner:7"]


def test_everything_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("imag: x\nnetwork: some\nlabels: {hawk/job: mine}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    lines = {problem["line"] for problem in caught.value.fields["problems"]}
    assert lines == {1, 2, 3}


def test_a_compose_file(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    config = load(path)
    assert (config.image, config.default, config.warm, config.user) == ("nginx:1", "web", 2, "1000")
    assert config.environment == {"A": "1", "B": ""}
    assert config.resources.memory == 512 << 20
    assert config.services["db"].command == ["postgres", "-c", "fsync=off"]
    assert config.services["db"].ready == ["pg_isready"]
    assert not config.network.open


def test_inspects_own_compose_model_and_what_logs_hold() -> None:
    assert registry.PodSandbox is not None
    compose = ComposeConfig.model_validate(
        {"services": {"default": {"image": "a", "network_mode": "bridge"}}}
    )
    config = load(compose)
    assert config.image == "a"
    assert config.network.open
    again = deserialize_sandbox_specific_config("pod", config.model_dump(mode="json"))
    assert again == config
    logged = deserialize_sandbox_specific_config("pod", compose.model_dump(by_alias=True, exclude_none=True))
    assert load(logged) == config  # type: ignore[arg-type]


def test_what_a_pod_can_not_do_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text("services: {default: {build: ., privileged: true, volumes: [a:b]}}\n")
    with pytest.raises(ConfigError, match=r"privileged.*volumes.*image is missing"):
        load(path)
    with pytest.raises(ConfigError, match="does not build images"):
        load(tmp_path / "Dockerfile")


def test_the_entry_of_an_eval_set() -> None:
    from pydantic import TypeAdapter

    entry = TypeAdapter(SandboxEntry).validate_python(["pod", "pod.yaml"])
    assert (entry.type, entry.config) == ("pod", "pod.yaml")


async def test_domains_become_addresses() -> None:
    config = PodConfig.model_validate({"network": ["10.0.0.0/8", "localhost.localdomain"]})
    resolved = await network.resolve(PodConfig.model_validate({"network": ["10.0.0.0/8"]}).network)
    assert resolved.blocks == ("10.0.0.0/8",)
    made = network.policy(config.network, resolved, OWNER, "key")
    assert made is not None
    assert made["spec"]["egress"] == [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
    assert (
        network.policy(PodConfig.model_validate({"network": "open"}).network, resolved, OWNER, "key") is None
    )


@pytest.mark.parametrize("text", ["a", "Ä_b", "x" * 100, "-", "9.9"])
def test_names_and_labels(text: str) -> None:
    import re

    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", names.fit(text))
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", names.label(text))
