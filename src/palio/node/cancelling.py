"""`Cancelling`: subscriptions end, each by the word of its own session, or all that a filter covers
by that of another session of the same identity (siena 3).

To find out what a filter covers takes 5 to 25 us a subscription, and an identity may have hundreds
of thousands. So that is done a slice at a time, with other inputs in between.
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
from palio.node.core import Core
from palio.node.limits import CANCEL_SLICE, MAX_CANCELS
from palio.node.sessions import Session, Subscription
from palio.protocol.failures import failure
from palio.protocol.messages import Answer, Cancel, Ended, Failure
from palio.routing.messages import Batch, Unsubscribe
from palio.routing.patterns.messages import UnsubscribePattern
from palio.routing.patterns.standing import covers_subscription

_LOOK: Final = 64
"""Comparisons that it is worth to look at one alternative of a subscription at all."""


class _Unfinished(NamedTuple):
    """A request that has more slices to come."""

    asker: Session
    slices: Iterator[None]


class Cancelling:
    """How subscriptions of sessions end."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.unfinished: deque[_Unfinished] = deque()
        """The requests that `do_slice` has yet to finish."""

    def end(self, session: Session, keys: Sequence[int], *, forget: bool) -> int:
        """A session receives nothing more under these keys; how many of them were in use."""
        core, live = self._core, []
        ended = 0
        for key in keys:
            known = session.let_go(key)
            if known is None:
                continue
            ended += 1
            if known.assembled:
                core.route(core.router.receive(session.peer, UnsubscribePattern(key)))
                continue
            if not known.durable:
                live.append(Unsubscribe(key))
                continue
            core.release(core.durability.here[known.durable])
            if forget:
                core.end_durable(known.durable)
        if live:
            core.route(core.router.receive(session.peer, Batch(tuple(live))))
        return ended

    def cancel(self, asker: Session, request: Cancel) -> None:
        """Begin to end what other sessions of an identity hear; answered when that is done."""
        if not asker.identity:
            raise InvalidInput(
                "this session acts under no identity, so there are no others whose subscriptions "
                "it may cancel; connect with identity="
            )
        if sum(each.asker is asker for each in self.unfinished) >= MAX_CANCELS:
            raise LimitExceeded(
                "a session's cancellations that are under way (wait for their answers)",
                limit="MAX_CANCELS",
                maximum=MAX_CANCELS,
            )
        wide = parse(request.filter)
        if wide.variables:
            raise InvalidInput(
                f"what is cancelled has the parameter :{min(wide.variables)}; write a constant"
            )
        self._advance(_Unfinished(asker, self._slices(asker, request, wide)))

    def do_slice(self) -> None:
        """Do one slice of the oldest request."""
        if self.unfinished:
            self._advance(self.unfinished.popleft())

    def _advance(self, one: _Unfinished) -> None:
        for _ in one.slices:
            self.unfinished.append(one)
            return

    def _slices(self, asker: Session, request: Cancel, wide: Filter | Pattern) -> Iterator[None]:
        """Look at one subscription after another, and stop where a slice of the work is done."""
        core = self._core
        why = failure(
            SubscriptionEnded(
                f"another client that acts as {asker.identity!r} cancelled what {wide!s:.200} "
                "covers; subscribe again to hear more"
            )
        )
        count, left = 0, float(CANCEL_SLICE)
        others = [
            each
            for each in core.sessions.values()
            if each.identity == asker.identity and each is not asker
        ]
        for session in others:
            over: list[int] = []
            for key in list(session.subscriptions):
                known = session.subscriptions.get(key)
                if core.sessions.get(session.id) is not session:
                    break
                if known is None:
                    continue
                effort = Effort()
                if covers_subscription(wide, known.what.bind(known.values), effort):
                    over.append(key)
                left -= effort.spent + _LOOK * _alternatives(known)
                if left < 0:
                    count += self._ended(session, over, why, forget=request.forget)
                    yield
                    over, left = [], CANCEL_SLICE
            count += self._ended(session, over, why, forget=request.forget)
        if core.sessions.get(asker.id) is asker:
            asker.say(core.out, Answer(request.id, count))

    def _ended(self, session: Session, keys: list[int], why: Failure, *, forget: bool) -> int:
        ended = self.end(session, keys, forget=forget)
        if ended:
            session.say(self._core.out, Ended(tuple(keys), why))
        return ended


def _alternatives(known: Subscription) -> int:
    """Count alternatives and listed values: by these goes the cost of putting values into it."""
    what = known.what
    steps = (what,) if isinstance(what, Filter) else what.steps
    listed = sum(len(each) for each in known.values.values() if isinstance(each, tuple | list))
    return listed + sum(len(each.conjunctions) for each in steps)
