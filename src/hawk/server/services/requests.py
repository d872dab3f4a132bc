"""What a submit asks for: the form of the request, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hawk.config.ids import MAX_LENGTH, PATTERN, check_id, new_id
from hawk.config.load import parse_eval_set
from hawk.config.paths import leads_out
from hawk.errors import UsageError
from hawk.server.services.sending import Sent

_MEANINGLESS_HERE = ("image", "image_tag", "log_dir_allow_dirty", "force", "allow_sensitive_cross_lab_scan")


# Their forms are described, and checked below: with better messages.
JobId = Annotated[str, Meta(extra_json_schema={"pattern": PATTERN, "maxLength": MAX_LENGTH})]
Variables = Annotated[
    dict[str, str],
    Meta(
        extra_json_schema={
            "propertyNames": {"pattern": r"^[^=\x00]+$"},
            "additionalProperties": {"type": "string", "pattern": r"^[^\x00]*$"},
        }
    ),
]


class SubmitRequest(msgspec.Struct):
    """The body of `POST /eval_sets/`.

    Attributes:
        eval_set_config: The config as data, variables filled in; None for a script or a resume.
        eval_set_id: Wins over the config's own. Alone, it means resume.
        secrets: Values by name; kept in memory while the job runs.
        access: Keys and addresses of model providers by variable, where the submitter has some: in memory like secrets,
            but a resume does without if it must.
        source: The text as written, kept with the run.
        base_dir: What relative paths are relative to: a directory that the server sees.
        files: Instead of that, the SHA-256 of an archive that was sent (`PUT /sources/{digest}`) with all that the eval set
            needs: relative paths are relative to its top, and none leads out of it.
        script: Path of a Python file that calls `eval_set()`: absolute, or relative to the top of `files`.
        resume: Start an existing id again with its saved config.
        restart: Start over: earlier logs are moved aside.
        dry_run: Make a plan under an id of its own, and run nothing.
        rescore: Id of a job that has ended, whose attempts are scored again, without an agent: by its config as it is
            saved, or by `eval_set_config`. Without `eval_set_id` the new job is `<id>-rescore-<n>`.
        engine: Where it runs, instead of what the config says: `local` or `kubernetes`.
    """

    eval_set_config: dict[str, Any] | None = None
    eval_set_id: JobId | None = None
    secrets: Variables | None = None
    access: Variables | None = None
    source: str | None = None
    base_dir: str | None = None
    files: str | None = None
    script: str | None = None
    resume: bool = False
    restart: bool = False
    dry_run: bool = False
    rescore: JobId | None = None
    engine: Literal["local", "kubernetes"] | None = None
    image: str | None = None
    image_tag: str | None = None
    log_dir_allow_dirty: bool = False
    refresh_token: str | None = None
    force: bool = False
    priority: str | None = None
    allow_sensitive_cross_lab_scan: bool = False


@dataclass
class Wanted:
    """What a request asks to run. `config` is None where the saved one is meant; a script that was sent is relative."""

    job_id: str
    config: dict[str, Any] | None
    script: str | None
    secret_names: list[str]
    packages: list[str]
    warnings: list[str]
    engine: str | None = None
    """Where it runs when neither request nor config says so; None: where jobs usually do."""

    @property
    def saved(self) -> bool:
        return self.config is None and self.script is None


def interpret(request: SubmitRequest, sent: Sent | None) -> Wanted:
    """Validate what the request asks for.

    Args:
        sent: The files that it comes with.

    Raises:
        ConfigError: The config is wrong.
        UsageError: The request contradicts itself.
    """
    if request.script and request.eval_set_config is not None:
        raise UsageError("Give either script or eval_set_config.")
    warnings = [
        f"{name} has no meaning here and is ignored." for name in _MEANINGLESS_HERE if getattr(request, name)
    ]
    if request.script:
        return _interpret_script(request, sent, warnings)
    if request.eval_set_config is None:
        if not request.eval_set_id:
            raise UsageError("There is nothing to run: no eval_set_config and no eval_set_id.")
        return Wanted(check_id(request.eval_set_id), None, None, [], [], warnings)
    base_dir = Path(request.base_dir) if request.base_dir else None
    if sent is not None:
        base_dir = sent.directory
    loaded = parse_eval_set(request.eval_set_config, base_dir=base_dir, inside=sent is not None)
    assert loaded.config is not None
    config = loaded.config
    job_id = _id(request, config.eval_set_id, config.name)
    secrets = [secret.name for secret in config.required_secrets]
    return Wanted(job_id, config.to_data(), None, secrets, config.requirements, warnings + loaded.warnings)


def check_variables(request: SubmitRequest) -> None:
    """Raises: UsageError where a secret can't be an environment variable."""
    for name, value in {**(request.access or {}), **(request.secrets or {})}.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(
                f"{name!r} can't be an environment variable: name or value has what none can hold."
            )


def _id(request: SubmitRequest, own: str | None, name: str | None) -> str:
    if request.dry_run:
        return new_id("dry-run")
    return check_id(request.eval_set_id or own or new_id(name))


def _interpret_script(request: SubmitRequest, sent: Sent | None, warnings: list[str]) -> Wanted:
    script = Path(request.script or "")
    if sent is not None:
        if leads_out(str(script)) or not _is_file(sent.directory / script):
            raise UsageError(
                f"The script {str(script)!r} is not the relative path of one of the files that were sent."
            )
    elif not script.is_absolute() or not _is_file(script):
        raise UsageError(f"The script {str(script)!r} is not the absolute path of a file.")
    job_id = _id(request, None, script.stem)
    return Wanted(job_id, None, str(script), [], [], warnings)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False
