"""Documents that the lab kept, judged again by the rules alone: the same cause, also as if the runner had died then."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from hawk.core.diagnosis.causes import Severity
from hawk.core.diagnosis.evidence import Evidence
from tests.faults.lab.room import judged
from tests.faults.lab.trial import key

KEPT = sorted((Path(__file__).parent / "lab" / "kept").glob("*.json.gz"))


class Kept(msgspec.Struct):
    """A document as the lab puts it aside: see `Trial.keep`."""

    scenario: str
    causes: list[str]
    either: list[str]
    healthy: bool
    evidence: Evidence
    must: list[str] = []


def read(path: Path) -> Kept:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Kept)


def test_documents_are_there() -> None:
    assert len(KEPT) > 40


@pytest.mark.parametrize("dead", [False, True], ids=["alive", "dead"])
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_a_kept_document_gets_the_verdict_that_it_had(path: Path, dead: bool) -> None:
    kept = read(path)
    said = judged(kept.evidence, dead=dead).verdicts
    if kept.healthy:
        if not dead:
            assert [key(v) for v in said if v.severity.rank > Severity.INFO.rank] == []
        return
    named = [key(v) for v in said]
    if len(kept.causes) > 1:
        assert set(kept.causes) <= set(named)
    else:
        assert named[0] in (*kept.causes, *kept.either)
    if not dead:
        text = msgspec.json.encode([v for v in said if key(v) in (*kept.causes, *kept.either)]).decode()
        assert [fragment for fragment in kept.must if fragment not in text] == []
