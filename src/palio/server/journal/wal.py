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
has the page's number, the size of the database if it ends a transaction, two salts (those of the
header, if the frame is of this log and not of an older one in the same file) and the checksum of
all frames so far. That checksum is linear in the words it is over, modulo 2^32, so here a frame's
part in it is a product with constants.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from palio.errors import JournalDamaged

__all__ = ["check_log"]

Words = npt.NDArray[np.uint32]

_HEADER: Final = struct.Struct(">8I")
_FRAME_HEAD_BYTES: Final = 24
_MAGIC_LITTLE: Final = 0x377F0682
_MAGIC_BIG: Final = 0x377F0683
_CHUNK_FRAMES: Final = 1_024
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
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
    magic, _, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = _HEADER.unpack(header)
    words_type = "<u4" if magic == _MAGIC_LITTLE else ">u4"
    words = np.frombuffer(header[:24], words_type).astype(np.uint32).reshape(1, -1)
    known = magic in (_MAGIC_LITTLE, _MAGIC_BIG)
    if not known or tuple(_continued(words, np.zeros((1, 2), np.uint32))[0]) != (sum_1, sum_2):
        raise JournalDamaged(f"{log}: the head of the log is not what was written")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    sound, commits = _frames(log, page_bytes, words_type, (salt_1, salt_2), (sum_1, sum_2))
    broken = int(np.argmin(sound)) if not sound.all() else len(sound)
    ends = np.flatnonzero(commits[broken:])
    if len(ends) and sound[broken + ends[0] + 1 :].any():
        raise JournalDamaged(
            f"{log}: frame {broken} is not what was written, and what was acknowledged after it "
            "depends on it; take the directory from a backup, or move it away and start empty"
        )


def _frames(
    log: Path,
    page_bytes: int,
    words_type: str,
    salts: tuple[int, int],
    start: tuple[int, int],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each frame whether it is what was written, and whether it says it ends a transaction."""
    frame_bytes = _FRAME_HEAD_BYTES + page_bytes
    count = (log.stat().st_size - _HEADER.size) // frame_bytes
    sound = np.zeros(count, np.bool_)
    commits = np.zeros(count, np.bool_)
    before = np.array([start], np.uint32)
    with log.open("rb") as file:
        file.seek(_HEADER.size)
        for first in range(0, count, _CHUNK_FRAMES):
            number = min(_CHUNK_FRAMES, count - first)
            raw = np.frombuffer(file.read(number * frame_bytes), np.uint8)
            raw = raw.reshape(number, frame_bytes)
            head = raw[:, :_FRAME_HEAD_BYTES].copy().view(">u4").astype(np.uint32)
            summed = np.delete(raw, np.s_[8:_FRAME_HEAD_BYTES], axis=1)
            words = summed.view(words_type).astype(np.uint32)
            stored = head[:, 4:6]
            right = _continued(words, np.concatenate([before, stored[:-1]])) == stored
            ours = (head[:, 2] == salts[0]) & (head[:, 3] == salts[1])
            sound[first : first + number] = right.all(axis=1) & ours
            commits[first : first + number] = head[:, 1] != 0
            before = stored[-1:]
    return sound, commits


def _continued(words: Words, before: Words) -> Words:
    """For each row of words, the checksum that goes on from the one in `before`."""
    pairs = words.shape[1] // 2
    factors, power = _factors(pairs)
    odd, even = words[:, 0::2], words[:, 1::2]
    sums = [
        (odd * factors[side][0] + even * factors[side][1]).sum(axis=1, dtype=np.uint32)
        + before[:, 0] * power[side][0]
        + before[:, 1] * power[side][1]
        for side in (0, 1)
    ]
    return np.stack(sums, axis=1)


@lru_cache(maxsize=4)
def _factors(pairs: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The share of each word of a block, and of the checksum before it, in the checksum after it.

    A step over two words is `s0 += x0 + s1; s1 += x1 + s0`, which is `s = A s + B x`.
    """
    factors = np.zeros((2, 2, pairs), np.uint32)
    a, b, c, d = 1, 0, 0, 1  # A to the power of the steps that follow
    for place in reversed(range(pairs)):
        # times B = (1 0; 1 1)
        factors[:, :, place] = [[(a + b) & _MASK, b], [(c + d) & _MASK, d]]
        # times A = (1 1; 1 2)
        a, b, c, d = ((a + b) & _MASK, (a + 2 * b) & _MASK, (c + d) & _MASK, (c + 2 * d) & _MASK)
    return factors, np.array([[a, b], [c, d]], np.uint32)
