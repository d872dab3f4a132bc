"""`python -m hawk.kube.manual`: the tables of docs/kubernetes-permissions.md from the table that everything else uses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hawk.kube.permissions import RUNNER, SERVER, markdown


def main(path: Path) -> None:
    """Write the tables anew between their markers."""
    text = path.read_text("utf-8")
    for name, rules in (("server", SERVER), ("runner", RUNNER)):
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        block = f"{begin}\n\n{markdown(rules)}\n\n{end}"
        text = re.sub(rf"{begin}.*?{end}", lambda _, block=block: block, text, flags=re.DOTALL)  # type: ignore[misc]
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/kubernetes-permissions.md"))
