"""Subscriptions by HTTP, and their delivery: event or Arrow stream, WebSocket, webhook."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from palio.errors import InvalidInput, PalioError
from palio.language.http_events import BATCH_TYPE, CURSOR
from palio.language.parsing import parse_filter
from palio.model.filters import FALSE
from palio.server.http import arrow, sse, subscriptions, websocket
from palio.server.http.access import Access, HttpCaller, body_of, read
from palio.server.http.cursors import CursorFeed, Feeds
from palio.server.http.errors import NotFound
from palio.server.http.subscriptions import Directory, HttpSubscription
from palio.server.limits import MAX_TAKEN, MAX_WAIT_S
from palio.server.local_client import RESUME_BYTES, Connect
from palio.server.webhooks import webhook
from palio.server.webhooks.sinks import Sinks

STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Neither browsers nor proxies may hold back events."""


class _Stream(StreamingResponse):
    """A feed as a response; `left` is called when it ends, even if it never began."""

    def __init__(
        self, content: AsyncIterator[str | bytes], media_type: str, left: Callable[[], None]
    ) -> None:
        super().__init__(content, media_type=media_type, headers=STREAM_HEADERS)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


class HttpSubscribers:
    """The subscribers' side of the front."""

    def __init__(
        self,
        connect: Connect,
        access: Access,
        directory: Directory,
        *,
        keep_bytes: int = RESUME_BYTES,
        sinks: Sinks | None = None,
    ) -> None:
        self._access = access
        self._directory = directory
        self._feeds = Feeds(connect, keep_bytes)
        self._sinks = sinks or Sinks()
        self._callers = webhook.Callers(self._sinks, directory, self._feeds, self._remove)
        self._origin = "palio"
        self._ending: set[str] = set()
        """Subscriptions that are being deleted."""

    async def start(self, address: str) -> None:
        """Begin to call webhooks, those of before a restart too."""
        self._origin = urlsplit(address).hostname or "palio"
        for subscription in self._directory.with_sinks():
            self._callers.call(subscription)

    async def stop(self) -> None:
        """End all deliveries."""
        await self._callers.stop()
        self._feeds.leave_all()
        await self._sinks.close()

    # --- the Subscriptions API ---

    async def create(self, request: Request) -> Response:
        """`POST /subscriptions`."""
        caller = self._access.caller(request)
        asked = read(await body_of(request), subscriptions.Request)
        if asked.id:
            raise InvalidInput("the broker numbers subscriptions; leave the id out")
        made = HttpSubscription.of(secrets.token_hex(8), caller.name, asked, caller.token)
        await self._agree(made)
        self._directory.check_room(caller.principal)
        await self._directory.put(made)
        try:
            await self._feeds.settle(made)
        except BaseException:
            await self._directory.drop(made)
            raise
        self._callers.call(made)
        return JSONResponse(made.shown(), 201, {"location": f"/subscriptions/{made.id}"})

    async def list(self, request: Request) -> Response:
        """`GET /subscriptions`."""
        caller = self._access.caller(request)
        mine = self._directory.of(caller.name)
        return JSONResponse(
            [subscription.shown() for subscription in mine if subscription.id not in self._ending]
        )

    async def get(self, request: Request) -> Response:
        """`GET /subscriptions/{id}`."""
        return JSONResponse(self._found(request)[1].shown())

    async def put(self, request: Request) -> Response:
        """`PUT /subscriptions/{id}`: another filter or sink; identity and position stay."""
        caller, subscription = self._found(request)
        asked = read(await body_of(request), subscriptions.Request)
        if asked.id not in ("", subscription.id):
            raise InvalidInput(f"the id of this subscription is {subscription.id!r}, and stays")
        if asked.config.durable != subscription.request.config.durable:
            raise InvalidInput("whether a subscription is durable stays; make another one")
        changed = HttpSubscription.of(subscription.id, subscription.owner, asked, caller.token)
        if _addresses(changed) != _addresses(subscription):
            await self._agree(changed)
        self._found(request)  # it may have been deleted meanwhile
        await self._directory.put(changed)
        try:
            await self._feeds.change(changed)
        except BaseException:
            if self._kept(subscription.id, subscription.owner):
                await self._directory.put(subscription)
            raise
        if _how(changed) != _how(subscription):
            self._callers.hang_up(subscription.id)
        self._callers.call(changed)
        return JSONResponse(changed.shown())

    async def delete(self, request: Request) -> Response:
        """`DELETE /subscriptions/{id}`."""
        await self._remove(self._attached(request))
        return Response(status_code=204)

    async def acknowledge(self, request: Request) -> Response:
        """`POST /subscriptions/{id}/acknowledge`: all up to a cursor has been dealt with."""
        subscription = self._attached(request)
        cursor = read(await body_of(request), dict[str, str]).get("cursor", "")
        if not subscription.durable:
            raise InvalidInput("this subscription is not durable: nothing of it is acknowledged")
        if not cursor:
            raise InvalidInput('missing cursor: give {"cursor": "..."}, the id of an event')
        await self._feeds.acknowledge(subscription, cursor)
        return Response(status_code=204)

    async def take(self, request: Request) -> Response:
        """`GET /subscriptions/{id}/batch`: the backlog, for clients that poll."""
        subscription = self._audible(request, "max", "wait_s", *_arrow_only(request))
        if not subscription.durable:
            raise InvalidInput(
                "this subscription is not durable: nothing waits between two requests; make one "
                'with "config": {"durable": true}, or open its event stream'
            )
        query = request.query_params
        most = int(_number(query.get("max", "100"), "max", 1, MAX_TAKEN))
        wait_s = _number(query.get("wait_s", "5"), "wait_s", 0, MAX_WAIT_S)
        columns = arrow.columns_of(query)
        media_type = arrow.ARROW_TYPE if arrow.is_wanted(request) else BATCH_TYPE
        if request.method == "HEAD":
            return Response(media_type=media_type)
        feed = await self._feeds.listen(subscription, query.get("cursor", ""))
        try:
            parts = await feed.take(most, wait_s)
            if media_type == arrow.ARROW_TYPE:
                body = await arrow.whole(parts, columns)
                return Response(body, headers=STREAM_HEADERS, media_type=media_type)
        finally:
            self._feeds.left(subscription.id, feed)
        taken = [{**item.document, CURSOR: item.cursor} for part in parts for item in part.items()]
        return JSONResponse(taken, headers=STREAM_HEADERS, media_type=media_type)

    # --- streams ---

    async def stream(self, request: Request) -> Response:
        """`GET /subscriptions/{id}/events`: an event stream, or one of Arrow."""
        return await self._streamed(request, self._audible(request, *_arrow_only(request)))

    async def stream_filter(self, request: Request) -> Response:
        """`GET /events?filter=...`: the same of a filter, for as long as it is open."""
        return await self._streamed(request, self._passing(request, *_arrow_only(request)))

    async def socket(self, socket: WebSocket) -> None:
        """`/subscriptions/{id}/events` as a WebSocket."""
        await self._socketed(socket, lambda: self._audible(socket), _replaced_by_put)

    async def socket_filter(self, socket: WebSocket) -> None:
        """`/events?filter=...` as a WebSocket."""
        await self._socketed(socket, lambda: self._passing(socket), _replaced)

    async def _streamed(self, request: Request, subscription: HttpSubscription) -> Response:
        columns = arrow.columns_of(request.query_params)
        media_type = arrow.ARROW_TYPE if arrow.is_wanted(request) else sse.EVENT_STREAM_TYPE
        if request.method == "HEAD":
            return Response(media_type=media_type)
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        feed = await self._feeds.listen(subscription, cursor)
        content: AsyncIterator[str | bytes] = sse.frames(feed)
        if media_type == arrow.ARROW_TYPE:
            content = arrow.messages(feed, columns)
        return _Stream(content, media_type, lambda: self._feeds.left(subscription.id, feed))

    async def _socketed(
        self,
        socket: WebSocket,
        find: Callable[[], HttpSubscription],
        replace: Callable[[CursorFeed, Any], Awaitable[None]],
    ) -> None:
        try:
            subscription = find()
            feed = await self._feeds.listen(subscription, socket.query_params.get("cursor", ""))
        except PalioError as error:
            await websocket.accept(socket)
            await websocket.refuse(socket, error)
            return
        try:
            await websocket.accept(socket)
            await websocket.deliver(socket, feed, partial(replace, feed))
        finally:
            self._feeds.left(subscription.id, feed)

    # --- parts ---

    def _found(
        self, connection: HTTPConnection, *names: str
    ) -> tuple[HttpCaller, HttpSubscription]:
        caller, id = self._access.caller(connection, *names), connection.path_params["id"]
        subscription = self._kept(id, caller.name)
        if subscription is None:
            raise NotFound(f"there is no subscription {id!r:.80} of {caller.name!r}")
        return caller, subscription

    def _kept(self, id: str, owner: str) -> HttpSubscription | None:
        """A subscription that nobody deletes at this moment."""
        return None if id in self._ending else self._directory.find(id, owner)

    def _attached(self, connection: HTTPConnection, *names: str) -> HttpSubscription:
        """A subscription with the token of the caller: that of its making may be old."""
        caller, subscription = self._found(connection, *names)
        return msgspec.structs.replace(subscription, token=caller.token)

    def _audible(self, connection: HTTPConnection, *names: str) -> HttpSubscription:
        """A subscription that is not delivered elsewhere already."""
        subscription = self._attached(connection, "cursor", *names)
        if subscription.request.sink:
            raise InvalidInput("this subscription is delivered to its sink; make another to listen")
        return subscription

    def _passing(self, connection: HTTPConnection, *names: str) -> HttpSubscription:
        """A subscription that nobody keeps, out of a query."""
        caller = self._access.caller(connection, "filter", "cursor", "param.", *names)
        query = connection.query_params
        if "filter" not in query:
            raise InvalidInput("give ?filter=..., and &param.NAME=VALUE for each parameter")
        values = subscriptions.parameters(query)
        # Here, since the places of errors below are those of a body, which nobody has sent.
        subscriptions.check_names(parse_filter(query["filter"]), values)
        own = {"filter": query["filter"], "parameters": values}
        asked = subscriptions.Request(filters=[{"palio": own}])
        return HttpSubscription.of(
            f"passing {secrets.token_hex(8)}", caller.name, asked, caller.token
        )

    async def _agree(self, subscription: HttpSubscription) -> None:
        """Have the addresses of a subscription agree to be called, if its owner may subscribe
        at all: who may not has the broker call nobody.
        """
        addresses = [address for address in _addresses(subscription) if address]
        if not addresses:
            return
        if subscription.filter == str(FALSE):
            raise InvalidInput(
                "nothing matches the filter; leave out the sink, or the contradiction"
            )
        request = subscription.request
        passing = msgspec.structs.replace(request.config, durable=False)
        trial = msgspec.structs.replace(request, config=passing)
        await self._feeds.settle(msgspec.structs.replace(subscription, request=trial))
        for address in addresses:
            await webhook.ask_leave(self._sinks, subscription.owner, address, self._origin)

    async def _remove(self, subscription: HttpSubscription) -> None:
        """End a subscription; it stays as it is if the node does not forget it."""
        self._ending.add(subscription.id)
        try:
            if subscription.durable:
                await self._feeds.forget(subscription)
            await self._directory.drop(subscription)
        finally:
            self._ending.discard(subscription.id)
        self._callers.hang_up(subscription.id)
        self._feeds.close(subscription.id)


async def _replaced(feed: CursorFeed, body: Any) -> None:
    """Give the subscription of one connection another filter."""
    subscription = feed.subscription
    asked = subscriptions.Request(filters=[{"palio": body}])
    await feed.change(
        HttpSubscription.of(subscription.id, subscription.owner, asked, subscription.token)
    )


async def _replaced_by_put(feed: CursorFeed, body: Any) -> None:
    """Refuse it: a kept subscription changes for all of its connections, and stays changed."""
    del body
    id = feed.subscription.id
    raise InvalidInput(f"this subscription is kept; change it by PUT /subscriptions/{id}")


def _arrow_only(request: Request) -> tuple[str, ...]:
    """The parameters of a query that only Arrow streams have."""
    return (arrow.COLUMN,) if arrow.is_wanted(request) else ()


def _number(text: str, name: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise InvalidInput(f"{name} is a number from {least:g} to {most:g}, not {text!r:.40}")
    return number


def _addresses(subscription: HttpSubscription) -> tuple[str, str]:
    return subscription.request.sink, subscription.request.config.deadletter


def _how(subscription: HttpSubscription) -> tuple[object, ...]:
    """The settings of a webhook, apart from its filter."""
    request = subscription.request
    return request.sink, request.config, request.protocolsettings, subscription.token
