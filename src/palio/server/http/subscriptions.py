"""Subscriptions as CloudEvents describes them: what a client asks for, read and kept.

Filters may be of any CloudEvents dialect, or of Palio's own: `{"palio": "price < 5"}`, or with
parameters `{"palio": {"filter": "price < :limit", "parameters": {"limit": 10}}}`. All must match.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import httpx
import msgspec

from palio.errors import (
    InvalidBinding,
    InvalidFilter,
    InvalidInput,
    JournalDamaged,
    LimitExceeded,
    NotStored,
    ParseError,
)
from palio.language import cloudevents
from palio.language.documents import error_at, quoted
from palio.language.parsing import parse_filter
from palio.language.webhooks import secret_of
from palio.model.filters import TRUE, Conjunction, Constraint, Filter
from palio.model.parameters import check_given
from palio.model.patterns import Pattern
from palio.model.printing import shown_without
from palio.node.authority import ANYONE, Principal
from palio.node.effects import Answered
from palio.node.operations import DropRecord, PutRecord, Record
from palio.protocol.limits import check_seconds
from palio.server.limits import MAX_SINK_CHARS, MAX_SINK_HEADERS, MAX_SINK_HEADERS_BYTES

MAX_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions that the HTTP front keeps: a webhook's task and session are tens of kilobytes."""

MAX_SUBSCRIPTIONS_OF_ONE: Final = MAX_SUBSCRIPTIONS // 10
"""Those of one owner that shows who it is: it takes ten to leave no room for others."""

PREFIX: Final = "http subscription "
"""Begins the keys of their records."""

Keep: TypeAlias = Callable[[Record, Answered], None]
"""Writes a record (`palio.node.host.Host.keep`)."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that Palio adds to CloudEvents' subscriptions."""

    durable: bool = False
    """Events wait for the subscriber, on disk, until it has acknowledged them."""
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """The time of the first event, of those that the broker has in its history."""
    lease_s: float = 0.0
    """Seconds that events wait for their subscriber; 0 for as long as the broker allows."""
    acknowledge: Literal["sent", "explicit"] = "sent"
    """When an event counts as taken: when it is sent, or when its cursor is acknowledged."""
    attempts: int = 10
    """The calls of a webhook for one event before it goes to the dead letters."""
    batch: int = 1
    """Events in one call of a webhook, at most."""
    deadletter: str = ""
    """The address for events that the sink did not take."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that makes a subscription or changes one."""

    id: str = ""
    source: str = ""
    types: list[str] = []
    filters: list[dict[str, Any]] = []
    config: Config = Config()
    sink: str = ""
    protocol: str = "HTTP"
    protocolsettings: dict[str, Any] = {}

    def __repr__(self) -> str:
        return shown_without(self, "protocolsettings")


class HttpSubscription(msgspec.Struct, frozen=True):
    """A subscription, and whose it is."""

    id: str
    owner: str
    request: Request
    filter: str
    """All its filters as one, in Palio's language."""
    values: dict[str, Any]
    token: str = ""
    """With which it is delivered when its owner is not there."""

    def __repr__(self) -> str:
        return shown_without(self, "token")

    @classmethod
    def of(cls, id: str, owner: str, request: Request, token: str) -> HttpSubscription:
        """Check a request; `InvalidInput` names what is impossible."""
        _check(request)
        filter, values = _meaning(request)
        return cls(id, owner, request, str(filter), values, token)

    @property
    def durable(self) -> str:
        """The node's name for it, if it is durable."""
        return f"http {self.id}" if self.request.config.durable else ""

    def shown(self) -> dict[str, Any]:
        """As a client sees it."""
        fields: dict[str, Any] = msgspec.to_builtins(self.request)
        given = {name: value for name, value in fields.items() if value not in ("", [], {})}
        return given | {"id": self.id, "palio": {"filter": self.filter, "parameters": self.values}}


def _check(request: Request) -> None:
    config = request.config
    if request.protocol != "HTTP":
        raise InvalidInput(f"at $.protocol: {request.protocol!r:.40} is not supported; HTTP is")
    if set(request.protocolsettings) - {"headers", "secret"}:
        raise InvalidInput("at $.protocolsettings: there are headers and secret, and nothing else")
    try:
        sink_secret(request)
    except InvalidInput as error:
        raise InvalidInput(f"at $.protocolsettings.secret: {error}") from None
    _check_headers(request)
    for name, url in (("sink", request.sink), ("config.deadletter", config.deadletter)):
        if url and not _is_address(url):
            raise InvalidInput(f"at $.{name}: {url!r:.80} is no address of HTTP")
    for name, number, most in (("attempts", config.attempts, 100), ("batch", config.batch, 1_000)):
        if not 1 <= number <= most:
            raise InvalidInput(f"at $.config.{name}: a number from 1 to {most}, not {number}")
    check_seconds(config.lease_s, "$.config.lease_s")
    if config.since is not None and not config.durable:
        raise InvalidInput("at $.config.since: it is for durable subscriptions; set durable")


def _is_address(url: str) -> bool:
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    is_whole = read.scheme in ("http", "https") and read.host and (read.port or 1) <= MAX_PORT
    return bool(is_whole) and len(url) <= MAX_SINK_CHARS


MAX_PORT: Final = 65_535

_OURS: Final = frozenset(
    {"host", "content-length", "content-type", "content-encoding", "transfer-encoding"}
    | {"connection", "keep-alive", "te", "trailer", "upgrade", "expect", "http2-settings"}
    | {"accept-encoding", "idempotency-key"}
)
"""Headers of the target, the length, the connection and the identity of a call, in lower case:
only the caller can set them."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?")


def sink_secret(request: Request) -> bytes:
    """The secret that signs the calls of a sink; empty if they are not signed."""
    secret = request.protocolsettings.get("secret")
    if secret is None:
        return b""
    return secret_of(secret if isinstance(secret, str) else "")


def _check_headers(request: Request) -> None:
    """Refuse headers that an owner may not add to the calls of a sink."""
    headers = request.protocolsettings.get("headers", {})
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) for value in headers.values()
    ):
        raise InvalidInput("at $.protocolsettings.headers: takes an object of texts")
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > MAX_SINK_HEADERS or size > MAX_SINK_HEADERS_BYTES:
        raise InvalidInput(
            f"at $.protocolsettings.headers: there are at most {MAX_SINK_HEADERS} headers "
            f"(MAX_SINK_HEADERS) of {MAX_SINK_HEADERS_BYTES} bytes in all (MAX_SINK_HEADERS_BYTES)"
        )
    keys: set[str] = set()
    for name, value in headers.items():
        small = name.lower()
        place = f"at $.protocolsettings.headers[{quoted(name):.40}]: "
        if small in _OURS or small.startswith(("proxy-", "webhook-")):
            raise InvalidInput(place + "this header is the broker's to write; leave it out")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidInput(place + "a header is a name and a line of printable ASCII")
        if small in keys:
            raise InvalidInput(place + "this header is given twice")
        keys.add(small)


def _meaning(request: Request) -> tuple[Filter, dict[str, Any]]:
    """Join all filters of a request, and the values of their parameters."""
    values: dict[str, Any] = {}
    parts: list[Filter] = []
    if request.source:
        parts.append(_one("source", "=", request.source))
    if request.types:
        parts.append(_one("type", "IN", request.types))
    foreign: dict[str, Any] = {}
    for place, document in enumerate(request.filters):
        path = f"$.filters[{place}]"
        if len(document) != 1 or not document.keys() <= _DIALECTS:
            listed = ", ".join((*cloudevents.DIALECTS, _PALIO))
            raise error_at(
                path, f"{quoted(document)} is no filter", f"one of {listed} is its only key"
            )
        if _PALIO in document:
            filter, own = _own(document[_PALIO], f"{path}.{_PALIO}")
            parts.append(filter)
            twice = values.keys() & own.keys()
            if twice:
                name = min(twice)
                raise InvalidBinding(f"two filters have the parameter :{name}", name=name)
            values |= own
        else:
            foreign[path] = document
    whole = cloudevents.load_parts(foreign) if foreign else TRUE
    for part in parts:
        whole &= part
    check_given(whole, values)
    return whole, values


_PALIO: Final = "palio"
"""The dialect of our own language; others are CloudEvents'."""

_DIALECTS: Final = {*cloudevents.DIALECTS, _PALIO}


def _one(name: str, op: str, operand: Any) -> Filter:
    return Filter.of([Conjunction.of([Constraint.of(name, op, operand)])])


def _own(body: Any, path: str) -> tuple[Filter, dict[str, Any]]:
    if isinstance(body, str):
        return _read(body, path), {}
    if not isinstance(body, Mapping) or not isinstance(body.get("filter"), str):
        raise error_at(path, "takes a filter's text, or filter and parameters")
    if set(body) - {"filter", "parameters"}:
        raise error_at(path, "there are filter and parameters, and nothing else")
    filter = _read(body["filter"], f"{path}.filter")
    given = body.get("parameters", {})
    if not isinstance(given, Mapping):
        raise error_at(f"{path}.parameters", "takes an object of names and values")
    check_names(filter, given, f"at {path}.parameters: ")
    return filter, dict(given)


def _read(text: str, path: str) -> Filter:
    """Parse a filter; errors have the place of its text in the document."""
    try:
        return parse_filter(text)
    except ParseError as error:
        raise ParseError(
            f"at {path}: {error.problem}",
            text=error.text,
            line=error.line,
            column=error.column,
            offending=error.offending,
            expected=error.expected,
            hint=error.hint,
        ) from None
    except InvalidFilter as error:
        raise error_at(path, str(error)) from None


def check_names(filter: Filter | Pattern, values: Mapping[str, Any], place: str = "") -> None:
    """Refuse values of parameters that a filter does not have."""
    for name in values:
        if name not in filter.variables:
            raise InvalidBinding(f"{place}the filter has no parameter :{name:.80}", name=name)


class Directory:
    """The subscriptions of the front, each a record of the broker's journal.

    Those of before a restart are read: webhooks are called again.
    """

    def __init__(self, keep: Keep, records: Mapping[str, bytes]) -> None:
        self._keep = keep
        self._count = 0
        self._owned: dict[str, dict[str, HttpSubscription]] = {}
        """By owner and identity. One that is being written has its place already."""
        for key, value in records.items():
            if key.startswith(PREFIX):
                try:
                    self._set(msgspec.json.decode(value, type=HttpSubscription))
                except msgspec.MsgspecError as error:
                    raise JournalDamaged(
                        f"in the journal's records, {key!r} is no subscription: {error}"
                    ) from None

    def find(self, id: str, owner: str) -> HttpSubscription | None:
        """A subscription of an owner; others' are as if they did not exist."""
        return self._owned.get(owner, {}).get(id)

    def of(self, owner: str) -> list[HttpSubscription]:
        """List the subscriptions of an owner, oldest first."""
        return list(self._owned.get(owner, {}).values())

    def with_sinks(self) -> list[HttpSubscription]:
        """List the subscriptions that are delivered by webhooks."""
        return [
            subscription
            for own in self._owned.values()
            for subscription in own.values()
            if subscription.request.sink
        ]

    def check_room(self, owner: Principal) -> None:
        """Refuse a new one where there is no room, or its owner has as many as it may."""
        mine = len(self._owned.get(owner.name, ()))
        share = MAX_SUBSCRIPTIONS if owner.name == ANYONE else MAX_SUBSCRIPTIONS_OF_ONE
        for count, limit, most in (
            (self._count, "MAX_SUBSCRIPTIONS", MAX_SUBSCRIPTIONS),
            (mine, "MAX_SUBSCRIPTIONS_OF_ONE", share),
            (mine, "limits.subscriptions", owner.limits.subscriptions or share),
        ):
            if count >= most:
                quantity = "the number of subscriptions by HTTP"
                raise LimitExceeded(quantity, limit=limit, maximum=most, remedy="delete one")

    async def put(self, subscription: HttpSubscription) -> None:
        """Keep a new one, or another one of the same identity; `NotStored` if that fails, and all
        is as it was.
        """
        is_new = self.find(subscription.id, subscription.owner) is None
        if is_new:
            self._set(subscription)

        def written(problem: str | None) -> None:
            if problem is None:
                self._set(subscription)
            elif is_new:
                self._unset(subscription)

        value = msgspec.json.encode(subscription)
        await self._write(PutRecord(PREFIX + subscription.id, value), written)

    async def drop(self, subscription: HttpSubscription) -> None:
        """Forget one; `NotStored` if that fails, and it stays."""

        def written(problem: str | None) -> None:
            if problem is None:
                self._unset(subscription)

        await self._write(DropRecord(PREFIX + subscription.id), written)

    async def _write(self, record: Record, written: Answered) -> None:
        """Wait until it is written, which counts also if nobody waits any longer."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def answered(problem: str | None) -> None:
            written(problem)
            if not answer.done():
                answer.set_result(problem)

        self._keep(record, answered)
        problem = await answer
        if problem is not None:
            raise NotStored(f"the broker could not write to its disk: {problem}")

    def _set(self, subscription: HttpSubscription) -> None:
        own = self._owned.setdefault(subscription.owner, {})
        self._count += subscription.id not in own
        own[subscription.id] = subscription

    def _unset(self, subscription: HttpSubscription) -> None:
        own = self._owned.get(subscription.owner, {})
        self._count -= own.pop(subscription.id, None) is not None
        if not own:
            self._owned.pop(subscription.owner, None)


def parameters(text: Mapping[str, str]) -> dict[str, Any]:
    """Parameters from a query: `param.limit=10` is a number, `param.symbol=IBM` a text, and so is
    `param.limit='10'`, written as in a filter; `param.symbols=["IBM","SAP"]` is a list.
    """
    values: dict[str, Any] = {}
    for key, value in text.items():
        if key.startswith("param."):
            try:
                read = json.loads(value)
            except (ValueError, RecursionError):
                read = value
            if isinstance(read, dict):
                read = value
            elif len(value) > 1 and value[0] == value[-1] == "'":
                read = value[1:-1].replace("''", "'")
            values[key.removeprefix("param.")] = read
    return values
