"""The manual's sections about causes are what the table says."""

import re
from pathlib import Path

from hawk.core.diagnosis.about import ABOUT
from hawk.core.diagnosis.manual import MANUAL_FILE, render

MANUAL = Path(__file__).parents[3] / "docs" / MANUAL_FILE


def test_the_manual_is_up_to_date() -> None:
    assert render(MANUAL.read_text("utf-8")) == MANUAL.read_text("utf-8"), "make docs"


def test_every_verdict_links_to_a_section_of_its_own() -> None:
    anchors = re.findall(r'<a id="([a-z-]+)"></a>', MANUAL.read_text("utf-8"))
    assert sorted(anchors) == sorted(about.anchor for about in ABOUT.values())
    assert len(set(anchors)) == len(anchors)
