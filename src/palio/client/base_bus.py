"""`BaseBus`, the common base of `Bus` and `Client`: requests, subscriptions, attached subscribers.

Its dispatcher matches events to subscriptions in this process; its upstream is the connection to a
broker, if there is one. Every change of a subscription takes effect in the dispatcher first, and
then waits for the reply of the upstream.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

from palio.client.deadlines import TIMEOUT_S, check_timeout
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.events import Event, PublishReceipt
from palio.client.outgoing import Publishable, as_event
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.subscriber import Attached, Subscriber
from palio.client.subscribing import (
    DurablePolicy,
    as_filter,
    check_max_events,
    check_on_gap,
    check_values,
    given_params,
)
from palio.client.subscription import LoopAffinity, Subscription
from palio.client.typed import TypedEvent
from palio.client.upstream import PendingReply, Upstream
from palio.errors import Closed, InvalidEvent, InvalidInput, NoAnswer, PalioError, Unsettled
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.relations import covers_subscription
from palio.model.values import Bindings
from palio.tracing import Tracing

AnySubscriber = TypeVar("AnySubscriber", bound=Subscriber)
AnyUpstream = TypeVar("AnyUpstream", bound=Upstream)


class BaseBus(Generic[AnyUpstream]):
    """The operations that an embedded bus and a client of brokers share."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        upstream: AnyUpstream,
        *,
        reorder_timeout: float | None,
        tracing: Tracing | None = None,
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._upstream: Final = upstream
        self._affinity: Final = LoopAffinity(type(self).__name__)
        self._reorder_timeout: Final = reorder_timeout
        """The seconds for which patterns wait for reordered events, unless a subscription sets its
        own; None: adapt to the observed reordering."""
        self._tracing: Final = tracing
        self._attached: dict[int, Attached] = {}
        """By `id` of the subscriber, which may be unhashable. `Attached` keeps the subscriber
        alive, so no other object gets that id."""
        self._closed = False

    @abstractmethod
    async def publish(self, events: Publishable) -> PublishReceipt:
        """Publish one event, several, or a record batch."""

    async def request(
        self,
        event: Mapping[str, Any] | TypedEvent,
        reply_where: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # the error names the request
    ) -> Event:
        """Publish an event and return the first reply: the first event that matches `reply_where`.

        Its parameters have the values of `params`, and otherwise those of the event's attributes of
        the same names: `request({"ask": "price", "id": "7"}, "answers = :id")`. The replier must
        have subscribed before. `NoAnswer` after `timeout` seconds.
        """
        reply_filter, attributes = as_filter(reply_where), as_event(event)
        if attributes is None:
            raise InvalidEvent(f"request takes one event, not {type(event).__name__}")
        values = {name: attributes[name] for name in reply_filter.variables if name in attributes}
        values |= given_params(params)
        try:
            async with asyncio.timeout(check_timeout(timeout)):
                return await self._first_reply(attributes, reply_filter, values)
        except TimeoutError as error:
            if isinstance(error, PalioError):
                raise
            raise NoAnswer(
                f"nothing that matches {str(reply_filter)!r:.200} came in {timeout:g} s; check "
                "that somebody is subscribed to the request and replies"
            ) from None

    async def _first_reply(
        self, event: Mapping[str, Any], filter: Filter | Pattern, values: Bindings
    ) -> Event:
        options = SubscriptionOptions(max_events=1, reorder_timeout=self._reorder_timeout)
        registration, reply = self._register(filter, values, 1, options)
        try:
            replies: Subscription = await self._in_force(registration, reply, replace_covered=False)
            with suppress(Unsettled):  # no reply can come from unreachable brokers anyway
                await self._upstream.settled(0.0)
            await self.publish(event)
            return await replies.receive()
        finally:
            registration.abandon()

    def _register(
        self,
        filter: Filter | Pattern,
        values: Bindings,
        queue_size: int,
        options: SubscriptionOptions,
        text: str = "",
    ) -> tuple[Registration, PendingReply]:
        """Register a new subscription; return it, and the pending reply of the upstream.

        `text` is the source of its filter, if it was parsed: the filter need not be formatted.
        """
        self._check_open()
        check_on_gap(options.on_gap)
        check_max_events(options.max_events)
        registration = self._dispatcher.register(filter, values, DeliveryQueue(queue_size), options)
        try:
            return registration, registration.announce(text)
        except BaseException:
            registration.abandon()
            raise

    async def _in_force(
        self, registration: Registration, reply: PendingReply, *, replace_covered: bool
    ) -> Subscription[Any]:
        """Wait until a new subscription is in force; return its handle.

        With `replace_covered`, also end the subscriptions that it covers.
        """
        try:
            if reply is not None:
                await reply
            if replace_covered:
                await self._end_covered(registration.bound, except_for=registration)
        except BaseException:
            registration.abandon()
            raise
        return Subscription(registration, self._upstream, self._affinity)

    async def cancel(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        delete: bool = False,
    ) -> int:
        """End all subscriptions that a filter covers now (siena 3.3), and return how many.

        Their pending events are discarded; `delete` ends durable ones for good.

        A pattern covers patterns of the same length if each of its steps covers the step at the
        same position. Handlers of attached subscribers are kept (`detach` ends them). A client with
        an identity also ends the subscriptions and handlers of the identity's other clients: those
        receive their backlog and then `SubscriptionEnded`.
        """
        self._check_open()
        parsed, given = as_filter(filter), given_params(params)
        check_values(parsed, given)
        return await self._end_covered(parsed.bind(given), delete=delete)

    async def _end_covered(
        self,
        general: Filter | Pattern,
        *,
        delete: bool = False,
        except_for: Registration | None = None,
    ) -> int:
        attached = self._attached.values()
        handled = {
            registration.number
            for subscriber in attached
            for registration in subscriber.registrations
        }
        covered = [
            registration
            for registration in self._dispatcher
            if registration.number not in handled
            and registration is not except_for
            and covers_subscription(general, registration.bound)
        ]
        replies = []
        for registration in covered:
            replies.append(registration.leave(delete=delete))
            registration.queue.discard(registration)
        await _all_replies(replies)
        return len(covered) + await self._upstream.cancel(general, delete=delete)

    async def attach(self, subscriber: AnySubscriber) -> AnySubscriber:
        """Subscribe every `@on` handler of a subscriber, and run it for each event received. Its
        `@event` methods publish here.
        """
        self._check_open()
        if not isinstance(subscriber, Subscriber):
            raise InvalidInput(_not_a_subscriber(subscriber))
        attached = Attached(subscriber, self._register_handler, self.publish, self._tracing)
        self._attached[id(subscriber)] = attached
        attached.task.add_done_callback(lambda _: self._forget(id(subscriber), attached))
        try:
            await _all_replies([registration.announce() for registration in attached.registrations])
        except BaseException:
            attached.task.cancel()
            await asyncio.wait([attached.task])
            raise
        return subscriber

    def _register_handler(
        self,
        filter: Filter | Pattern,
        values: Bindings,
        queue: DeliveryQueue,
        durable: DurablePolicy,
    ) -> Registration:
        if durable.name:
            self._check_unused(durable.name)
        options = SubscriptionOptions(reorder_timeout=self._reorder_timeout, durable=durable)
        return self._dispatcher.register(filter, values, queue, options)

    @abstractmethod
    def _check_unused(self, durable_name: str) -> None:
        """Refuse a durable subscription that this object cannot have."""

    def _forget(self, subscriber: int, attached: Attached) -> None:
        if self._attached.get(subscriber) is attached:
            del self._attached[subscriber]

    async def detach(self, subscriber: Subscriber) -> None:
        """Let a subscriber's handlers process their backlog, then unsubscribe them.

        Called from a handler, it does not wait: that handler has to return first.
        """
        attached = self._attached.get(id(subscriber))
        if attached is not None:
            attached.stop()
            await self._wait_for([attached.task])

    async def close(self) -> None:
        """Accept no more events; consumers receive their backlog, then end.

        It waits for the handlers of attached subscribers, unless one of them is the caller.
        """
        self._closed = True
        self._dispatcher.end()
        for attached in self._attached.values():
            if not attached.registrations:  # no end of a subscription will end its task
                attached.stop()
        await self._wait_for([attached.task for attached in self._attached.values()])

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the tasks of subscribers, unless one of them is the caller: it would wait for
        itself.
        """
        current = asyncio.current_task()
        if tasks and all(attached.task is not current for attached in self._attached.values()):
            await asyncio.wait(tasks)

    def _check_open(self) -> None:
        if self._closed or not self._upstream.is_ready:
            self._check_usable()
            self._upstream.check_ready()
        self._affinity.check()

    def _check_usable(self) -> None:
        if self._closed:
            raise Closed(f"the {type(self).__name__.lower()} is closed; make a new one")
        self._upstream.check_usable()
        self._affinity.check()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {len(self._dispatcher)} subscriptions>"


async def _all_replies(replies: Iterable[PendingReply]) -> None:
    """Wait for all replies; raise the first refusal, with the others as its notes."""
    pending = [reply for reply in replies if reply is not None]
    results = await asyncio.gather(*pending, return_exceptions=True)
    refusals = [result for result in results if isinstance(result, BaseException)]
    if refusals:
        for other in refusals[1:]:
            refusals[0].add_note(f"and: {other}")
        raise refusals[0]


def _not_a_subscriber(given: object) -> str:
    if isinstance(given, type) and issubclass(given, Subscriber):
        return f"attach takes an object, not its class; write attach({given.__name__}())"
    return f"attach takes a palio.Subscriber, not {type(given).__name__}"
