"""`Presence`: whether the files that a journal is written to are still those with its names.

A file that was removed, replaced or moved away is written to as before: whatever is acknowledged
then is gone when the broker ends, as all that was acknowledged before. So the writer looks before
it writes, unless it has looked less than `LOOK_S` ago.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from palio.server.limits import LOOK_S

__all__ = ["Presence"]


class Presence:
    """Some files of one directory, as they were when they were opened."""

    def __init__(
        self, paths: Sequence[Path], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._look_at = 0.0
        self._held = {os.fspath(path): os.stat(path) for path in paths}
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Why nothing that is written can be relied on any more, or None. It is so for good."""
        now = self._clock()
        if now >= self._look_at and self._problem is None:
            self._look_at = now + LOOK_S
            self._problem = self._look()
        return self._problem

    def _look(self) -> str | None:
        for path, held in self._held.items():
            try:
                found = os.stat(path)
            except OSError:
                return _said(path, "was removed or moved away")
            if (found.st_ino, found.st_dev) != (held.st_ino, held.st_dev):
                return _said(path, "was replaced")
        return None


def _said(path: str, what: str) -> str:
    return (
        f"{path} {what} while the broker used it; nothing is written from now on: "
        "put back what was there, and restart the broker"
    )
