"""The caller of an HTTP request and its body: tokens and bodies are both bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from palio.errors import Closed, InvalidInput, LimitExceeded, NotAuthenticated, NotPermitted
from palio.language.documents import check_parts, read_json
from palio.model.printing import shown_without
from palio.node.authority import ANYONE, Authority, Principal
from palio.node.effects import Moment
from palio.protocol.names import check_name
from palio.server.connection_limiter import ConnectionSlot
from palio.server.hosts import NO_ORIGINS, Origins

MAX_BODY_BYTES: Final = 4 << 20
"""A request's body: some thousand events of a kilobyte."""

NAME: Final = "http"
"""The front's principal where no caller has to authenticate."""

SLOT: Final = "slot"
"""In the state of a request: the slot of its connection."""

TOKEN: Final = "access_token"
"""The parameter of a query that shows who calls."""

_Kind = TypeVar("_Kind")


class Encoded(InvalidInput):
    """A body that would have to be unpacked before it could be read."""


class HttpCaller(NamedTuple):
    """The principal that makes a request, and its token."""

    principal: Principal
    token: str

    def __repr__(self) -> str:
        return shown_without(self, "token")

    @property
    def name(self) -> str:
        """The owner of these subscriptions and publications."""
        return self.principal.name


class Access:
    """Reads tokens: `Authorization: Bearer ...`, or `access_token` of the query, since a browser's
    EventSource and WebSocket send no headers of their own.
    """

    def __init__(
        self, authority: Authority, moment: Callable[[], Moment], origins: Origins = NO_ORIGINS
    ) -> None:
        self.authority = authority
        self._moment = moment
        self._origins = origins

    def caller(self, connection: HTTPConnection, *names: str) -> HttpCaller:
        """The caller of a request; `NotAuthenticated` if it shows no good token.

        `known` are the parameters of the query that the caller reads; others are refused, since a
        slip would change what is done and nobody would notice. A name that ends with a point
        means all that begin with it.
        """
        _check_query(connection, names)
        token = connection.query_params.get(TOKEN, "")
        given = connection.headers.get("authorization", "")
        if given:
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise NotAuthenticated("the header authorization is `Bearer` and a token")
        principal = self.authority.authenticate(token.strip(), "", self._moment())
        caller = HttpCaller(principal, token.strip())
        if caller.name == ANYONE and not self._origins.allow(connection.headers.get("origin")):
            _check_site(connection)
        slot = _slot(connection.scope)
        if slot is not None:
            slot.shown(caller.principal)
        return caller


def identity_of(request: Request, caller: HttpCaller) -> str:
    """Under whose name a request acts (`as`), refused before there is a session for it."""
    identity = request.query_params.get("as", "")
    if identity:
        check_name(identity, "an identity")
        if caller.name != ANYONE:
            caller.principal.check_identity(identity)
    return identity


def _check_query(connection: HTTPConnection, names: Collection[str]) -> None:
    for name in connection.query_params:
        if name != TOKEN and name not in names and f"{name.partition('.')[0]}." not in names:
            listed = ", ".join(f"{name}NAME" if name.endswith(".") else name for name in names)
            raise InvalidInput(
                f"the query has an unknown parameter {name!r:.40}; "
                + (f"there are {listed}" if listed else "this address takes none")
            )


def _check_site(connection: HTTPConnection) -> None:
    """Refuse a page of another site where nobody shows who he is.

    Browsers let any page send a request to a broker on the reader's own machine, only the answer is
    kept from it, and connect to any WebSocket. They name the page's site in `Origin`, but where it
    links or shows a picture in `Sec-Fetch-Site` alone. Another port is another site here.
    """
    headers = connection.headers
    scheme = connection.scope.get("scheme", "http").replace("ws", "http")
    own = f"{scheme}://{headers.get('host')}"
    origin, site = headers.get("origin", own), headers.get("sec-fetch-site", "none")
    if origin != own or site not in ("same-origin", "none"):
        raise NotPermitted(
            "a page of another site may do nothing at a broker that asks for no token; add its "
            f"origin to http.allowed_origins: this is {own!r:.100}, and the page is of "
            f"{origin!r:.100} ({site!r:.20})"
        )


def accounted(app: ASGIApp) -> ASGIApp:
    """An application whose requests give back the room of their bodies when they end."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            slot = _slot(scope)
            if slot is not None:
                slot.release()

    return run


async def body_of(request: Request) -> bytes:
    """A request's body, read no further than it may be long, once there is room for it."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise Encoded(f"a body of content-encoding {coding!r:.40} is not read; send it plain")
    length = request.headers.get("content-length", "")
    unknown = MAX_BODY_BYTES if "transfer-encoding" in request.headers else 0
    size = int(length) if length.isdigit() else unknown
    if size > MAX_BODY_BYTES:
        raise _too_long(size)
    slot = _slot(request.scope)
    if slot is not None:
        room = asyncio.Event()
        if not slot.claim(size, room.set):
            await room.wait()
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                raise _too_long(len(body))
    except ClientDisconnect:
        raise Closed("the client left before its request was whole") from None
    if slot is not None:
        slot.whole()
    return bytes(body)


def _slot(scope: Scope) -> ConnectionSlot | None:
    """The slot of a request's connection; tests have none."""
    slot: ConnectionSlot | None = scope.get("state", {}).get(SLOT)
    return slot


def _too_long(size: int) -> LimitExceeded:
    return LimitExceeded(
        "a request's body in bytes", limit="MAX_BODY_BYTES", maximum=MAX_BODY_BYTES, actual=size
    )


def json_of(body: bytes) -> Any:
    """A body that is JSON."""
    try:
        return read_json(body)
    except LimitExceeded:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None


def read(body: bytes, kind: type[_Kind]) -> _Kind:
    """Decode a body as what it should be; the error says where it is not."""
    check_parts(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = str(error)
        if problem.startswith("Object contains unknown field") and " - at " not in problem:
            fields = msgspec.structs.fields(cast(Any, kind))
            problem += f"; there are {', '.join(field.encode_name for field in fields)}"
        raise InvalidInput(f"the body is not as it should be: {problem}") from None
