"""What every start of the command costs, and how it fails."""

import subprocess
import sys

from tests.cli.conftest import HAWK, Run

Env = dict[str, str]


def test_help_imports_click_and_nothing_heavy(env: Env) -> None:
    code = (
        "import sys, hawk.cli\n"
        "try: hawk.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = 'httpx inspect_ai fastapi sqlalchemy pydantic msgspec rich yaml psutil http.client'.split()\n"
        "ours = [m for m in sys.modules if m.startswith('hawk.cli.')]\n"
        "sys.exit(repr([m for m in heavy if m in sys.modules] + ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_misspelt_command_gets_a_suggestion_and_exit_2(env: Env, run: Run) -> None:
    done = run("wacth", env=env)
    assert done.returncode == 2
    assert "Did you mean 'watch'?" in done.stderr


def test_bad_environment_is_said_without_traceback(env: Env, run: Run) -> None:
    done = run("list", "eval-sets", env={**env, "HAWK_PORT": "many"})
    assert done.returncode == 2
    assert done.stderr.startswith("Error: HAWK_PORT='many'")
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback_wherever_it_stands(env: Env, run: Run) -> None:
    for line in (["--debug", "list", "eval-sets"], ["list", "eval-sets", "--debug"]):
        assert "Traceback" in run(*line, env={**env, "HAWK_PORT": "many"}).stderr


def test_completion_knows_commands_options_and_jobs_without_a_server(env: Env, tmp_path: object) -> None:
    from pathlib import Path

    runs = Path(env["HAWK_HOME"]) / "runs"
    (runs / "demo-1").mkdir(parents=True)
    (runs / ".locks").mkdir()

    def complete(words: str, index: int) -> list[str]:
        more = {"_HAWK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        done = subprocess.run(HAWK, env={**env, **more}, capture_output=True, text=True, check=False)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert complete("hawk wa", 1) == ["watch"]
    assert complete("hawk watch de", 2) == ["demo-1"]
    assert complete("hawk watch ", 2) == ["demo-1"]
    assert "--no-follow" in complete("hawk watch --", 2)
    assert complete("hawk list sa", 2) == ["samples"]
    assert not (Path(env["HAWK_HOME"]) / "server.json").exists()


def test_completion_scripts_are_printed(env: Env, run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_HAWK_COMPLETE" in run("completion", shell, env=env).stdout
