"""Looks through SQLite's write-ahead log before SQLite does.

SQLite reads the log up to the first frame whose checksum is wrong and takes what follows for the
remains of a write that a crash tore. That is right for the last transaction, which nobody was told
of. But each transaction is synced before the next one is written, so a broken frame with a later
transaction behind it was on the disk and whole: it was acknowledged, and has changed since.
SQLite would drop it and all after it in silence; `check_log` says so instead.

What it cannot tell from a torn write is a change within the very last transaction; that a log was
cut short shows by the mark (`mark`). A log beside an empty database, which SQLite would
remove, is refused too.

The log is a header of 32 bytes and frames of 24 bytes and a page, all numbers big-endian. A frame
has the page's number, the size of the database if it ends a transaction, and two salts: those of
the header, if it is of this log, and both others if it is of an older one in the same file. How
many frames SQLite takes is in the head of its index (https://sqlite.org/walformat.html).
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from palio.errors import JournalDamaged

__all__ = ["check_log"]

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">4I")
_FRAME_HEAD_BYTES: Final = 24
_TAKEN: Final = struct.Struct("=16xI")
"""Of the index: in the order of the machine, the last frame of the last whole transaction."""
_MAGIC_LITTLE: Final = 0x377F0682
_MAGIC_BIG: Final = 0x377F0683
_MASK: Final = 0xFFFFFFFF


def check_log(database: Path) -> None:
    """Raise `JournalDamaged` if the log of a database lost a transaction that was synced."""
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size <= _HEADER.size:
        return
    if not database.exists() or not database.stat().st_size:
        raise JournalDamaged(
            f"{database} is empty or missing, and its log {log.name} is not: what was acknowledged "
            "depends on both; take the directory from a backup, or move it away and start empty"
        )
    ours, ends = _frames(log)
    taken = _taken(database)
    end = next((frame for frame in ends if frame > taken), None)
    if end is not None and ours[-1] > end:
        raise JournalDamaged(
            f"{log}: of the frames {taken + 1} to {end} one is not what was written, and what was "
            "acknowledged after it depends on it"
        )


def _frames(log: Path) -> tuple[list[int], list[int]]:
    """The numbers of the frames of this log, and of those that end a transaction."""
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        magic, _, page_bytes, _, salt_1, salt_2, *sums = _HEADER.unpack(head)
        if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or _sums(head, magic) != sums:
            raise JournalDamaged(f"{log}: the head of the log is not what was written")
        step = _FRAME_HEAD_BYTES + (65_536 if page_bytes == 1 else page_bytes)
        ours, ends = [], []
        for frame in range(1, (os.fstat(file.fileno()).st_size - _HEADER.size) // step + 1):
            file.seek(_HEADER.size + (frame - 1) * step)
            _, pages, one, other = _FRAME.unpack(file.read(_FRAME.size))
            if one == salt_1 or other == salt_2:  # one of them may have changed
                ours.append(frame)
                if pages:
                    ends.append(frame)
    return ours, ends


def _sums(head: bytes, magic: int) -> list[int]:
    """The checksum of the head of a log."""
    one = other = 0
    words = struct.unpack("<6I" if magic == _MAGIC_LITTLE else ">6I", head[:24])
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = one + first + other & _MASK
        other = other + second + one & _MASK
    return [one, other]


def _taken(database: Path) -> int:
    """The last frame that SQLite takes; the log stays as it is."""
    source = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as connection:
        with suppress(sqlite3.DatabaseError):  # of the database, not of its log
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
        index = database.with_name(database.name + "-shm").read_bytes()
    (taken,) = _TAKEN.unpack_from(index)
    return int(taken)
