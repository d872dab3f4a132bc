"""A bundle: one archive with what a maintainer needs to understand a job. Its names, bounds and README. Pure.

It is a tar file packed with Zstandard; everything lies below a directory named after the job, in the places that it
has in the run directory, so that whatever reads run directories reads an unpacked bundle. What is more than that
lies below `live/`: what the server saw as the bundle was made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MOST = 200_000_000
"""Bytes of all files together, before they are packed."""
MOST_FILES = 20_000
SUFFIX = ".bundle.tar.zst"
LIVE = "live"
README = "README.txt"

_ODD = re.compile(r"[^A-Za-z0-9._+-]")
_LONGEST_PART = 160


class Kept(NamedTuple):
    """A file in the bundle; `note` says what of it is missing."""

    name: str
    size: int
    note: str = ""


class LeftOut(NamedTuple):
    """A file, or a kind of files, that is not in the bundle."""

    name: str
    why: str


def safe_name(name: str) -> str:
    """A relative path of plain ASCII that stays where it is unpacked and means nothing to a terminal.

    Whatever is changed gets a digest of what it was, so that two names stay two.
    """
    return "/".join(_safe_part(part) for part in name.split("/") if part) or "_"


def _safe_part(part: str) -> str:
    plain = _ODD.sub("_", part)
    if plain == part and not part.startswith((".", "-")) and len(part) <= _LONGEST_PART:
        return part
    digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{plain.lstrip('.-')[: _LONGEST_PART - 11] or '_'}-{digest}"


def archive_name(job_id: str) -> str:
    """The file name that a bundle has when nobody says another."""
    return f"{safe_name(job_id)}{SUFFIX}"


def readme(
    *,
    job_id: str,
    made_at: str,
    versions: Mapping[str, str],
    transcripts: bool,
    kept: Sequence[Kept],
    left_out: Sequence[LeftOut],
    redacted: Mapping[str, int],
) -> str:
    """What `README.txt` says: what is what, from when, what is missing, what was taken out."""
    what = ", ".join(f"{name} {version}" for name, version in versions.items())
    words = "with transcripts" if transcripts else "without transcripts: see LEFT OUT"
    parts = [
        f"Bundle of the job {safe_name(job_id)}, {words}.\nMade {made_at} by {what}.",
        _WHAT,
        _section("LEFT OUT", [f"{item.name}: {item.why}" for item in (*_left_out(transcripts), *left_out)]),
        _section("CUT", [f"{item.name}: {item.note}" for item in kept if item.note]),
        _section("TAKEN OUT AS SECRET", [f"{kind}: {count}" for kind, count in sorted(redacted.items())]),
        _CHECK if not transcripts else f"{_CHECK} {_CHECK_TRANSCRIPTS}",
        _section("FILES, bytes", [f"{item.size:>12,}  {item.name}" for item in kept]),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Sequence[str]) -> str:
    shown = [_ONE_LINE.sub(" ", line) for line in lines] or ["nothing"]
    return "\n".join([title, *(f"  {line}" for line in shown)])


_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def _left_out(transcripts: bool) -> list[LeftOut]:
    if transcripts:
        return [LeftOut("in logs, buffer/ and workspaces", "attempts and files of more than 64 MiB")]
    return [
        LeftOut("logs/*.eval", "they hold the attempts; of each log its header is there"),
        LeftOut("attempts/*/*/workspace.tar.zst", "what agents left in their sandboxes"),
        LeftOut("buffer/", "events of attempts in flight"),
        LeftOut("what models, tools and sandboxes wrote", "elsewhere, with arguments of tools and commands"),
    ]


_CHECK = (
    "Before you share it: names of tasks, samples, models, files and people, and messages of errors, are in it as they "
    "were. Secrets were looked for by their form and by the values that the server knew; what looks like nothing in "
    "particular can't be found that way."
)
_CHECK_TRANSCRIPTS = "This one holds everything that models, tools and sandboxes wrote, too."

_WHAT = """WHAT IS WHAT
  eval-set.yaml          what was submitted
  job.json, plan.json    how it was to run
  journal.jsonl          every change of state, with its reason, oldest first: read this first
  snapshot.json          the last state of every attempt
  pods.json              the job's pods, where it ran on a cluster
  events.jsonl           what the cluster said of them, oldest first
  supervisor.log         what the supervisor had to say
  workers/<n>/           output, heartbeat, trace and stack records of each worker
    stacks/              where its threads and tasks were, each time that something stalled
    trace.jsonl          actions as they began and ended; trace-*.jsonl.zst: earlier parts
    trace.open.json      the actions in flight at the end of the trace
    inspect-traces/      traces that Inspect itself has kept
  spans/                 what the timeline is made of
  logs/*.header.json     the header of each log
  attempts/              what came of each attempt
  buffer/                what attempts in flight have written: a SQLite database for each log
  live/                  the machine, processes, middleman and stacks as the bundle was made"""
