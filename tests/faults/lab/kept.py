"""Documents that the lab put aside, judged again; and packed for `tests/faults/test_replay.py`.

`python -m tests.faults.lab.kept DIR` takes those of which the rules say what has to be said, without what is this
machine's own.
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import msgspec

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.evidence import Evidence
from tests.faults.lab.room import judged
from tests.faults.lab.trial import Outcome, key

KEPT = Path(__file__).with_name("kept")
_OWN = re.compile(rb"/tmp/hk[lt]-[a-z0-9_]+")


class Kept(msgspec.Struct):
    """A document as `Trial.keep` writes it."""

    scenario: str
    causes: list[str]
    either: list[str]
    healthy: bool
    evidence: Evidence
    must: list[str] = []
    outcome: str = ""


def wrong(kept: Kept, *, dead: bool = False) -> str:
    """Why the rules are not right about it, as if its runner had died then or not; empty: they are."""
    said = judged(kept.evidence, dead=dead).verdicts
    named = [key(v) for v in said]
    if kept.healthy:
        loud = [key(v) for v in said if v.severity.rank > Severity.INFO.rank]
        return "" if dead or not loud else f"{', '.join(loud)} is said of a healthy run"
    wanted = {*kept.causes, *kept.either}
    if len(kept.causes) > 1:
        missing = set(kept.causes) - set(named)
        return f"{', '.join(sorted(missing))} not named" if missing else ""
    if not named or named[0] not in wanted:
        return f"{named[0] if named else 'nothing'} is first"
    text = msgspec.json.encode([v for v in said if key(v) in wanted]).decode()
    without = [fragment for fragment in kept.must if fragment not in text]
    return f"does not say {', '.join(without)}" if without and not dead else ""


def pack(folder: Path) -> int:
    """Take documents over. Returns how many."""
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.glob("*.json.gz"):
        old.unlink()
    count = 0
    for path in sorted(folder.glob("*.json")):
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        if kept.outcome == Outcome.NOT_PROVOKED or wrong(kept) or wrong(kept, dead=True):
            print(f"left out: {path.stem}: {wrong(kept) or wrong(kept, dead=True) or kept.outcome}")
            continue
        data = _OWN.sub(b"/tmp/lab", msgspec.json.encode(kept)).replace(sys.base_prefix.encode(), b"/usr")
        (KEPT / f"{path.stem}.json.gz").write_bytes(gzip.compress(data, mtime=0))
        count += 1
    return count


if __name__ == "__main__":
    print(f"{pack(Path(sys.argv[1]))} documents in {KEPT}")
