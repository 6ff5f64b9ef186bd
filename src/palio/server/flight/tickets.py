"""Tickets: what a client of Arrow Flight asks to hear, and how events look in its one schema."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from palio.errors import InvalidInput, LimitExceeded
from palio.language.bounded_json import check_parts, read_json
from palio.language.parsing import parse_filter
from palio.model.events import PUBLISHER, SEQ, SYSTEM_PREFIX, TIME, is_system_name, rows
from palio.model.limits import MAX_ATTRIBUTES
from palio.server.limits import MAX_TICKET_BYTES

__all__ = ["REST", "Ticket", "is_durable", "schema_of", "shaped"]

REST: Final = "$rest"

_Scalar: TypeAlias = bool | int | float | str | None

_TYPES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_SYSTEM: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (PUBLISHER, pa.utf8()),
    (SEQ, pa.int64()),
    (TIME, pa.timestamp("us", "UTC")),
    (REST, pa.utf8()),
)


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subscription that a client asks for."""

    filter: str = "TRUE"
    parameters: dict[str, _Scalar | list[_Scalar]] = {}
    columns: dict[str, str] = {}

    @classmethod
    def read(cls, data: bytes) -> Ticket:
        """A ticket out of its JSON."""
        _check_length(data)
        try:
            check_parts(data)
            ticket = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the ticket is not as it should be: {error}") from None
        if len(ticket.columns) > MAX_ATTRIBUTES:
            raise LimitExceeded(
                "the columns of a ticket",
                limit="MAX_ATTRIBUTES",
                maximum=MAX_ATTRIBUTES,
                actual=len(ticket.columns),
            )
        for name, kind in ticket.columns.items():
            if kind not in _TYPES or is_system_name(name):
                raise InvalidInput(
                    f"column {name!r:.60} of type {kind!r:.40}: types are {', '.join(_TYPES)}, "
                    f"and names that begin with {SYSTEM_PREFIX} belong to the system"
                )
        parse_filter(ticket.filter)  # a pattern is assembled by who asks for its steps
        return ticket

    @property
    def schema(self) -> pa.Schema | None:
        """The stream's schema, if the ticket says it."""
        if not self.columns:
            return None
        return schema_of([(name, _TYPES[kind]) for name, kind in self.columns.items()])


def is_durable(command: bytes | None) -> bool:
    """Read the command of a DoPut.

    >>> is_durable(b'{"durable": true}'), is_durable(b"")
    (True, False)
    """
    if not command:
        return False
    _check_length(command)
    try:
        said = read_json(command)
    except (ValueError, RecursionError):
        said = None
    match said:
        case {"durable": bool(durable)} if len(said) == 1:
            return durable
        case _:
            raise InvalidInput('the command of a DoPut is {"durable": true}, or left out')


def schema_of(columns: list[tuple[str, pa.DataType]]) -> pa.Schema:
    """Columns, and those of the system behind them."""
    return pa.schema([*columns, *_SYSTEM])


def shaped(batch: pa.RecordBatch, publisher: str, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as a stream's schema has it; what does not fit goes to `$rest`.

    >>> schema = schema_of([("x", pa.int64())])
    >>> fitted = shaped(pa.record_batch({"x": [1], "y": ["a"]}), "p", schema)
    >>> fitted.column("x").to_pylist(), fitted.column(REST).to_pylist()
    ([1], ['{"y": "a"}'])
    """
    count = batch.num_rows
    own = {field.name: place for place, field in enumerate(batch.schema)}
    columns: list[pa.Array[Any]] = []
    taken = set()
    for field in schema:
        place = own.get(field.name)
        if place is not None and batch.schema.field(place).type == field.type:
            columns.append(batch.column(place))
            taken.add(field.name)
        elif field.name == PUBLISHER:
            columns.append(pa.array([publisher] * count, pa.utf8()))
        else:
            columns.append(pa.nulls(count, field.type))
    left = [name for name in own if name not in taken]
    if left:
        texts = [json.dumps(row, default=str) if row else None for row in rows(batch.select(left))]
        columns[schema.get_field_index(REST)] = pa.array(texts, pa.utf8())
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_length(data: bytes) -> None:
    if len(data) > MAX_TICKET_BYTES:
        raise LimitExceeded(
            "a ticket or command in bytes",
            limit="MAX_TICKET_BYTES",
            maximum=MAX_TICKET_BYTES,
            actual=len(data),
        )
