"""The lowest layer of a sandbox without a rootfs: a root directory with nothing of this machine's owner in it.

Keeper side: standard library only. `/usr` is mounted later; `/etc` is composed from what programs need to run,
never copied whole: it may hold keys, tokens and names. Only world-readable files are taken.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from hawk.sandbox.mounts import MERGED, WHOLE

USER, UID = "user", 1000

_ETC = (
    *("adduser.conf", "alternatives", "bash.bashrc", "bash_completion.d", "binfmt.d", "ca-certificates"),
    *(
        "ca-certificates.conf",
        "crypto-policies",
        "debconf.conf",
        "debian_version",
        "default/useradd",
        "deluser.conf",
    ),
    *("fonts", "gai.conf", "gitattributes", "host.conf", "inputrc", "issue", "java-11-openjdk"),
    *("java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libaudit.conf"),
    *("locale.alias", "locale.conf", "localtime", "login.defs", "lsb-release", "magic", "magic.mime"),
    *(
        "mime.types",
        "mke2fs.conf",
        "nanorc",
        "nsswitch.conf",
        "openssl",
        "os-release",
        "pam.conf",
        "pam.d",
        "perl",
    ),
    *(
        "pki/ca-trust",
        "pki/tls/certs",
        "profile",
        "profile.d",
        "protocols",
        "python3",
        "python3.11",
        "python3.12",
    ),
    *(
        "python3.13",
        "rpc",
        "security",
        "selinux/config",
        "services",
        "shells",
        "skel",
        "ssl",
        "terminfo",
        "timezone",
    ),
    *("vim", "wgetrc", "xattr.conf", "xml"),
)

_DIRECTORIES = (
    *(("/dev", 0o755), ("/etc", 0o755), ("/home", 0o755), ("/mnt", 0o755), ("/opt", 0o755), ("/proc", 0o555)),
    *(
        ("/root", 0o700),
        ("/run", 0o755),
        ("/run/lock", 0o1777),
        ("/srv", 0o755),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
    ),
    *(("/usr", 0o755), ("/var", 0o755), ("/var/cache", 0o755), ("/var/lib", 0o755), ("/var/log", 0o755)),
    *(("/var/mail", 0o755), ("/var/spool", 0o755), ("/var/tmp", 0o1777)),
)

_LONGEST = 4 << 20  # bytes of a file of /etc; certificates are the largest that programs need


def make_base(target: str, *, single_id: bool) -> None:
    """Fill `target` with the base layer."""
    for path, mode in _DIRECTORIES:
        os.makedirs(target + path, exist_ok=True)
        os.chmod(target + path, mode)
    os.symlink("/run", f"{target}/var/run")
    for name in MERGED:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{target}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{target}/{name}")
    for path in WHOLE:
        if os.path.isdir(path):
            os.makedirs(target + path)
    for name in _ETC:
        _take(f"/etc/{name}", f"{target}/etc/{name}")
    _accounts(target)
    add_common(target, single_id=single_id)


def add_common(target: str, *, single_id: bool) -> None:
    """What a rootfs needs too: name resolution and the user's home."""
    os.makedirs(f"{target}/etc", exist_ok=True)
    _write(f"{target}/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n")
    _write(f"{target}/etc/hostname", "sandbox\n")
    os.symlink("/proc/self/mounts", f"{target}/etc/mtab")
    with contextlib.suppress(OSError):
        shutil.copyfile("/etc/resolv.conf", f"{target}/etc/resolv.conf")
    home = f"{target}/home/{USER}"
    os.makedirs(home, exist_ok=True)
    os.makedirs(f"{target}/tmp", exist_ok=True)
    os.chmod(f"{target}/tmp", 0o1777)
    if not single_id:
        os.chown(home, UID, UID)


def _accounts(target: str) -> None:
    """The system's accounts, which packages expect, and one for the agent: no person's."""
    passwd = [f"root:x:0:0:root:/root:{_shell()}", f"{USER}:x:{UID}:{UID}::/home/{USER}:{_shell()}"]
    group = ["root:x:0:", f"{USER}:x:{UID}:"]
    for path, lines in (("/etc/passwd", passwd), ("/etc/group", group)):
        taken = {line.split(":")[0] for line in lines}
        for line in _lines(path):
            name, _, number, *_ = [*line.split(":"), "", "", ""]
            if number.isdecimal() and (0 < int(number) < 1000 or int(number) == 65534) and name not in taken:
                lines.append(line)
        _write(target + path, "\n".join(lines) + "\n")
    names = [line.split(":")[0] for line in passwd]
    _write(f"{target}/etc/shadow", "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names), 0o640)
    groups = [line.split(":")[0] for line in group]
    _write(f"{target}/etc/gshadow", "".join(f"{name}:*::\n" for name in groups), 0o640)


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return [line.strip() for line in f if ":" in line]
    except OSError:
        return []


def _write(path: str, text: str, mode: int = 0o644) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


def _take(source: str, target: str) -> None:
    """Copy one entry of /etc: links as links, directories whole, files that everybody may read."""
    try:
        info = os.lstat(source)
    except OSError:
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISDIR(info.st_mode):
            os.makedirs(target, exist_ok=True)
            os.chmod(target, 0o755)
            for name in os.listdir(source):
                _take(f"{source}/{name}", f"{target}/{name}")
        elif stat.S_ISREG(info.st_mode) and info.st_mode & stat.S_IROTH and info.st_size <= _LONGEST:
            shutil.copyfile(source, target)
            os.chmod(target, 0o755 if info.st_mode & stat.S_IXOTH else 0o644)
