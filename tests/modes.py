"""Modes of files, and the umask under which they are made."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Make files under a umask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes_below(home: Path) -> tuple[set[int], set[int]]:
    """The modes of all directories below a directory, and of all files."""
    directories: set[int] = set()
    files: set[int] = set()
    for each in [home, *home.rglob("*")]:
        found = directories if each.is_dir() else files
        found.add(stat.S_IMODE(each.lstat().st_mode))
    return directories, files
