"""`Cancelling`: ends subscriptions, by key for their own session, or all that a filter covers for
another session of the same identity (siena 3).

A covering test takes 5 to 25 us a subscription, and an identity may have hundreds of thousands. So
a cancellation runs in slices, with other inputs in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from palio.errors import InvalidInput, LimitExceeded, SubscriptionEnded
from palio.language.parsing import parse
from palio.model.filters import Filter
from palio.model.limits import Effort
from palio.model.patterns import Pattern
from palio.model.relations import covers_subscription
from palio.node.consumers import Consumers
from palio.node.core import Core
from palio.node.limits import CANCEL_SLICE, MAX_CANCELS
from palio.node.sessions import Session, Subscription
from palio.protocol.failures import failure
from palio.protocol.messages import Answer, Cancel, Ended, Failure
from palio.routing.messages import Batch, Unsubscribe
from palio.routing.patterns.messages import UnsubscribePattern

_VISIT: Final = 64
"""The cost of visiting one alternative of a subscription, counted in comparisons."""


class _Unfinished(NamedTuple):
    """A request with slices that are yet to run."""

    asker: Session
    slices: Iterator[None]


class Cancelling:
    """Ends subscriptions of sessions."""

    def __init__(self, core: Core, consumers: Consumers) -> None:
        self._core = core
        self._consumers = consumers
        self.unfinished: deque[_Unfinished] = deque()
        """The requests that `do_slice` has yet to finish."""

    def end(self, session: Session, keys: Sequence[int], *, forget: bool) -> int:
        """End the subscriptions of a session under these keys; return the number that existed."""
        core, live = self._core, []
        ended = 0
        for key in keys:
            subscription = session.let_go(key)
            if subscription is None:
                continue
            ended += 1
            if subscription.assembled:
                core.route(core.router.receive(session.peer, UnsubscribePattern(key)))
                continue
            if not subscription.durable:
                live.append(Unsubscribe(key))
                continue
            self._consumers.release(core.durability.here[subscription.durable], session)
            if forget:
                core.end_durable(subscription.durable)
        if live:
            core.route(core.router.receive(session.peer, Batch(tuple(live))))
        return ended

    def cancel(self, asker: Session, request: Cancel) -> None:
        """Begin to cancel subscriptions of an identity's other sessions; answer when done."""
        if not asker.identity:
            raise InvalidInput(
                "this session acts under no identity, so there are no others whose subscriptions "
                "it may cancel; connect with identity="
            )
        if sum(cancel.asker is asker for cancel in self.unfinished) >= MAX_CANCELS:
            raise LimitExceeded(
                "a session's cancellations that are under way (wait for their answers)",
                limit="MAX_CANCELS",
                maximum=MAX_CANCELS,
            )
        wide = parse(request.filter)
        if wide.variables:
            raise InvalidInput(
                f"the filter to cancel has the parameter :{min(wide.variables)}; write a constant"
            )
        self._advance(_Unfinished(asker, self._slices(asker, request, wide)))

    def do_slice(self) -> None:
        """Do one slice of the oldest request."""
        if self.unfinished:
            self._advance(self.unfinished.popleft())

    def _advance(self, request: _Unfinished) -> None:
        for _ in request.slices:
            self.unfinished.append(request)
            return

    def _slices(self, asker: Session, request: Cancel, wide: Filter | Pattern) -> Iterator[None]:
        """Cancel covered subscriptions one by one, yielding after each slice of the work. Between
        slices sessions may end and subscriptions change, so both are looked up each time.
        """
        core = self._core
        why = failure(
            SubscriptionEnded(
                f"another client that acts as {asker.identity!r} cancelled what {wide!s:.200} "
                "covers; subscribe again to receive more"
            )
        )
        count, left = 0, float(CANCEL_SLICE)
        others = [
            session
            for session in core.sessions.values()
            if session.identity == asker.identity and session is not asker
        ]
        for session in others:
            over: list[int] = []
            for key in list(session.subscriptions):
                subscription = session.subscriptions.get(key)
                if core.sessions.get(session.id) is not session:
                    break
                if subscription is None:
                    continue
                effort = Effort()
                narrow = subscription.what.bind(subscription.values)
                if covers_subscription(wide, narrow, effort):
                    over.append(key)
                left -= effort.spent + _VISIT * _alternatives(subscription)
                if left < 0:
                    count += self._ended(session, over, why, forget=request.forget)
                    yield
                    over, left = [], CANCEL_SLICE
            count += self._ended(session, over, why, forget=request.forget)
        if core.sessions.get(asker.id) is asker:
            asker.send(core.out, Answer(request.id, count))

    def _ended(self, session: Session, keys: list[int], why: Failure, *, forget: bool) -> int:
        ended = self.end(session, keys, forget=forget)
        if ended:
            session.send(self._core.out, Ended(tuple(keys), why))
        return ended


def _alternatives(subscription: Subscription) -> int:
    """Count alternatives and listed values, which determine the cost of binding parameters."""
    filter, values = subscription.what, subscription.values.values()
    steps = (filter,) if isinstance(filter, Filter) else filter.steps
    listed = sum(len(value) for value in values if isinstance(value, tuple | list))
    return listed + sum(len(step.conjunctions) for step in steps)
