"""Changes by HTTP what an identity advertises and subscribes to.

An advertisement lasts as long as a session of its client (`palio.node.publisher_endpoints`), and a
client of HTTP has none. So the front keeps one for each principal and identity, and an
advertisement in it for a lease, which its client renews by announcing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse, parse_advertisement
from palio.model.parameters import check_given
from palio.protocol.limits import check_seconds
from palio.protocol.messages import Advertise, Cancel, Withdraw
from palio.protocol.names import check_name
from palio.server.http.access import NAME, Access, HttpCaller, body_of, identity_of, read
from palio.server.http.errors import NotFound
from palio.server.http.publishing import HttpPublishers, is_usable
from palio.server.http.subscriptions import check_names, parameters
from palio.server.local_client import Connect, InternalClient

LEASE_S: Final = 3_600.0
"""How long an advertisement lasts unless it has a lease of its own."""

MAX_ADVERTISERS: Final = 1_000
"""Sessions that advertise for clients of HTTP, one for each principal and identity."""


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /advertisements/{id}`."""

    filter: str
    parameters: dict[str, bool | int | float | str | list[Any]] = {}
    lease_s: float = LEASE_S


class _Offer:
    """An advertisement that is kept."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.text = ""
        self.lease_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, text: str, lease_s: float, end: Callable[[], object]) -> None:
        """Renew its lease; `end` is called when that is over."""
        self.stop_timer()
        self.text, self.lease_s = text, lease_s
        self._timer = asyncio.get_running_loop().call_later(lease_s, end)

    def stop_timer(self) -> None:
        """The lease counts no longer."""
        if self._timer is not None:
            self._timer.cancel()


class _Advertiser:
    """A session, and what is advertised in it by the name that its client gave."""

    def __init__(self, opening: asyncio.Task[InternalClient]) -> None:
        self.opening = opening
        self.offers: dict[str, _Offer] = {}
        self.users = 0
        """Requests that are about to advertise in it."""
        self._turn = asyncio.Lock()
        self._keys = count(1)

    @property
    def is_needed(self) -> bool:
        """Return whether somebody advertises in it, or is about to."""
        if self.opening.done() and not is_usable(self.opening):
            return False
        return bool(self.offers or self.users)

    async def put(self, id: str, text: str, lease_s: float) -> tuple[_Offer, bool]:
        """Announce something under a name, or replace what is; return it, and whether it is new.
        What was before stays if that is refused.
        """
        client = await asyncio.shield(self.opening)
        async with self._turn:
            offer = self.offers.get(id)
            is_new = offer is None or not client.table.advertises(offer.key)
            if offer is None:
                offer = self.offers[id] = _Offer(next(self._keys))
            try:
                await client.ask(Advertise(0, offer.key, text))
            except BaseException:
                if is_new:
                    _ = self.end(id, client)  # nobody waits for that
                raise
            offer.keep(text, lease_s, partial(self.end, id, client))
        return offer, is_new

    def end(self, id: str, client: InternalClient) -> asyncio.Future[Any]:
        """An advertisement is over: by word, or as its lease is."""
        offer = self.offers.pop(id)
        offer.stop_timer()
        return client.unadvertise(offer.key)


class HttpAdvertisers:
    """The advertisers' side of the front."""

    def __init__(self, connect: Connect, access: Access, publishers: HttpPublishers) -> None:
        self._connect = connect
        self._access = access
        self._publishers = publishers
        self._advertisers: dict[tuple[str, str], _Advertiser] = {}

    async def put(self, request: Request) -> Response:
        """`PUT /advertisements/{id}?as=NAME`: announce, or announce again and renew the lease."""
        caller, identity = self._who(request)
        id = check_name(request.path_params["id"], "an advertisement")
        asked = read(await body_of(request), _Asked)
        text = str(parse_advertisement(asked.filter, asked.parameters))
        lease_s = check_seconds(asked.lease_s, "lease_s") or LEASE_S
        advertiser = self._advertiser(caller, identity)
        advertiser.users += 1
        try:
            offer, is_new = await advertiser.put(id, text, lease_s)
        finally:
            advertiser.users -= 1
        return JSONResponse(_shown(id, offer), 201 if is_new else 200)

    async def list(self, request: Request) -> Response:
        """`GET /advertisements?as=NAME`: those that the caller announced by HTTP."""
        advertiser = self._advertisers.get(_key(*self._who(request)))
        if advertiser is None or not advertiser.is_needed:
            return JSONResponse([])
        client = await asyncio.shield(advertiser.opening)
        offers = advertiser.offers.items()
        return JSONResponse(
            [_shown(id, offer) for id, offer in offers if client.table.advertises(offer.key)]
        )

    async def delete(self, request: Request) -> Response:
        """`DELETE /advertisements/{id}?as=NAME`: announce it no longer."""
        advertiser = self._advertisers.get(_key(*self._who(request)))
        id = request.path_params["id"]
        if advertiser is None or id not in advertiser.offers or not advertiser.is_needed:
            raise NotFound(f"nothing is advertised as {id!r:.200}")
        client = await asyncio.shield(advertiser.opening)
        if id in advertiser.offers:
            await advertiser.end(id, client)
        return Response(status_code=204)

    async def withdraw(self, request: Request) -> Response:
        """`DELETE /advertisements?as=NAME&filter=...`: withdraw all of the identity's that a filter
        covers, however it was announced.
        """
        caller, identity = self._who(request, "filter", "param.")
        parsed = parse_advertisement(_filter(request), parameters(request.query_params))
        client = await self._publishers.client(caller, identity)
        await client.ask(Withdraw(0, str(parsed)))
        return Response(status_code=204)

    async def cancel(self, request: Request) -> Response:
        """`DELETE /subscriptions?as=NAME&filter=...`: end all subscriptions of the identity
        that a filter covers, of clients of any kind that act under it.
        """
        caller, identity = self._who(request, "filter", "param.", "forget")
        forget = request.query_params.get("forget", "false")
        if forget not in ("true", "false"):
            raise InvalidInput(f"forget is true or false, not {forget!r:.40}")
        parsed, values = parse(_filter(request)), parameters(request.query_params)
        check_names(parsed, values)
        check_given(parsed, values)
        client = await self._publishers.client(caller, identity)
        ended = await client.ask(Cancel(0, str(parsed.bind(values)), forget == "true"))
        return JSONResponse({"cancelled": ended})

    def _who(self, request: Request, *names: str) -> tuple[HttpCaller, str]:
        caller = self._access.caller(request, "as", *names)
        identity = identity_of(request, caller)
        if not identity:
            raise InvalidInput("missing identity: give ?as=NAME")
        return caller, identity

    def _advertiser(self, caller: HttpCaller, identity: str) -> _Advertiser:
        """The session of a principal and identity, opened when it is first needed or was closed."""
        key = _key(caller, identity)
        advertiser = self._advertisers.get(key)
        if advertiser is not None and advertiser.is_needed:
            return advertiser
        if len(self._advertisers) >= MAX_ADVERTISERS:
            self._forget_idle()
        if advertiser is None and len(self._advertisers) >= MAX_ADVERTISERS:
            raise LimitExceeded(
                "the number of principals and identities that advertise by HTTP",
                limit="MAX_ADVERTISERS",
                maximum=MAX_ADVERTISERS,
            )
        opening = asyncio.create_task(
            InternalClient.open(self._connect, name=NAME, identity=identity, token=caller.token),
            name="http advertiser",
        )
        made = self._advertisers[key] = _Advertiser(opening)
        return made

    def _forget_idle(self) -> None:
        for key, advertiser in list(self._advertisers.items()):
            if not advertiser.is_needed:
                del self._advertisers[key]


def _filter(request: Request) -> str:
    text = request.query_params.get("filter", "")
    if not text:
        raise InvalidInput(
            "missing filter: give ?filter=..., and &param.NAME=VALUE for each parameter"
        )
    return text


def _key(caller: HttpCaller, identity: str) -> tuple[str, str]:
    return caller.name, identity


def _shown(id: str, offer: _Offer) -> dict[str, Any]:
    return {"id": id, "filter": offer.text, "lease_s": offer.lease_s}
