"""Arrow Flight beside the broker, for programs in other languages and their stock clients.

1. `DoGet` takes a ticket in JSON, `{"filter": "price < :limit", "parameters": {"limit": 10}}`, and
   streams what matches until the client has had enough.
2. A stream of Flight has one schema, and events have many shapes. `"columns": {"price": "float64"}`
   in the ticket says which attributes become columns; without it the first events say so. Whatever
   does not fit, another attribute or another type, is in the column `$rest`, as JSON.
3. `DoPut` publishes batches; its descriptor may be the command `{"durable": true}`. Each batch is
   answered, once it is held, by metadata in JSON.
4. A token goes into the header `authorization`, as `Bearer ...`. It is looked at before anything
   else (`access`).

Flight calls from threads of its own; everything said to the node is said on the broker's loop.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import TimeoutError as WaitTimeout
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.flight as pf

from palio.errors import InvalidConfiguration, InvalidInput, Unreachable
from palio.model.events import conform
from palio.protocol.addresses import bracketed
from palio.protocol.batches import check_chunk, decoded_bytes
from palio.protocol.messages import Deliver, Gaps, unpack_mask
from palio.server.flight.access import Callers, FlightCall
from palio.server.flight.errors import telling, told
from palio.server.flight.gate import Gate
from palio.server.flight.tickets import Ticket, is_durable, schema_of, shaped
from palio.server.local_client import Connect, Declined, Guest, News, Receipt
from palio.server.server import Server
from palio.server.settings import Configuration

__all__ = ["FlightFront", "Flights", "serve"]

LOOK_S: Final = 0.5
"""A stream on which nothing happens looks this often whether anybody still reads."""

PATIENCE_S: Final = 60.0
"""Seconds that the broker may take to answer; a disk that syncs takes far less."""

_NAME: Final = "flight"

_Result = TypeVar("_Result")


class Flights(pf.FlightServerBase):
    """The calls of Flight, in its own threads."""

    def __init__(self, location: str, connect: Connect, loop: asyncio.AbstractEventLoop) -> None:
        self._connect = connect
        self._loop = loop
        self._stopping = threading.Event()
        self.callers = Callers(self._greet, self._leave)
        super().__init__(location, middleware={_NAME: self.callers})

    def stop(self) -> None:
        """End all streams and take no more calls. Blocks."""
        self._stopping.set()
        self.shutdown()

    # --- calls ---

    @told
    def get_flight_info(
        self,
        context: pf.ServerCallContext,  # noqa: ARG002  # nothing is looked up
        descriptor: pf.FlightDescriptor,
    ) -> pf.FlightInfo:
        """A ticket as the command of a descriptor, given back with its schema."""
        command = descriptor.command or b""
        schema = Ticket.read(command).schema
        if schema is None:
            raise InvalidInput("name columns: without them there is no schema before events")
        endpoint = pf.FlightEndpoint(pf.Ticket(command), [])
        return pf.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    @told
    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Stream what matches."""
        guest = _guest(context)
        asked = Ticket.read(ticket.ticket)
        self._await(guest.subscribe(asked.filter, asked.parameters))
        batches = self._batches(context, guest)
        schema, first = asked.schema, None
        if schema is None:
            first = next(batches, None)
            schema = schema_of([]) if first is None else _shape_of(first)
        return pf.GeneratorStream(schema, _stream(schema, first, batches))

    @told
    def do_put(
        self,
        context: pf.ServerCallContext,
        descriptor: pf.FlightDescriptor,
        reader: pf.MetadataRecordBatchReader,
        writer: pf.FlightMetadataWriter,
    ) -> None:
        """Publish batches, and answer each."""
        guest = _guest(context)
        durable = is_durable(descriptor.command)
        for chunk in reader:
            if chunk.data is None:
                continue
            answer = self._await(guest.publish(checked(chunk.data), durable=durable))
            if answer.refused:
                raise _refusal(answer)
            said = {
                "level": answer.level,
                "publisher": answer.publisher,
                "first_seq": answer.first_seq,
                "last_seq": answer.last_seq,
            }
            writer.write(pa.py_buffer(json.dumps(said).encode()))

    # --- parts ---

    def _batches(self, context: pf.ServerCallContext, guest: Guest) -> Iterator[_Parcel]:
        """The events that the guest receives, until the client stops reading."""
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

    def _greet(self, token: str) -> Guest:
        return self._await(Guest.open(self._connect, name=_NAME, token=token))

    def _leave(self, guest: Guest) -> None:
        self._loop.call_soon_threadsafe(guest.close)

    def _await(self, call: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of something that is done on the loop."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(PATIENCE_S)
        except WaitTimeout:
            if not future.cancel():  # it ended in this moment, or it failed with just that error
                return future.result()
            raise Unreachable(f"the broker did not answer within {PATIENCE_S:g} s") from None


class _Parcel(NamedTuple):
    publisher: str
    batch: pa.RecordBatch


def _guest(context: pf.ServerCallContext) -> Guest:
    call = context.get_middleware(_NAME)
    assert isinstance(call, FlightCall)
    return call.guest


def _refusal(answer: Receipt) -> Declined:
    """The error for a batch of which some events, or all, were not published."""
    failure = answer.refused[0].failure
    events = answer.last_seq - answer.first_seq + 1
    if answer.events_refused < events:
        said = f"{answer.events_refused} of {events} events were refused, the others are published"
        failure = msgspec.structs.replace(failure, message=f"{said}: {failure.message}")
    return Declined(failure)


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


def _stream(
    schema: pa.Schema, first: _Parcel | None, batches: Iterator[_Parcel]
) -> Iterator[pa.RecordBatch]:
    with telling():
        if first is not None:
            yield shaped(first.batch, first.publisher, schema)
        for parcel in batches:
            yield shaped(parcel.batch, parcel.publisher, schema)


def _shape_of(parcel: _Parcel) -> pa.Schema:
    return schema_of(
        [(field.name, field.type) for field in parcel.batch.schema if field.name[:1] != "$"]
    )


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A client's batch as events, if it is not too large: reckoned before any of it is decoded."""
    rows, columns = batch.num_rows, batch.num_columns
    check_chunk(rows, columns, batch.nbytes)
    batch.validate(full=True)  # offsets from outside, about to be read by kernels
    check_chunk(rows, columns, decoded_bytes(batch))
    return conform(batch)


class FlightFront:
    """A running Flight front; `address` says where it can be reached."""

    def __init__(self, flights: Flights, gate: Gate, address: str) -> None:
        self.address = address
        self.gate = gate
        self._flights = flights

    async def stop(self) -> None:
        """End all streams and take no more calls."""
        self.gate.stop()
        await asyncio.to_thread(self._flights.stop)
        await self.gate.gone()
        await asyncio.to_thread(shutil.rmtree, Path(self.gate.path).parent, ignore_errors=True)


async def serve(server: Server, configuration: Configuration) -> FlightFront:
    """Open the front that a configuration asks for."""
    listen = configuration.listen
    context = _tls(configuration) if configuration.tls.cert else None
    path = str(Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="palio-")) / "flight")
    loop = asyncio.get_running_loop()
    flights = await asyncio.to_thread(Flights, f"grpc+unix://{path}", server.connect_local, loop)
    gate = Gate(path, server.places, greeting_s=configuration.limits.greeting_s)
    host = bracketed(listen.host)
    front = FlightFront(flights, gate, "")
    try:
        port = await gate.listen(listen.host, listen.flight_port or 0, context)
    except OSError as error:
        await front.stop()
        raise InvalidConfiguration(
            f"listen.flight_port: {host}:{listen.flight_port}: {error.strerror or error}"
        ) from None
    front.address = f"{'grpc+tls' if context else 'grpc'}://{host}:{port}"
    return front


def _tls(configuration: Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(configuration.tls.cert, configuration.tls.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"tls.cert, tls.key: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context
