"""An eval set in plain Python: Hawk runs any file that calls `eval_set()`, as it is.

    hawk eval-set examples/script.py --wait

`eval_set()` is Inspect's own, so this file also runs without Hawk. Hawk gives it the directory for its logs.
"""

import sys
from pathlib import Path

from inspect_ai import eval_set

sys.path.insert(0, str(Path(__file__).resolve().parent / "coding"))

import scripted_model  # noqa: F401 - registers the provider
from coding import coding

if __name__ == "__main__":
    success, _ = eval_set(
        tasks=[coding(message_limit=limit) for limit in (20, 30)],
        model="scripted/agent",
        epochs=2,
        limit=4,
        log_dir="logs",
    )
    sys.exit(0 if success else 1)
