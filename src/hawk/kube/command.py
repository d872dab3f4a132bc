"""How a command is wrapped for a pod: its directory, variables, user, input and end. Pure.

The API runs a list of words as the container's user, and knows neither directory nor deadline. A POSIX shell in the
container does the rest. It says at the end, on stderr, that the command has ended and how: the stream itself ends only
when nobody holds it open any more, which a background process may do for hours. Processes are found again, to be
killed, by the mark in their environment and by their session.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

MARK = "HAWK_EXEC"
"""Variable by which the processes of one command are found."""

SHELL = "/bin/sh"

NOT_STARTED = 125
"""Exit code in the trailer with a stage after it: the command did not start."""

# $1 mark, $2 directory or empty, $3 user or empty, $4 bytes of input or empty, then KEY=VALUE ... -- command ...
# A path that others may write to is for the command only, never for what runs before it.
_RUN = r"""
m=$1 d=$2 u=$3 n=$4; shift 4
P=${PATH-}; PATH=/usr/sbin:/usr/bin:/sbin:/bin
end() { printf '\n%s %s\n' "$m" "$*" >&2; exit "$1"; }
if [ -n "$d" ]; then cd -- "$d" 2>/dev/null || end 125 cwd; fi
if [ -n "$u" ] && { [ "$u" = "$(id -u 2>/dev/null)" ] || [ "$u" = "$(id -un 2>/dev/null)" ]; }; then u=; fi
w=
if [ -n "$u" ]; then
  g=${u#*:}; [ "$g" = "$u" ] && g= || u=${u%%:*}
  h=; while IFS=: read -r a b c x y z i; do
    if [ "$a" = "$u" ] || [ "$c" = "$u" ]; then u=$a h=$z; [ -n "$g" ] || g=$x; break; fi
  done </etc/passwd 2>/dev/null
  if [ -z "$h" ]; then case $u in *[!0-9]*) end 125 user;; esac; fi
  [ "$(id -u)" = 0 ] || end 125 single
  if w=$(command -v setpriv) && "$w" --reuid 0 --regid 0 --clear-groups true 2>/dev/null; then
    if [ -n "$h" ]; then k=--init-groups; else k=--clear-groups; fi
    w="$w --reuid $u --regid ${g:-$u} $k --"
  elif w=$(command -v runuser); then w="$w -u $u --"
  elif w=$(command -v su); then w="$w -s /bin/sh -c 'exec \"\$@\"' $u hawk"
  else end 125 single; fi
  if [ -n "$h" ]; then export HOME="$h" USER="$u" LOGNAME="$u"; fi
fi
r=$(command -v head)
PATH=${P:-$PATH}
export HAWK_EXEC="$m"
while [ "$1" != -- ]; do export "$1" || end 125 env; shift; done
shift
if [ -n "$w" ]; then eval "set -- $w \"\$@\""; fi
if [ -n "$n" ]; then "$r" -c "$n" | (exec "$@"); else (exec "$@"); fi
c=$? o=
for f in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
  [ -r "$f" ] && while read -r k v; do [ "$k" = oom_kill ] && o=$v; done <"$f"
done
[ "${o:-0}" = 0 ] || c="$c oom $o"
end $c
"""

# $1 mark: kill the wrapper, by its words, with its whole session, their children, and what has the mark in its
# environment; all are found before the first is killed, because then children change their parents
_KILL = r"""
m=$1 n=0 ss=" " pp=" "
holds() { while IFS= read -r x || [ -n "$x" ]; do case $x in *$2*) return 0;; esac; done 2>/dev/null <"$1"; return 1; }
while [ "$n" -lt 20 ]; do
  n=$((n+1)) found= grown=1
  while [ -n "$grown" ]; do
    grown=
    for d in /proc/[0-9]*; do
      p=${d#/proc/}
      case $p in 1|"$$") continue;; esac
      case $pp in *" $p "*) continue;; esac
      read -r x 2>/dev/null <"$d/stat" || continue
      x=${x##*) }; set -- $x
      case $1 in Z|X) continue;; esac
      r=$2 s=$4
      case $ss in *" $s "*) ;; *)
        case $pp in *" $r "*) ;; *)
          holds "$d/cmdline" "hawk$m" || holds "$d/environ" "HAWK_EXEC=$m" || continue;;
        esac
        ss="$ss$s ";;
      esac
      pp="$pp$p " grown=1 found=1
    done
  done
  [ -z "$found" ] && exit 0
  for p in $pp; do kill -9 "$p" 2>/dev/null; done
  pp=" "
done
exit 1
"""


def new_mark() -> str:
    """A mark that nothing else has."""
    return f"hawk{secrets.token_hex(8)}"


def wrapped(
    command: Sequence[str],
    mark: str,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    stdin_bytes: int | None = None,
) -> list[str]:
    """The words that run `command` in a container with a shell.

    Args:
        stdin_bytes: Length of the input, where its end can't be said otherwise.
    """
    pairs = [f"{name}={value}" for name, value in (env or {}).items() if _NAME.fullmatch(name)]
    count = "" if stdin_bytes is None else str(stdin_bytes)
    return [SHELL, "-c", _RUN, "hawk", mark, cwd or "", user or "", count, *pairs, "--", *command]


def from_words(words: bytes) -> list[str]:
    """The words that run a shell line given as input: for commands that are too long for an address.

    Args:
        words: What `quoted` made.
    """
    return [SHELL, "-c", 'eval "exec $(cat)" </dev/null', "hawk"] if words else []


def killing(mark: str) -> list[str]:
    """The words that kill what a wrapped command started; as another user only what that one may see and kill."""
    return [SHELL, "-c", _KILL, "kill", mark]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def trailer(mark: str, tail: bytes) -> tuple[int, str, int, int] | None:
    """How the command ended, from the last bytes of stderr.

    Returns:
        Exit code, what is said beside it (`cwd`, `user`, `single`, `oom 3`), and where the trailer begins and ends;
        None when it has not ended.
    """
    at = tail.rfind(b"\n" + mark.encode() + b" ")
    end = tail.find(b"\n", at + 1) if at >= 0 else -1
    if end < 0:
        return None
    said = tail[at + 1 : end].decode(errors="replace").split()[1:]
    if not said or not said[0].isdecimal():
        return None
    return int(said[0]), " ".join(said[1:]), at, end + 1
