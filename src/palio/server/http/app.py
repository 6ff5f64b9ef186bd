"""HTTP beside the broker: CloudEvents in and out, subscriptions, health, metrics.

docs/reference/http.md is the page for users.

A front is a client of the node like any other (`palio.server.local_client`). What it keeps of its
own are the subscriptions made by HTTP, with their sinks, and a session for each publisher.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from palio.errors import InvalidConfiguration, PalioError
from palio.node.authority import Authority
from palio.node.limits import FEW_RECEIVERS
from palio.node.readiness import Readiness
from palio.protocol.addresses import bracketed
from palio.server.hosts import Hosts, Origins
from palio.server.http import asyncapi, openapi
from palio.server.http.access import Access, accounted, body_of, read
from palio.server.http.advertising import HttpAdvertisers
from palio.server.http.connection import FrontDoor, HttpConnection, SocketConnection
from palio.server.http.errors import MethodNotAllowed, NotFound, answer
from palio.server.http.host_check import HostCheck, own_names
from palio.server.http.publishing import HttpPublishers
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from palio.server.limits import MAX_COMMAND_BYTES, MAX_HEAD_BYTES
from palio.server.local_client import RESUME_BYTES, Connect
from palio.server.server import Server, duplicate
from palio.server.settings import Configuration, Limits
from palio.server.webhooks.sinks import Sinks, allowed_pool

logger: Final = logging.getLogger("palio.server")

CLOSE_S: Final = 5
"""Seconds that open requests may take when the front is stopped; event streams end at once."""

BACKLOG: Final = 1_024
"""Connections that may wait to be accepted."""

LIVE_PAGE: Final = Path(__file__).with_name("live.html").read_text("utf-8")
"""The page of the broker, at `/`."""


def _hashes(tag: str) -> str:
    """The hashes that let a browser run what stands in the page, and nothing that got in."""
    found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", LIVE_PAGE, re.DOTALL)
    digests = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


LIVE_HEADERS: Final = {
    "content-security-policy": f"default-src 'none'; script-src 'self' {_hashes('script')}; "
    f"style-src {_hashes('style')}; connect-src 'self'; img-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}

PREFLIGHT_S: Final = 600
"""Seconds for which a browser remembers that a page may use the broker."""

SCRIPT: Final = Path(__file__).with_name("palio.js")
"""The client for web pages."""

HEADERS: Final = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
]
"""Of every answer: a page of another site takes none for a script, a style or a picture."""


def application(
    connect: Connect,
    access: Access,
    delivery: HttpSubscribers,
    metrics: Callable[[], bytes] = bytes,
    readiness: Callable[[], Readiness] = Readiness,
) -> Starlette:
    """The front as an ASGI application."""
    publishing = HttpPublishers(connect, access)
    advertising = HttpAdvertisers(connect, access, publishing)

    async def healthy(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        state = readiness()
        try:
            with_peers = access.caller(request).principal.may_monitor
        except PalioError:  # anybody may ask, without names
            with_peers = False
        problems = {
            field: [peer.shown(with_peers=with_peers) for peer in listed]
            for field, listed in state._asdict().items()
        }
        status = "ready" if state.is_ready else "not ready"
        return JSONResponse({"status": status} | problems, 200 if state.is_ready else 503)

    async def measured(request: Request) -> Response:
        access.caller(request).principal.check_monitor("the metrics of this broker")
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def asked(what: str) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            return _encoded(await publishing.ask(access.caller(request), what))

        return answered

    async def catalogue(request: Request) -> Response:
        caller, query = access.caller(request, "own", "from"), request.query_params
        about = {"own": query.get("own") == "true", "from": query.get("from", "")}
        return _encoded(await publishing.ask(caller, "catalogue", about))

    async def trace(request: Request) -> Response:
        caller = access.caller(request)
        event = read(await body_of(request), dict[str, Any])
        return _encoded(await publishing.ask(caller, "trace", event))

    async def live(_: Request) -> Response:
        return HTMLResponse(LIVE_PAGE, headers=LIVE_HEADERS)

    async def script(_: Request) -> Response:
        return FileResponse(SCRIPT, media_type="text/javascript; charset=utf-8")

    one = "/subscriptions/{id}"
    routes = [
        Route("/events", publishing.publish, methods=["POST"]),
        Route("/events", delivery.stream_filter, methods=["GET"]),
        WebSocketRoute("/events", delivery.socket_filter),
        Route("/subscriptions", delivery.create, methods=["POST"]),
        Route("/subscriptions", delivery.list, methods=["GET"]),
        Route(one, delivery.get, methods=["GET"]),
        Route(one, delivery.put, methods=["PUT"]),
        Route(one, delivery.delete, methods=["DELETE"]),
        Route(one + "/events", delivery.stream, methods=["GET"]),
        WebSocketRoute(one + "/events", delivery.socket),
        Route(one + "/batch", delivery.take, methods=["GET"]),
        Route(one + "/acknowledge", delivery.acknowledge, methods=["POST"]),
        Route("/subscriptions", advertising.cancel, methods=["DELETE"]),
        Route("/advertisements", advertising.list, methods=["GET"]),
        Route("/advertisements", advertising.withdraw, methods=["DELETE"]),
        Route("/advertisements/{id}", advertising.put, methods=["PUT"]),
        Route("/advertisements/{id}", advertising.delete, methods=["DELETE"]),
        Route("/healthz", healthy),
        Route("/readyz", ready),
        Route("/metrics", measured),
        Route("/status", asked("status")),
        Route("/topology", asked("topology")),
        Route("/catalogue", catalogue),
        Route("/trace", trace, methods=["POST"]),
        Route("/", live),
        Route("/openapi.json", _described),
        Route("/asyncapi.json", _sockets_described),
        Route("/palio.js", script),
        WebSocketRoute("/{path:path}", _no_socket),
    ]
    return Starlette(
        routes=routes, exception_handlers={PalioError: _failed, HTTPException: _not_http}
    )


async def _described(_: Request) -> Response:
    return JSONResponse(openapi.document())


async def _sockets_described(_: Request) -> Response:
    return JSONResponse(asyncapi.document())


def _encoded(answer: object) -> Response:
    """An answer of the node as JSON; bytes and times in it are texts there."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, PalioError)
    return answer(error)


async def _not_http(request: Request, error: Exception) -> Response:
    """Answer an unknown address or method in the same form as all other errors."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(NotFound(f"there is nothing at {request.scope['path']!r:.200}"))
    if error.status_code == 405:
        headers = _allowed(request)
        taken = f"this address takes {headers['allow']}, not {request.method:.20}"
        response = answer(MethodNotAllowed(taken))
        response.headers.update(headers)
        return response
    kind = {"type": "HTTPException", "message": error.detail}
    return JSONResponse({"error": kind}, error.status_code, error.headers)


async def _no_socket(socket: WebSocket) -> None:
    await socket.send_denial_response(answer(NotFound("there is no WebSocket at this address")))


def _logged(app: ASGIApp) -> ASGIApp:
    """The application with its failures in the broker's log, but for clients that leave."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except WebSocketDisconnect:
            pass
        except Exception:
            logger.exception("request_failed")

    return call


def _allowed(request: Request) -> dict[str, str]:
    """List the methods of an address; each of its routes knows its own."""
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return {"allow": ", ".join(sorted(methods))}


class HttpFront:
    """A running HTTP front; `address` says where it can be reached."""

    def __init__(
        self,
        server: _Uvicorn,
        delivery: HttpSubscribers,
        address: str,
        access: Access,
        hosts: HostCheck,
    ) -> None:
        self.address = address
        self._server = server
        self._delivery = delivery
        self._access = access
        self._hosts = hosts
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self._task = asyncio.create_task(self._server.serve(), name="http front")
        await self._delivery.start(self.address)

    async def renew(
        self, configuration: Configuration, authority: Authority, tls: ssl.SSLContext | None
    ) -> None:
        """Take other certificates, names, grants and limits; open connections continue."""
        await self._server.renew(configuration.limits, tls)
        self._access.authority = authority
        self._hosts.names = Hosts(own_names(configuration))

    async def stop(self) -> None:
        """Take no more requests, and end those that are open."""
        await self._delivery.stop()
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class _Uvicorn(uvicorn.Server):
    """uvicorn with a listener of its own, whose handshakes have a limit."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        door: FrontDoor,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self._listening = listening
        self._door = door
        self._tls = tls
        self._lingering: set[object] = set()
        """Connections whose clients did not take the end of an answer when it was last looked."""
        self._look_at = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # as in the base class
        """Listen."""
        await super().startup([])
        self.servers = [await self._listener(self._listening, self._tls)]

    async def _listener(
        self, listening: socket.socket, tls: ssl.SSLContext | None
    ) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            partial(HttpConnection.paced, self.config, self.server_state, self._door),
            sock=listening,
            ssl=tls,
            ssl_handshake_timeout=self._door.limits.handshake_timeout_s
            if tls is not None
            else None,
            backlog=self.config.backlog,
        )

    async def renew(self, limits: Limits, tls: ssl.SSLContext | None) -> None:
        """Take other limits and certificates for new connections."""
        sockets = [duplicate(each) for server in self.servers for each in server.sockets]
        self._door = self._door._replace(limits=limits)
        self.config.timeout_keep_alive = limits.http_idle_s  # type: ignore[assignment]  # it says int, and means seconds
        old, self.servers = self.servers, [await self._listener(each, tls) for each in sockets]
        for server in old:
            server.close()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:
            self._look_at = now + self._door.limits.http_body_s
            self._cut_lingering()
        return await super().on_tick(counter)

    def _cut_lingering(self) -> None:
        """Cut those whose clients still do not take the end of an answer."""
        lingering = {
            connection
            for connection in self.server_state.connections
            if isinstance(connection, HttpConnection | SocketConnection) and connection.lingers
        }
        for connection in lingering & self._lingering:
            connection.transport.abort()
        self._lingering = {*lingering}

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the broker's: it stops its fronts itself."""
        yield


async def serve(
    server: Server,
    configuration: Configuration,
    authority: Authority,
    metrics: Callable[[], bytes],
    tls: ssl.SSLContext | None = None,
) -> HttpFront:
    """Open the front that a configuration asks for, under the authority of the broker."""
    listen = configuration.listen
    directory = Directory(server.host.keep, server.journal.records())
    origins = Origins(configuration.http.allowed_origins)
    access = Access(authority, server.moment, origins)
    # What is kept for resuming is not yet acknowledged, and must not fill the window.
    limits = configuration.limits
    fair = limits.memory_bytes // 2 // FEW_RECEIVERS
    keep_bytes = min(RESUME_BYTES, limits.window_bytes // 4, fair // 2)
    sinks = Sinks(partial(allowed_pool, Hosts(configuration.webhooks.allow)))
    delivery = HttpSubscribers(
        server.connect_local, access, directory, keep_bytes=keep_bytes, sinks=sinks
    )
    hosts = HostCheck(
        for_pages(
            application(server.connect_local, access, delivery, metrics, server.readiness), origins
        ),
        own_names(configuration),
    )
    config = uvicorn.Config(
        accounted(_logged(hosts)),
        log_config=None,
        log_level="critical",  # what clients do wrong is in the metrics, what fails in our own log
        access_log=False,
        headers=HEADERS,
        lifespan="off",
        server_header=False,
        http=HttpConnection,
        ws=SocketConnection,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws_max_size=MAX_COMMAND_BYTES,
        timeout_keep_alive=limits.http_idle_s,  # type: ignore[arg-type]  # it says int, and means seconds
        timeout_graceful_shutdown=CLOSE_S,
    )
    listening = _bound(listen.host, configuration.http.port or 0)
    host, port = listening.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    address = f"{scheme}://{bracketed(host)}:{port}"
    door = FrontDoor(server.limiter, server.traffic, server.scheduler, limits)
    front = HttpFront(_Uvicorn(config, listening, door, tls), delivery, address, access, hosts)
    await front.start()
    return front


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidConfiguration(f"http.port: {host}:{port}: {error.strerror or error}") from None
    return listening


def for_pages(app: ASGIApp, origins: Origins) -> ASGIApp:
    """An application that browsers let pages of other origins use (CORS)."""
    if not origins.pattern:
        return app
    return CORSMiddleware(
        app,
        allow_origin_regex=origins.pattern,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Location"],
        allow_private_network=True,
        max_age=PREFLIGHT_S,
    )
