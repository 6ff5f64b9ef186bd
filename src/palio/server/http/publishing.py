"""Publishing by HTTP: JSON, CloudEvents in binary, structured and batch mode, Arrow streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded
from palio.language.http_events import (
    BATCH_TYPE,
    JSON_TYPE,
    PLAIN_TYPE,
    from_binary,
    from_json,
    from_plain,
)
from palio.model.events import to_batches
from palio.model.limits import check_limit
from palio.model.parcels import Parcel
from palio.protocol.batches import check_texts
from palio.protocol.legal_parcels import stream_batches
from palio.protocol.messages import Query, Refused, StoredAt
from palio.server.http.access import (
    NAME,
    Access,
    HttpCaller,
    body_of,
    identity_of,
    json_of,
)
from palio.server.http.arrow import ARROW_TYPE
from palio.server.http.errors import described, status_of
from palio.server.local_client import Connect, Declined, InternalClient, Receipt
from palio.server.scheduler import Pace

MAX_BATCH_EVENTS: Final = 10_000
"""Events of one request."""

PIECE_VALUES: Final = 4_096
"""Values that are made one batch at a time: the loop is held for a few milliseconds."""

MAX_READERS: Final = 2
"""Arrow streams that are read at once, each in a thread, with others served meanwhile: one of 4,096
columns takes a second."""

MAX_PUBLISHERS: Final = 1_000
"""Sessions of publishers that are kept open; the one used longest ago is closed for another."""


_STORED_AT: Final[dict[str, StoredAt]] = {"false": False, "true": True, "home": "home"}


class HttpPublishers:
    """The publishers' side of the front: a session a token and identity, shared by its requests."""

    def __init__(self, connect: Connect, access: Access) -> None:
        self._connect = connect
        self._access = access
        self._clients: dict[tuple[str, str], asyncio.Task[InternalClient]] = {}
        self._readers = asyncio.Semaphore(MAX_READERS)

    async def publish(self, request: Request) -> Response:
        """`POST /events`."""
        caller = self._access.caller(request, "durable", "as")
        durable = request.query_params.get("durable", "false")
        if durable not in _STORED_AT:
            raise InvalidInput(f"durable is true, false or home, not {durable!r:.40}")
        batches = await self._batches(request)
        client = await self.client(caller, identity_of(request, caller))
        receipts = await client.publish_all(batches, durable=_STORED_AT[durable])
        return _response(sum(batch.num_rows for batch in batches), receipts)

    async def _batches(self, request: Request) -> list[pa.RecordBatch]:
        """The events of a request as batches."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await body_of(request)
        if content_type == ARROW_TYPE:
            async with self._readers:
                return await asyncio.to_thread(list, stream_batches(body))
        batches, pace = list[pa.RecordBatch](), Pace()
        for piece in _pieces(await _events(request, content_type, body)):
            batches += to_batches(piece)
            await pace()
        for batch in batches:
            check_texts(Parcel("", batch))
        return batches

    async def ask(self, caller: HttpCaller, what: str, about: Any = None) -> Any:
        """Ask the broker and return its answer."""
        client = await self.client(caller)
        return await client.ask(Query(0, what, about))

    async def client(self, caller: HttpCaller, identity: str = "") -> InternalClient:
        """The session of a token, opened when it is first needed or was closed."""
        key = caller.token, identity
        opening = self._clients.pop(key, None)
        if opening is not None and opening.done() and not is_usable(opening):
            opening = None
        if opening is None:
            opening = asyncio.create_task(
                InternalClient.open(
                    self._connect, name=NAME, identity=identity, token=caller.token
                ),
                name="http publisher",
            )
        self._clients[key] = opening
        if len(self._clients) > MAX_PUBLISHERS:
            oldest = self._clients.pop(next(iter(self._clients)))
            oldest.add_done_callback(_close)
        return await asyncio.shield(opening)


def is_usable(opening: asyncio.Task[InternalClient]) -> bool:
    """Return whether a session that was opened stands."""
    return not opening.cancelled() and opening.exception() is None and opening.result().is_open


def _close(opening: asyncio.Task[InternalClient]) -> None:
    if is_usable(opening):
        opening.result().close()


async def _events(request: Request, content_type: str, body: bytes) -> list[dict[str, Any]]:
    if content_type == BATCH_TYPE:
        documents = _array(body)
        await asyncio.sleep(0)  # to divide it, others waited long enough
        return await _each(documents, lambda document: from_json(json_of(bytes(document))))
    if content_type == JSON_TYPE:
        return [from_json(json_of(body))]
    if "ce-specversion" in request.headers:
        return [from_binary(request.headers, body)]
    if content_type == PLAIN_TYPE:
        data = json_of(body)
        return await _each(data, from_plain) if isinstance(data, list) else [from_plain(data)]
    raise InvalidEvent(
        f"this is no event: give content-type {PLAIN_TYPE}, {JSON_TYPE}, {BATCH_TYPE} or "
        f"{ARROW_TYPE}, or ce- headers"
    )


async def _each(
    documents: list[Any], read: Callable[[Any], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Read the events of a request one by one, with others served meanwhile."""
    check_limit("a batch's number of events", "MAX_BATCH_EVENTS", MAX_BATCH_EVENTS, len(documents))
    events, pace = list[dict[str, Any]](), Pace()
    for place, document in enumerate(documents):
        try:
            events.append(read(document))
        except LimitExceeded:
            raise
        except InvalidInput as error:
            raise InvalidEvent(f"event {place} of the batch: {error}") from None
        await pace()
    return events


class _Head(msgspec.Struct, gc=False):
    """The attributes of every CloudEvent: 4 MiB have room for 250,000 of them, not for millions."""

    specversion: msgspec.Raw


def _array(body: bytes) -> list[msgspec.Raw]:
    """The documents of a batch, not yet read: to read all at once would hold the loop."""
    try:
        msgspec.json.decode(body, type=list[_Head])
        return msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(f"a batch of CloudEvents is a JSON array: {error}") from None


def _pieces(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The events in order, in pieces that have few values each."""
    start = values = 0
    for place, event in enumerate(events):
        values += len(event)
        if values > PIECE_VALUES and place > start:
            yield events[start:place]
            start, values = place, len(event)
    yield events[start:]


def _response(events: int, receipts: Sequence[Receipt]) -> Response:
    """202 if all were taken, the refusal's own status if none was, 207 if some were."""
    refusals = [refused for receipt in receipts for refused in receipt.refused]
    refused = sum(receipt.events_refused for receipt in receipts)
    answer: dict[str, Any] = {"accepted": events - refused}
    if receipts:
        answer |= {
            "level": receipts[0].level,
            "publisher": receipts[0].publisher,
            "first_seq": receipts[0].first_seq,
            "last_seq": receipts[-1].last_seq,
        }
    if not refused:
        return JSONResponse(answer, 202)
    answer["refused"] = [_refusal(refusal) for refusal in refusals]
    first = refusals[0].failure
    if refused < events:
        return JSONResponse(answer, 207)
    status = status_of(Declined(first).type)
    return JSONResponse({"error": described(first), **answer}, status)


def _refusal(refused: Refused) -> dict[str, Any]:
    return {
        "first_seq": refused.first_seq,
        "last_seq": refused.last_seq,
        "error": described(refused.failure),
    }
