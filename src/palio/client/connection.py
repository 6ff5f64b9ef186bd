"""`connect` and `Client`: the verbs of the bus over a connection to a broker.

```
  publish -> Outbox -------.                        .-> Receipts -> Acknowledge
                            ClientCore -> broker -> Deliver -> engine -> queues -> consumer
  subscribe, update, ... ->'  (resumes, renews)     '-> Gaps -> on_gap
```

The broker sends each batch once per session. The client's own engine, which always has the newest
parameters, finds its subscriptions. For a single event the broker lists them, and the client checks
only those that changed since. An event that no longer matches is dropped (strictness: parametric
3.3), and counted as spurious.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import inf
from types import EllipsisType
from typing import Any, Final, Literal, Self, Unpack, overload

from palio.client.admin import Admin
from palio.client.base_bus import AnySubscriber, BaseBus
from palio.client.broker_upstream import BrokerUpstream, Lifetimes
from palio.client.deadlines import TIMEOUT_S, check_timeout
from palio.client.delivery_queue import DEFAULT_QUEUE_SIZE, now
from palio.client.events import Event, Gap, PublishReceipt
from palio.client.latest import begin_with_latest
from palio.client.outgoing import Publishable, marks_of
from palio.client.registration import SubscriptionOptions
from palio.client.reordering import check_reorder
from palio.client.roaming import ConnectionState
from palio.client.subscribing import (
    ClientOptions,
    as_filter,
    check_durable,
    check_match_at,
    check_offer_timeout,
    check_stored_at,
    given_params,
)
from palio.client.subscription import SETTLE_TIMEOUT_S, Subscription
from palio.client.transport import TLS, Dial, tcp
from palio.client.typed import Typed, check_as
from palio.engine import is_installed
from palio.errors import GroupElsewhere, InvalidInput
from palio.language.parsing import read_advertisement
from palio.matching.protocol import Matcher
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol.addresses import parse_address
from palio.protocol.limits import PROTOCOL_VERSION, check_seconds
from palio.protocol.messages import (
    Hello,
    StoredAt,
    Withdraw,
)
from palio.protocol.names import check_name
from palio.tracing import Tracing

_UNRECEIPTED: Final = (
    "the events were not acknowledged; they may still be published, as they are sent until the "
    "session is over"
)

CANCELLED_S: Final = 0.2
"""How long the last words of a client may take that was cancelled."""

FLUSH_S: Final = 10.0
"""How long `close` waits for the broker's answers to what was published."""


def connect(  # noqa: PLR0913  # each is a setting that applications give by name
    url: str | Sequence[str],
    *,
    name: str = "",
    identity: str = "",
    token: str = "",
    tls: TLS = None,
    matcher: Matcher | None = None,
    dial: Dial | None = None,
    seed: int | None = None,
    timeout: float | None = TIMEOUT_S,
    reorder_timeout: float | None = None,
    retry: bool = False,
    tracing: bool = False,
) -> Client:
    """A connection to a broker: `async with connect(...) as client`, or `await connect(...)`.

    Of several URLs the first that answers is taken, and the others in turn when it no longer does.
    `name` owns durable subscriptions, unless a token or certificate names a principal; without one
    it is that of `identity`, or random. All clients under one `identity` at a broker share their
    advertisements, and each may cancel subscriptions of the others; with a token it is the
    principal's own name. `timeout` is the time in seconds after which a request without an answer
    raises `Unreachable` (None: never). `reorder_timeout` is the time in seconds for which patterns
    wait for reordered events (0: they use the order of arrival; None: it is measured). With `retry`
    the first connect waits until a broker answers, for a service that may start first. `tracing`
    makes OpenTelemetry spans of publications and handlers, and gives events the attribute
    `traceparent`. `dial` opens
    connections in some way of its own, and `seed` settles the pauses between attempts; both are for
    tests.
    """
    urls = [url] if isinstance(url, str) else list(url)
    if not urls:
        raise InvalidInput("connect takes the URL of a broker, such as palio://localhost:7400")
    if dial is None:
        for address in urls:
            parse_address(address)
        dial = tcp(tls)
    if identity:
        check_name(identity, "an identity")
    name = name or identity
    hello = Hello(
        "client",
        check_name(name, "a client") if name else f"client-{secrets.token_hex(4)}",
        PROTOCOL_VERSION,
        token=token,
        incarnation=secrets.token_hex(4),
        identity=identity,
        plain=not is_installed(),
    )
    upstream = BrokerUpstream(
        urls,
        hello,
        dial,
        matcher=matcher,
        draw=random.Random(seed),
        timeout=check_timeout(timeout),
    )
    wait = None if reorder_timeout is None else check_reorder(reorder_timeout)
    traced = Tracing() if tracing else None
    return Client(upstream, reorder_timeout=wait, retry=retry, tracing=traced)


class AdvertisementHandle:
    """An `advertisement` in force, as `advertise` returns it; `withdraw` ends it."""

    def __init__(self, upstream: BrokerUpstream, number: int, advertisement: Advertisement) -> None:
        self.advertisement = advertisement
        self._upstream = upstream
        self._number = number

    async def withdraw(self) -> None:
        """Announce no longer that such events will be published."""
        await self._upstream.unadvertise(self._number)

    @property
    def is_in_force(self) -> bool:
        """False once it was withdrawn, here or by another client of the same identity."""
        return self._upstream.core.table.advertises(self._number)

    def __repr__(self) -> str:
        return f"<AdvertisementHandle of {self.advertisement}>"


class Client(BaseBus[BrokerUpstream]):
    """The verbs of the bus over a connection; made by `connect`. `admin` has those of operators."""

    def __init__(
        self,
        upstream: BrokerUpstream,
        *,
        reorder_timeout: float | None,
        retry: bool,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__(
            upstream.dispatcher, upstream, reorder_timeout=reorder_timeout, tracing=tracing
        )
        self.admin = Admin(upstream, self._check_open)
        self._outbox = upstream.outbox
        self._lifetimes = Lifetimes(upstream)
        self._retry_s = inf if retry else 0.0

    # --- the connection ---

    @property
    def name(self) -> str:
        """The name of this client."""
        return self._upstream.name

    @property
    def publisher(self) -> str:
        """The name that its events bear; empty before it is connected."""
        return self._upstream.session.publisher

    @property
    def broker(self) -> str:
        """The name of the broker at the other end; empty before it is connected."""
        return self._upstream.session.broker

    @property
    def is_connected(self) -> bool:
        """True while there is a connection; one that broke is dialled again by itself."""
        return self._upstream.session.is_connected

    @property
    def stale(self) -> int:
        """Events that came and were for no subscription any longer."""
        return self._dispatcher.spurious

    def states(self) -> AsyncGenerator[ConnectionState, None]:
        """The state of the connection now, and from then on each state after it, for example for a
        health check: `async for state in client.states()`. The last is `closed`.
        """
        return self._upstream.states()

    async def open(self) -> None:
        """Connect; `Unreachable` if no broker answers, unless it retries. `async with` does it."""
        self._check_usable()
        await self._upstream.open(retry_s=self._retry_s)

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self.open().__await__()
        return self

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except asyncio.CancelledError:
            await self._upstream.close(CANCELLED_S)  # it may stand by now, and nobody has it
            raise
        return self

    async def suspend(self) -> None:
        """Disconnect. The broker keeps the session and its backlog for the grace period.

        Published events are answered first; later ones wait for `resume`.
        """
        self._check_open()
        await self._upstream.suspend()

    async def resume(self, *urls: str) -> None:
        """Reconnect to the broker, or to another one.

        If the session has expired, all is subscribed again, and every subscription gets a gap, as
        it may have missed events. Durable subscriptions miss no durable event.
        """
        self._check_usable()
        await self._upstream.resume(urls)

    async def move(self, *urls: str) -> None:
        """Move to another broker without missing an event.

        All is subscribed there and settled before the old broker is left; events that both deliver
        are delivered once. The backlog of durable subscriptions moves along. If the new broker is
        unreachable, nothing changes.
        """
        self._check_open()
        await self._upstream.move(urls)

    async def close(self) -> None:
        """Wait for the broker's answers to published events, then disconnect.

        Consumers receive their backlog, then end.
        """
        if not self._closed and self.is_connected:
            try:
                async with asyncio.timeout(FLUSH_S):
                    await self._outbox.idle()
            except TimeoutError:
                pass  # callers that wait get the error when the session ends
        try:
            await super().close()
        finally:
            await self._upstream.close()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """`close`; but a task that is cancelled in the block does not wait for the broker."""
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            await self._upstream.close(CANCELLED_S)
        await self.close()

    async def settled(self, timeout: float = SETTLE_TIMEOUT_S) -> None:  # noqa: ASYNC109  # brokers are named at its end
        """Return when all that was subscribed and advertised here is in force everywhere.

        `Unsettled` names the brokers that could not be reached within `timeout` seconds.
        """
        self._check_open()
        await self._upstream.settled(check_seconds(timeout, "timeout"))

    # --- publishing ---

    async def publish(
        self,
        events: Publishable,
        *,
        durable: StoredAt = False,
        ttl: float | None = None,
        dedup_id: str | None = None,
        timeout: float | EllipsisType | None = ...,  # noqa: ASYNC109  # a caller's own must not cancel it
    ) -> PublishReceipt:
        """Publish one event, several, or a record batch; return once the broker holds them.

        In memory, or with `durable` on its disk; with `durable="home"` on the disks of all brokers
        where a durable subscription wants the events, too, so that the loss of one disk loses none
        of them: a broker of these that is away keeps the call waiting. Calls that run at the same
        time leave together; a call waits where too much is on its way already. After `ttl` seconds
        the events are not delivered any more, from any queue. An event whose `dedup_id` this
        client's name or principal has given before, among the last 100,000 of all at this broker,
        is accepted and not published again. After `timeout`
        seconds (those of `connect`; None waits for ever) `Unreachable` is raised. Nobody knows then
        whether the events are published: they are still sent when the broker is back.
        """
        seconds = self._upstream.deadlines.seconds if isinstance(timeout, EllipsisType) else timeout
        return await self.publish_nowait(
            events, durable=durable, ttl=ttl, dedup_id=dedup_id, timeout=seconds
        )

    def publish_nowait(
        self,
        events: Publishable,
        *,
        durable: StoredAt = False,
        ttl: float | None = None,
        dedup_id: str | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[PublishReceipt]:
        """`publish` without waiting: the receipt comes later. Events leave in the order of calls.

        `LimitExceeded` where a million events wait to leave. The receipt has no time limit but what
        is given here.
        """
        self._check_open()
        check_stored_at(durable)
        marks = marks_of(ttl, dedup_id, now())
        if self._tracing is None:
            receipt = self._outbox.offer(events, durable=durable, marks=marks)
        else:
            offer = partial(self._outbox.offer, events, durable=durable)
            receipt = self._tracing.publish(
                events, lambda context: offer(marks={**marks, **context})
            )
        if timeout is not None:
            self._upstream.deadlines.watch(receipt, _UNRECEIPTED, check_timeout(timeout))
        return receipt

    async def advertise(
        self, text: str | Advertisement, params: Mapping[str, Any] | None = None
    ) -> AdvertisementHandle:
        """Announce what will be published, so that brokers need not ask everybody.

        Takes the text: what it announces is read from it as written, and a `Filter` no longer has
        it (docs/reference/model.md).
        """
        self._check_open()
        advertisement = read_advertisement(text, given_params(params))
        return AdvertisementHandle(
            self._upstream, await self._upstream.advertise(advertisement), advertisement
        )

    async def unadvertise(
        self,
        what: AdvertisementHandle | str | Advertisement,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Withdraw an announcement, or all that a text covers: those of this client, and under an
        identity those of all who act under it at this broker.
        """
        if isinstance(what, AdvertisementHandle):
            await what.withdraw()
            return
        self._check_open()
        covering = read_advertisement(what, given_params(params))
        await self._upstream.ask(Withdraw(0, str(covering)))

    # --- subscribing ---

    @overload
    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        as_: type[Typed],
        **options: Unpack[ClientOptions],
    ) -> Subscription[Typed]: ...

    @overload
    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> Subscription[Event]: ...

    async def subscribe(  # noqa: PLR0913  # each is an option that applications give by name
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        queue_size: int = DEFAULT_QUEUE_SIZE,
        max_events: int | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        durable_name: str = "",
        retention: float = 0.0,
        ack: Literal["auto", "manual"] = "auto",
        ack_timeout: float = 0.0,
        max_attempts: int = 0,
        group: bool = False,
        order_by: str = "",
        since: datetime | None = None,
        latest_by: str = "",
        reorder_timeout: float | None = None,
        offer_timeout: float | None = None,
        replace_covered: bool = False,
        match_at: Literal["client", "brokers"] = "client",
        as_: type | None = None,
    ) -> Subscription[Any]:
        """Subscribe to the events that match from now on; return when that is in force at this
        broker.

        `params` maps the filter's parameters to their values. `queue_size` bounds the events that
        wait for the consumer; a slow one loses the oldest, which `on_gap` reports. After
        `max_events` events that matched when they came it ends by itself.

        `durable_name` names a subscription that outlives this session: its broker keeps events for
        it until they are acknowledged, for `retention` seconds at least (0: as its broker is set).
        A later subscription under the same name resumes it; of a pattern also the sequences that
        have begun. With `ack="manual"` the consumer acknowledges events (`event.ack()`). An event
        that it rejects (`event.nack()`) or does not acknowledge within `ack_timeout` seconds (0:
        however long it takes) is delivered again. After `max_attempts` (0: any number) it becomes
        a dead letter, a durable event for subscriptions that name `dead_letter` in their filter.
        With `group` several clients of one name share it, and each event goes to one of them; if
        the group is at another broker, this client moves there. `order_by` names an attribute by
        which a group keeps an order: an event waits until earlier ones of the same value are
        acknowledged or dead letters.

        `since` is a time: a new durable subscription begins with the durable events published from
        then on that its broker has in its history (`limits.history_s`) and that match; those that
        follow come behind. `on_gap` reports a history that begins later. A subscription that
        exists continues where it was.

        `latest_by` is an attribute: a subscription that is not durable first receives the last
        event for each value of it, if that matches, of those that its broker keeps
        (`broker.latest_by`). `on_gap` reports that the broker had no room for some.

        `reorder_timeout` is how many seconds a pattern waits for events that were overtaken on
        their way, instead of the time that `connect` sets or the client measures. Events that come
        later are counted in `late` and reported as `LateGap`.

        `offer_timeout` is how many seconds it waits for an advertisement of such events: if none
        overlaps it by then, it ends with `SubscriptionEnded`. The brokers have to route by
        advertisements (else `NotSupported`).

        `as_` is a type whose objects are received instead of events: a dataclass, a struct of
        msgspec, a model of pydantic, a `TypedDict`. An event that does not fit is left out; it
        counts as `invalid`.

        `replace_covered` ends all others that it covers once it is in force, as `cancel` does.
        With `match_at="brokers"` brokers assemble a pattern where its events meet, and only whole
        sequences come here; the brokers have to route by advertisements.
        """
        given, parsed = given_params(params), as_filter(filter)
        wait_s = (
            self._reorder_timeout if reorder_timeout is None else check_reorder(reorder_timeout)
        )
        if reorder_timeout is not None and not isinstance(parsed, Pattern):
            raise InvalidInput(
                f"reorder_timeout= is for patterns, such as a THEN b; {str(parsed)!r:.80} is one "
                "filter"
            )
        by_brokers = check_match_at(match_at, parsed, reorder_timeout, durable_name)
        if ack not in ("auto", "manual"):
            raise InvalidInput(f"ack is 'auto' or 'manual', not {ack!r}")
        policy = check_durable(
            *(durable_name, retention, ack_timeout, max_attempts, group, order_by, since)
        )
        if durable_name != "":
            self._check_unused(durable_name)
            if max_events is not None:
                raise InvalidInput("max_events= ends with a session, which a durable one outlives")
        elif ack == "manual":
            raise InvalidInput("ack= is for durable subscriptions; give a durable_name=")
        check_offer_timeout(offer_timeout, parsed, durable_name)
        if latest_by and (durable_name or not isinstance(parsed, Filter)):
            raise InvalidInput("latest_by= is for a filter that is not durable; since= is for that")
        options = SubscriptionOptions(
            *(on_gap, wait_s, policy, ack == "auto", by_brokers, max_events),
            read=check_as(as_, is_pattern=isinstance(parsed, Pattern)),
        )
        text = filter if isinstance(filter, str) else ""
        register = partial(self._register, parsed, given, queue_size, options, text)
        registration, reply = register()
        try:
            subscription = await self._in_force(
                registration, reply, replace_covered=replace_covered
            )
        except GroupElsewhere as error:
            if not error.url:
                raise
            await self.move(error.url)
            registration, reply = register()
            subscription = await self._in_force(
                registration, reply, replace_covered=replace_covered
            )
        if latest_by:
            await begin_with_latest(self._upstream, registration, latest_by)
        if offer_timeout is not None:
            await self._lifetimes.begin(registration, offer_timeout)
        return subscription

    async def attach(self, subscriber: AnySubscriber) -> AnySubscriber:
        """Subscribe every `@on` handler of a subscriber, and run it for each event received. If the
        group of a durable one is at another broker, this client moves there.
        """
        try:
            return await super().attach(subscriber)
        except GroupElsewhere as error:
            if not error.url:
                raise
            await self.move(error.url)
            return await super().attach(subscriber)

    def _check_unused(self, durable_name: str) -> None:
        if any(registration.durable == durable_name for registration in self._dispatcher):
            raise InvalidInput(
                f"this client has subscribed to the durable name {durable_name!r} already; "
                "unsubscribe it first, or change it with update and replace"
            )
