"""`Watermark`: the progress of a journal, in a file of its own.

A log that was cut short, an empty file and an old copy all look like a journal with fewer
transactions. The watermark has their number. It is compared when the journal is opened
(`journal.begin_epoch`).

1. A note is added after the transaction that it describes is on the disk, and before that is
   acked. So the watermark is never ahead of the journal: a transaction in it alone is lost.
2. A broker that is killed leaves all notes behind. The file itself is synced once in `SYNC_S`, when
   the writer is idle and when the journal is opened or closed: no transaction costs a second sync.
   A machine that loses its power may lose the notes of the last second, never more.
3. A torn note is skipped, wherever it is: each is valid by itself.
4. The file is rewritten when it has grown by `WATERMARK_BYTES`: the newest half of the notes
   stays, with the names of all durable subscriptions.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections import deque
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from palio import files
from palio.errors import InvalidConfiguration
from palio.model.values import LAST_TIME
from palio.server.limits import MAX_MARKED_NAMES, WATERMARK_BYTES

logger: Final = logging.getLogger("palio.journal")

FILE: Final = "journal.mark"
"""The name of the mark in the data directory."""

SYNC_S: Final = 1.0
"""The interval of syncs while the journal is busy: a sync takes milliseconds."""

_READ_BYTES: Final = 64 << 20
"""The most that is read of the file; a watermark has a tenth of it at most."""


Counter: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A counter of a journal, which SQLite keeps in 64 bits."""


class Span(msgspec.Struct, array_like=True):
    """Some entries of one publisher, and the numbers of its events in them."""

    publisher: str
    first_entry: int
    last_entry: int
    first_seq: int | None
    last_seq: int | None

    def __str__(self) -> str:
        return f"{self.publisher!r} {self.first_seq} to {self.last_seq}"


class Note(msgspec.Struct, omit_defaults=True):
    """The state of a journal after a transaction, and the entries that this one added."""

    name: str
    """The broker's."""
    epochs: Counter
    """The number of times that the journal had been opened."""
    commits: Counter
    """Transactions so far."""
    last_offset: Counter
    time_us: Annotated[int, msgspec.Meta(ge=0, le=LAST_TIME)] = 0
    """Of the last publication."""
    spans: list[Span] = []
    began: list[str] = []
    """Durable subscriptions that were registered or changed."""
    ended: list[str] = []


class Watermark:
    """The mark of one journal, read when the journal opens and written by the journal's writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.newest: Note | None = None
        """The note of the last transaction that is known of."""
        self.names: dict[str, None] = {}
        """The durable subscriptions that there were then, `MAX_MARKED_NAMES` at most."""
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._limit = WATERMARK_BYTES
        self._unsynced = False
        self._synced_at = time.monotonic()
        self._failing = False
        try:
            self._descriptor = files.open_own(path)
        except OSError as error:
            raise InvalidConfiguration(f"{path}: {error}") from None
        for line, note in sorted(self._read(), key=lambda entry: entry[1].commits):
            self._keep(line, note)

    # --- as it was left ---

    def _read(self) -> list[tuple[bytes, Note]]:
        size = os.fstat(self._descriptor).st_size
        os.lseek(self._descriptor, max(0, size - _READ_BYTES), os.SEEK_SET)
        data = b""
        while piece := os.read(self._descriptor, 1 << 20):
            data += piece
        lines = [line for line in data.split(b"\n") if line]
        sound = [(line, note) for line in lines if (note := _decoded(line)) is not None]
        if lines and not sound:
            logger.error(
                "watermark_unreadable",
                extra={
                    "details": {
                        "file": str(self.path),
                        "effect": "entries that the journal has lost are not detected",
                    }
                },
            )
        return sound

    def spans_after(self, entry: int) -> list[Span]:
        """The ranges of entries after one, joined for each publisher."""
        spans: dict[str, Span] = {}
        notes = filter(None, map(_decoded, self._lines))
        for span in (span for note in notes for span in note.spans):
            if span.last_entry > entry:
                joined = spans.setdefault(span.publisher, span)
                joined.last_entry, joined.last_seq = span.last_entry, span.last_seq
        return list(spans.values())

    # --- being written ---

    def note(self, note: Note) -> None:
        """Add the note of a transaction that is on the disk."""
        line = _encoded(note)
        self._keep(line, note)
        self._unsynced = True
        try:
            # A new line before the note, too: an earlier torn note must not spoil this one.
            os.write(self._descriptor, b"\n" + line + b"\n")
            self._failing = False
        except OSError as error:
            self._warn(error)
        if self._bytes > self._limit:
            self._rewrite()
        elif time.monotonic() - self._synced_at >= SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Sync the file, so that all notes survive a loss of power."""
        if not self._unsynced:
            return
        try:
            if self._is_in_place():
                os.fsync(self._descriptor)
                self._has_synced()
            else:
                self._rewrite()
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        """Sync and close the file. May be called twice."""
        if self._descriptor >= 0:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = -1

    def _keep(self, line: bytes, note: Note) -> None:
        self.newest = note
        for name in note.began:
            if len(self.names) < MAX_MARKED_NAMES:
                self.names[name] = None
        for name in note.ended:
            self.names.pop(name, None)
        self._lines.append(line)
        self._bytes += len(line)

    def _rewrite(self) -> None:
        assert self.newest is not None
        while len(self._lines) > 1 and self._bytes > WATERMARK_BYTES // 2:
            self._bytes -= len(self._lines.popleft())
        newest = self.newest
        base = Note(newest.name, newest.epochs, newest.commits, newest.last_offset)
        base.time_us, base.began = newest.time_us, list(self.names)
        line = _encoded(base)
        self._limit = self._bytes + len(line) + WATERMARK_BYTES
        try:
            with files.replaced(self.path) as file:
                file.write(b"\n".join([line, *self._lines]) + b"\n")
            os.close(self._descriptor)
            self._descriptor = files.open_own(self.path)
            os.lseek(self._descriptor, 0, os.SEEK_END)
            self._has_synced()
        except OSError as error:
            self._warn(error)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _has_synced(self) -> None:
        self._unsynced, self._synced_at = False, time.monotonic()

    def _warn(self, error: OSError) -> None:
        self._synced_at = time.monotonic()
        if not self._failing:
            self._failing = True
            logger.warning(
                "watermark_write_failed",
                extra={"details": {"file": str(self.path), "reason": str(error)}},
            )


def _encoded(note: Note) -> bytes:
    text = msgspec.json.encode(note)
    return b"%08x %b" % (zlib.crc32(text), text)


def _decoded(line: bytes) -> Note | None:
    """Return a note; None if it is torn or damaged."""
    digits, _, text = line.partition(b" ")
    if digits != b"%08x" % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=Note)
    except msgspec.MsgspecError:
        return None
