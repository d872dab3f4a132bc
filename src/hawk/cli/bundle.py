"""`hawk bundle`: one file with everything that a maintainer needs to understand a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from hawk.cli.context import App, complete_job, note, pass_app
from hawk.cli.outfile import write_whole
from hawk.cli.text import size


@click.command(short_help="Save what a maintainer needs to understand a job, as one file.")
@click.argument("job_id", metavar="[ID]", required=False, shell_complete=complete_job)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to; ID.bundle.tar.zst in the working directory when left out.",
)
@click.option(
    "--transcripts",
    is_flag=True,
    help="Also what models, tools and sandboxes wrote: logs, workspaces, whole traces and outputs.",
)
@pass_app
def bundle(app: App, job_id: str | None, output: Path | None, transcripts: bool) -> None:
    """Save journal, plan, traces, stack records, outputs and more of a job, live or dead. ID: the last job.

    Secrets are taken out. README.txt in it says what is there and what is not. Unpack it: tar --zstd -xf FILE
    """
    from hawk.core.recorder.bundle import archive_name

    job_id = app.job(job_id)
    path = output if output is not None else Path(archive_name(job_id))
    counted = _Counted(app.client.bundle(job_id, transcripts=transcripts))
    write_whole(path, counted)
    app.remember_job(job_id)
    note(f"Wrote {path} ({size(counted.total)}).")
    note(_CHECK if transcripts else f"{_WITHOUT} {_CHECK}")


_WITHOUT = "It holds no transcripts and no workspaces (--transcripts adds them)."
_CHECK = (
    "Secrets that could be recognised were taken out. Before you share it, read its README.txt: names of tasks, "
    "samples, models and files, and messages of errors, are in it."
)


class _Counted:
    """Parts as they come, and how many bytes they were."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self.total = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self.total += len(part)
            yield part
