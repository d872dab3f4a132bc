"""Words of a sandbox's configuration that reach a command line or a path: checked where they are written."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from hawk.config.options import Text

LAST_ID = 65535
"""The highest user id that exists in a sandbox."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_SERVICE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_MODE = re.compile(r"[0-7]{3,4}")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._-]*(?::[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_ARCHIVE = re.compile(r".*\.(?:tar|tar\.gz|tgz|tar\.xz|txz|tar\.bz2|tbz2?)", re.DOTALL)
_PACKAGES = {
    # not "name-", which removes the package
    "apt": re.compile(r"[a-z0-9][a-z0-9+.-]*(?<!-)(?::[a-z0-9-]+)?(?:=[A-Za-z0-9.+:~-]+|/[a-z0-9-]+)?(?<!-)"),
    "apk": re.compile(r"[a-z0-9_][A-Za-z0-9+._-]*(?:[<>=~]{1,2}[A-Za-z0-9._-]+)?(?:@[a-z0-9-]+)?"),
    "pip": re.compile(r"(?!.*\s-)[^\s\-](?:[^\x00-\x1f]*[^\s\x00-\x1f])?", re.DOTALL),
}
_KERNEL = ("/proc", "/dev", "/sys")
_SYSTEM = (*_KERNEL, "/usr", "/bin", "/sbin", "/lib", "/lib64")


def is_path(rootfs: str) -> bool:
    """Whether a root file system is named by its path, and not by the name of an imported image."""
    return "/" in rootfs or is_archive(rootfs)


def is_archive(path: str) -> bool:
    """Whether a file is a tar file that can be unpacked, by its name."""
    return _ARCHIVE.fullmatch(path) is not None


def plain(text: str) -> str:
    """A text that a program can be given: without the zero character, which would end it."""
    if "\0" in text:
        raise ValueError("must not hold a zero character")
    return encodable(text)


def encodable(text: str) -> str:
    """A text that can be written to a file: half a surrogate pair can't."""
    try:
        text.encode()
    except UnicodeEncodeError as ex:
        raise ValueError(f"holds a character that is none: {ex.object[ex.start]!a}") from ex
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; leave the field out")
    return plain(text)


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a variable's name: letters, digits and _, not beginning with a digit"
        )
    return name


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a user; write a name or a number")
    return value


def _user(user: str | int) -> str | int:
    number = int(user) if isinstance(user, str) and re.fullmatch(r"[0-9]{1,9}", user) else user
    if isinstance(number, int) and not 0 <= number <= LAST_ID:
        raise ValueError(f"{number} is not the number of a user; write 0 to {LAST_ID}")
    if isinstance(number, str) and not _USER.fullmatch(number):
        raise ValueError(f"{number!r} is not the name of a user")
    return number


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError(f"{name!r} is not a host's name: at most 63 letters, digits and -, without dots")
    return name


def _service(name: str) -> str:
    if name in ("default", "localhost"):
        raise ValueError(f"a service can't be called {name!r}: that is the sandbox itself")
    if not _SERVICE.fullmatch(name):
        raise ValueError(f"{name!r} can't be a service's name: at most 63 small letters, digits and -")
    return name


def _mode(value: object) -> object:
    if type(value) is int:
        # YAML reads 0755 as octal and 755 as decimal: what was meant is lost
        raise ValueError('write the mode in quotes, as in mode: "0755"')
    if isinstance(value, str) and not _MODE.fullmatch(value):
        raise ValueError(f'{value!r} is not a file mode; write it in octal, as in mode: "0755"')
    return value.zfill(4) if isinstance(value, str) else value


def _rootfs(name: str) -> str:
    if not is_path(plain(name)) and not _IMAGE.fullmatch(name):
        raise ValueError(
            f"{name!r} is neither a path (with a /, or ending in .tar, .tar.gz, .tar.xz, .tar.bz2) nor the "
            "name of an imported image (name or name:tag)"
        )
    return name


def _below(path: str, folders: tuple[str, ...]) -> str | None:
    return next((f for f in folders if path == f or path.startswith(f"{f}/")), None)


def _workspace(path: str) -> str:
    if not plain(path).startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    normal = "/" + posixpath.normpath(path).lstrip("/")
    inside = "/" if normal == "/" else _below(normal, _SYSTEM)
    if inside is not None:
        raise ValueError(
            f"{path!r} can't be the workspace: {inside} is the system's; write /workspace or /home/…"
        )
    return normal


def _destination(path: str) -> str:
    if not plain(path).strip():
        raise ValueError("a file's place in the sandbox can't be empty")
    if path.endswith("/"):
        raise ValueError(f"{path!r} must be the place of the file or directory itself, without / at the end")
    normal = posixpath.normpath(path)
    if path.startswith("/"):
        normal = "/" + normal.lstrip("/")
    if normal in ("/", ".") or normal == ".." or normal.startswith("../"):
        raise ValueError(f"{path!r} must be a place inside the workspace, or an absolute path")
    inside = _below(normal, _KERNEL)
    if inside is not None:
        raise ValueError(f"{path!r} can't be a file's place: {inside} is the kernel's")
    return normal


def _package(kind: str) -> Callable[[str], str]:
    def check(name: str) -> str:
        if not _PACKAGES[kind].fullmatch(plain(name)):
            raise ValueError(
                f"{name!r} is not a package that {kind} can be asked for; options are not allowed"
            )
        return name

    return check


def _command(command: str | list[str]) -> str | list[str]:
    if isinstance(command, list):
        if not command or not command[0]:
            raise ValueError("must begin with a program; leave the field out for none")
        return [plain(part) for part in command]
    return _not_blank(command)


Word = Annotated[str, AfterValidator(_not_blank)]
Environment = dict[Annotated[str, AfterValidator(_variable)], Annotated[Text, AfterValidator(plain)]]
User = Annotated[
    str | int, BeforeValidator(_no_truth, json_schema_input_type=str | int), AfterValidator(_user)
]
HostName = Annotated[str, AfterValidator(_host)]
ServiceName = Annotated[str, AfterValidator(_service)]
Mode = Annotated[
    str,
    BeforeValidator(_mode, json_schema_input_type=Annotated[str, Field(pattern=f"^{_MODE.pattern}$")]),
]
Rootfs = Annotated[str, AfterValidator(_rootfs)]
Workspace = Annotated[str, AfterValidator(_workspace)]
Destination = Annotated[str, AfterValidator(_destination)]
AptPackage = Annotated[str, AfterValidator(_package("apt"))]
PipPackage = Annotated[str, AfterValidator(_package("pip"))]
ApkPackage = Annotated[str, AfterValidator(_package("apk"))]
Command = Annotated[str | list[str], AfterValidator(_command)]
