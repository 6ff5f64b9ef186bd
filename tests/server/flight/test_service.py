from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as pf
import pytest

import palio
from palio.model.events import PUBLISHER
from palio.model.filters import TRUE, Filter
from palio.node.authority import Principal
from palio.server.flight.service import serve
from palio.server.flight.tickets import REST
from palio.server.limits import MAX_TICKET_BYTES
from palio.server.server import Server
from palio.server.settings import Configuration
from tests.server.certificates import self_signed
from tests.server.fronts import broker
from tests.server.helpers import until
from tests.server.http.test_app import Tokens

T = TypeVar("T")
QUOTES = pa.record_batch({"symbol": ["IBM", "MSFT", "IBM"], "price": [9.5, 8.0, 12.0]})
COLUMNS = {"symbol": "utf8", "price": "float64"}


@asynccontextmanager
async def flying(server: Server, **sections: Any) -> AsyncIterator[str]:
    """A Flight front; its address."""
    wanted = {"broker": {"name": "b"}, "listen": {"flight_port": 0}, **sections}
    front = await serve(server, msgspec.convert(wanted, Configuration))
    try:
        yield front.address
    finally:
        await front.stop()


async def apart(work: Callable[..., T], *arguments: Any) -> T:
    """Stock clients block, so they work in threads."""
    return await asyncio.to_thread(work, *arguments)


def ticket(filter: str, parameters: dict[str, Any] | None = None, **more: Any) -> pf.Ticket:
    return pf.Ticket(json.dumps({"filter": filter, "parameters": parameters or {}, **more}))


def put(
    client: pf.FlightClient,
    *batches: pa.RecordBatch,
    command: bytes = b"",
    options: pf.FlightCallOptions | None = None,
) -> list[dict[str, Any]]:
    """Publish batches of one shape; what was answered."""
    writer, answers = client.do_put(
        pf.FlightDescriptor.for_command(command), batches[0].schema, options
    )
    said = []
    with writer:
        for batch in batches:
            writer.write_batch(batch)
            answer: Any = answers.read()  # type: ignore[attr-defined]  # the stubs take it for another
            said.append(json.loads(answer.to_pybytes()))
    return said


def without_columns(count: int) -> pa.RecordBatch:
    kind: Any = pa.struct([])
    structs: Any = pa.Array.from_buffers(kind, count, [None])
    return pa.RecordBatch.from_struct_array(structs)


def empty_ones(count: int) -> Any:
    """Texts of a fixed length, which is 0."""
    return pa.Array.from_buffers(pa.binary(0), count, [None, pa.py_buffer(b"")])


def named_often() -> Any:
    """A text of a million characters, named a hundred thousand times by a byte each."""
    return pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int8), pa.array(["a" * 1_000_000]))


def repeated(count: int) -> Any:
    """A run of one value."""
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), pa.array([1]))


def first(reader: pf.FlightStreamReader) -> dict[str, list[Any]]:
    data = reader.read_chunk().data
    assert data is not None
    found: dict[str, list[Any]] = data.to_pydict()
    return found


async def test_a_stock_client_publishes_and_hears() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            asked = ticket("price < :limit", {"limit": 10}, columns=COLUMNS)
            reader = client.do_get(asked)
            assert reader.schema.names == [*COLUMNS, "$publisher", "$seq", "$time", "$rest"]
            (said,) = put(client, QUOTES)
            assert (said["level"], said["first_seq"], said["last_seq"]) == ("memory", 1, 3)
            heard = first(reader)
            assert heard["symbol"] == ["IBM", "MSFT"]
            assert heard["price"] == [9.5, 8.0]
            assert heard[PUBLISHER] == [said["publisher"]] * 2
            assert heard["$seq"] == [1, 2]
            assert heard[REST] == [None, None]
            reader.cancel()

    async with broker() as server, flying(server) as address:
        await apart(work, address)


async def test_without_columns_the_first_events_give_the_schema() -> None:
    def hear(address: str) -> Iterator[dict[str, list[Any]]]:
        with pf.connect(address) as client:
            reader = client.do_get(ticket("EXISTS price"))
            yield first(reader)
            yield first(reader)
            reader.cancel()

    async with broker() as server, flying(server) as address:
        hearing = hear(address)
        heard = asyncio.ensure_future(apart(next, hearing))
        await until(lambda: bool(server.node.status()["subscriptions"]))
        with await apart(pf.connect, address) as client:
            await apart(put, client, QUOTES)
            assert (await heard)["symbol"] == ["IBM", "MSFT", "IBM"]
            await apart(put, client, pa.record_batch({"price": [1], "odd": [True]}))
        other = await apart(next, hearing)
        assert other["price"] == [None]
        assert json.loads(other[REST][0]) == {"price": 1, "odd": True}
        await apart(list, hearing)


async def test_durable_batches_wait_for_the_disk(tmp_path: Path) -> None:
    def work(address: str) -> list[dict[str, Any]]:
        with pf.connect(address) as client:
            return put(client, QUOTES, QUOTES, command=b'{"durable": true}')

    async with broker(tmp_path) as server, flying(server) as address:
        said = await apart(work, address)
    assert [each["level"] for each in said] == ["durable"] * 2
    assert [each["first_seq"] for each in said] == [1, 4]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the ticket is not as it should be"),
        (b"[]", "the ticket is not as it should be"),
        (b'{"filter": "x <"}', "ParseError: line 1, column 4"),
        (b'{"filter": "x < :y"}', ":y has no value"),
        (b'{"more": 1}', "unknown field"),
        (b'{"columns": {"x": "int8"}}', "types are bool, int64"),
        (b'{"columns": {"$seq": "int64"}}', "belong to the system"),
    ],
)
async def test_bad_tickets_are_told(data: bytes, problem: str) -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client, pytest.raises(pf.FlightServerError) as caught:
            client.do_get(pf.Ticket(data)).read_chunk()
        assert problem in str(caught.value)

    async with broker() as server, flying(server) as address:
        await apart(work, address)


@pytest.mark.parametrize(
    ("batch", "command", "problem"),
    [
        (pa.record_batch({"x": [[1]]}), b"", "InvalidEvent: column 'x'"),
        (pa.record_batch({"$seq": [1]}), b"", "belong to the system"),
        (QUOTES, b'{"durable": 1}', "the command of a DoPut"),
        (QUOTES, b"junk", "the command of a DoPut"),
        (QUOTES, b"[" * 100_000, "the command of a DoPut"),
        (QUOTES, b" " * (MAX_TICKET_BYTES + 1), "MAX_TICKET_BYTES"),
        (pa.record_batch({"x": ["a" * (15 << 20)]}), b"", "MAX_BATCH_BYTES"),
        (pa.record_batch({"x": pa.nulls(10**8)}), b"", "MAX_CHUNK_ROWS"),
        (
            pa.record_batch({f"c{each}": pa.nulls(10**5) for each in range(50)}),
            b"",
            "MAX_CHUNK_CELLS",
        ),
        (without_columns(10**8), b"", "MAX_CHUNK_ROWS"),
        (pa.record_batch({"x": empty_ones(10**8)}), b"", "MAX_CHUNK_ROWS"),
        (pa.record_batch({"x": named_often()}), b"", "MAX_BATCH_BYTES"),
        (pa.record_batch({"x": repeated(10**8)}), b"", "MAX_CHUNK_ROWS"),
        (pa.record_batch({"x": repeated(9)}), b"", "InvalidEvent: column 'x'"),
    ],
    ids=[
        *("nested", "system", "not a bool", "not JSON", "deep", "a long command", "too large"),
        *("nulls", "many nulls", "no columns", "texts of no bytes", "one text a million times"),
        *("a long run", "runs"),
    ],
)
async def test_bad_batches_are_told(batch: pa.RecordBatch, command: bytes, problem: str) -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client, pytest.raises(pf.FlightServerError) as caught:
            put(client, batch, command=command)
        assert problem in str(caught.value)

    async with broker() as server, flying(server) as address:
        await apart(work, address)


async def test_tokens_and_grants() -> None:
    cheap = palio.parse("price < 9")
    assert isinstance(cheap, Filter)
    authority = Tokens(
        {"alice": Principal("alice", TRUE, TRUE), "bob": Principal("bob", cheap, cheap)}
    )

    def options(name: str) -> pf.FlightCallOptions:
        headers: Any = [
            (b"authorization", f"Bearer {name}".encode())
        ]  # bytes, whatever the stubs say
        return pf.FlightCallOptions(headers=headers)

    def work(address: str) -> None:
        with pf.connect(address) as client:
            for call in (
                lambda: client.do_get(ticket("TRUE")).read_chunk(),
                lambda: put(client, QUOTES),
            ):
                with pytest.raises(pf.FlightUnauthenticatedError, match="NotAuthenticated"):
                    call()
            with pytest.raises(pf.FlightUnauthorizedError, match="NotPermitted"):
                client.do_get(ticket("price > 9"), options("bob")).read_chunk()
            said = "NotPermitted: 2 of 3 events were refused, the others are published: "
            with pytest.raises(pf.FlightUnauthorizedError, match=said):
                put(client, QUOTES, options=options("bob"))
            with pytest.raises(pf.FlightUnauthorizedError, match=r"NotPermitted: (?!1 of 1)"):
                put(client, QUOTES[:1], options=options("bob"))
            reader = client.do_get(ticket("TRUE", columns=COLUMNS), options("bob"))
            assert len(reader.schema) == 6
            put(client, QUOTES, options=options("alice"))
            assert first(reader)["price"] == [8.0]
            reader.cancel()

    async with broker(authority=authority) as server, flying(server) as address:
        await apart(work, address)


async def test_tls(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)

    def work(address: str) -> None:
        with pf.connect(address, tls_root_certs=certificate) as client:
            assert put(client, QUOTES)[0]["level"] == "memory"

    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    async with broker() as server, flying(server, tls=tls) as address:
        assert address.startswith("grpc+tls://")
        await apart(work, address)


async def test_a_ticket_is_found_by_its_columns() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            command = ticket("TRUE", columns=COLUMNS).ticket
            info = client.get_flight_info(pf.FlightDescriptor.for_command(command))
            assert info.schema.names[:2] == list(COLUMNS)
            assert info.endpoints[0].ticket.ticket == command
            with pytest.raises(pf.FlightServerError, match="name columns"):
                client.get_flight_info(pf.FlightDescriptor.for_command(b"{}"))

    async with broker() as server, flying(server) as address:
        await apart(work, address)


async def test_a_reader_that_leaves_ends_its_session() -> None:
    def work(address: str) -> None:
        with pf.connect(address) as client:
            reader = client.do_get(ticket("TRUE", columns=COLUMNS))
            assert len(reader.schema) == 6
            reader.cancel()

    async with broker() as server, flying(server) as address:
        await apart(work, address)
        await until(lambda: not server.node.status()["sessions"])
