"""Jobs and the middleman, the whole way: command line, server, supervisor, workers, their SDKs, a provider."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import yaml
from inspect_ai.log import read_eval_log

from hawk.core.snapshot import Snapshot, Task
from hawk.middleman.tokens import mint
from tests.middleman.provider import Provider
from tests.middleman.provider_answers import chat
from tests.middleman.provider_raw import Answer, Received
from tests.sandbox.conftest import supported  # noqa: F401  # a fixture
from tests.sandbox.programs import needs
from tests.system import System, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASKS = Path(__file__).with_name("asking.py")
KEYS = {"LOCAL_API_KEY": "local-of-the-submitter-51c0", "OPENAI_API_KEY": "sk-of-the-submitter-9f3b"}
TOKEN = re.compile(rb"eyJ[\w-]{10,}\.eyJ[\w-]{20,}")
"""A job's token (JWT), wherever it stands."""

TOKENS = 21
"""Tokens of one answer of the provider."""

LOCAL = "openai-api/local/x"


class Jobs:
    """A system with a middleman, and a person who submits jobs there with keys of their own."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "evals"
        self.folder.mkdir()
        self.system = System(base, HAWK_MIDDLEMAN="1", HAWK_WORKERS="1", HAWK_WARM="1")
        for name in list(self.system.environ):
            if name.endswith(("_API_KEY", "_BASE_URL")):
                del self.system.environ[name]

    @property
    def home(self) -> Path:
        return self.system.home

    def submit(
        self, job: str, url: str, task: dict[str, Any] | list[dict[str, Any]], *options: str, **config: Any
    ) -> subprocess.CompletedProcess[str]:
        """`hawk eval-set`, for tasks of `asking.py` and a provider at `url`; all its own variables are the person's."""
        tasks = task if isinstance(task, list) else [task]
        whole = {
            "eval_set_id": job,
            "tasks": [{"file": str(TASKS), "items": tasks}],
            "models": [LOCAL],
            "secrets": [*KEYS, "LOCAL_BASE_URL"],
            "runner": {"environment": {"OPENAI_BASE_URL": f"{url}/v1", "STREAMED_MODEL": job}},
            **config,
        }
        path = self.folder / f"{job}.yaml"
        path.write_text(yaml.safe_dump(whole))
        return subprocess.run(
            [sys.executable, "-m", "hawk.cli", "eval-set", str(path), *options],
            env={**self.system.environ, **KEYS, "LOCAL_BASE_URL": f"{url}/v1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def finish(self, job: str) -> Snapshot:
        """The last snapshot of a job that was submitted once, or waited for; no server is needed."""
        run = self.system.run_dir(job)

        def ended() -> Snapshot | None:
            snapshot = run.read_snapshot()
            over = snapshot is not None and snapshot.status.terminal and run.supervisor_pid() is None
            return snapshot if over else None

        return until(f"{job} has ended", ended, timeout=120, period=0.2)

    def spans(self, job: str) -> list[dict[str, Any]]:
        """What the middleman noted of a job's requests."""
        path = self.system.run_dir(job).path / "spans" / "middleman.jsonl"
        return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def middleman(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((self.home / "middleman.json").read_bytes())
        return found

    def logs(self, job: str) -> str:
        """Every log of a job, as text."""
        found = sorted((self.system.run_dir(job).path / "logs").rglob("*.eval"))
        return "\n".join(read_eval_log(str(path)).model_dump_json() for path in found)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path_factory.mktemp("jobs"))
    jobs.system.start()
    try:
        yield jobs
    finally:
        jobs.system.stop()
        pid = jobs.middleman()["pid"]
        until(
            "it ends by itself with the last server and job", lambda: not psutil.pid_exists(pid), timeout=30
        )


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        provider.on(
            lambda request: chat(request.json(), ("GRADE: C",)), path="/v1/", model="judge", always=True
        )
        yield provider


def samples(snapshot: Snapshot) -> dict[tuple[str, str, str, int], Any]:
    """Attempts by (task, model, sample, number)."""
    return {(t.task_name, t.model or "", s.id, s.epoch): s for t in snapshot.tasks for s in t.samples}


def secrets_in(data: bytes) -> list[bytes]:
    """Keys and tokens in it."""
    return [key.encode() for key in KEYS.values() if key.encode() in data] + TOKEN.findall(data)


def processes() -> Iterator[tuple[int, bytes]]:
    for process in psutil.process_iter():
        try:
            yield process.pid, " ".join(process.cmdline()).encode()
        except psutil.Error:
            continue


def test_a_token_would_be_found() -> None:
    assert TOKEN.search(b"x" + mint(b"k" * 32, job="j", user="me").encode())


@needs("python3")
@pytest.mark.usefixtures("supported")
def test_every_request_bears_the_key_and_is_told_apart_and_nothing_leaks(
    jobs: Jobs, provider: Provider
) -> None:
    provider.on(lambda request: _late(chat(request.json()), 1.0))  # time to look at what runs
    other = {"base_url": f"{provider.url}/other/v1", "responses_api": False}
    submitted = jobs.submit(
        "all",
        provider.url,
        {"name": "mixed"},
        models=[LOCAL, {"package": "inspect-ai", "items": [{"name": "openai/y", "args": other}]}],
        model_roles={"grader": {"package": "inspect-ai", "items": [{"name": "openai-api/local/judge"}]}},
        runs=2,
        attempts="parallel",
    )
    assert submitted.returncode == 0, submitted.stderr
    until("a request is there", lambda: provider.received)
    assert [pid for pid, words in processes() if secrets_in(words)] == []
    end = jobs.finish("all")
    attempts = samples(end)
    assert end.status == "complete"
    assert {key: s.latest_score for key, s in attempts.items()} == dict.fromkeys(attempts, "C")

    # at the provider
    asked = [(r.json()["model"], r.path, r.header("authorization")) for r in provider.received]
    local, own = (f"Bearer {KEYS[name]}" for name in ("LOCAL_API_KEY", "OPENAI_API_KEY"))
    v1, elsewhere = "/v1/chat/completions", "/other/v1/chat/completions"
    wanted = [("y", elsewhere, own)] * 2 + [("x", v1, local)] * 4  # of x, two from within a sandbox
    wanted += [("judge", v1, local), ("raw", v1, own), ("in-thread", v1, own)] * 4
    assert sorted(asked) == sorted(wanted)
    assert [r.head for r in provider.received if secrets_in(r.body) or TOKEN.search(r.head)] == []
    assert [name for r in provider.received for name, _ in r.headers if name.startswith("x-hawk")] == []

    # in the job's own directory
    spans = jobs.spans("all")
    uuids = {(task, sample, str(epoch), s.uuid) for (task, _, sample, epoch), s in attempts.items()}
    noted = Counter((x["task"], x["sample"], x["attempt"], x["sample_uuid"]) for x in spans)
    assert noted.keys() == uuids
    assert sorted(noted.values()) == [4, 4, 5, 5]
    assert end.models is not None
    counted = TOKENS * 14 + (12 + 1) * 4  # the judge says one word
    assert (end.models.requests, end.models.tokens) == (len(wanted), counted)

    # nowhere
    text = jobs.logs("all")
    assert "asked in the sandbox" in text
    assert "PATH=" in text, "no environment of a sandbox was printed"
    assert secrets_in(text.encode()) == []
    may = {"token", "middleman.key"}
    files = [path for path in jobs.home.rglob("*") if path.is_file() and path.name not in may]
    assert {"server.log", "middleman.log", "middleman.jsonl"} <= {path.name for path in files}
    assert [path for path in files if secrets_in(path.read_bytes())] == []


def _late(answer: Answer, seconds: float) -> Answer:
    answer.delay = seconds
    return answer


def test_a_budget_stops_the_job_a_larger_one_finishes_it_and_it_can_be_replayed(jobs: Jobs) -> None:
    words = itertools.cycle(["yes", "no"])

    def fickle(request: Received) -> Answer:
        return chat(request.json(), (next(words), *"........"))

    task = {"name": "plain", "args": {"samples": 8}}
    tape, small, large = {"record": "tape.jsonl"}, {"tokens": 3 * TOKENS}, {"tokens": 100 * TOKENS}
    with Provider(default=fickle) as provider:
        settings = {"budget": small, **tape}
        stopped = jobs.submit("spent", provider.url, task, "--wait", middleman=settings, max_samples=1)
        assert stopped.returncode == 1
        said = stopped.stdout + stopped.stderr
        assert re.search(r"budget .*used up.* 63 .*tokens", said, re.IGNORECASE), said
        before = jobs.finish("spent")
        done = [sample for sample in samples(before).values() if sample.phase == "completed"]
        assert len(done) == 3 == len(provider.received)

        again = jobs.submit("spent", provider.url, task, "--wait", middleman={"budget": large, **tape})
        assert again.returncode == 0, again.stdout + again.stderr
        whole = jobs.finish("spent")
        questions = [request.json()["messages"][-1]["content"] for request in provider.received]
        assert sorted(questions) == [f"plain question {i}" for i in range(8)], "something was asked twice"
        assert whole.models is not None
        assert whole.models.tokens == 8 * TOKENS, "what the first run spent counts"

    scores = _scores(whole.tasks[0])
    assert set(scores.values()) == {"C", "I"}
    changed = {"name": "plain", "args": {"samples": 1, "prompt": "another question"}}
    replay: dict[str, Any] = {"middleman": {"replay": "tape.jsonl"}, "retry_on_error": 0}
    assert jobs.submit("replayed", provider.url, [task, changed], **replay).returncode == 0
    end = jobs.finish("replayed")
    [replayed] = [task for task in end.tasks if len(task.samples) == 8]
    [missed] = [task.samples[0] for task in end.tasks if task is not replayed]
    assert _scores(replayed) == scores
    assert all(span["replayed"] for span in jobs.spans("replayed"))
    where = "local/v1/chat/completions (task plain, sample s0, epoch 1)"
    assert missed.error is not None
    assert f"no answer to {where}" in missed.error
    assert f"{where}, recorded" in missed.error, "the nearest entry is not named"
    assert "hawk_replay_miss" in missed.error
    log = jobs.logs("replayed")
    assert re.search(r'-\s+\\"content\\": \\"plain question 0', log), "the difference is not shown"


def _scores(task: Task) -> dict[tuple[str, int], str | None]:
    return {(sample.id, sample.epoch): sample.latest_score for sample in task.samples}


def _says_yes(request: Received) -> Answer:
    return chat(request.json(), ("yes", *"........"))


def test_stop_and_delete_end_the_streams_of_their_job_alone(jobs: Jobs, provider: Provider) -> None:
    provider.default = _on_and_on
    for job in ("stopped", "deleted"):
        assert jobs.submit(job, provider.url, {"name": "streaming"}).returncode == 0
    streams = until("both streams are open", lambda: _streams(provider, "stopped", "deleted"))
    for job in ("stopped", "deleted"):
        command = ["stop", job, "--error"] if job == "stopped" else ["delete", job, "--yes"]
        assert streams["deleted"].gone_at is None
        jobs.system.hawk(*command)
        _gone(streams[job])
        if job == "stopped":
            assert jobs.finish("stopped").progress.completed == 0
    until("it is deleted", lambda: not jobs.system.run_dir("deleted").path.exists(), timeout=20)
    assert len(provider.received) == 2, "what was ended is not asked again"


def _gone(stream: Received) -> None:
    until("the provider is left", lambda: stream.gone_at is not None, timeout=20)


def _on_and_on(request: Received) -> Answer:
    return chat(request.json(), (" on",) * 6000, 0.05)


def _streams(provider: Provider, *models: str) -> dict[str, Received] | None:
    found = {str(request.json().get("model")): request for request in list(provider.received)}
    return found if all(model in found for model in models) else None


def test_without_it_workers_have_the_keys_and_ask_themselves(jobs: Jobs, provider: Provider) -> None:
    known = {"grader": {"package": "inspect-ai", "items": [{"name": "openai-api/local/judge"}]}}
    done = jobs.submit(
        "direct",
        provider.url,
        {"name": "mixed", "args": {"box": False}},
        "--wait",
        model_roles=known,
        middleman="off",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    asked = {request.json()["model"]: request for request in provider.received}
    keys = {model: request.header("authorization") for model, request in asked.items()}
    local, own = (f"Bearer {KEYS[name]}" for name in ("LOCAL_API_KEY", "OPENAI_API_KEY"))
    assert keys == {"x": local, "judge": local, "raw": own, "in-thread": own}
    assert asked["raw"].json()["messages"][-1]["content"] == "asked with no token"
    assert [name for request in asked.values() for name, _ in request.headers if "hawk" in name] == []
    assert (jobs.spans("direct"), jobs.finish("direct").models) == ([], None)


def test_it_may_be_killed_again_and_again_also_when_no_server_is_there(
    jobs: Jobs, provider: Provider
) -> None:
    provider.default = lambda request: _late(_says_yes(request), 0.3)
    task = {"name": "plain", "args": {"samples": 4, "calls": 6}}
    assert jobs.submit("survivor", provider.url, task).returncode == 0
    first = jobs.middleman()
    _killed_in_flight(jobs, provider, lambda: None)
    second = jobs.middleman()
    _killed_in_flight(jobs, provider, jobs.system.kill_server)
    third = jobs.middleman()
    end = jobs.finish("survivor")
    jobs.system.start()
    assert jobs.system.status("survivor").status == "complete"
    assert end.status == "complete"
    assert [sample.latest_score for sample in samples(end).values()] == ["C"] * 4
    assert len({m["pid"] for m in (first, second, third)}) == 3
    assert {m["url"] for m in (first, second, third)} == {first["url"]}


def _killed_in_flight(jobs: Jobs, provider: Provider, before: Callable[[], None]) -> None:
    """Kill the middleman while requests are on their way; the next one is there, and requests come again."""
    before()
    seen = len(provider.received)
    until("requests are on their way", lambda: any(r.done_at is None for r in provider.received[seen:]))
    dead = jobs.middleman()["pid"]
    os.kill(dead, signal.SIGKILL)
    until("another one is there", lambda: jobs.middleman()["pid"] != dead, timeout=30)
    came = len(provider.received)
    until("requests come again", lambda: len(provider.received) > came, timeout=60)
