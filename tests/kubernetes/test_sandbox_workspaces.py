"""What agents leave in real pods: read out of them by what their image has, and put back."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from inspect_ai.util import SandboxEnvironment

from hawk.core.zstd import unpack
from hawk.sandbox.pod.provider import PodSandbox
from hawk.sandbox.pod.workspace import WorkspaceError
from tests.kubernetes.conftest import Make

MANY = 1 << 28


def pod_of(environments: dict[str, SandboxEnvironment]) -> PodSandbox:
    return environments["default"].as_type(PodSandbox)


async def shell(environments: dict[str, SandboxEnvironment], script: str) -> str:
    done = await environments["default"].exec(["sh", "-c", script])
    assert done.success, done.stderr
    return done.stdout


def names_in(target: Path) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(unpack(target.read_bytes()))) as tar:
        return set(tar.getnames())


async def test_a_working_directory_is_the_same_in_another_pod(make: Make, tmp_path: Path) -> None:
    target = tmp_path / "w.zst"
    setup = "echo setup >from-setup; echo setup >changed"
    listing = "find . | sort; cat changed; readlink link; stat -c '%a %u:%g' run; cat big | md5sum"
    async with make(working_dir="/srv/work") as environments:
        await shell(environments, setup)
        await shell(
            environments,
            "rm from-setup; echo agent >changed; ln -s /nowhere link; echo >run; chmod 751 run; chown 7:8 run;"
            " mkdir -p a/b; head -c 5000000 /dev/urandom >big",
        )
        before = await shell(environments, listing)
        done = await pod_of(environments).keep_workspace(target, max_bytes=MANY, seconds=60)
        assert (done.truncated, done.skipped) == (False, ())
    async with make(working_dir="/srv/work") as environments:
        await shell(environments, setup)
        await pod_of(environments).put_back(target, whole=True, seconds=60)
        assert await shell(environments, listing) == before


async def test_of_a_root_directory_only_what_was_changed_is_kept(make: Make, tmp_path: Path) -> None:
    target = tmp_path / "w.zst"
    async with make(working_dir="/") as environments:
        await shell(
            environments,
            "mkdir -p /opt/mine; echo x >/opt/mine/new; echo >>/etc/profile; cp -p /etc/fstab /old",
        )
        done = await pod_of(environments).keep_workspace(target, max_bytes=MANY, seconds=60)
    names = names_in(target)
    assert {"opt/mine/new", "etc/profile", "old"} <= names
    assert "etc/passwd" not in names
    assert done.files < 50, sorted(names)
    async with make(working_dir="/") as environments:
        await pod_of(environments).put_back(target, whole=True, seconds=60)
        assert await shell(environments, "cat /opt/mine/new; cat /etc/passwd | wc -l") != "x\n0\n"


async def test_an_image_without_tar_is_read_by_its_python_or_says_so(make: Make, tmp_path: Path) -> None:
    async with make(working_dir="/srv/work") as environments:
        await shell(environments, "echo x >a; rm -f /bin/tar /usr/bin/tar")
        target = tmp_path / "w.zst"
        if (await environments["default"].exec(["sh", "-c", "command -v python3"])).success:
            assert (await pod_of(environments).keep_workspace(target, max_bytes=MANY, seconds=60)).files == 1
            await shell(
                environments,
                "rm -f /usr/bin/python3 /usr/bin/python /usr/local/bin/python3 /usr/local/bin/python",
            )
        with pytest.raises(WorkspaceError, match="neither tar nor python"):
            await pod_of(environments).keep_workspace(target, max_bytes=MANY, seconds=60)
