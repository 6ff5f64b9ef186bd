"""Tickets are read within bounds, and events fitted to the schema that they say."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.model.limits import MAX_ATTRIBUTES
from palio.server.flight.tickets import REST, Ticket, is_durable, shaped
from palio.server.limits import MAX_TICKET_BYTES


def test_what_does_not_fit_is_kept_beside() -> None:
    schema = Ticket.read(b'{"columns": {"x": "int64", "y": "utf8"}}').schema
    assert schema is not None
    fitted = shaped(pa.record_batch({"x": [1, 2], "z": [None, 2.5], "y": [1, None]}), "p", schema)
    assert fitted.schema == schema
    assert fitted.column("x").to_pylist() == [1, 2]
    assert fitted.column("y").to_pylist() == [None, None]
    assert fitted.column(REST).to_pylist() == ['{"y": 1}', '{"z": 2.5}']


def test_a_ticket_without_columns_has_no_schema() -> None:
    assert Ticket.read(b"{}").schema is None
    with pytest.raises(InvalidInput, match="not as it should be"):
        Ticket.read(b"\xff")


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_ticket_has_a_largest_size(extra: int) -> None:
    data = b'{"filter": "TRUE"}'
    data += b" " * (MAX_TICKET_BYTES - len(data) + extra)
    if extra > 0:
        with pytest.raises(LimitExceeded, match="MAX_TICKET_BYTES"):
            Ticket.read(data)
        with pytest.raises(LimitExceeded, match="MAX_TICKET_BYTES"):
            is_durable(data)
    else:
        assert Ticket.read(data) == Ticket()


@pytest.mark.parametrize("extra", [0, 1])
def test_a_ticket_names_no_more_columns_than_an_event_has(extra: int) -> None:
    columns = {f"c{place}": "int64" for place in range(MAX_ATTRIBUTES + extra)}
    data = json.dumps({"columns": columns}).encode()
    if extra:
        with pytest.raises(LimitExceeded, match="MAX_ATTRIBUTES"):
            Ticket.read(data)
    else:
        assert Ticket.read(data).columns == columns


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 50_000,
        b'{"parameters": ' + b"[" * 50_000,
        b'{"parameters": {"x": [[1]]}}',
        b'{"parameters": {"x": {"y": 1}}}',
        b'{"filter": 1}',
        b"\xff" * 100,
    ],
)
def test_what_is_nested_or_no_ticket_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not as it should be"):
        Ticket.read(data)


def test_a_ticket_of_too_many_values_is_not_read() -> None:
    with pytest.raises(LimitExceeded, match="MAX_JSON_PARTS"):
        Ticket.read(b'{"parameters": {"x": [' + b"1," * 70_000 + b"1]}}")


def test_parameters_are_values_and_lists_of_them() -> None:
    data = b'{"parameters": {"a": [1, "x", null, 2.5, true], "b": 1, "c": null, "d": "y"}}'
    expected = {"a": [1, "x", None, 2.5, True], "b": 1, "c": None, "d": "y"}
    assert Ticket.read(data).parameters == expected
