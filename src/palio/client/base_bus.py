"""`BaseBus`: what `Bus` and `Client` have in common: a dispatcher, an upstream, and handlers."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from palio.client.deadlines import TIMEOUT_S, check_timeout
from palio.client.delivery_queue import DeliveryQueue
from palio.client.dispatcher import Dispatcher
from palio.client.events import Event, PublishReceipt
from palio.client.outgoing import Publishable, as_event
from palio.client.registration import Registration, SubscriptionOptions
from palio.client.subscriber import Attached, Subscriber
from palio.client.subscribing import (
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
from palio.model.values import Bindings
from palio.routing.patterns.subscriptions import covers_subscription

AnySubscriber = TypeVar("AnySubscriber", bound=Subscriber)
AnyUpstream = TypeVar("AnyUpstream", bound=Upstream)


class BaseBus(Generic[AnyUpstream]):
    """The base of buses and clients."""

    def __init__(
        self, dispatcher: Dispatcher, upstream: AnyUpstream, *, reorder_timeout: float | None
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._upstream: Final = upstream
        self._affinity: Final = LoopAffinity(type(self).__name__)
        self._reorder_timeout: Final = reorder_timeout
        """How long patterns wait for events that were overtaken, unless a subscription sets it;
        None: as it turns out."""
        self._attached: dict[int, Attached] = {}
        """By the identity of the subscriber, which each keeps alive: it may be unhashable."""
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
        registration, reply = self._announced(filter, values, 1, options)
        try:
            replies: Subscription = await self._in_force(registration, reply, replace_covered=False)
            with suppress(Unsettled):  # no reply can come from there anyway
                await self._upstream.settled(0.0)
            await self.publish(event)
            return await replies.receive()
        finally:
            registration.abandon()

    def _announced(
        self,
        filter: Filter | Pattern,
        values: Bindings,
        queue_size: int,
        options: SubscriptionOptions,
        text: str = "",
    ) -> tuple[Registration, PendingReply]:
        """A new subscription, and when it is in force. `text` is what its filter was read from, if
        it was.
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
        """The handle of a new subscription, once it is in force and, for `replace_covered`, those
        that it covers have ended.
        """
        try:
            if reply is not None:
                await reply
            if replace_covered:
                await self._end_covered(registration.bound, but=registration)
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

        A pattern ends patterns of as many steps, each covered by its own. Handlers of subscribers
        stay (`detach`). Under an identity it also ends subscriptions of the identity's other
        clients, handlers too: they receive their backlog and then `SubscriptionEnded`.
        """
        self._check_open()
        parsed, given = as_filter(filter), given_params(params)
        check_values(parsed, given)
        return await self._end_covered(parsed.bind(given), delete=delete)

    async def _end_covered(
        self, wide: Filter | Pattern, *, delete: bool = False, but: Registration | None = None
    ) -> int:
        attached = self._attached.values()
        handled = {
            registration.number
            for subscriber in attached
            for registration in subscriber.registrations
        }
        over = [
            registration
            for registration in self._dispatcher
            if registration.number not in handled
            and registration is not but
            and covers_subscription(wide, registration.bound)
        ]
        reply = []
        for registration in over:
            reply.append(registration.leave(delete=delete))
            registration.queue.discard(registration)
        await _all_replies(reply)
        return len(over) + await self._upstream.cancel(wide, delete=delete)

    async def attach(self, subscriber: AnySubscriber) -> AnySubscriber:
        """Subscribe every `@on` handler of a subscriber, and run them as events come; its `@event`
        methods publish here.
        """
        self._check_open()
        if not isinstance(subscriber, Subscriber):
            raise InvalidInput(_no_subscriber(subscriber))
        options = SubscriptionOptions(reorder_timeout=self._reorder_timeout)
        register = partial(self._dispatcher.register, options=options)
        attached = Attached(subscriber, register, self.publish)
        self._attached[id(subscriber)] = attached
        attached.task.add_done_callback(lambda _: self._ended(id(subscriber), attached))
        try:
            await _all_replies([registration.announce() for registration in attached.registrations])
        except BaseException:
            attached.task.cancel()
            raise
        return subscriber

    def _ended(self, subscriber: int, attached: Attached) -> None:
        if self._attached.get(subscriber) is attached:
            del self._attached[subscriber]

    async def detach(self, subscriber: Subscriber) -> None:
        """Let a subscriber's handlers process their backlog, then unsubscribe them.

        Called from a handler it does not wait: that handler has to return first.
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
            if not attached.registrations:
                attached.stop()
        await self._wait_for([subscriber.task for subscriber in self._attached.values()])

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        here = asyncio.current_task()
        if tasks and all(subscriber.task is not here for subscriber in self._attached.values()):
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


async def _all_replies(announced: Iterable[PendingReply]) -> None:
    """Wait for all answers; the first refusal is raised, with the others as its notes."""
    waiting = [reply for reply in announced if reply is not None]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    refusals = [answer for answer in answers if isinstance(answer, BaseException)]
    if refusals:
        for other in refusals[1:]:
            refusals[0].add_note(f"and: {other}")
        raise refusals[0]


def _no_subscriber(given: object) -> str:
    if isinstance(given, type) and issubclass(given, Subscriber):
        return f"attach takes an object, not its class; write attach({given.__name__}())"
    return f"attach takes a palio.Subscriber, not {type(given).__name__}"
