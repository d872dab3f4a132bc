"""Documents that the lab kept, judged again by the rules alone: the same cause, also as if the runner had died then."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from tests.faults.lab.kept import KEPT, Kept, wrong

DOCUMENTS = sorted(KEPT.glob("*.json.gz"))


def test_documents_are_there() -> None:
    assert len(DOCUMENTS) > 80


@pytest.mark.parametrize("dead", [False, True], ids=["alive", "dead"])
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_a_kept_document_gets_the_verdict_that_it_had(path: Path, dead: bool) -> None:
    kept = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Kept)
    assert wrong(kept, dead=dead) == ""
