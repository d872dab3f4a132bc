"""The component that puts run directories on a volume which runners share."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from hawk.config.cluster import load_cluster_settings
from hawk.engine.kubernetes import mounts
from tests.deploy.conftest import DEPLOY, of_kind, rendered


def test_the_server_has_the_claim_as_its_run_root_and_gives_it_to_runners(tmp_path: Path) -> None:
    mine = {
        "kind": "Kustomization",
        "resources": [os.path.relpath(DEPLOY / "overlays/single-node", tmp_path)],
        "components": [os.path.relpath(DEPLOY / "shared-volume", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    objects = rendered(os.path.relpath(tmp_path, DEPLOY))
    (server,) = of_kind(objects, "Deployment", "hawk-server")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    said = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    claim = load_cluster_settings(said).volume
    assert claim is not None
    (found,) = of_kind(objects, "PersistentVolumeClaim", claim)
    assert found["spec"]["accessModes"] == ["ReadWriteMany"]
    volumes = {v["name"]: v for v in server["spec"]["template"]["spec"]["volumes"]}
    there = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"]}
    assert there[said["HAWK_ROOT"]]["persistentVolumeClaim"] == {"claimName": claim}
    assert said["HAWK_ROOT"] == mounts.RUNS, (
        "a job that brings no files works in its run directory, here and there"
    )
