"""The inputs of commands: events, filters of other languages, values of parameters, tokens."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from palio import files
from palio.cli.reporting import print_status
from palio.errors import InvalidBinding, InvalidEvent, InvalidInput, PalioError, ParseError

if TYPE_CHECKING:
    import pyarrow as pa

    from palio.language.lexer import Token
    from palio.model.filters import Filter
    from palio.model.patterns import Pattern
    from palio.model.values import Value


Event = TypeVar("Event")


class BadLine(PalioError):
    """The fault of one line of the input."""

    def __init__(self, line: int, error: InvalidInput) -> None:
        self.line = line
        self.kind = type(error).__name__
        super().__init__(f"line {line}: {error}")


def events(source: str) -> Iterator[tuple[int, dict[str, Value]]]:
    """The events of a file, of standard input (`-`) or of a JSON text, each with its line, as
    filters see them.

    One object may fill the whole input; otherwise there is one a line, and each is given as soon as
    its line has come.

    >>> list(events('{"price": {"low": 1, "high": 2}}'))
    [(1, {'price.low': 1, 'price.high': 2})]
    """
    from palio.model.events import flatten

    is_warned = False
    for line, document, event in _read(source, flatten):
        if not is_warned and (omitted := list(islice(_omitted(document), MOST_NAMED))):
            is_warned = True
            print_status(
                f"line {line}: filters do not see {', '.join(omitted)}, as attributes are scalars; "
                "there may be more"
            )
        yield line, event


def _read(
    source: str, reader: Callable[[dict[str, Any]], Event]
) -> Iterator[tuple[int, dict[str, Any], Event]]:
    """The JSON objects of a source, each with its line and what a reader makes of it."""
    found = False
    with _opened(source, is_text=source.lstrip().startswith("{")) as stream:
        for line, document in _documents(_lines(stream)):
            found = True
            try:
                if not isinstance(document, dict):
                    raise InvalidEvent(
                        f"an event is a JSON object, not {_noun(document)}; give one object a line"
                    )
                event = reader(document)
            except InvalidInput as error:
                raise BadLine(line, error) from None
            yield line, document, event
    if not found:
        raise InvalidEvent("there is no event; give a JSON object, or one a line")


MOST_NAMED: Final = 5
"""Omitted attributes that a warning names: an event may have any number of them."""


def _omitted(part: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The values of a JSON object that become no attributes.

    >>> list(_omitted({"id": 7, "data": {"tags": [], "note": None}}))
    ["'data.tags' (an array)", "'data.note' (null)"]
    """
    for name, value in part.items():
        if value is None or isinstance(value, list):
            yield f"{f'{prefix}{name}'!r:.80} ({_noun(value)})"
        elif isinstance(value, dict):
            yield from _omitted(value, f"{prefix}{name}.")


BATCH_ROWS: Final = 1_000
"""Events that are taken at once from a file."""


def events_of(source: str) -> Iterator[dict[str, Any] | pa.RecordBatch]:
    """The events of JSON lines one by one, whole; those of CSV and Parquet in batches."""
    from palio.model.payloads import event_of

    kind = Path(source).suffix.lower()
    if kind == ".parquet":
        from palio.parquet import pieces

        yield from pieces(source, most_rows=BATCH_ROWS)
    elif kind == ".csv":
        yield from _csv(source)
    else:
        for _, _, event in _read(source, event_of):
            yield dict(event)


def gathered(
    taken: Iterable[dict[str, Any] | pa.RecordBatch],
) -> Iterator[list[dict[str, Any]] | pa.RecordBatch]:
    """Events that came one by one as lists, batches as they are, in order."""
    rows: list[dict[str, Any]] = []
    for each in taken:
        if isinstance(each, dict):
            rows.append(each)
            continue
        if rows:
            yield rows
            rows = []
        yield each
    if rows:
        yield rows


def _csv(source: str) -> Iterator[pa.RecordBatch]:
    from pyarrow import ArrowException, csv

    # Blocks of about a thousand ordinary lines. Empty fields are absent, not empty texts.
    reading = csv.ReadOptions(block_size=256 << 10)
    converting = csv.ConvertOptions(strings_can_be_null=True)
    try:
        with csv.open_csv(source, read_options=reading, convert_options=converting) as reader:
            for batch in reader:
                yield _zoned(batch)
    except (OSError, ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"cannot read {source!r:.200}: {reason}") from None


def _zoned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times without a zone are taken for UTC, as the language takes them."""
    import pyarrow as pa

    arrays = [
        column.cast(pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz is None
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def text_of(source: str, *, is_text: bool) -> str:
    """The text of a file or of standard input (`-`), or the text itself."""
    with _opened(source, is_text=is_text) as stream:
        return "".join(_lines(stream))


def token_of(source: str) -> str:
    """The token in a file that nobody else may read, or on standard input (`-`)."""
    if source == "-":
        return text_of(source, is_text=False).strip()
    if looks_like_token(source):
        raise InvalidInput(
            "a token was given as an argument, which other users see in the list of processes; "
            "write it to standard input and give -, or name a file that holds it"
        )
    try:
        return files.read_secret(Path(source), "the token").decode().strip()
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"cannot read the token {source!r:.200}: {reason}") from None


def looks_like_token(text: str) -> bool:
    """True if a text is a whole token: three parts, the first of which is a JSON object."""
    return text.count(".") == 2 and text.startswith("eyJ")


@contextmanager
def _opened(source: str, *, is_text: bool) -> Iterator[IO[bytes]]:
    if is_text:
        yield io.BytesIO(source.encode("utf-8", "surrogateescape"))
    elif source == "-":
        if sys.stdin.isatty():
            print_status("reading from the terminal; end with Ctrl-D")
        yield standard_input()
    else:
        with _file(source) as stream:
            yield stream


def standard_input() -> IO[bytes]:
    """Standard input with a buffer of its own.

    Python closes its own at the end of the program, and a thread that still waits for a line there
    holds its lock: the program would abort.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # something that only looks like a file
        return sys.stdin.buffer
    return open(descriptor, "rb", closefd=False)


def _file(name: str) -> IO[bytes]:
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot read {name!r:.200}: {reason}") from None


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines as they come, decoded."""
    number = 0
    while True:
        try:
            line = stream.readline()
        except OSError as error:  # a directory opens and then cannot be read
            raise InvalidInput(f"cannot read: {error.strerror}") from None
        if not line:
            return
        number += 1
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ParseError(
                "the text is not UTF-8", text="", line=number, column=error.start + 1
            ) from None


def _documents(lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """JSON documents with their first lines: one a line, or a single one over several."""
    first = True
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = _parsed(line.rstrip("\r\n"), number)
        except ParseError:
            if not first:
                raise
            yield number, _parsed("".join([line, *lines]), number)
            return
        yield number, document
        first = False


def _parsed(text: str, line: int) -> Any:
    """A JSON text that begins at a line of the input."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem, place, column = error.msg, line + error.lineno - 1, error.colno
    except RecursionError:
        problem, place, column = "it is nested too deeply", line, 1
    except ValueError as error:  # an integer of thousands of digits
        problem, place, column = str(error), line, 1
    raise ParseError(
        f"this is no JSON: {problem}", text="\n" * (line - 1) + text, line=place, column=column
    )


def _noun(document: Any) -> str:
    nouns = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return nouns.get(type(document), "a number")


def bindings(parameters: Iterable[str] | None) -> dict[str, Any]:
    """Values of parameters from `name=value`, typed as the language types its literals.

    What is no literal is text, so that quotes are needed only round what looks like a number.

    >>> bindings(["limit=10", "symbol=IBM", "code='7'", "sizes=(1, 2)"])
    {'limit': 10, 'symbol': 'IBM', 'code': '7', 'sizes': (1, 2)}
    """
    values: dict[str, Any] = {}
    for each in parameters or ():
        name, equals, text = each.partition("=")
        name = name.strip().removeprefix(":")
        if not equals or not name:
            raise InvalidInput(f"--param {each!r:.80}: write it as name=value")
        if name in values:
            raise InvalidBinding(f"--param {name} is given twice", name=name)
        values[name] = _value(text)
    return values


def check_bindings(what: Filter | Pattern, values: dict[str, Any]) -> None:
    """Refuse a value that a filter has no parameter for."""
    for name in values:
        if name not in what.variables:
            listed = ", ".join(f":{each}" for each in sorted(what.variables)) or "none"
            raise InvalidBinding(f"the filter has no parameter :{name}; it has {listed}", name=name)


_LOOKS_QUOTED: Final = re.compile(r"\s*((timestamp\s*|x)?'|\(.*\)\s*$)", re.IGNORECASE | re.DOTALL)
_WORDS: Final = {"TRUE": True, "FALSE": False, "INFINITY": float("inf")}


def _value(text: str) -> Any:
    from palio.language.lexer import tokens

    try:
        found = tokens(text)
    except InvalidInput:
        if _LOOKS_QUOTED.match(text):
            raise
        return text
    if len(found) == 1 and _is_literal(found[0]):
        return _of(found[0])
    if len(found) == 2 and (found[0].type, found[1].type) == ("MINUS", "INFINITY"):
        return -_WORDS["INFINITY"]
    members = _members(found)
    return text if members is None else members


def _members(found: Sequence[Token]) -> tuple[Any, ...] | None:
    """The values of `(1, 2, 3)`; None if it is anything else."""
    if len(found) < 3 or found[0].type != "LPAR" or found[-1].type != "RPAR":
        return None
    inner, commas = found[1:-1:2], found[2:-1:2]
    if len(inner) != len(commas) + 1 or any(each.type != "COMMA" for each in commas):
        return None
    return tuple(map(_of, inner)) if all(map(_is_literal, inner)) else None


def _is_literal(token: Token) -> bool:
    from palio.language.lexer import LITERALS

    return token.type in LITERALS or token.type in _WORDS


def _of(token: Token) -> Any:
    return _WORDS.get(token.type, token.value)


def names_a_file(source: str) -> bool:
    """True if a file of this name exists (a text may be too long to be a name)."""
    return os.path.isfile(source)


def moment(text: str) -> datetime | None:
    """A time; UTC where it has no zone."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r:.80} is no time; write 2026-01-31 or 2026-01-31T09:30:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
