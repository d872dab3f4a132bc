"""A cluster of this machine for jobs whose workers have pods: the API is a fake, what runs in a pod is the real command.

Each pod has mounts of its own, so that its directories are where the runner's are, and nothing of the runner's is in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml

from hawk.config.cluster import load_cluster_settings
from hawk.engine.kubernetes import manifests
from hawk.errors import HawkError
from hawk.link.start import WORKER_POD
from hawk.sandbox.pool import find_bwrap
from hawk.store.rundir import RunDir, write_json
from tests.engine.jobs_fake import JobsFake, Running
from tests.kube.fake import Object
from tests.link.podding import LocalPod, Pods

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "hawk-job-g1", "uid": "uid-job"}


def cannot_mount() -> str | None:
    """Why a process can't have mounts of its own on this machine; None where it can."""
    try:
        command = [str(find_bwrap()), "--dev-bind", "/", "/", "true"]
    except HawkError as ex:
        return str(ex)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


class WorkerPods:
    """The kubelet: runs each worker's pod as a process, with directories of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.cluster = Running()
        self.fake: JobsFake = self.cluster.fake
        self.fake.scenario = self._run
        self.fake.removed = self._removed
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.begun: list[str] = []
        self._reasons: dict[str, str] = {}
        self._short: list[str] = []
        self.kubeconfig = base / "kubeconfig"
        cluster = {"name": "fake", "cluster": {"server": self.cluster.access.host}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": "me", "namespace": "test"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def runner(self, system: Pods, job_id: str, **environ: str) -> LocalPod:
        """Run the runner's pod of a job."""
        self.system = system
        spec = system.run_dir(job_id).read_spec()
        pod = manifests.worker(spec, load_cluster_settings({}))
        assert pod is not None, "its workers are to have pods"
        write_json(system.pods / job_id / "job" / WORKER_POD, pod)
        self.source = system.pods / job_id / "source"
        return system.pod(
            job_id,
            KUBECONFIG=str(self.kubeconfig),
            HAWK_KUBE_OWNER=json.dumps(OWNER),
            HAWK_KUBE_OWNER_UID=OWNER["uid"],
            **environ,
        )

    def pods(self, job_id: str) -> list[str]:
        """Names of the pods that are in the cluster for a job's workers."""
        pods = self.fake.of("Pod").items()
        return [name for (_, name), pod in pods if pod["metadata"]["labels"]["hawk/job"] == job_id]

    def run_dir(self, index: int, job_id: str) -> RunDir:
        """What a worker's last pod had."""
        name = [name for name in self.begun if f"-w{index}-" in name][-1]
        return RunDir(self.base / name / "runs" / job_id)

    def kill(self, name: str, reason: str) -> None:
        """End everything in a pod, at once."""

        async def end() -> None:
            self._reasons[name] = reason
            self._kill(name, signal.SIGKILL)

        self.cluster.do(end())

    def cut(self, job_id: str) -> int:
        """Break every connection to a pod of a job's. Returns how many there were."""

        async def end() -> int:
            commands = [process for pod in self.pods(job_id) for process in self.fake.running.get(pod, ())]
            for process in commands:
                process.kill()
            return len(commands)

        return self.cluster.do(end())

    def evict(self, name: str) -> None:
        """Tell a pod to end, as the kubelet does with one that is deleted."""

        async def end() -> None:
            pod = self.fake.of("Pod")["test", name]
            pod["metadata"]["deletionTimestamp"] = self.fake.now()
            await self.fake.put("MODIFIED", "Pod", pod)
            for process in psutil.Process(self.processes[name].pid).children():
                process.terminate()

        self.cluster.do(end())

    def close(self) -> None:
        async def end() -> None:
            for name in list(self.processes):
                self._kill(name, signal.SIGKILL)

        self.cluster.do(end())
        self.cluster.close()
        for folder in self._short:
            shutil.rmtree(folder, ignore_errors=True)

    # --- the kubelet

    async def _run(self, pod: Object) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        root, short = self.base / name, tempfile.mkdtemp(prefix="hb-")
        self._short.append(short)
        runner = self.system.running[pod["metadata"]["labels"]["hawk/job"]]
        mounts = {str(runner.root / "runs"): root / "runs", str(self.source): root / "source"}
        for place in (*mounts.values(), root / "home"):
            place.mkdir(parents=True)
        environ = self._environ(pod, container["env"])
        environ |= {
            "HAWK_HOME": str(root / "home"),
            "HOME": str(root / "home"),
            "HAWK_ROOT": str(runner.root / "runs"),
            "HAWK_RUN_BASE": short,
        }
        self.fake.environs[name] = environ
        binds = [word for inside, there in mounts.items() for word in ("--bind", str(there), inside)]
        words = [sys.executable if word == "python" else word for word in container["command"]]
        with (root / "log").open("wb") as log:
            process = self.processes[name] = await asyncio.create_subprocess_exec(
                str(find_bwrap()),
                *["--dev-bind", "/", "/", "--die-with-parent", *binds, "--", *words],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.begun.append(name)
        await self.fake.status(pod, "Running", running={})
        code = await process.wait()
        if self.fake.there("Pod", pod):
            reason = self._reasons.get(name, "Completed" if code == 0 else "Error")
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": reason}
            await self.fake.status(pod, "Succeeded" if code == 0 else "Failed", terminated=ended)

    def _environ(self, pod: Object, env: list[Any]) -> dict[str, str]:
        meta = pod["metadata"]
        fields = {"metadata.name": meta["name"], "metadata.uid": meta["uid"], "metadata.namespace": "test"}
        found = {
            name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ
        }
        found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for one in env:
            value = one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            found[one["name"]] = value.replace("$(HAWK_POD_NAME)", meta["name"]).replace(
                "$(HAWK_POD_UID)", meta["uid"]
            )
        return found

    def _removed(self, kind: str, item: Object) -> None:
        if kind == "Pod":
            self._kill(item["metadata"]["name"], signal.SIGKILL)

    def _kill(self, name: str, number: int) -> None:
        process = self.processes.get(name)
        if process is None or process.returncode is not None:
            return
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.Error):
                one.send_signal(number)


@contextlib.contextmanager
def worker_pods(base: Path) -> Iterator[WorkerPods]:
    base.mkdir(parents=True)
    kubelet = WorkerPods(base)
    try:
        yield kubelet
    finally:
        kubelet.close()
