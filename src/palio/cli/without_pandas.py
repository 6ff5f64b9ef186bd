"""Keeps Arrow from importing pandas into a process that has no use for it."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa

__all__ = ["leave_out_pandas"]


class _NoPandas(MetaPathFinder):
    """Finds no pandas, and leaves the rest to others."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        """See `MetaPathFinder`."""
        if fullname == "pandas":
            raise ModuleNotFoundError("not in this process", name=fullname)


def leave_out_pandas() -> None:
    """Have Arrow look for pandas, and find none.

    Arrow looks when it makes its first array. Where pandas is installed that takes a quarter of a
    second, in the middle of some event, and 40 MB. Arrow looks only once.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([1])
    finally:
        sys.meta_path.remove(finder)
