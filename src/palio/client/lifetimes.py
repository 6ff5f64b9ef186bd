"""`Lifetimes`: subscriptions that wait so long for an offer of what they want (proxy IV-C)."""

from __future__ import annotations

import asyncio

from palio.client.broker_upstream import BrokerUpstream
from palio.client.registration import Registration
from palio.errors import Closed, InvalidInput, PalioError, SubscriptionEnded, Unreachable
from palio.model.filters import Filter
from palio.protocol.durations import check_seconds
from palio.protocol.messages import Answer, Ask

__all__ = ["Lifetimes", "check_lifetime"]


def check_lifetime(lifetime_s: float | None, what: object, durable: str) -> None:
    """Refuse what is no time, or is not for such a subscription.

    >>> check_lifetime(None, "whatever it is", "")
    """
    if lifetime_s is None:
        return
    check_seconds(lifetime_s, "lifetime_s")
    if durable or not isinstance(what, Filter):
        raise InvalidInput("lifetime_s= is for a filter that is not durable")


class Lifetimes:
    """The subscriptions of one client that end unless there is a source when their time is over."""

    def __init__(self, upstream: BrokerUpstream) -> None:
        self._upstream = upstream
        self._asking: set[asyncio.Task[None]] = set()

    async def begin(self, registration: Registration, lifetime_s: float) -> None:
        """Let a subscription wait so long. Without time to wait it is refused where there is no
        source, and in any case where nobody can know.
        """
        try:
            found = await self._has_source(registration)
            if not (found or lifetime_s):
                raise _unoffered(registration)
        except BaseException:
            registration.abandon()
            raise
        if lifetime_s:
            asyncio.get_running_loop().call_later(lifetime_s, self._is_over, registration)

    def _is_over(self, registration: Registration) -> None:
        if not registration.closed:
            asking = asyncio.ensure_future(self._end_unless_offered(registration))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _end_unless_offered(self, registration: Registration) -> None:
        try:
            if not await self._has_source(registration) and not registration.closed:
                registration.abandon(_unoffered(registration))
        except Unreachable:
            self._is_over(registration)  # that asks once the broker is back
        except Closed:
            pass
        except PalioError as error:  # a filter that it may hear no longer
            registration.abandon(error)

    async def _has_source(self, registration: Registration) -> bool:
        about = {"filter": str(registration.what), "values": dict(registration.values)}
        answer: Answer = await self._upstream.ask(Ask(0, "source", about))
        return bool(answer.data)


def _unoffered(registration: Registration) -> SubscriptionEnded:
    return SubscriptionEnded(
        f"nobody advertises what {registration.bound!s:.200} wants, and its time to wait is over; "
        "subscribe again, or without lifetime_s to wait for ever"
    )
