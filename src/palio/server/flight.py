"""Arrow Flight beside the broker, for programs in other languages and their stock clients.

1. `DoGet` takes a ticket in JSON, `{"filter": "price < :limit", "parameters": {"limit": 10}}`, and
   streams what matches until the client has had enough.
2. A stream of Flight has one schema, and events have many shapes. `"columns": {"price": "float64"}`
   in the ticket says which attributes become columns; without it the first events say so. Whatever
   does not fit, another attribute or another type, is in the column `$rest`, as JSON.
3. `DoPut` publishes batches; its descriptor may be the command `{"durable": true}`. Each batch is
   answered, once it is held, by metadata in JSON.
4. A token goes into the header `authorization`, as `Bearer ...`.

Flight calls from threads of its own; everything said to the node is said on the broker's loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import TimeoutError as WaitTimeout
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as pf

from palio.errors import (
    InvalidConfiguration,
    InvalidInput,
    LimitExceeded,
    NotAuthenticated,
    NotPermitted,
    PalioError,
    Unreachable,
)
from palio.model.events import SEQ, TIME, conform, rows
from palio.node.limits import MAX_FRAME_BYTES
from palio.node.messages import Deliver, Gaps, unpack_mask
from palio.server.broker import Server
from palio.server.front import Connect, Declined, Guest, News
from palio.server.settings import Configuration

__all__ = ["MAX_STREAMS", "PUBLISHER", "REST", "Front", "serve"]

MAX_STREAMS: Final = 256
"""Streams at once: each takes a thread."""

LOOK_S: Final = 0.5
"""A stream on which nothing happens looks this often whether anybody still reads."""

PATIENCE_S: Final = 60.0
"""How long the broker may take to answer; a disk that syncs takes far less."""

PUBLISHER: Final = "$publisher"
REST: Final = "$rest"

_NAME: Final = "flight"
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

_Result = TypeVar("_Result")


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks to hear."""

    filter: str = "TRUE"
    parameters: dict[str, Any] = {}
    columns: dict[str, str] = {}

    @classmethod
    def read(cls, data: bytes) -> Ticket:
        """A ticket out of its JSON."""
        try:
            ticket = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the ticket is not as it should be: {error}") from None
        for name, kind in ticket.columns.items():
            if kind not in _TYPES or name.startswith("$"):
                raise InvalidInput(
                    f"column {name!r:.60} of type {kind!r:.40}: types are {', '.join(_TYPES)}, "
                    "and names that begin with $ belong to the system"
                )
        return ticket

    @property
    def schema(self) -> pa.Schema | None:
        """The stream's schema, if the ticket says it."""
        if not self.columns:
            return None
        return _schema([(name, _TYPES[kind]) for name, kind in self.columns.items()])


def _schema(columns: list[tuple[str, pa.DataType]]) -> pa.Schema:
    return pa.schema([*columns, *_SYSTEM])


def shaped(batch: pa.RecordBatch, publisher: str, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as a stream's schema has it; what does not fit goes to `$rest`.

    >>> schema = _schema([("x", pa.int64())])
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


class _Bearer(pf.ServerMiddleware):
    """The token of a call."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token


class _Bearers(pf.ServerMiddlewareFactory):
    """Reads the token of each call."""

    def start_call(self, info: pf.CallInfo, headers: dict[str, Any]) -> _Bearer:  # noqa: ARG002  # one rule for all calls
        """See `pyarrow.flight.ServerMiddlewareFactory`."""
        given = headers.get("authorization", [""])[0]
        scheme, _, token = given.partition(" ")
        return _Bearer(token.strip() if scheme.lower() == "bearer" else "")


class _Flights(pf.FlightServerBase):
    """The calls of Flight, in its own threads."""

    def __init__(
        self,
        location: str,
        connect: Connect,
        loop: asyncio.AbstractEventLoop,
        certificates: list[tuple[str, str]] | None,
    ) -> None:
        super().__init__(location, middleware={"bearer": _Bearers()}, tls_certificates=certificates)
        self._connect = connect
        self._loop = loop
        self._stopping = threading.Event()
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)

    def stop(self) -> None:
        """End all streams and take no more calls. Blocks."""
        self._stopping.set()
        self.shutdown()

    def get_flight_info(
        self,
        context: pf.ServerCallContext,  # noqa: ARG002  # nothing is looked up
        descriptor: pf.FlightDescriptor,
    ) -> pf.FlightInfo:
        """A ticket as the command of a descriptor, given back with its schema."""
        try:
            schema = Ticket.read(descriptor.command or b"").schema
            if schema is None:
                raise InvalidInput("name columns: without them there is no schema before events")
        except PalioError as error:
            raise _translated(error) from None
        endpoint = pf.FlightEndpoint(pf.Ticket(descriptor.command or b""), [])
        return pf.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Stream what matches."""
        if not self._streams.acquire(blocking=False):
            raise pf.FlightUnavailableError(f"{MAX_STREAMS} streams are open (MAX_STREAMS)")
        try:
            asked = Ticket.read(ticket.ticket)
            guest = self._guest(context)
            try:
                self._await(guest.subscribe(asked.filter, asked.parameters))
                batches = self._batches(context, guest)
                schema, first = asked.schema, None
                if schema is None:
                    first = next(batches, None)
                    schema = _schema([]) if first is None else _shape_of(first)
            except BaseException:
                self._loop.call_soon_threadsafe(guest.close)
                raise
        except PalioError as error:
            self._streams.release()
            raise _translated(error) from None
        except BaseException:
            self._streams.release()
            raise
        return pf.GeneratorStream(schema, self._stream(guest, schema, first, batches))

    def do_put(
        self,
        context: pf.ServerCallContext,
        descriptor: pf.FlightDescriptor,
        reader: pf.MetadataRecordBatchReader,
        writer: pf.FlightMetadataWriter,
    ) -> None:
        """Publish batches, and answer each."""
        try:
            durable = _is_durable(descriptor)
            guest = self._guest(context)
            try:
                for chunk in reader:
                    if chunk.data is None:
                        continue
                    answer = self._await(guest.publish(_checked(chunk.data), durable=durable))
                    if answer.refused:
                        raise Declined(answer.refused[0].failure)
                    said = {
                        "level": answer.level,
                        "publisher": answer.publisher,
                        "first_seq": answer.first_seq,
                        "last_seq": answer.last_seq,
                    }
                    writer.write(pa.py_buffer(json.dumps(said).encode()))
            finally:
                self._loop.call_soon_threadsafe(guest.close)
        except PalioError as error:
            raise _translated(error) from None

    # --- parts ---

    def _stream(
        self,
        guest: Guest,
        schema: pa.Schema,
        first: _Parcel | None,
        batches: Iterator[_Parcel],
    ) -> Iterator[pa.RecordBatch]:
        try:
            if first is not None:
                yield shaped(first.batch, first.publisher, schema)
            for parcel in batches:
                yield shaped(parcel.batch, parcel.publisher, schema)
        except PalioError as error:
            raise _translated(error) from None
        finally:
            self._streams.release()
            self._loop.call_soon_threadsafe(guest.close)

    def _batches(self, context: pf.ServerCallContext, guest: Guest) -> Iterator[_Parcel]:
        """What the guest hears, until nobody reads it any longer."""
        while not (self._stopping.is_set() or context.is_cancelled()):
            news = self._await(_soon(guest))
            if news is None:
                continue
            message = news.message
            if isinstance(message, Gaps):
                lost = sum(gap.count for gap in message.gaps)
                raise Unreachable(f"{lost} events were lost: the reader is too slow; ask again")
            yield _wanted(message)
            self._loop.call_soon_threadsafe(guest.done)

    def _guest(self, context: pf.ServerCallContext) -> Guest:
        bearer = context.get_middleware("bearer")
        assert isinstance(bearer, _Bearer)
        return self._await(Guest.open(self._connect, name=_NAME, token=bearer.token))

    def _await(self, call: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of something that is done on the loop."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(PATIENCE_S)
        except WaitTimeout:
            future.cancel()
            raise Unreachable(f"the broker did not answer within {PATIENCE_S:g} s") from None


class _Parcel(NamedTuple):
    publisher: str
    batch: pa.RecordBatch


async def _soon(guest: Guest) -> News | None:
    """The next news, or None if there is none for a while."""
    try:
        return await asyncio.wait_for(guest.next(), LOOK_S)
    except TimeoutError:
        return None


def _wanted(message: Deliver) -> _Parcel:
    parcel = message.parcel
    mask = unpack_mask(message.rows, len(parcel))
    batch = parcel.batch if mask.all() else parcel.batch.take(np.flatnonzero(mask))
    return _Parcel(parcel.publisher, batch)


def _shape_of(parcel: _Parcel) -> pa.Schema:
    return _schema(
        [(field.name, field.type) for field in parcel.batch.schema if field.name[:1] != "$"]
    )


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.nbytes > MAX_FRAME_BYTES:
        raise LimitExceeded(
            "a batch in bytes",
            limit="MAX_FRAME_BYTES",
            maximum=MAX_FRAME_BYTES,
            actual=batch.nbytes,
        )
    batch.validate(full=True)  # offsets from outside, about to be read by kernels
    return conform(batch)


def _is_durable(descriptor: pf.FlightDescriptor) -> bool:
    if not descriptor.command:
        return False
    try:
        command = json.loads(descriptor.command)
    except (ValueError, RecursionError):
        command = None
    match command:
        case {"durable": bool(durable)} if len(command) == 1:
            return durable
        case _:
            raise InvalidInput('the command of a DoPut is {"durable": true}, or left out')


_ERRORS: Final[dict[type[PalioError], type[Exception]]] = {
    NotAuthenticated: pf.FlightUnauthenticatedError,
    NotPermitted: pf.FlightUnauthorizedError,
    InvalidInput: pa.ArrowInvalid,
    Unreachable: pf.FlightUnavailableError,
}


def _translated(error: PalioError) -> Exception:
    """An error as Flight tells it."""
    kind = error.type if isinstance(error, Declined) else type(error)
    said = f"{kind.__name__}: {error}"[:_SAID_CHARS]
    for known, flights in _ERRORS.items():
        if issubclass(kind, known):
            return flights(said)
    return pf.FlightServerError(said)


_SAID_CHARS: Final = 1_000
"""What an error says: it travels in headers, three times over."""


class Front:
    """A running Flight front; `address` says where it can be reached."""

    def __init__(self, flights: _Flights, address: str) -> None:
        self._flights = flights
        self.address = address

    async def stop(self) -> None:
        """End all streams and take no more calls."""
        await asyncio.to_thread(self._flights.stop)


async def serve(server: Server, configuration: Configuration) -> Front:
    """Open the front that a configuration asks for."""
    listen, tls = configuration.listen, configuration.tls
    scheme = "grpc+tls" if tls.cert else "grpc"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    certificates = None
    if tls.cert:
        certificates = [(await _text(tls.cert), await _text(tls.key))]
    where = f"{scheme}://{host}:{listen.flight_port or 0}"
    loop = asyncio.get_running_loop()
    try:
        flights = await asyncio.to_thread(_Flights, where, server.connect_local, loop, certificates)
    except pa.ArrowException as error:
        raise InvalidConfiguration(f"listen.flight_port: {where}: {error}") from None
    return Front(flights, f"{scheme}://{host}:{flights.port}")


async def _text(path: str) -> str:
    try:
        return await asyncio.to_thread(Path(path).read_text, "ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"tls.cert, tls.key: {error}") from None
