import time

from rich.console import Console

from hawk.cli import watch_view
from hawk.cli.watch_view import Size, view
from hawk.core.snapshot import Snapshot
from tests.cli.snapshots import NOW, busy, large


def drawn(snapshot: Snapshot, columns: int, rows: int, **options: object) -> list[str]:
    console = Console(width=columns, height=rows, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view(snapshot, NOW, Size(columns, rows), **options))  # type: ignore[arg-type]
    return captured.get().splitlines()


def test_view_shows_header_all_six_segments_and_the_worst_attempts_first() -> None:
    lines = drawn(busy(), 120, 40)
    assert lines[0] == "demo-1  Running  2m 00s"
    text = "\n".join(lines)
    legend = "5/12  █ 2 completed  ▒ 1 limit  × 1 errored  - 1 canceled  ▓ 4 running  · 3 waiting"
    assert legend in text
    assert "2.0 attempts/min · ETA 3m 30s · 7 HTTP retries" in text
    bar = next(line for line in lines if line.startswith("█"))
    assert set(bar.strip()) == set("█▒×-▓·")
    order = [text.index(f"{name} #1") for name in ("frozen", "retrying", "idle", "broken", "long", "quick")]
    assert order == sorted(order)


def test_view_fits_every_size() -> None:
    for snapshot in (busy(), large(100, 100), large(1, 3)):
        for columns, rows in ((40, 12), (80, 24), (200, 60)):
            lines = drawn(snapshot, columns, rows)
            assert all(len(line) <= columns for line in lines)
            assert len(lines) <= max(rows, 17), (columns, rows, len(lines))


def test_view_of_a_huge_job_says_what_it_leaves_out() -> None:
    text = "\n".join(drawn(large(100, 100), 120, 40))
    assert "more tasks" in text
    assert "more" in text.splitlines()[-2]


def test_view_says_that_the_connection_is_lost() -> None:
    assert any(
        "reconnecting" in line for line in drawn(busy(), 100, 30, notice="Connection lost; reconnecting.")
    )


def test_view_has_an_ascii_form() -> None:
    text = "\n".join(drawn(busy(), 120, 40, unicode=False))
    assert not set(text) & set(watch_view.GLYPHS.values()) - {"-", "·"}


def test_escape_sequences_of_a_model_do_not_reach_the_view() -> None:
    assert not any("\x1b" in line for line in drawn(busy(), 120, 40))


def test_ten_thousand_attempts_are_drawn_quickly() -> None:
    snapshot = large(100, 100)
    began = time.process_time()
    drawn(snapshot, 120, 40)
    assert time.process_time() - began < 0.5
