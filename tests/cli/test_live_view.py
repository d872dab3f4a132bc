"""`hawk watch` on a terminal."""

import signal

from hawk.core.states import JobStatus
from tests.cli.serving import Canned
from tests.cli.snapshots import busy, ended, large
from tests.cli.terminal import Terminal

Env = dict[str, str]
LEAVE_SCREEN = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


def test_live_view_follows_to_the_end_and_leaves_a_summary(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env=remote) as terminal:
        text = terminal.until("Ctrl-C leaves")
        assert "demo-1  Running" in text
        assert "worker's event loop is blocked" in text
        canned.show(ended())
        assert terminal.end() == 0
        assert LEAVE_SCREEN in terminal.raw
        assert SHOW_CURSOR in terminal.raw
        assert "verify/accuracy 0.667" in terminal.text
        assert "hawk transcript uuid-broken-1" in terminal.text


def test_live_view_ends_with_1_when_the_job_failed(canned: Canned, remote: Env) -> None:
    canned.show(ended(JobStatus.FAILED))
    with Terminal("watch", "demo-1", env=remote) as terminal:
        assert terminal.end() == 1


def test_live_view_uses_the_new_size_after_a_resize(canned: Canned, remote: Env) -> None:
    canned.show(large(40, 30))
    with Terminal("watch", "large-1", env=remote, columns=120, rows=40) as terminal:
        terminal.until("wait +/min")
        terminal.resize(70, 20)
        text = terminal.until("err +/min")
        assert "Ctrl-C leaves" in text
        terminal.resize(140, 50)
        terminal.until("wait +/min")


def test_time_moves_on_between_two_snapshots(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env=remote) as terminal:
        terminal.until(r"tool bash for 4s")
        terminal.until(r"tool bash for 6s")


def test_ctrl_c_restores_the_terminal_and_says_that_the_job_runs_on(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env=remote) as terminal:
        terminal.until("Ctrl-C leaves")
        terminal.process.sendintr()
        assert terminal.end() == 130
        assert LEAVE_SCREEN in terminal.raw
        assert "demo-1 runs on." in terminal.text
        assert "hawk stop demo-1" in terminal.text


def test_a_polite_kill_restores_the_terminal(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env=remote) as terminal:
        terminal.until("Ctrl-C leaves")
        terminal.process.kill(signal.SIGTERM)
        assert terminal.end() == 143
        assert LEAVE_SCREEN in terminal.raw


def test_lost_connection_is_shown_until_it_is_back(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env=remote) as terminal:
        terminal.until("Ctrl-C leaves")
        canned.drop_streams()
        terminal.until("reconnecting")
        canned.break_streams = False
        terminal.until(r"demo-1 +Running.*\n(?!.*reconnecting)")
        canned.show(ended())
        assert terminal.end() == 0


def test_no_color_is_respected(canned: Canned, remote: Env) -> None:
    canned.show(busy())
    with Terminal("watch", "demo-1", env={**remote, "NO_COLOR": "1"}) as terminal:
        terminal.until("Ctrl-C leaves")
        canned.show(ended())
        terminal.end()
        assert b"\x1b[31m" not in terminal.raw
        assert b"\x1b[32m" not in terminal.raw


def test_dumb_terminal_gets_plain_lines(canned: Canned, remote: Env) -> None:
    canned.show(ended())
    with Terminal("watch", "demo-1", env=remote, term="dumb") as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.raw


def test_json_on_a_terminal_has_no_character_that_acts(canned: Canned, remote: Env) -> None:
    snapshot = busy()
    snapshot.reason = "\x1b]0;title\x07\x9b2J"
    canned.show(snapshot)
    with Terminal("watch", "demo-1", "--json", env=remote, rows=200) as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.raw
        assert b"\xc2\x9b" not in terminal.raw
