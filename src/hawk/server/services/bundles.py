"""Makes a bundle as it is sent: one file after the other, each freed of secrets and packed in memory until its size
is known, which a tar file says first. Needs no room on a disk, which may be what is wrong."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime

from hawk.core.recorder.bundle import MOST, MOST_FILES, README, Kept, LeftOut, readme, safe_name
from hawk.core.recorder.redact import Redactor, secret_values
from hawk.core.zstd import Packer, Unpacker
from hawk.server.context import Context
from hawk.server.errors import StreamBrokenError
from hawk.server.services.bundle_files import files
from hawk.server.services.bundle_live import live, versions
from hawk.server.services.bundle_reading import Gone, Item
from hawk.store.rundir import RunDir

CHUNK = 1 << 16
"""Bytes that are sent together at least: each part is a hop between threads."""
BLOCK = 512


class Bundle:
    """One bundle, once.

    Args:
        ctx: The server's parts.
        run: The job's run directory.
        transcripts: Whether the words of models, tools and sandboxes belong into it.
        most: Bytes of all files together.
    """

    def __init__(self, ctx: Context, run: RunDir, *, transcripts: bool, most: int = MOST) -> None:
        self._ctx = ctx
        self._run = run
        self._top = safe_name(run.job_id)
        self._transcripts = transcripts
        self._most = most
        self._left = most
        self._redactor = Redactor(_known_secrets(ctx, run.job_id))
        self._names: set[str] = set()
        self._kept: list[Kept] = []
        self._left_out: list[LeftOut] = []
        self._over = 0

    def parts(self) -> Iterator[bytes]:
        """The file, part by part.

        Raises:
            StreamBrokenError: The server is stopping, or the job was deleted meanwhile.
        """
        packer = Packer()
        pending = bytearray()
        for part in self._tar():
            if self._ctx.stopping.is_set():
                raise StreamBrokenError("the server is stopping")
            pending += packer.feed(part)
            if len(pending) >= CHUNK:
                yield bytes(pending)
                pending.clear()
        yield bytes(pending) + packer.finish()

    def _tar(self) -> Iterator[bytes]:
        for found in self._items():
            if isinstance(found, Gone):
                self._left_out.append(LeftOut(safe_name(found.name), self._redactor.text(found.why)))
            else:
                yield from self._member(found)
        if not self._run.path.is_dir():
            raise StreamBrokenError(f"{self._run.job_id} has been deleted")
        if self._over:
            why = f"{self._over} files more: a bundle holds {self._most:,} bytes in {MOST_FILES:,} files"
            self._left_out.append(LeftOut("what came last", why))
        yield from self._readme()
        yield bytes(2 * BLOCK)

    def _items(self) -> Iterator[Item | Gone]:
        yield from live(self._run, self._ctx.engine, self._ctx.settings)
        yield from files(self._run, self._redactor.stream, transcripts=self._transcripts)

    def _member(self, item: Item) -> Iterator[bytes]:
        if self._left <= 0 or len(self._kept) >= MOST_FILES:
            self._over += 1
            return
        name = self._free_name(item.name)
        held = _Held()
        try:
            parts = item.parts if item.redacted else self._redactor.stream(item.parts)
            whole = all(held.feed(part) <= self._left for part in parts)
        except FileNotFoundError:
            return  # it was moved away meanwhile
        except OSError as ex:
            self._left_out.append(LeftOut(name, ex.strerror or str(ex)))
            return
        if not whole:
            self._left_out.append(LeftOut(name, "it is larger than what was left of the bundle's size"))
            return
        item.size = held.size
        self._left -= held.size
        self._kept.append(Kept(name, held.size, item.note))
        yield from self._file(name, held, item.written)

    def _readme(self) -> Iterator[bytes]:
        held = _Held()
        text = readme(
            job_id=self._run.job_id,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions={name: number for name, number in versions().items() if name in _SAID},
            transcripts=self._transcripts,
            kept=self._kept,
            left_out=self._left_out,
            redacted=self._redactor.counts,
        )
        held.feed(text.encode("utf-8", "replace"))
        yield from self._file(README, held)

    def _file(self, name: str, held: _Held, written: float | None = None) -> Iterator[bytes]:
        info = tarfile.TarInfo(f"{self._top}/{name}")
        info.size, info.mode = held.size, 0o600
        info.mtime = int(written if written is not None else datetime.now(UTC).timestamp())
        yield info.tobuf(tarfile.PAX_FORMAT)
        yield from held.parts()
        yield bytes(-held.size % BLOCK)

    def _free_name(self, wanted: str) -> str:
        name = safe_name(wanted)
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


_SAID = ("hawk", "python", "inspect-ai", "kernel")


class _Held:
    """A file's content, packed, until its size is known: a tenth of what it is."""

    def __init__(self) -> None:
        self.size = 0
        self._packer = Packer()
        self._packed: list[bytes] = []

    def feed(self, part: bytes) -> int:
        """Take in more. Returns the size so far."""
        self.size += len(part)
        if packed := self._packer.feed(part):
            self._packed.append(packed)
        return self.size

    def parts(self) -> Iterator[bytes]:
        """The content; it is let go of meanwhile."""
        unpacker = Unpacker()
        self._packed.append(self._packer.finish())
        self._packed.reverse()
        while self._packed:
            yield unpacker.feed(self._packed.pop())


def _known_secrets(ctx: Context, job_id: str) -> set[str]:
    state = ctx.registry.get(job_id)
    return secret_values(os.environ) | {ctx.token} | set(state.secrets.values() if state else ())


def existing(ctx: Context, job_id: str) -> RunDir:
    """The run directory of a job, whatever is wrong with what is in it.

    Raises:
        UsageError: It is no id.
        NotFoundError: There is no such job, or no more.
    """
    run = ctx.registry.run(job_id)
    if not run.path.is_dir():
        run.read_spec()  # says what is the matter
    return run
