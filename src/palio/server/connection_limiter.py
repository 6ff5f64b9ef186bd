"""`ConnectionLimiter`: the sockets of a broker, at all ports together, and their unfinished input.

1. A socket is a *stranger's* until it has shown a principal. Strangers have `MAX_STRANGERS` sockets
   and `STRANGER_BYTES` together. A newcomer beyond that, or beyond `limits.max_connections`, takes
   the slot of the oldest stranger, and missing bytes come from the largest. So strangers never keep
   out clients that authenticate at once.
2. A message above `MAX_GREETING_BYTES` claims its whole size before more of it is read: a message
   that has begun can always end. Each holder has a share of `SHARE_BYTES`; its sockets beyond that
   wait in turn, unread. A claim is released when the message has been dealt with.
3. A holder is a principal. It has as many sockets as sessions, and `MAX_ASKING` more; one beyond
   them stays a stranger's. Brokers' links, and sockets where no principal has to be shown, each are
   holders of their own.
4. All holders together have a capacity of `INTAKE_BYTES`. Beyond, the client that claims most gives
   up its oldest unfinished message; one that began a moment ago continues, and the newcomer
   gives up.

A socket takes its slot when it is accepted, before a handshake of TLS, whose end a loop does
not report: a slot that is not held within the time of a handshake is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from palio.errors import LimitExceeded
from palio.node.authority import ANYONE, Principal
from palio.node.limits import MAX_SESSIONS_OF_ONE
from palio.protocol.limits import MAX_GREETING_BYTES
from palio.server.counters import Traffic
from palio.server.limits import (
    INTAKE_BYTES,
    MAX_ASKING,
    MAX_STRANGERS,
    MAX_WAITING,
    SHARE_BYTES,
    STRANGER_BYTES,
    YIELD_S,
)

_AGAIN: Final = "try again, or send smaller messages"


class _Holder:
    """A principal's sockets, and its share of unfinished input."""

    def __init__(self, *, is_broker: bool) -> None:
        self.is_broker = is_broker
        self.sockets = 0
        self.size = 0
        self.unfinished: dict[ConnectionSlot, None] = {}
        """ConnectionLimiter whose messages are still coming, oldest first."""
        self.waiting: dict[ConnectionSlot, tuple[int, Callable[[], None]]] = {}


class ConnectionLimiter:
    """The account of all sockets.

    >>> async def fill() -> list[bool]:
    ...     limiter = ConnectionLimiter(2, Traffic())
    ...     taken = [limiter.take(1.0) for _ in range(3)]
    ...     return [slot.hold(print) for slot in taken]
    >>> asyncio.run(fill())
    [False, True, True]
    """

    def __init__(self, most: int, traffic: Traffic) -> None:
        self.most = most
        self.taken = 0
        self.traffic = traffic
        self.size = 0
        """Bytes that holders claim."""
        self.strangers: dict[ConnectionSlot, None] = {}
        """Oldest first."""
        self.stranger_bytes = 0
        self.holders: WeakValueDictionary[object, _Holder] = WeakValueDictionary()

    def take(self, handshake_s: float) -> ConnectionSlot:
        """Give a slot to a new socket: it is that of the oldest stranger if all are taken."""
        slot = ConnectionSlot(self, handshake_s)
        # The newcomer is a stranger itself: where there is no other, it is the one to go.
        if self.taken > self.most or len(self.strangers) > MAX_STRANGERS:
            next(iter(self.strangers)).give_up(
                f"{self.most} connections are the most (limits.max_connections)"
            )
        return slot

    def relieve(self, newcomer: ConnectionSlot) -> None:
        """Cut sockets until holders claim no more than the capacity."""
        while self.size > INTAKE_BYTES:
            holders = [holder for holder in self.holders.values() if holder.unfinished]
            # A broker's link carries the events of many clients: it goes only after all of them.
            most = max(holders, key=lambda holder: 0 if holder.is_broker else holder.size)
            oldest = next(iter(most.unfinished))
            slot = newcomer if oldest.is_new else oldest
            slot.give_up(f"unfinished input takes {INTAKE_BYTES} bytes (INTAKE_BYTES); {_AGAIN}")


class ConnectionSlot:
    """The slot of one socket."""

    __slots__ = (
        "_cut",
        "_holder",
        "_is_taken",
        "_is_whole",
        "_limiter",
        "_since",
        "_size",
        "_timer",
    )

    def __init__(self, limiter: ConnectionLimiter, handshake_s: float) -> None:
        loop = asyncio.get_running_loop()
        limiter.taken += 1
        limiter.strangers[self] = None
        self._limiter = limiter
        self._is_taken = True
        self._holder: _Holder | None = None
        self._size = 0
        self._is_whole = False
        self._since = 0.0
        self._cut: Callable[[str], None] | None = None
        self._timer = loop.call_later(handshake_s, self.leave)

    @property
    def is_strangers(self) -> bool:
        """Return whether no principal was shown yet."""
        return self._holder is None

    @property
    def is_new(self) -> bool:
        """Return whether its claim was admitted a moment ago."""
        return asyncio.get_running_loop().time() - self._since < YIELD_S

    def hold(self, cut: Callable[[str], None]) -> bool:
        """The connection is up, until `leave`; whether it may stay. `cut` ends it for others."""
        self._timer.cancel()
        if self._is_taken:
            self._cut = cut
        return self._is_taken

    def shown(self, principal: Principal | None) -> None:
        """Charge the socket to the principal that was shown, None for a broker; may be called
        again. If that has as many sockets as it may, `LimitExceeded`: this one stays whose it was.
        """
        limiter, before = self._limiter, self._holder
        # A claim stays with the holder that made it until its message was dealt with.
        if not self._is_taken or (before is not None and self._size):
            return
        is_one = principal is not None and principal.name != ANYONE
        key = principal.name if principal is not None and is_one else id(self)
        holder = limiter.holders.get(key) or _Holder(is_broker=principal is None)
        if holder is before:
            return
        if principal is not None and is_one:
            self._check_sockets(holder, principal)
        if before is None:
            self.release()
            del limiter.strangers[self]
        else:
            before.sockets -= 1
        holder.sockets += 1
        limiter.holders[key] = self._holder = holder

    def _check_sockets(self, holder: _Holder, principal: Principal) -> None:
        most = (principal.limits.sessions or MAX_SESSIONS_OF_ONE) + MAX_ASKING
        if holder.sockets >= most:
            self._limiter.traffic.refused += 1
            raise LimitExceeded(
                f"the number of connections of {principal.name!r} at this broker",
                limit="limits.sessions + MAX_ASKING",
                maximum=most,
                remedy="close one, or have a grant with more sessions",
            )

    def keep(self, size: int) -> None:
        """Account for a stranger's input that has not come whole."""
        limiter = self._limiter
        if self._holder is None and self._is_taken:
            limiter.stranger_bytes += size - self._size
            self._size = size
            while limiter.stranger_bytes > STRANGER_BYTES:
                largest = max(limiter.strangers, key=lambda stranger: stranger._size)
                largest.give_up(f"strangers sent {STRANGER_BYTES} bytes (STRANGER_BYTES)")

    def claim(self, size: int, then: Callable[[], None]) -> bool:
        """Claim capacity for a message of so many bytes, in the stead of the one before. False if
        it has to wait: `then` is called once it is admitted, or once the slot is lost.
        """
        self.release()
        holder = self._holder
        if size <= MAX_GREETING_BYTES or holder is None or not self._is_taken:
            self.keep(size)
        elif not holder.waiting and holder.size + size <= SHARE_BYTES:
            self._admit(holder, size)
        elif len(holder.waiting) < MAX_WAITING:
            holder.waiting[self] = size, then
            return False
        else:
            self.give_up(
                f"{MAX_WAITING} messages wait for their share already (MAX_WAITING); {_AGAIN}"
            )
        return True

    def whole(self) -> None:
        """The message has come. It is worked on until `release`, with the socket or without."""
        if self._holder is not None and self._size:
            self._holder.unfinished.pop(self, None)
            self._is_whole = True

    def release(self) -> None:
        """The message was dealt with, or does not come any more."""
        limiter, holder, size = self._limiter, self._holder, self._size
        self._size, self._is_whole = 0, False
        if holder is None:
            limiter.stranger_bytes -= size
        elif size:
            limiter.size -= size
            holder.size -= size
            holder.unfinished.pop(self, None)
            while holder.waiting:
                slot, (wanted, then) = next(iter(holder.waiting.items()))
                if holder.size + wanted > SHARE_BYTES:
                    break
                del holder.waiting[slot]
                slot._admit(holder, wanted)
                then()

    def give_up(self, reason: str) -> None:
        """Others need what it has: its connection is cut."""
        self._limiter.traffic.refused += 1
        cut = self._cut
        self.leave()
        if cut is not None:
            cut(reason)

    def leave(self) -> None:
        """Give the slot back, as the socket is closed. May be called twice."""
        self._timer.cancel()
        if not self._is_taken:
            return
        self._is_taken, self._cut = False, None
        self._limiter.taken -= 1
        self._limiter.strangers.pop(self, None)
        waited = None
        if self._holder is not None:
            self._holder.sockets -= 1
            waited = self._holder.waiting.pop(self, None)
        if not self._is_whole:  # else the message is worked on still, and its request releases it
            self.release()
        if waited is not None:
            waited[1]()

    def _admit(self, holder: _Holder, size: int) -> None:
        limiter = self._limiter
        self._size, self._since = size, asyncio.get_running_loop().time()
        limiter.size += size
        holder.size += size
        holder.unfinished[self] = None
        limiter.relieve(self)
