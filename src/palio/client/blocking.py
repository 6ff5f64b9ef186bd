"""The synchronous facade: the same verbs without `await`, for scripts, threads and notebooks.

A `SyncBus` runs an ordinary `Bus` on an event loop in a thread of its own, and a `SyncClient` a
`Client`. Every call is handed over and waited for, so any number of threads may use one of them.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from palio.client.admin import Admin
from palio.client.base_bus import BaseBus
from palio.client.bus import Bus
from palio.client.connection import AdvertisementHandle, Client, connect
from palio.client.events import Event
from palio.client.roaming import ConnectionState
from palio.client.subscriber import Subscriber
from palio.client.subscribing import BusOptions, ClientOptions
from palio.client.subscription import Received, Subscription, SubscriptionView, within
from palio.client.typed import Typed
from palio.engine import pa
from palio.errors import Closed, PalioError
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Pattern

Given = ParamSpec("Given")
Result = TypeVar("Result")
AnySubscriber = TypeVar("AnySubscriber", bound=Subscriber)


class Portal:
    """An event loop in a thread, and the way to it.

    Where there is nothing to hand a call over to, it is done on the spot: on the loop's own thread,
    which is where handlers run, and after the loop is gone, when all that is left is to take what
    still waits.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._lock = threading.RLock()
        self._is_open = True
        self._calls: set[asyncio.Task[Any]] = set()
        self._thread.start()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._is_open and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            _warn(f"the thread of a {self._name} was never closed", ResourceWarning, source=self)

    @property
    def is_open(self) -> bool:
        """True until it is closed."""
        return self._is_open

    @property
    def is_here(self) -> bool:
        """True on the loop's own thread."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a coroutine there and wait for it; `TimeoutError` after so many seconds."""
        if self.is_here:
            return _at_once(work)
        if self._is_open and not self._thread.is_alive():
            work.close()
            raise PalioError(
                "its thread is not in this process, which was forked from another one; "
                "make a new one here"
            )
        with self._lock:
            if self._is_open:
                future = asyncio.run_coroutine_threadsafe(
                    self._watched(work, seconds=timeout), self._loop
                )
            else:
                self._thread.join()
                return _at_once(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _watched(self, work: Coroutine[Any, Any, Result], *, seconds: float | None) -> Result:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            # It ends here and not in the caller's thread, where a result could arrive too late.
            return await within(seconds, work)
        finally:
            self._calls.discard(task)

    def close(self) -> None:
        """Let the calls that are under way end, then stop the loop and its thread."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    async def _wind_up(self) -> None:
        if self._calls:
            await asyncio.wait(self._calls)
        await _end_all()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then end what is left on it."""
    loop.run_forever()
    loop.run_until_complete(_end_all())
    loop.close()


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end here. It may give way to others, but not wait for them."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise PalioError(
        "a handler on the bus's own thread would wait here for what only that thread can do; "
        "call this from another thread"
    )


def waited(
    verb: Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Given], Result]:
    """A verb of an asynchronous class for the one round it: it is handed to the loop and waited
    for.
    """

    @wraps(verb)
    def call(self: Any, /, *given: Given.args, **named: Given.kwargs) -> Result:
        portal: Portal = self._portal
        return portal.call(verb(self._inner, *given, **named))

    return call


async def _acked(subscription: Subscription[Any], event: Event | None) -> None:
    subscription.ack(event)


async def _nacked(
    subscription: Subscription[Any], event: Event | None, delay: float, reason: str
) -> None:
    subscription.nack(event, delay=delay, reason=reason)


async def _next_of(states: AsyncIterator[ConnectionState]) -> ConnectionState | None:
    return await anext(states, None)


class SyncSubscription(SubscriptionView, Generic[Received]):
    """A `Subscription` without `await`: iterate over it to receive."""

    def __init__(self, inner: Subscription[Received], portal: Portal) -> None:
        super().__init__(inner)
        self._inner = inner
        self._portal = portal

    update = waited(Subscription.update)
    replace = waited(Subscription.replace)
    settled = waited(Subscription.settled)
    unsubscribe = waited(Subscription.unsubscribe)
    delete = waited(Subscription.delete)

    def ack(self, event: Event | None = None) -> None:
        """Acknowledge an event, or all that were taken."""
        self._portal.call(_acked(self._inner, event))

    def nack(self, event: Event | None = None, *, delay: float = 0.0, reason: str = "") -> None:
        """Reject an event, or the one received last (see `Event.nack`)."""
        self._portal.call(_nacked(self._inner, event, delay, reason))

    @property
    def event(self) -> Event:
        """The event received last; of objects (`as_=`), the one that the last was read from."""
        return self._inner.event

    def receive(self, timeout: float | None = None) -> Received:
        """The next event; `TimeoutError` after so many seconds, `Closed` if there will be none."""
        return self._portal.call(self._inner.receive(), timeout)

    def receive_batch(self, timeout: float | None = None) -> pa.RecordBatch:
        """The next batch; `TimeoutError` after so many seconds, `Closed` if there will be none."""
        return self._portal.call(self._inner.receive_batch(), timeout)

    to_arrow = waited(Subscription.to_arrow)
    to_pandas = waited(Subscription.to_pandas)

    def __iter__(self) -> Iterator[Received]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Events as record batches, with `$seq` and `$time` beside their attributes."""
        while True:
            try:
                yield self.receive_batch()
            except Closed:
                return

    def __enter__(self) -> Self:
        return self

    __exit__ = waited(Subscription.__aexit__)


class SyncAdvertisementHandle:
    """An advertisement in force, as `SyncClient.advertise` returns it; `withdraw` ends it."""

    def __init__(self, inner: AdvertisementHandle, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def advertisement(self) -> Advertisement:
        """The filter that is announced."""
        return self._inner.advertisement

    @property
    def is_in_force(self) -> bool:
        """False once it was withdrawn, here or by another client of the same identity."""
        return self._inner.is_in_force

    withdraw = waited(AdvertisementHandle.withdraw)

    def __repr__(self) -> str:
        return f"<SyncAdvertisementHandle of {self.advertisement}>"


class SyncBaseBus:
    """The base of `SyncBus` and `SyncClient`: hands calls to a loop and waits for them."""

    def __init__(self, inner: Bus | Client, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal
        self._closing = threading.Lock()

    request = waited(BaseBus.request)
    cancel = waited(BaseBus.cancel)
    detach = waited(BaseBus.detach)

    def _subscribed(
        self, subscribing: Coroutine[Any, Any, Subscription[Received]]
    ) -> SyncSubscription[Received]:
        return SyncSubscription(self._portal.call(subscribing), self._portal)

    def attach(self, subscriber: AnySubscriber) -> AnySubscriber:
        """Run a subscriber's handlers as events come, on the loop's own thread.

        Handlers may publish, subscribe and assign to parameters, but not wait for events there.
        """
        return self._portal.call(self._inner.attach(subscriber))

    def close(self) -> None:
        """Accept no more events; receivers get their backlog, then end.

        To close it again does nothing.
        """
        if self._portal.is_here:
            raise PalioError("a handler cannot close the bus that runs it; use another thread")
        with self._closing:
            if self._portal.is_open:
                self._portal.call(self._inner.close())
                self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._inner!r}>"


class SyncBus(SyncBaseBus):
    """A `Bus` without `await`.

    >>> import palio
    >>> with palio.SyncBus() as bus:
    ...     sub = bus.subscribe("price < :limit", {"limit": 10})
    ...     receipt = bus.publish({"price": 9})
    ...     print(dict(sub.receive(timeout=5)))
    {'price': 9}
    """

    def __init__(self, **options: Any) -> None:
        self._bus = Bus(**options)
        super().__init__(self._bus, Portal("palio-bus"))

    publish = waited(Bus.publish)

    @overload
    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        as_: type[Typed],
        **options: Unpack[BusOptions],
    ) -> SyncSubscription[Typed]: ...

    @overload
    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[BusOptions],
    ) -> SyncSubscription[Event]: ...

    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> SyncSubscription[Any]:
        """Subscribe to the events that match from now on; options are those of `Bus`."""
        return self._subscribed(self._bus.subscribe(filter, params, **options))


class SyncAdmin:
    """`Admin` without `await`: `client.admin` of a `SyncClient`."""

    def __init__(self, inner: Admin, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    topology = waited(Admin.topology)
    status = waited(Admin.status)
    trace = waited(Admin.trace)
    subscriptions = waited(Admin.subscriptions)
    query = waited(Admin.query)
    peers = waited(Admin.peers)
    add_peer = waited(Admin.add_peer)
    remove_peer = waited(Admin.remove_peer)
    remove_broker = waited(Admin.remove_broker)
    drain = waited(Admin.drain)
    apply_plan = waited(Admin.apply_plan)


class SyncClient(SyncBaseBus):
    """A `Client` without `await`: `with palio.SyncClient("palio://localhost:7400") as client`.

    It takes the arguments of `palio.connect`, and is connected when it is made.
    """

    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        self._client = connect(url, **options)
        portal = Portal("palio-client")
        super().__init__(self._client, portal)
        self.admin = SyncAdmin(self._client.admin, portal)
        try:
            portal.call(self._client.open())
        except BaseException:
            portal.close()
            raise

    publish = waited(Client.publish)

    @overload
    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        as_: type[Typed],
        **options: Unpack[ClientOptions],
    ) -> SyncSubscription[Typed]: ...

    @overload
    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> SyncSubscription[Event]: ...

    def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> SyncSubscription[Any]:
        """Subscribe to the events that match from now on; options are those of `Client`."""
        return self._subscribed(self._client.subscribe(filter, params, **options))

    def advertise(
        self, text: str | Advertisement, params: Mapping[str, Any] | None = None
    ) -> SyncAdvertisementHandle:
        """Announce the events that will be published."""
        inner = self._portal.call(self._client.advertise(text, params))
        return SyncAdvertisementHandle(inner, self._portal)

    def unadvertise(
        self,
        what: SyncAdvertisementHandle | str | Advertisement,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Withdraw an advertisement, or all that a text covers (see `Client.unadvertise`)."""
        if isinstance(what, SyncAdvertisementHandle):
            what.withdraw()
        else:
            self._portal.call(self._client.unadvertise(what, params))

    def states(self) -> Iterator[ConnectionState]:
        """The state of the connection, and each state after it, until the client is closed."""
        states = self._client.states()
        while True:
            state = self._portal.call(_next_of(states))
            if state is None:
                return
            yield state

    settled = waited(Client.settled)
    suspend = waited(Client.suspend)
    resume = waited(Client.resume)
    move = waited(Client.move)

    @property
    def publisher(self) -> str:
        """The name that its events bear."""
        return self._client.publisher

    @property
    def broker(self) -> str:
        """The name of the broker at the other end."""
        return self._client.broker

    @property
    def is_connected(self) -> bool:
        """True while there is a connection."""
        return self._client.is_connected
