"""Files that a runner pod begins with: what it is told, the eval set's source, and where that is now."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hawk.errors import ConfigError
from hawk.link.rules import SOURCE
from hawk.link.start import Start
from hawk.parcel.unpacking import unpack
from hawk.store.rundir import RunDir, storage_error, write_json


def read_job(directory: Path) -> tuple[Start, dict[str, str]]:
    """What the Secret says: the start, and secrets by name.

    Raises:
        ConfigError: A file is missing or is none of ours.
    """
    try:
        start = msgspec.json.decode((directory / "start.json").read_bytes(), type=Start)
        file = directory / "secrets.json"
        secrets = msgspec.json.decode(file.read_bytes(), type=dict[str, str]) if file.exists() else {}
    except OSError as ex:
        raise storage_error(directory, ex) from ex
    except (msgspec.MsgspecError, UnicodeDecodeError) as ex:
        raise ConfigError(f"{directory} does not say which job this is: {ex}.") from ex
    return start, secrets


def unpack_source(run_dir: RunDir, base_dir: Path) -> None:
    """Unpack the source into the submitter's directory; no-op where the job came without.

    Raises:
        ConfigError: The archive is damaged, or holds what it should not.
        StorageError: The directory can't be written.
    """
    archive = run_dir.path / SOURCE
    if not archive.exists():
        return
    try:
        unpack(archive, base_dir)
    except OSError as ex:
        raise storage_error(base_dir, ex) from ex


def relocate(run_dir: RunDir, start: Start) -> None:
    """Let the job's spec name the directory where its source is in this pod.

    Raises:
        ConfigError: It can't: the run directory is the server's own, or the script lies elsewhere.
    """
    spec = run_dir.read_spec()
    if spec.base_dir == start.base_dir:
        return
    if start.shared:
        raise ConfigError(
            f"{spec.base_dir} can't be a directory of a pod, and the run directory is shared with the server.",
            remedy="Submit from another directory, such as one below /home or /srv.",
        )
    if spec.script is not None:
        try:
            spec.script = str(Path(start.base_dir) / Path(spec.script).relative_to(spec.base_dir))
        except ValueError:
            raise ConfigError(
                f"The script {spec.script} is not in {spec.base_dir}, so it is not in the pod.",
                remedy="Submit it from the directory that it lies in.",
            ) from None
    spec.base_dir = start.base_dir
    write_json(run_dir.spec_file, spec)
