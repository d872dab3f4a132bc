"""The manual of folder evals names everything that can be written, and its examples are true."""

from __future__ import annotations

import re
from pathlib import Path

from hawk.evals.finished import FinishedSandbox
from hawk.evals.folder import read_eval
from hawk.evals.frontmatter import FrontMatter
from hawk.evals.script import PYTHON
from tests.evals.making import write

MANUAL = (Path(__file__).parents[2] / "docs" / "folder-evals.md").read_text("utf-8")


def test_every_field_of_the_front_matter_is_in_its_table() -> None:
    table = MANUAL.split("## PROMPT.md")[1].split("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert named == set(FrontMatter.model_fields)


def test_everything_that_a_scorer_may_call_is_in_its_table() -> None:
    public = {name for name in vars(FinishedSandbox) if not name.startswith("_")} | {"workspace", "tests"}
    table = MANUAL.split("| `sandbox` has |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert public == {name for cell in cells for name in re.findall(r"`(?:await )?(\w+)[(`]", cell)}


def test_its_examples_are_evals(tmp_path: Path) -> None:
    prompt = re.findall(r"```markdown\n(.*?)```", MANUAL, re.DOTALL)[0]
    scorer = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)[0]
    eval = read_eval(write(tmp_path, **{"PROMPT.md": prompt, PYTHON: scorer}))
    assert eval.script.asks_judge
    assert eval.front.suite == "core"
