"""Setups and root file systems of sandboxes, in real evals."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.dataset import Sample
from inspect_ai.util import SandboxEnvironment

from hawk.sandbox.client import Keeper
from hawk.sandbox.errors import SandboxError
from hawk.sandbox.images import import_rootfs
from hawk.sandbox.prepare import layer_store
from hawk.sandbox.provider import BubblewrapSandbox
from tests.sandbox import tinyroot
from tests.sandbox.evals import doing, in_sample, in_samples, run_eval

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home"), pytest.mark.timeout(240)]

SCRIPT = """
read secret < /proc/sys/kernel/random/uuid
echo $secret >> built
echo "$COLOUR of $ONLY_HERE by $(id -un)" >> built
mkdir -p /opt/tool && printf '#!/bin/sh\\necho tool\\n' > /opt/tool/run && chmod +x /opt/tool/run
"""


async def nothing(box: SandboxEnvironment) -> None:
    """What does not matter: it is not reached."""


def refusal(config: dict[str, Any]) -> str:
    """Why an eval with this configuration does not begin."""
    with pytest.raises(SandboxError) as caught:
        run_eval(doing(nothing, {}), [Sample("?")], config)
    return str(caught.value)


async def built(box: SandboxEnvironment) -> str:
    return await box.read_file("built")


def test_a_setup_runs_once_for_fifty_attempts_at_the_same_time_and_for_the_next_eval() -> None:
    config = {
        "setup": {"script": SCRIPT, "environment": {"ONLY_HERE": "setup"}},
        "environment": {"COLOUR": "red"},
    }
    found = in_samples(built, [Sample("?") for _ in range(50)], config, max_samples=50)
    assert len(found) == 50
    [text] = set(found)
    uuid, line = text.splitlines()
    assert len(uuid) == 36
    assert line.startswith("red of setup by ")
    assert in_samples(built, [Sample("?")], config) == [text]
    other = {**config, "environment": {"COLOUR": "blue"}}
    [text_of_other] = in_samples(built, [Sample("?")], other)
    assert text_of_other.splitlines()[0] != uuid
    assert text_of_other.splitlines()[1].startswith("blue of setup by ")


def test_what_an_attempt_changes_in_its_layer_stays_its_own() -> None:
    async def work(box: SandboxEnvironment) -> str:
        script = "ls /opt/tool /workspace; rm -r /opt/tool built; echo mine > built; ls /opt"
        return (await box.exec(["sh", "-c", script])).stdout

    first, second = in_samples(
        work, [Sample("?"), Sample("?")], {"user": "root", "setup": {"script": SCRIPT}}
    )
    assert first == second == "/opt/tool:\nrun\n\n/workspace:\nbuilt\n"


def test_a_setups_files_are_a_file_a_directory_and_an_executable(tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "leaf").write_text("leaf\n")
    (tmp_path / "tree" / "link").symlink_to("deep/leaf")
    (tmp_path / "check").write_text("#!/bin/sh\necho checked $1\n")
    (tmp_path / "check").chmod(0o755)
    config = tmp_path / "sandbox.yaml"
    config.write_text(
        """
        inspect_tools: false
        setup:
          files:
            notes.txt: {text: "notes\\n"}
            data: tree
            /usr/local/bin/check: check
            /opt/hello: {text: "#!/bin/sh\\necho hello\\n", mode: "0755"}
    """.replace("/usr/local/bin/check", "/opt/check")
    )

    async def work(box: SandboxEnvironment) -> str:
        script = "cat notes.txt data/deep/leaf data/link; /opt/check it; /opt/hello; echo more >> notes.txt && echo mine"
        result = await box.exec(["sh", "-c", script])
        return result.stdout + result.stderr

    assert in_sample(work, str(config)) == "notes\nleaf\nleaf\nchecked it\nhello\nmine\n"


def test_a_setup_that_fails_is_an_error_with_the_end_of_its_output() -> None:
    config = {"inspect_tools": False, "setup": {"script": "echo on the way; echo the reason >&2; exit 9"}}
    said = refusal(config)
    assert "The sandbox's setup failed: the script ended with exit code 9:" in said
    assert "on the way\n" in said
    assert "the reason" in said


def test_a_setup_that_takes_too_long_is_an_error() -> None:
    config = {"setup": {"script": "sleep 60", "timeout": 1}}
    said = refusal(config)
    assert "The sandbox's setup took longer than 1 s." in said


def test_a_root_file_system_from_a_tar_has_nothing_of_this_machine(tmp_path: Path) -> None:
    tar = tinyroot.write(tmp_path / "tiny.tar")

    async def work(box: SandboxEnvironment) -> list[str]:
        scripts = ("cat /etc/tiny-release", "ls /usr", "ls /bin", "id -u; echo > x; ls; cat /etc/hosts")
        results = [await box.exec(["sh", "-c", script]) for script in scripts]
        await box.write_file("/tmp/a/b", "written")
        return [*(r.stdout for r in results), results[1].stderr, await box.read_file("/tmp/a/b")]

    release, usr, programs, last, why, written = in_sample(work, {"rootfs": str(tar)})
    assert release == tinyroot.MARK
    assert usr == ""
    assert "/usr" in why
    assert sorted(programs.split()) == sorted(tinyroot.PROGRAMS)
    assert last.startswith("1000\nx\n127.0.0.1 localhost")
    assert written == "written"


def test_a_setup_runs_on_top_of_a_root_file_system_as_one_of_its_users(tmp_path: Path) -> None:
    tar = tinyroot.write(tmp_path / "tiny.tar")

    async def work(box: SandboxEnvironment) -> tuple[str, bool]:
        single = box.as_type(BubblewrapSandbox).box.keeper.facts["single_id"]
        return (await box.exec(["sh", "-c", "cat /opt/made; id -u; cat /etc/tiny-release"])).stdout, single

    config = {"rootfs": str(tar), "setup": {"script": "mkdir -p /opt; echo made > /opt/made"}, "user": 77}
    assert in_sample(work, config)[0] == f"made\n77\n{tinyroot.MARK}"


def test_a_file_that_is_no_root_file_system_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "not.tar"
    path.write_bytes(b"not a tar at all" * 1000)
    said = refusal({"rootfs": str(path)})
    assert f"The root file system {path} could not be unpacked" in said


async def test_a_root_file_system_whose_etc_leads_out_changes_nothing_there(
    keeper: Keeper, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("passwd", "group"):
        (outside / name).write_text("root:x:0:0::/root:/bin/sh\n")
        (outside / name).chmod(0o666)
    path = tmp_path / "hostile.tar"
    with tarfile.open(path, "w") as tar:
        for name, target in (("bin", None), ("etc", str(outside))):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if target is None else tarfile.SYMTYPE
            info.mode, info.linkname = 0o755, target or ""
            tar.addfile(info)
    layer = await import_rootfs(keeper, layer_store(), path)
    assert (layer.root / "etc").is_symlink()
    assert {path.read_text() for path in outside.iterdir()} == {"root:x:0:0::/root:/bin/sh\n"}
