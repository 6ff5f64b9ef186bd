"""Parquet files by path: a file, or a directory of them, as Spark reads it.

In a directory every file counts whose name does not say otherwise, whatever its suffix. Where a log
says which of them count, the log is followed if it is that of a stream of Spark, and the directory
refused if it is another's: files that a log has taken out are still there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from palio.errors import InvalidInput
from palio.spark.streamed import LOG, streamed_files

__all__ = ["opened", "parquet_files"]

TABLES: Final = {"_delta_log": ("Delta", "delta"), ".hoodie": ("Hudi", "hudi")}
"""Directories that make a directory of files a table of some format: its name, and Spark's."""

COPYING: Final = "._COPYING_"
"""The end of a file's name while Hadoop still writes it."""


def parquet_files(path: Path, what: str, *, deep: bool = False) -> list[Path]:
    """The files of a path, in order; `what` they hold, for the error.

    Directories below are read if `deep`, and else refused: Spark passes over them in silence.
    """
    if path.is_file():
        return [path]
    is_streamed = (path / LOG).is_dir()
    found = streamed_files(path) if is_streamed else sorted(_below(path, path, what))
    if not found:
        there_is = "no Parquet files in it" if path.is_dir() else "no such file or directory"
        raise InvalidInput(f"cannot read {what} {str(path)!r}: there is {there_is}")
    if not deep:
        _check_flat(path, found)
    return found


def _below(path: Path, root: Path, what: str) -> Iterator[Path]:
    """The files in a directory and below."""
    if not path.is_dir():
        return
    with os.scandir(path) as listed:
        names = {each.name: each.is_dir() for each in listed}
    for mark, (title, name) in TABLES.items():
        if mark in names:
            raise InvalidInput(
                f"cannot read {what} {str(root)!r}: {str(path)!r} is a {title} table, and its log "
                f"says which of its files count; hand in spark.read.format({name!r}).load(...) "
                "instead of the path"
            )
    if LOG in names and path != root:
        raise InvalidInput(
            f"cannot read {what} {str(root)!r}: in it is {str(path)!r}, the output of a stream, "
            "and its log says which of its files count; hand in that path alone"
        )
    for name, is_directory in names.items():
        if _is_hidden(name):
            continue
        if is_directory:
            yield from _below(path / name, root, what)
        else:
            yield path / name


def _is_hidden(name: str) -> bool:
    """Whether Spark passes over a name: `_k=1` is a partition's."""
    return name.startswith(".") or name.endswith(COPYING) or (name[:1] == "_" and "=" not in name)


def _check_flat(path: Path, found: list[Path]) -> None:
    for each in found:
        folders = each.relative_to(path).parts[:-1]
        if any("=" in part for part in folders):
            raise InvalidInput(
                f"{str(path)!r} is partitioned by columns that are in no file; "
                "hand in spark.read.parquet(...) instead of the path"
            )
        if folders:
            raise InvalidInput(
                f"{str(path)!r} has files in directories below it, such as {str(each)!r}, which "
                "Spark passes over; hand in spark.read.option('recursiveFileLookup', True)"
                ".parquet(...) instead of the path, or one directory's path"
            )


def opened(path: Path | str) -> pq.ParquetFile:
    """A file, open. What it has as INT96 is read to the microsecond, as Spark does: in nanoseconds
    there would be nothing before 1677 or after 2262.
    """
    try:
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"cannot read {str(path)!r} as Parquet: {error}; hand in other files as a DataFrame, "
            "spark.read.json(...), and of a directory have those that are no events begin with '_'"
        ) from None
