"""The guards of a journal on its disk: its room (`DiskSpace`), and its files (`FileIdentity`).

Whatever a journal writes, also that something is done with and may go, takes room in its log first,
and later as much again when the log is moved into the file. So a disk that was filled to its last
byte could not be emptied any more.

1. What grows is refused while there is room for what shrinks: the log must fit into the file.
2. Others fill disks too. A file of its own, the *reserve*, holds room for that case: it is given up
   to write what shrinks and to move the log, and made again when there is room.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from palio import files

FILE: Final = "journal.reserve"
"""The name of the reserve in the data directory."""

RESERVE_BYTES: Final = 32 << 20
"""Room to move a log of full length (16 MiB) into the file, and to write another one meanwhile."""

SHARE: Final = 8
"""On a small disk the reserve is the disk's size divided by this."""

SLACK_BYTES: Final = 128 << 10
"""Bytes kept free beyond the reckoning, for pages of trees and the index of the log."""


class DiskSpace:
    """The disk under a data directory."""

    def __init__(self, directory: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = directory / FILE
        self._log = directory / "journal.sqlite-wal"
        self._directory = directory
        disk = os.statvfs(directory)
        self.reserve_bytes = min(reserve_bytes, disk.f_blocks * disk.f_frsize // SHARE)
        if self.free < SLACK_BYTES:
            self.release()  # or the journal could not even be opened

    @property
    def free(self) -> int:
        """Bytes of the disk that anybody may take."""
        disk = os.statvfs(self._directory)
        return disk.f_bavail * disk.f_frsize

    @property
    def log_bytes(self) -> int:
        """The length of the log, in bytes."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    @property
    def is_reserved(self) -> bool:
        """Return whether the reserve is there."""
        return self._path.exists()

    def admits(self, nbytes: int, reusable: int = 0) -> bool:
        """Return whether `nbytes` may be written, into the log and later into the file, where
        `reusable` bytes are free already. What grows leaves room for a reserve that was given up,
        and to use again what will be free in the file.
        """
        growth = max(0, self.log_bytes + nbytes - reusable)
        missing = 0 if self.is_reserved else self.reserve_bytes
        slack = SLACK_BYTES * (2 if growth else 1)
        return self.free >= nbytes + growth + missing + slack

    def reserve(self) -> None:
        """Make the reserve, if it is not there and the disk has room for it."""
        if not self.reserve_bytes:
            return
        if self.is_reserved or self.free < self.reserve_bytes + SLACK_BYTES:
            return
        self.release()  # a link that leads nowhere has its name and is not there
        with files.create(self._path) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, self.reserve_bytes)
            except OSError:  # another thread was quicker, or these disks cannot
                self.release()

    def release(self) -> None:
        """Give the reserve up."""
        with suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """The journal is closed: a reserve is kept only where it will be needed."""
        if self.free > 4 * self.reserve_bytes:
            self.release()


# --- the files ---
#
# A file that was removed, replaced or moved away is written to as before: whatever is acknowledged
# then is gone when the broker ends, as all that was acknowledged before. So the writer looks before
# it writes.


class FileIdentity:
    """Some files of one directory, as they were when they were opened."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._held = {os.fspath(path): os.stat(path) for path in paths}
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Return why writes can no longer be relied on; None while they can."""
        self._problem = self._problem or self._look()
        return self._problem

    def _look(self) -> str | None:
        for path, held in self._held.items():
            try:
                status = os.stat(path)
            except OSError:
                return _problem_of(path, "was removed or moved away")
            if (status.st_ino, status.st_dev) != (held.st_ino, held.st_dev):
                return _problem_of(path, "was replaced")
        return None


def _problem_of(path: str, operation: str) -> str:
    return (
        f"{path} {operation} while the broker used it; nothing is written from now on: "
        "put back what was there, and restart the broker"
    )
