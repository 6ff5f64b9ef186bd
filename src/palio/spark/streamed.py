"""The files of a directory that a stream of Spark has written: those that its log names.

A task that was killed leaves its files behind, and the micro-batch writes others when it runs
again. Only the log, `_spark_metadata`, says which of them are the stream's: for each micro-batch
there is a file of its number that names the files added, and now and then one `N.compact`, which
names all files of the batches up to `N`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from palio.errors import InvalidInput

__all__ = ["LOG", "streamed_files"]

LOG: Final = "_spark_metadata"

VERSION: Final = "v1"
"""The first line of every file of the log."""

_NAME: Final = re.compile(r"(\d+)(\.compact)?")


def streamed_files(path: Path) -> list[Path]:
    """The files of a stream's output, in order."""
    found: dict[Path, None] = {}
    for entry in _batches(path):
        for row in _rows(entry, path):
            found[_local(row, entry, path)] = None
    for each in found:
        if not each.is_file():
            raise _refused(path, f"its log names {str(each)!r}, which is not there")
    return sorted(found)


def _batches(path: Path) -> list[Path]:
    """The files of the log that together name all there is."""
    batches: dict[int, Path] = {}
    start = 0
    for each in (path / LOG).iterdir():
        name = _NAME.fullmatch(each.name)
        if name is None:
            continue  # a file in the making, or a checksum
        number, is_compact = int(name[1]), name[2] is not None
        if is_compact or number not in batches:
            batches[number] = each
        if is_compact:
            start = max(start, number)
    numbers = sorted(number for number in batches if number >= start)
    missing = set(range(start, max(numbers, default=-1) + 1)).difference(numbers)
    if missing:
        raise _refused(path, f"batch {min(missing)} of its log is missing")
    return [batches[number] for number in numbers]


def _rows(entry: Path, path: Path) -> list[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        version, *lines = entry.read_text(encoding="utf-8").splitlines()
        if version != VERSION:
            raise _refused(path, f"{str(entry)!r} is of version {version!r:.40}, not {VERSION}")
        return [decode(line) for line in lines]
    except (OSError, ValueError) as error:  # of an empty file, of what is no JSON or no UTF-8
        raise _refused(path, f"cannot read {str(entry)!r}: {error}") from None


def _local(row: dict[str, Any], entry: Path, path: Path) -> Path:
    """The file that a row adds, which is on this machine and below the directory."""
    address = row.get("path")
    if row.get("action") != "add" or not isinstance(address, str):
        raise _refused(path, f"{str(entry)!r} says what is not understood: {row!r:.200}")
    split = urlsplit(address)
    file = Path(unquote(split.path))
    if split.scheme not in ("", "file") or not file.is_relative_to(path.resolve()):
        raise _refused(path, f"its log names {address!r:.200}, which is elsewhere")
    return path / file.relative_to(path.resolve())


def _refused(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{str(path)!r} is the output of a stream, and {reason}; hand in spark.read.parquet(...) "
        "instead of the path"
    )
