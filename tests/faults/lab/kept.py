"""Packs documents that the lab put aside for `tests/faults/test_replay.py`: `python -m tests.faults.lab.kept DIR`.

Those that came out right are taken, without what no rule reads and what is this machine's own.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.faults.lab.trial import Outcome

KEPT = Path(__file__).with_name("kept")
_OWN = re.compile(r"/tmp/hkl-[a-z0-9_]+|/tmp/hkt-[a-z0-9_]+")


def pack(folder: Path) -> int:
    """Take documents over. Returns how many."""
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.glob("*.json.gz"):
        old.unlink()
    count = 0
    for path in sorted(folder.glob("*.json")):
        document: dict[str, Any] = json.loads(path.read_text())
        if document["outcome"] not in (Outcome.RIGHT, Outcome.LATE):
            continue
        text = _OWN.sub("/tmp/lab", json.dumps(document, separators=(",", ":")))
        text = text.replace(sys.base_prefix, "/usr")
        (KEPT / f"{path.stem}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        count += 1
    return count


if __name__ == "__main__":
    print(f"{pack(Path(sys.argv[1]))} documents in {KEPT}")
