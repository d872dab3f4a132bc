"""`hawk middleman` and `hawk probe`, against a server that answers from canned documents."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hawk.middleman.keys import KeyStore
from tests.cli.conftest import HAWK, Run
from tests.cli.serving import TOKEN, Canned, serving

SECRET = "sk-test-0123456789abcdefWXYZ"


def lane(model: str, **fields: Any) -> dict[str, Any]:
    return {
        "provider": "openai",
        "account": "default",
        "model": model,
        "limit": 8,
        "most": 256,
        "in_flight": 0,
        "waiting": 0,
        "by_job": [],
        "paused_until": None,
        "paused_why": None,
        "requests_per_minute": 0.0,
        "tokens_per_minute": 0.0,
        "usd_per_minute": None,
        "status_429_last_minute": 0,
        "errors_last_minute": 0,
        "latency_p50_s": None,
        "latency_p95_s": None,
        "breaker": {"open": False, "since": None, "retry_at": None, "said": None},
        **fields,
    }


def status(**fields: Any) -> dict[str, Any]:
    return {
        "instance": "abc",
        "version": "1.2.3",
        "pid": 42,
        "url": "http://127.0.0.1:4000",
        "started_at": "2026-01-01T00:00:00+00:00",
        "draining": False,
        "lanes": [],
        "jobs": [],
        "requests": [],
        **fields,
    }


@pytest.fixture
def served(canned: Canned, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of someone whose middleman is the canned server, found by its file."""
    home = Path(env["HAWK_HOME"])
    home.mkdir()
    with serving(canned) as url:
        (home / "middleman.json").write_text(
            json.dumps({"url": url, "pid": 1, "instance": "abc", "version": "1"})
        )
        yield {**without_keys(env), "HAWK_ACCESS_TOKEN": TOKEN}


def without_keys(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}


BUSY = status(
    lanes=[
        lane("gpt-idle"),
        lane(
            "gpt-\x1b[31mbusy",
            in_flight=8,
            waiting=7,
            by_job=[{"job": f"job-{n}", "in_flight": 2, "waiting": n, "oldest_wait_s": 1.0} for n in (1, 4, 2, 0)],
            status_429_last_minute=3,
            tokens_per_minute=120_000.0,
            usd_per_minute=1.5,
            latency_p50_s=0.25,
            latency_p95_s=12.0,
            paused_until="2099-01-01T00:00:00+00:00",
            paused_why="429 Too Many Requests",
        ),
        lane("gpt-broken", breaker={"open": True, "since": None, "retry_at": None, "said": "500 \x1b]0;x\x07on fire"}),
    ],
    jobs=[
        {"job": "job-4", "requests": 12, "in_flight": 2, "waiting": 4, "tokens": 34567, "usd": 0.5, "unpriced": 2,
         "budget": {"usd": 3.0, "tokens": None}, "exhausted": None},
    ],
    requests=[
        {"id": "1", "job": "job-4", "task": "t", "sample": "s-1", "sample_uuid": "u", "attempt": "2", "provider": "openai",
         "model": "gpt-busy", "phase": "queued", "since": "2026-01-01T00:00:00+00:00", "age_s": 75.0, "place": 3,
         "reason": "retry_after", "until": "2099-01-01T00:00:00+00:00", "retry": 1},
        {"id": "2", "job": None, "task": "", "sample": "", "sample_uuid": "", "attempt": "", "provider": "openai",
         "model": "gpt-busy", "phase": "streaming", "since": "", "age_s": 900.0, "place": None, "reason": None,
         "until": None, "retry": 0},
    ],
)  # fmt: skip


def test_status_says_who_waits_for_what(canned: Canned, served: dict[str, str], run: Run) -> None:
    canned.routes["GET /admin/status"] = BUSY
    done = run("middleman", "status", env=served)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = [re.sub(r" +", " ", line) for line in done.stdout.splitlines()]
    busy = next(line for line in lines if line.startswith("openai/gpt-busy"))
    assert busy == "openai/gpt-busy 8 of 8 7 job-4 4, job-2 2, job-1 1 3 250ms 12.0s 120k $1.50"
    assert lines.index(busy) < next(i for i, line in enumerate(lines) if "gpt-idle" in line)
    assert any(
        re.fullmatch(r"openai/gpt-busy: paused for \d+d \d+h: 429 Too Many Requests", line) for line in lines
    )
    assert "openai/gpt-broken: given up; it said: 500 on fire" in lines
    assert "job-4 12 2 4 34,567 $0.5000 of $3 + 2 without a price" in lines
    waiting = next(line for line in lines if line.startswith("1m 15s"))
    assert re.search(r"s-1 2 queued, place 3: the provider asked to wait for \d+d \d+h \(try 2\)", waiting)
    assert "15m 00s" not in done.stdout, "a stream that flows does not wait"
    assert json.loads(run("middleman", "status", "--json", env=served).stdout) == BUSY


def test_following_status_shows_it_again(canned: Canned, served: dict[str, str]) -> None:
    canned.routes["GET /admin/status"] = status()
    with subprocess.Popen(
        [*HAWK, "middleman", "status", "-f"], env=served, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        seen = b""
        while seen.count(b"Middleman 1.2.3") < 2 and select.select([process.stdout], [], [], 30)[0]:
            seen += os.read(process.stdout.fileno(), 65536)
        process.kill()
    assert seen.count(b"No request has come yet.") == 2


def test_no_middleman_is_said_with_how_to_start_one(env: dict[str, str], run: Run) -> None:
    done = run("middleman", "status", env=env)
    assert (done.returncode, "No middleman runs here" in done.stderr, "middleman serve" in done.stderr) == (
        1,
        True,
        True,
    )
    home = Path(env["HAWK_HOME"])
    home.mkdir(exist_ok=True)
    with subprocess.Popen(["true"]) as ended:
        pass
    (home / "middleman.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": ended.pid}))
    assert "No middleman runs here" in run("middleman", "status", env=env).stderr
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    done = run("middleman", "reload", env={**env, "HAWK_MIDDLEMAN_URL": url, "HAWK_ACCESS_TOKEN": "x"})
    assert (done.returncode, f"{url} does not answer" in done.stderr) == (1, True)
    assert run("middleman", "reload", env={**env, "HAWK_MIDDLEMAN_URL": "nonsense"}).returncode == 2


def test_the_environment_says_where_the_middleman_is(
    canned: Canned, remote: dict[str, str], run: Run
) -> None:
    canned.routes["POST /admin/reload"] = {"providers": 2, "models": 30, "keys": 3}
    done = run("middleman", "reload", env={**remote, "HAWK_MIDDLEMAN_URL": remote["HAWK_API_URL"]})
    assert done.stdout == "Reloaded: 2 providers, 30 models, 3 keys.\n"
    home = Path(remote["HAWK_HOME"])
    (home / "token").write_text("of-this-home\n")
    (home / "middleman.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    elsewhere = {name: value for name, value in remote.items() if name != "HAWK_ACCESS_TOKEN"}
    asked = len(canned.requests)
    done = run("middleman", "reload", env={**elsewhere, "HAWK_MIDDLEMAN_URL": remote["HAWK_API_URL"]})
    assert (done.returncode, "No access token" in done.stderr) == (1, True)
    assert len(canned.requests) == asked, "the token of this home stays here"
    wrong = {**remote, "HAWK_MIDDLEMAN_URL": remote["HAWK_API_URL"], "HAWK_ACCESS_TOKEN": "wrong"}
    assert "does not take this token" in run("middleman", "reload", env=wrong).stderr


def set_key(env: dict[str, str], *args: str, typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HAWK, "middleman", "keys", "set", *args], env=env, input=typed, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


def test_keys_are_set_listed_and_removed_without_being_shown(
    canned: Canned, served: dict[str, str], run: Run
) -> None:
    canned.routes["POST /admin/reload"] = {"providers": 1, "models": 1, "keys": 1}
    done = set_key(served, "google", "--account", "team", typed=f"{SECRET}\n")
    assert (done.returncode, "gemini/team" in done.stderr, "The middleman knows." in done.stderr) == (
        0,
        True,
        True,
    )
    done = set_key({**served, "MINE": SECRET[::-1]}, "openai", "--from-env", "MINE", typed="")
    assert done.returncode == 0
    assert [method for method, path, _ in canned.requests if path == "/admin/reload"] == ["POST", "POST"]
    store = KeyStore(Path(served["HAWK_HOME"]), {})
    assert (store.get("gemini", "team"), store.get("openai")) == (SECRET, SECRET[::-1])
    listed = run("middleman", "keys", "list", env={**served, "GROQ_API_KEY": "from-the-environment"})
    assert [re.split(r"  +", line)[:4] for line in listed.stdout.splitlines()[1:]] == [
        ["gemini", "team", "…WXYZ", "file"],
        ["openai", "default", "…t-ks", "file"],
        ["groq", "default", "…ment", "environment GROQ_API_KEY"],
    ]
    assert len(json.loads(run("middleman", "keys", "list", "--json", env=served).stdout)) == 2
    assert run("middleman", "keys", "remove", "gemini", "--account", "team", env=served).returncode == 0
    assert run("middleman", "keys", "remove", "gemini", "--account", "team", env=served).returncode == 2
    shown = done.stderr + listed.stdout
    assert SECRET not in shown
    assert SECRET[::-1] not in shown


def test_a_key_that_is_none_is_refused(env: dict[str, str]) -> None:
    assert set_key(env, "openai", typed="").returncode == 2
    done = set_key(env, "openai", typed="two words\n")
    assert (done.returncode, "two words" in done.stderr) == (2, False)
    assert set_key(env, "openai", "--from-env", "NOT_SET_ANYWHERE", typed="").returncode == 2
    near = set_key(env, "opnai", typed=f"{SECRET}\n")
    assert "'openai' is one" in near.stderr


def test_models_and_prices(env: dict[str, str], run: Run, tmp_path: Path) -> None:
    env = {**without_keys(env), "MISTRAL_API_KEY": SECRET}
    listed = run("middleman", "models", env=env)
    assert "mistral/mistral-large-latest" in listed.stdout
    assert "anthropic/" not in listed.stdout
    assert re.search(
        r"anthropic/claude-sonnet-5 .*no key", run("middleman", "models", "--all", env=env).stdout
    )
    prices = json.loads(run("middleman", "prices", "--json", env=env).stdout)
    assert prices["models"]["openai/gpt-4o"]["output"] == 10
    update = tmp_path / "prices.yaml"
    update.write_text("as_of: 2099-01-01\nmodels:\n  openai/gpt-4o: {input: 123, output: 456}\n")
    assert run("middleman", "prices", "--update", str(update), env=env).returncode == 0
    done = run("middleman", "prices", env=env)
    assert re.search(r"openai/gpt-4o +123 +456 +123 +123", done.stdout)
    assert "2099-01-01" in done.stderr
    update.write_text("models:\n  openai/gpt-4o: {in: 1, output: 2}\n")
    wrong = run("middleman", "prices", "--update", str(update), env=env)
    assert (wrong.returncode, f"{update}:2: models.openai/gpt-4o" in wrong.stderr) == (2, True)


def leg(status: int | None, **fields: Any) -> dict[str, Any]:
    return {"status": status, "error": None, "type": None, "body": "", "seconds": 0.25, **fields}


def test_probe_says_whose_fault_it_is(canned: Canned, served: dict[str, str], run: Run) -> None:
    answer = {"model": "openai/gpt-5", "provider": "openai", "through": leg(200), "direct": leg(200),
              "verdict": "Both ways work.", "whose": "nobody", "remedy": ""}  # fmt: skip
    canned.routes["POST /admin/probe"] = answer
    done = run("probe", "openai/gpt-5", "--job", "j-1", env=served)
    assert (
        done.stdout
        == "through   works: 200 in 0.25 s\ndirectly  works: 200 in 0.25 s\nverdict   Both ways work.\n"
    )
    assert (done.returncode, canned.requests[-1][2]) == (0, {"model": "openai/gpt-5", "job": "j-1"})
    said = '{"error": {"message": "no \\u001b[2Jsuch model"}}'
    answer |= {"direct": leg(404, body=said), "through": leg(None, type="hawk_dns", error="no such host"),
               "verdict": "openai rejects the request (404).", "remedy": "Check the model's name."}  # fmt: skip
    done = run("probe", "openai/gpt-5", env=served)
    assert done.returncode == 1
    assert "through   fails: hawk_dns in 0.25 s  no such host" in done.stdout
    assert "directly  fails: 404 in 0.25 s  no such model" in done.stdout
    assert "→ Check the model's name." in done.stdout
    assert "\x1b" not in done.stdout
    assert json.loads(run("probe", "openai/gpt-5", "--json", env=served).stdout)["whose"] == "nobody"


def test_probe_asks_directly_when_the_middleman_is_down(
    canned: Canned, env: dict[str, str], run: Run
) -> None:
    env = without_keys(env)
    canned.routes["POST /v1/chat/completions"] = {"choices": [{"message": {"content": "OK"}}]}
    with serving(canned) as url:
        working = {**env, "LOCAL_BASE_URL": f"{url}/v1", "LOCAL_API_KEY": TOKEN}
        done = run("probe", "openai-api/local/smollm2", env=working)
        assert done.stderr.startswith("The middleman is down: No middleman runs here.")
        assert "the provider works" in done.stdout
        assert re.search(r"directly  works: 200", done.stdout)
        assert done.returncode == 1
        assert canned.requests[-1][:2] == ("POST", "/v1/chat/completions")
        assert canned.requests[-1][2]["model"] == "smollm2"
        done = run("probe", "openai-api/local/smollm2", env={**working, "LOCAL_API_KEY": "wrong"})
        assert re.search(r"directly  fails: 401", done.stdout)
    done = run("probe", "openai/gpt-5", env=env)
    assert "hawk middleman keys set openai" in done.stdout
    home = Path(env["HAWK_HOME"])
    home.mkdir(exist_ok=True)
    (home / "middleman.yaml").write_text("provider: {}")
    done = run("probe", "openai/gpt-5", env=env)
    assert "The middleman is down" in done.stderr
    assert "unknown field 'provider'" in done.stdout
    assert run("probe", "mockllm/model", env=env).returncode == 2


def test_every_reason_for_waiting_has_words() -> None:
    from hawk.cli.middleman_text import WHY
    from hawk.core.traffic.tickets import Reason

    assert set(WHY) == {reason.value for reason in Reason}


def test_replicas_are_said_and_what_is_wrong_between_them() -> None:
    from hawk.cli.middleman_text import report

    document = {
        "version": "1",
        "url": "u",
        "pid": 1,
        "lanes": [],
        "shared": {"replicas": 3, "problem": "no answer"},
    }
    shown = report(document, columns=200)
    assert "One of 3 that share their limits." in shown
    assert "! no answer" in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["record", "CONFIG"], {"record": True}),
        (["record", "CONFIG", "-o", "CASSETTE"], {"record": "CASSETTE"}),
        (["replay", "CONFIG", "CASSETTE"], {"replay": "CASSETTE", "replay_speed": 0.0}),
    ],
)
def test_an_eval_set_is_recorded_or_replayed_for_once(
    words: list[str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from hawk.cli import cli, eval_set

    config, cassette = tmp_path / "e.yaml", tmp_path / "answers.jsonl"
    config.write_text(
        "tasks: [{package: inspect-ai, items: [{name: x}]}]\nmiddleman: {budget: {usd: 3}, models: ['openai/*']}\n"
    )
    cassette.touch()
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(eval_set, "submit", lambda app, body, wait: sent.append(body))
    named = {"CONFIG": str(config), "CASSETTE": str(cassette)}
    done = CliRunner().invoke(cli, ["middleman", *(named.get(word, word) for word in words)])
    assert done.exit_code == 0, done.output
    options = {
        key: named.get(value, value) if isinstance(value, str) else value for key, value in expected.items()
    }
    said = {"budget": {"usd": 3.0}, "models": ["openai/*"]}
    assert sent[0]["eval_set_config"]["middleman"] == {**said, **options}
