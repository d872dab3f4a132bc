"""The usual rival: a Docker daemon of our own, which leaves nothing behind, and a small root file system for both."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.processes import environment, timed

PROGRAMS = ("true", "sh", "sleep")
DRIVERS = ("overlay2", "vfs")
IMAGE = "benchmark"
PATIENCE = 30  # seconds for the daemon to start, and to end


class AbsentError(Exception):
    """There is no Docker to measure here; the text says why."""


class Docker:
    """A running daemon with an image of the root file system, and one container that waits for commands.

    Attributes:
        about: Its version and storage driver.
    """

    def __init__(self, command: list[str], env: dict[str, str], driver: str) -> None:
        self._command = command
        self._env = env
        self._names = (f"c{i}" for i in itertools.count())
        version = self.ask("version", "--format", "{{.Server.Version}}")
        self.about = f"docker {version.strip()} ({driver})"

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], env=self._env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"docker {words[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def load(self, root: Path) -> None:
        self.ask("import", str(root), IMAGE)
        self.ask("run", "-d", "--name", "waiting", "--network", "none", IMAGE, "sleep", "86400")

    def run(self) -> float:
        """Seconds of `docker run … true`; the container's removal does not count."""
        name = next(self._names)
        took = timed([*self._command, "run", "--name", name, "--network", "none", IMAGE, "true"], self._env)
        self.ask("rm", "-f", name)
        return took

    def exec(self) -> float:
        """Seconds of `docker exec … true`."""
        return timed([*self._command, "exec", "waiting", "true"], self._env)


@contextmanager
def daemon(base: Path, root: Path) -> Iterator[Docker]:
    """A daemon until the block's end.

    Args:
        base: Directory for all that it keeps.
        root: Tar of the image's root file system.

    Raises:
        AbsentError: None can be started.
    """
    program, client = _program("dockerd"), _program("docker")
    if os.geteuid() != 0:
        raise AbsentError("dockerd needs root")
    refused = ""
    for driver in DRIVERS:
        place = base / f"docker-{driver}"
        place.mkdir()
        (place / "daemon.json").write_text("{}")  # not this machine's own
        env = environment(DOCKER_CONFIG=str(place / "client"))
        command = [str(client), "-H", f"unix://{place}/sock"]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, *_options(place, driver)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if not _answers(process, command, env):
                refused = _reason(place / "log")
                continue
            rival = Docker(command, env, driver)
            rival.load(root)
            yield rival
            return
        finally:
            _end(process, command, env, place)
    raise AbsentError(f"dockerd does not start: {refused}")


def _options(place: Path, driver: str) -> list[str]:
    return [
        *("--config-file", f"{place}/daemon.json", "--host", f"unix://{place}/sock"),
        *("--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "--pidfile", f"{place}/pid"),
        *("--cgroup-parent", f"/{_cgroup(place)}", "--iptables=false", "--bridge=none"),
        *("--storage-driver", driver),
    ]


def _cgroup(place: Path) -> str:
    return f"{place.parent.name}-docker"


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise AbsentError(f"there is no {name} on this machine (Debian, Ubuntu: apt-get install docker.io)")
    return found


def _answers(process: subprocess.Popen[bytes], command: list[str], env: dict[str, str]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        asked = subprocess.run([*command, "version"], env=env, capture_output=True, check=False)
        if asked.returncode == 0:
            return True
        time.sleep(0.1)
    return False


def _reason(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else "it says nothing"


def _end(process: subprocess.Popen[bytes], command: list[str], env: dict[str, str], place: Path) -> None:
    """Stop the daemon and remove what it made: containers first, or their shims outlive it."""
    listed = subprocess.run([*command, "ps", "-aq"], env=env, capture_output=True, text=True, check=False)
    if ids := listed.stdout.split():
        subprocess.run([*command, "rm", "-f", *ids], env=env, capture_output=True, check=False)
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _end_helpers(place)
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = line.split()[4]
        if point.startswith(f"{place}/"):
            subprocess.run(["umount", "-l", point], capture_output=True, check=False)
    for top in [*Path("/sys/fs/cgroup").glob(f"*/{_cgroup(place)}"), Path("/sys/fs/cgroup", _cgroup(place))]:
        for directory, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
    shutil.rmtree(place, ignore_errors=True)


def _end_helpers(place: Path) -> None:
    """containerd and its shims, where they outlive a daemon that was killed: known by this daemon's directory."""
    left = []
    for helper in psutil.process_iter():
        with suppress(psutil.Error):
            if any(f"{place}/" in word for word in helper.cmdline()):
                helper.kill()
                left.append(helper)
    psutil.wait_procs(left, timeout=5)


def root_filesystem(base: Path) -> Path:
    """A tar of `true`, `sh`, `sleep` and their libraries, from this machine."""
    root = base / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name in PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin")
        if program is None:
            raise RuntimeError(f"there is no {name} in /usr/bin or /bin")
        shutil.copy(program, root / "usr" / "bin" / name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    archive = base / "root.tar"
    with tarfile.open(archive, "w") as tar:
        for entry in sorted(root.iterdir()):
            tar.add(entry, entry.name)
    return archive
