"""TOML files read into structs, with errors that name file, line and nearest key; and durations."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from palio.errors import InvalidConfiguration, InvalidInput

_HEADER: Final = re.compile(r"(\[{1,2})([^\[\]]+)\]")

_DURATION: Final = re.compile(r"(\d{1,8}(?:\.\d+)?)\s*(ms|s|m|h|d)")

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class Document:
    """A TOML file: its values, and the lines of its keys if they are written in the usual way."""

    def __init__(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            self.values: dict[str, Any] = tomllib.loads(text)
        except OSError as error:
            raise InvalidConfiguration(f"{path}: {error.strerror}") from None
        except ValueError as error:  # not UTF-8, or not TOML
            raise InvalidConfiguration(f"{path}: {error}") from None
        self._path = path
        self._lines: dict[str, int] = {}
        for key, number in _keys(text):
            self._lines.setdefault(key, number)

    def place(self, key: str) -> str:
        """The file and the line of a key such as `sinks[0].path`, or of the table it is in."""
        while key and key not in self._lines:
            key = re.sub(r"(\.[^.\[\]]+|\[\d+\]|^[^.\[\]]+)$", "", key)
        return f"{self._path}:{self._lines[key]}" if key else str(self._path)


def _keys(text: str) -> Iterator[tuple[str, int]]:
    table = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        header = _HEADER.match(stripped)
        if header:
            table = header[2].strip()
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            yield table, number
            for dot in re.finditer(r"\.", table):  # [auth.grants.north] is where auth.grants is
                yield table[: dot.start()], number
        elif "=" in stripped and not stripped.startswith("#"):
            key = stripped.partition("=")[0].strip().strip("\"'")
            yield f"{table}.{key}".lstrip("."), number


def explain(error: msgspec.ValidationError, kind: Any) -> tuple[str, str]:
    """The key that does not fit its type, as seen from a value of type `kind`, and the problem."""
    message, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    key = path.replace("[...]", "").lstrip(".")
    if "Invalid enum value" in message:
        return key, f"{message}; it is one of {', '.join(get_args(_kind_at(kind, path)))}"
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown is None:
        return key, message
    names = sorted(_kind_at(kind, path).__struct_encode_fields__)
    words = hint(unknown[1], names, f"there are {', '.join(names)}")
    return f"{key}.{unknown[1]}".lstrip("."), f"there is no such key; {words}"


def hint(name: str, names: Iterable[str], otherwise: str) -> str:
    """Suggest the name that a misspelled one is nearest to; else return `otherwise`."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else otherwise


def bare(kind: Any) -> Any:
    """A type without its limits and descriptions, and without None.

    >>> bare(Annotated[int, "a port"] | None)
    <class 'int'>
    """
    if get_origin(kind) is Annotated:
        return bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return bare(next(part for part in get_args(kind) if part is not NoneType))
    return kind


def _kind_at(kind: Any, path: str) -> Any:
    """The type at a path of msgspec's, such as `.sinks[0].of` or `[...]`."""
    for name in re.findall(r"\.(\w+)|\[[^\]]*\]", path):
        kind = bare(kind)
        if name:
            fields = msgspec.structs.fields(kind)
            kind = next(field.type for field in fields if field.encode_name == name)
        else:
            kind = get_args(kind)[0 if get_origin(kind) is tuple else -1]
    return bare(kind)


def duration(text: str) -> timedelta:
    """A time such as `30s`, `5m` or `1.5h`.

    >>> duration("1.5m").total_seconds()
    90.0
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{text!r:.40} is no time; write 500ms, 30s, 5m, 2h or 1d")
    return timedelta(seconds=float(match[1]) * _UNITS_S[match[2]])
