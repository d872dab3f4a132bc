"""What people may say of a sandbox, and when two of them share what was prepared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hawk.errors import ConfigError
from hawk.sandbox.config import BubblewrapConfig, Limits, Service, Setup, SetupFile, load, setup_key

GIB = 1024**3


def refused(folder: Path, text: str) -> dict[str, dict[str, Any]]:
    """The problems of a file, by field."""
    path = folder / "sandbox.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return {problem["field"]: problem for problem in caught.value.fields["problems"]}


def message(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(config)
    return caught.value.message


def prepared(folder: Path, **setup: Any) -> BubblewrapConfig:
    return load({"setup": setup}, folder)


# Reading


@pytest.mark.parametrize("nothing", [None, {}, BubblewrapConfig()])
def test_nothing_said_is_a_closed_sandbox_with_every_limit(nothing: Any) -> None:
    config = load(nothing)
    said = (config.network, config.user, config.workspace, config.storage)
    assert said == ("none", "user", "/workspace", "memory")
    limits = config.limits
    assert (limits.memory, limits.workspace, limits.file_size) == (2 * GIB, GIB, None)
    assert (limits.processes, limits.inodes, limits.open_files) == (512, 200_000, 4096)
    assert setup_key(config, "root", "base") is None


def test_a_file_that_says_nothing_is_right(tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_text("# later\n")
    assert load("sandbox.yaml", tmp_path) == BubblewrapConfig()


def test_everything_can_be_said_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "install.sh").write_text("make install\n")
    (tmp_path / "root.tar.xz").touch()
    (tmp_path / "bubblewrap.yaml").write_text(
        """\
network: host
user: 1000
hostname: desk
environment: {PORT: 8080, NAME: x}
workspace: /home/user//work/
limits: {memory: 512m, file_size: 1.5 GB, cpu_time: 90s, wall_time: 2h, cpus: 0.5}
storage: disk
rootfs: root.tar.xz
setup:
  files:
    data: data
    /etc/motd: {text: "hello ${USER}", mode: "0600"}
  packages: {apt: [curl, "git=1:2.39.2-1", g++], pip: ["requests>=2; python_version<'4'"], apk: [bash~5]}
  script_file: install.sh
  user: user
  timeout: 10m
services:
  database:
    rootfs: postgres:16
    command: [postgres, -D, /data]
    ready: pg_isready
    environment: {A: b}
inspect_tools: false
"""
    )
    config = load("bubblewrap.yaml", tmp_path)
    assert (config.user, config.hostname, config.workspace) == (1000, "desk", "/home/user/work")
    assert config.environment == {"PORT": "8080", "NAME": "x"}
    limits = config.limits
    assert (limits.memory, limits.file_size) == (512 * 1024**2, 3 * GIB // 2)
    assert (limits.cpu_time, limits.wall_time, limits.cpus) == (90, 7200, 0.5)
    assert (config.rootfs_path, config.rootfs_image) == (tmp_path / "root.tar.xz", None)
    files = config.setup.files
    assert files["data"] == SetupFile(path=str(tmp_path / "data"))
    assert files["/etc/motd"] == SetupFile(text="hello ${USER}", mode="0600"), "the shell's variables stay"
    assert config.place("data") == "/home/user/work/data"
    assert config.place("/etc/motd") == "/etc/motd"
    assert config.setup.script_file == str(tmp_path / "install.sh")
    assert config.setup.timeout == 600
    service = config.services["database"]
    assert (service.rootfs_path, service.rootfs_image) == (None, "postgres:16")
    assert (service.command, service.ready, service.ready_timeout) == (
        ["postgres", "-D", "/data"],
        "pg_isready",
        60,
    )


def test_every_problem_is_said_at_once_with_line_field_and_suggestion(tmp_path: Path) -> None:
    problems = refused(
        tmp_path,
        """\
netwrk: host
limits:
  memroy: 1g
setup:
  files:
    /etc/x: {form: a}
  packages: {apt: [-y]}
services:
  user:
    limts: {}
    limits: {processes: 0}
environment: {1A: b}
""",
    )
    assert {field: (p["line"], p["suggestion"]) for field, p in problems.items()} == {
        "netwrk": (1, "network"),
        "limits.memroy": (3, "memory"),
        "setup.files./etc/x.form": (6, "from"),
        "setup.packages.apt[0]": (7, None),
        "services.user.limts": (10, "limits"),
        "services.user.limits.processes": (11, None),
        "environment.1A": (12, None),
    }
    assert all(p["file"] == str(tmp_path / "sandbox.yaml") for p in problems.values())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- network\n", 1, "A sandbox's configuration is a mapping of fields"),
        ("network: host\nnetwork: none\n", 2, "given twice"),
        ("network: [\n", 2, "bad YAML"),
    ],
)
def test_what_is_no_configuration_at_all(tmp_path: Path, text: str, line: int, words: str) -> None:
    (problem,) = refused(tmp_path, text).values()
    assert words in problem["message"]
    assert problem["line"] == line


def test_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").touch()
    with pytest.raises(ConfigError, match=r"no such file\. Did you mean 'sandbox\.yaml'\?"):
        load("sandbx.yaml", tmp_path)


@pytest.mark.parametrize("name", ["compose.yaml", "docker-compose.yml", "web-compose.yaml", "Dockerfile"])
def test_a_file_for_docker_is_called_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="file for docker") as caught:
        load(name, tmp_path)
    assert caught.value.remedy == "Write a sandbox.yaml beside it."


def test_a_configuration_of_another_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="can't be configured by a Limits"):
        load(Limits())


def test_local_files_of_a_file_must_exist(tmp_path: Path) -> None:
    (tmp_path / "tests.py").touch()
    (tmp_path / "root.zip").touch()
    problems = refused(
        tmp_path,
        """\
rootfs: ./root.zip
setup:
  files: {a: test.py}
  script_file: .
services:
  web:
    rootfs: ./nowhere
""",
    )
    assert {field: p["line"] for field, p in problems.items()} == {
        "rootfs": 1,
        "setup.files.a": 3,
        "setup.script_file": 4,
        "services.web.rootfs": 7,
    }
    assert problems["setup.files.a"]["suggestion"] == "tests.py"
    assert "neither a directory nor a tar file" in problems["rootfs"]["message"]


def test_data_is_checked_like_a_file_and_takes_files_that_are_elsewhere(tmp_path: Path) -> None:
    config = load({"setup": {"files": {"a": "from-another-machine"}}}, tmp_path)
    assert config.setup.files["a"].path == str(tmp_path / "from-another-machine")
    assert message({"netwrk": "host"}).startswith(
        "sandbox: netwrk: unknown field 'netwrk'. Did you mean 'network'?"
    )


def test_relative_paths_of_a_model_are_resolved_too(tmp_path: Path) -> None:
    config = load(
        BubblewrapConfig(
            rootfs="./root",
            setup=Setup(files={"a": SetupFile(path="~/b")}),
            services={"web": Service(setup=Setup(script_file="s.sh"))},
        ),
        tmp_path,
    )
    assert config.rootfs_path == tmp_path / "root"
    assert config.setup.files["a"].path == str(Path.home() / "b")
    assert config.services["web"].setup.script_file == str(tmp_path / "s.sh")
    assert load(config, Path("/elsewhere")) == config


# Fields


@pytest.mark.parametrize(
    ("written", "size"),
    [(1024**2, 1024**2), ("1048576", 1024**2), ("512m", 512 * 1024**2), ("1g", GIB), ("1G", GIB), ("1GiB", GIB),
     ("1.5 GB", 3 * GIB // 2), ("2048k", 2 * 1024**2), ("1 t", 1024 * GIB), ("2097152 B", 2 * 1024**2)],
)  # fmt: skip
def test_sizes_are_powers_of_1024(written: object, size: int) -> None:
    assert load({"limits": {"memory": written}}).limits.memory == size


@pytest.mark.parametrize(
    "written", [0, -1, "0", "-1g", "0.0m", "1x", "g", "", "1 2g", True, 1.5, "9999999999t", "1e9", [1], "٣g"]
)
def test_what_is_no_size(written: object) -> None:
    assert "limits.file_size: " in message({"limits": {"file_size": written}})


def test_a_size_without_its_unit_is_noticed() -> None:
    assert "write a unit" in message({"limits": {"memory": 2}})


@pytest.mark.parametrize(
    ("written", "seconds"), [(5, 5), ("5", 5), ("90s", 90), ("10m", 600), ("2h", 7200), ("1.5 H", 5400), ("1d", 86400)]
)  # fmt: skip
def test_durations_are_seconds(written: object, seconds: int) -> None:
    assert load({"limits": {"wall_time": written}}).limits.wall_time == seconds


@pytest.mark.parametrize("written", [0, -5, "0s", "1.5s", "0.1s", "x", "", True, 1.5, "99999999999d", "1w"])
def test_what_is_no_duration(written: object) -> None:
    assert "setup.timeout: " in message({"setup": {"timeout": written}})


@pytest.mark.parametrize("written", [0, -1, "nan", float("inf")])
def test_processors_are_above_zero(written: object) -> None:
    assert "limits.cpus: " in message({"limits": {"cpus": written}})


def test_allow_lists_say_when_they_come_and_what_to_write_now() -> None:
    text = message({"allow": ["pypi.org"]})
    assert "allow: " in text
    assert "middleman" in text
    assert "network: host" in text
    assert load({"allow": []}).allow == []


@pytest.mark.parametrize(
    ("written", "user"),
    [("root", "root"), (0, 0), ("1000", 1000), ("www-data", "www-data"), (65535, 65535)],
)
def test_users_by_name_and_number(written: str | int, user: str | int) -> None:
    assert load({"user": written}).user == user


@pytest.mark.parametrize("written", [-1, 65536, "-x", "1000:1000", "a b", "", True, "a\n"])
def test_what_is_no_user(written: object) -> None:
    assert "user: " in message({"user": written})


@pytest.mark.parametrize(
    ("written", "workspace"), [("//a", "/a"), ("/a/../b/", "/b"), ("/a/./b", "/a/b"), ("/users", "/users")]
)
def test_the_workspace_is_normalised(written: str, workspace: str) -> None:
    assert load({"workspace": written}).workspace == workspace


@pytest.mark.parametrize(
    "written",
    ["work", "", "/", "/usr", "/usr/local", "/a/../proc/1", "//dev", "/sys", "/bin", "/a\0b", "/a/.."],
)
def test_what_can_not_be_the_workspace(written: str) -> None:
    assert "workspace: " in message({"workspace": written})


@pytest.mark.parametrize("name", ["A=B", "1A", "", "A B", "A\n", "Ä"])
def test_what_is_no_name_of_a_variable(name: str) -> None:
    assert "is not a variable's name" in message({"environment": {name: "x"}})


@pytest.mark.parametrize("value", [True, ["x"], "a\0b", "\ud800"])
def test_what_is_no_value_of_a_variable(value: object) -> None:
    assert "environment.A: " in message({"environment": {"A": value}})


@pytest.mark.parametrize(
    ("rootfs", "is_path"),
    [("debian", False), ("debian:12.1", False), ("./debian", True), ("/srv/x", True), ("x.tar", True), ("x.tar.gz", True),
     ("x.tgz", True), ("x.tar.xz", True), ("x.tar.bz2", True), ("a/b:c", True), ("debian.tar.d", False)],
)  # fmt: skip
def test_a_root_file_system_is_a_path_or_a_name(rootfs: str, is_path: bool, tmp_path: Path) -> None:
    config = load({"rootfs": rootfs}, tmp_path)
    assert (config.rootfs_path, config.rootfs_image) == (
        (tmp_path / rootfs, None) if is_path else (None, rootfs)
    )


@pytest.mark.parametrize("rootfs", ["", "Debian", "a:b:c", "-x", "a b", "a:", "x\0/"])
def test_what_is_no_root_file_system(rootfs: str) -> None:
    assert "rootfs: " in message({"rootfs": rootfs})


@pytest.mark.parametrize(
    "place", ["", "/", ".", "..", "../x", "a/../../x", "a/", "/proc/x", "/x/../dev/y", "a\0b"]
)
def test_what_can_not_be_the_place_of_a_file(place: str) -> None:
    assert "setup.files" in message({"setup": {"files": {place: {"text": "x"}}}})


def test_the_same_place_twice_is_noticed() -> None:
    files = {"a/b": {"text": "x"}, "/workspace/a/./b": {"text": "y"}}
    assert "are the same place" in message({"setup": {"files": files}})
    assert "are the same place" in message({"services": {"web": {"setup": {"files": files}}}})


@pytest.mark.parametrize(
    "file",
    [{}, {"text": "x", "from": "y"}, {"from": "x", "mode": "0644"}, {"text": "x", "mode": 0o644}, {"from": " "},
     {"text": "x", "mode": "rw"}, {"text": "x", "mode": "0999"}, {"text": "\ud800"}, None],
)  # fmt: skip
def test_what_is_no_file(file: object) -> None:
    assert "setup.files.a" in message({"setup": {"files": {"a": file}}})


def test_a_mode_that_yaml_took_for_a_number_is_explained(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, "setup: {files: {a: {text: x, mode: 0755}}}\n").values()
    assert problem["message"] == 'write the mode in quotes, as in mode: "0755"'


@pytest.mark.parametrize(
    ("kind", "name"),
    [("apt", "-o=x"), ("apt", "vim-"), ("apt", "vim=1-"), ("apt", "a b"), ("apt", ""), ("apt", "./x.deb"), ("apt", "a\n"),
     ("apk", "--root"), ("apk", "!curl"), ("apk", ""), ("pip", "-r x"), ("pip", "--pre"), ("pip", "x --hash=1"),
     ("pip", " x"), ("pip", "x\n-r y"), ("pip", "x\ny"), ("pip", ""), ("pip", "\ud800")],
)  # fmt: skip
def test_a_package_can_not_be_an_option(kind: str, name: str) -> None:
    assert f"setup.packages.{kind}[0]: " in message({"setup": {"packages": {kind: [name]}}})


def test_setup_takes_one_script() -> None:
    assert "either 'script' or 'script_file'" in message({"setup": {"script": "x", "script_file": "y"}})


@pytest.mark.parametrize("name", ["default", "localhost", "Web", "-a", "a-", "a.b", "a_b", "", "a" * 64])
def test_what_can_not_be_the_name_of_a_service(name: str) -> None:
    assert "services." in message({"services": {name: {}}})


@pytest.mark.parametrize("field", ["services", "network", "allow"])
def test_a_service_has_no_network_of_its_own(field: str) -> None:
    assert f"services.web.{field}: unknown field" in message({"services": {"web": {field: []}}})


@pytest.mark.parametrize("command", ["", "  ", [], [""], "a\0b", ["a", "b\0"], 5, [1]])
def test_what_is_no_command(command: object) -> None:
    assert "services.web.command" in message({"services": {"web": {"command": command}}})


# As a value


def everything(folder: Path) -> BubblewrapConfig:
    return load(
        {
            "limits": {"memory": "1g", "wall_time": "1h"},
            "setup": {"files": {"a": "b", "c": {"text": "x", "mode": "755"}}, "packages": {"apt": ["x"]}},
            "services": {"web": {"command": ["x"], "rootfs": "./r"}},
            "user": "5",
        },
        folder,
    )


@pytest.mark.parametrize("by_alias", [True, False])
def test_what_a_log_keeps_is_the_same_configuration_again(tmp_path: Path, by_alias: bool) -> None:
    config = everything(tmp_path)
    kept = json.loads(config.model_dump_json(exclude_none=True, by_alias=by_alias))
    assert load(kept, Path("/elsewhere")) == config


def test_equal_configurations_are_one_key_of_a_set(tmp_path: Path) -> None:
    one = everything(tmp_path)
    data = one.model_dump(mode="json")
    data["setup"]["files"] = dict(reversed(data["setup"]["files"].items()))
    other = load(data)
    assert other == one
    assert len({one, other, BubblewrapConfig()}) == 2


def test_a_configuration_can_not_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        BubblewrapConfig().user = "root"


def test_every_field_is_documented() -> None:
    schema = BubblewrapConfig.model_json_schema()
    for model in [schema, *schema["$defs"].values()]:
        for name, field in model.get("properties", {}).items():
            assert field.get("description"), name


def test_reading_a_configuration_does_not_load_inspect() -> None:
    code = "import hawk.sandbox.config, sys; print('inspect_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# The key of what is prepared


def key(config: BubblewrapConfig, mode: str = "root", base: str = "base") -> str:
    found = setup_key(config, mode, base)
    assert found is not None
    assert len(found) == 32
    return found


def test_only_a_setup_with_something_in_it_has_a_key(tmp_path: Path) -> None:
    empty = prepared(tmp_path, script=" \n", timeout=5, user="user", environment={"A": "b"})
    assert setup_key(empty, "root", "base") is None
    assert key(prepared(tmp_path, script="x"))
    assert key(prepared(tmp_path, packages={"apk": ["x"]}))
    assert key(prepared(tmp_path, files={"a": {"text": ""}}))
    assert setup_key(Service(setup=Setup(script="x")), "root", "base") == key(prepared(tmp_path, script="x"))


def test_all_that_can_change_the_layer_is_in_its_key(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    setup = {"files": {"a": "a", "t": {"text": "x"}}, "packages": {"apt": ["p"]}, "script": "s"}

    def changed(outside: dict[str, Any], **inside: Any) -> str:
        return key(load({"setup": {**setup, **inside}, **outside}, tmp_path))

    keys = [
        changed({}),
        changed({}, script="t"),
        changed({}, packages={"apt": ["q"]}),
        changed({}, packages={"pip": ["p"]}),
        changed({}, user="user"),
        changed({}, network="none"),
        changed({}, environment={"A": "1"}),
        changed({}, files={"b": "a", "t": {"text": "x"}}),
        changed({}, files={"a": "a", "t": {"text": "x", "mode": "0600"}}),
        changed({}, files={"a": "a", "t": {"text": "y"}}),
        changed({}, files={"t": {"text": "x"}, "a": "a"}),
        changed({"workspace": "/work"}),
        changed({"user": "root"}),
        changed({"environment": {"A": "1"}}),
        key(prepared(tmp_path, **setup), mode="user"),
        key(prepared(tmp_path, **setup), base="other"),
    ]
    assert len(set(keys)) == len(keys)


def test_what_the_layer_does_not_depend_on_is_not_in_its_key(tmp_path: Path) -> None:
    plain = key(prepared(tmp_path, script="s", files={"t": {"text": "x"}}))
    other = {
        "setup": {"script": "s", "files": {"t": {"text": "x", "mode": "644"}}, "timeout": 60},
        "limits": {"memory": "4g"},
        "network": "host",
        "hostname": "h",
        "services": {"web": {}},
        "inspect_tools": False,
    }
    assert key(load(other)) == plain


def test_the_content_of_local_files_is_in_the_key_and_their_path_is_not(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        tree = tmp_path / folder / "tree"
        (tree / "sub" / "empty").mkdir(parents=True)
        (tree / "sub" / "file").write_text("content")
        (tree / "link").symlink_to("sub/file")
        (tmp_path / folder / "s.sh").write_text("run")

    def of(folder: str) -> str:
        return key(prepared(tmp_path / folder, files={"t": "tree"}, script_file="s.sh"))

    tree = tmp_path / "two" / "tree"
    before = of("one")
    assert of("two") == before
    os.utime(tree / "sub" / "file", (1, 1))
    assert of("two") == before, "times are not part of it"

    seen = {before}
    changes: list[Callable[[], object]] = [
        lambda: (tree / "sub" / "file").write_text("other"),
        lambda: (tree / "sub" / "file").chmod(0o700),
        lambda: (tree / "sub").chmod(0o700),
        lambda: (tree / "sub" / "empty").rmdir(),
        lambda: (tree / "sub" / "file").rename(tree / "sub" / "file2"),
        lambda: (tree / "link").rename(tree / "link2"),
        lambda: (tree / "link").symlink_to("elsewhere"),
        lambda: (tree / "link").rename(tree / "link3"),
        lambda: (tree / "link").write_text("elsewhere"),
        lambda: (tmp_path / "two" / "s.sh").write_text("walk"),
    ]
    for change in changes:
        change()
        assert of("two") not in seen
        seen.add(of("two"))


def test_names_and_contents_do_not_run_into_each_other(tmp_path: Path) -> None:
    trees = [{"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "", "b": "c"}, {"a": "", "bc": ""}]
    keys = set()
    for i, tree in enumerate(trees):
        folder = tmp_path / str(i)
        folder.mkdir()
        for name, text in tree.items():
            (folder / name).write_text(text)
        keys.add(key(prepared(tmp_path, files={"t": str(i)})))
    assert len(keys) == len(trees)


def test_a_link_that_is_named_itself_stands_for_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("x")
    (tmp_path / "link").symlink_to("real")
    through_link = key(prepared(tmp_path, files={"t": "link"}))
    assert through_link == key(prepared(tmp_path, files={"t": "real"}))
    (tmp_path / "real" / "f").write_text("y")
    assert key(prepared(tmp_path, files={"t": "link"})) != through_link


def test_names_that_are_not_text_have_a_key(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    Path(os.fsdecode(bytes(folder) + b"/\xff")).write_text("x")
    assert key(prepared(tmp_path, files={"t": "t"}))


def test_a_local_file_that_is_missing_or_special_is_named(tmp_path: Path) -> None:
    (tmp_path / "tests.py").touch()
    with pytest.raises(ConfigError, match=r"setup\.files: a: .*test\.py: .*Did you mean 'tests\.py'"):
        key(prepared(tmp_path, files={"a": "test.py"}))
    with pytest.raises(ConfigError, match=r"setup\.script_file: .*nowhere: there is no such file"):
        key(prepared(tmp_path, script_file="nowhere"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="neither a file, a directory nor a link"):
        key(prepared(tmp_path, files={"a": "pipe"}))


def test_big_local_files_are_read_in_pieces(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(300 * 1024**2)
    code = (
        "from pathlib import Path; from hawk.sandbox.config import load, setup_key\n"
        "config = load({'setup': {'files': {'b': 'big'}}}, Path('.'))\n"
        "setup_key(config, 'root', 'base')\n"
        # rusage would tell the peak of whoever started it, if that is higher
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200 * 1024


def test_yaml_of_the_dump_is_a_file_that_loads(tmp_path: Path) -> None:
    config = load({"setup": {"files": {"a": {"text": "x"}}}, "limits": {"memory": "1g"}}, tmp_path)
    path = tmp_path / "sandbox.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load(path) == config
