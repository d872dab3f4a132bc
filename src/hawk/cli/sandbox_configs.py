"""Which sandbox configurations a file means: a `sandbox.yaml`, or an eval set whose tasks get one."""

from __future__ import annotations

import os
from pathlib import Path

from hawk.config.eval_set import EvalSetConfig
from hawk.config.load import load_eval_set, read_text
from hawk.config.source import parse_yaml
from hawk.errors import UsageError
from hawk.sandbox.config import CONFIG_FILES, BubblewrapConfig, load

PROVIDER = "bubblewrap"


def configs_of(path: Path) -> list[BubblewrapConfig]:
    """The configurations that a file holds or refers to, each once.

    Raises:
        ConfigError: Something is wrong with it.
        UsageError: It is an eval set without a bubblewrap sandbox of its own.
    """
    if path.suffix == ".py":
        raise UsageError(
            f"{path} is a script: which sandboxes its tasks have shows only when it runs.",
            remedy="Name the sandbox.yaml instead.",
        )
    source = parse_yaml(read_text(path), str(path), None, what="The file", may_be_empty=True)
    if "tasks" not in source.data:
        return [load(path)]
    loaded = load_eval_set(path, environ=os.environ)
    assert loaded.config is not None
    return _of_eval_set(loaded.config, path)


def _of_eval_set(config: EvalSetConfig, path: Path) -> list[BubblewrapConfig]:
    spec, base = config.sandbox, path.absolute().parent
    folders = [entry.folder for entry in config.tasks if entry.folder is not None]
    if folders:
        from hawk.evals.folder import read_folder

        evals = [eval for folder in folders for eval in read_folder(base / folder, folder)]
        return list(dict.fromkeys(eval.sandbox for eval in evals))
    if spec is None or spec.type != PROVIDER:
        said = f"its sandbox is {spec.type!r}" if spec is not None else "it names no sandbox"
        raise UsageError(
            f"The eval set {path} has no bubblewrap sandbox: {said}.",
            remedy="Name the sandbox.yaml of its tasks, or write `sandbox: bubblewrap`.",
        )
    if spec.config is not None:
        if not isinstance(spec.config, str | dict):
            raise UsageError(f"The sandbox's config in {path} is neither a file nor a mapping of fields.")
        return [load(spec.config, base)]
    # As Inspect does: the file beside the task, else the defaults.
    written = (getattr(entry, "file", None) for entry in config.tasks)
    beside = [base / Path(file).parent for file in written if file is not None]
    files = [
        next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None) for folder in beside
    ]
    return list(dict.fromkeys(load(file) for file in files)) or [load(None)]
