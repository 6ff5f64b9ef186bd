"""`Presence`: whether the files that a journal is written to are still those with its names.

A file that was removed, replaced or moved away is written to as before: whatever is acknowledged
then is gone when the broker ends. So the writer looks before each transaction, which takes
microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Presence"]


class Presence:
    """Some files, as they were when they were opened."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._held = {os.fspath(path): os.stat(path) for path in paths}
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Why nothing that is written can be relied on any more, or None. It is so for good."""
        if self._problem is None:
            for path, held in self._held.items():
                try:
                    found = os.stat(path)
                except OSError:
                    self._problem = _said(path, "was removed or moved away")
                    break
                if (found.st_ino, found.st_dev) != (held.st_ino, held.st_dev):
                    self._problem = _said(path, "was replaced")
                    break
        return self._problem


def _said(path: str, what: str) -> str:
    return (
        f"{path} {what} while the broker used it; nothing is written from now on: "
        "put back what was there, and restart the broker"
    )
