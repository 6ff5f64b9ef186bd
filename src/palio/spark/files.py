"""Parquet files by path: a file, or a directory of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import InvalidInput

__all__ = ["opened", "parquet_files"]


def parquet_files(path: Path, what: str) -> list[Path]:
    """The files of a path, in order, but for those hidden; `what` they hold, for the error."""
    if path.is_file():
        return [path]
    found = sorted(
        each
        for each in path.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in each.relative_to(path).parts)
    )
    if not found:
        there_is = "no Parquet files in it" if path.is_dir() else "no such file or directory"
        raise InvalidInput(f"cannot read {what} {str(path)!r}: there is {there_is}")
    return found


def opened(path: Path) -> pq.ParquetFile:
    """A file, open."""
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"cannot read {str(path)!r}: {error}") from None
