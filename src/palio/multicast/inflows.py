"""`Inflows`: the flows to one broker from others: order, missing numbers, acks.

Events are delivered in the order of their numbers. Those that arrive early are held until the gap
before them is repaired, or the sender reports that it cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from palio.model.parcels import Parcel
from palio.multicast.datagrams import COUNT_BITS, Datagram
from palio.multicast.limits import (
    ACK_EVENTS,
    ACK_S,
    LACK_S,
    MAX_ALL_HELD_BYTES,
    MAX_FLOWS,
    MAX_HELD_BYTES,
    MAX_RANGES,
    MAX_TOGETHER,
    MOST_LACK_S,
)

_SPAN: Final = 1 << COUNT_BITS


class FlowAck(NamedTuple):
    """A receiver's progress in a flow, sent to the sender by links."""

    sender: str
    sender_incarnation: int
    stage: int
    """The stage of the last `FlowState`."""
    number: int
    """All events up to this number are acknowledged."""
    lacking: tuple[tuple[int, int], ...]
    """Ranges of missing later numbers, first to last, to be resent now."""


def count_at(counts: bytes, place: int) -> int:
    """Read a group member's count from a datagram.

    >>> count_at(bytes([0, 0, 0, 0, 7, 0, 0, 0]), 1)
    7
    """
    return int.from_bytes(counts[4 * place : 4 * place + 4], "little")


def number_near(low: int, known: int) -> int:
    """Return the number with these low bits that is nearest to a known one.

    >>> number_near(3, (1 << 31) + 1), number_near((1 << 31) - 1, (1 << 31) + 1)
    (2147483651, 2147483647)
    """
    delta = (low - known) % _SPAN
    return known + (delta - _SPAN if delta >= _SPAN // 2 else delta)


class _Inflow:
    """The flow from one sender."""

    __slots__ = (
        "ack_at",
        "asked",
        "held",
        "held_bytes",
        "incarnation",
        "lack_at",
        "more_at",
        "name",
        "news",
        "next",
        "stage",
        "top",
    )

    def __init__(self, name: str, incarnation: int, gone: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.stage = 0
        self.next = gone + 1
        """The number to deliver next."""
        self.top = gone
        """The greatest number the sender is known to have used."""
        self.held: dict[int, tuple[Parcel, bool]] = {}
        """Events that arrived early."""
        self.held_bytes = 0
        self.news = 0
        """Events received since the last ack."""
        self.ack_at = inf
        """Time to send an ack."""
        self.lack_at = inf
        """Time to ask for missing events."""
        self.more_at = inf
        """Time to deliver more of the held events."""
        self.asked = 0
        """Requests since the last progress."""

    def lacking(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of missing numbers."""
        first = self.next
        for number in (*sorted(self.held), self.top + 1):
            if number > first:
                yield first, number - 1
            first = number + 1


class Inflows:
    """The flows to a broker. `arrived` is called with events in order. Acks are left in `outgoing`;
    the caller takes them out.

    >>> from palio.model.row_parcels import RowParcel
    >>> came = []
    >>> flows = Inflows("b2", lambda parcel, durable: came.append(parcel.event["x"]))
    >>> flows.state("b1", 1, stage=0, number=0, gone=0, now=0.0)
    >>> flows.outgoing.pop()
    FlowAck(sender='b1', sender_incarnation=1, stage=0, number=0, lacking=())
    >>> for number in (2, 1):
    ...     flows.event("b1", 1, number, RowParcel("p", [{"x": number}]), durable=False, now=0.1)
    >>> came
    [1, 2]
    >>> flows.tick(0.5)
    >>> flows.outgoing.pop().number
    2
    """

    def __init__(
        self, name: str, arrived: Callable[[Parcel, bool], None], share: float = 1.0
    ) -> None:
        self.name = name
        self._share = share  # of the memory limits
        self.outgoing: list[FlowAck] = []
        self.lost = 0
        """Numbers that senders could no longer resend."""
        self.duplicates = 0
        """Events received before."""
        self.overflowed = 0
        """Early events dropped beyond a limit; they are asked for again."""
        self.wake_at = inf
        """Time of the next call of `tick`. Nothing may be due by then: a tight bound would need a
        pass over all flows after every event."""
        self._arrived = arrived
        self._flows: dict[str, _Inflow] = {}
        self._held_bytes = 0

    def knows(self, sender: str, incarnation: int) -> bool:
        """Return whether a flow from an incarnation of a sender has begun."""
        flow = self._flows.get(sender)
        return flow is not None and flow.incarnation == incarnation

    def state(
        self, sender: str, incarnation: int, *, stage: int, number: int, gone: int, now: float
    ) -> None:
        """Take a sender's report of its flow; a newer incarnation restarts the flow."""
        flow = self._flows.get(sender)
        if flow is not None and flow.incarnation > incarnation:
            return
        if flow is None or flow.incarnation < incarnation:
            if flow is None and len(self._flows) >= MAX_FLOWS:
                flow = self._flows.pop(next(iter(self._flows)))
            if flow is not None:
                while flow.next in flow.held:
                    self._deliver_held(flow, now)
                self._held_bytes -= flow.held_bytes
            flow = self._flows[sender] = _Inflow(sender, incarnation, gone)
        if gone >= flow.next:
            self._skip(flow, gone, now)
        flow.stage = stage
        self._note_top(flow, number, now)
        self._send_ack(flow)

    def datagram(self, datagram: Datagram, place: int, now: float) -> None:
        """Take a datagram to a group in which this broker has the given place."""
        flow = self._flows.get(datagram.source)
        if flow is None or flow.incarnation != datagram.incarnation:
            return
        count = count_at(datagram.counts, place)
        number = number_near(count >> 1, flow.next - 1)
        if count & 1 and datagram.parcel is not None:
            self._event(flow, number, datagram.parcel, durable=datagram.durable, now=now)
        else:
            self._note_top(flow, number, now)
            if datagram.parcel is None:
                self._send_ack(flow)

    def event(
        self,
        sender: str,
        incarnation: int,
        number: int,
        parcel: Parcel,
        *,
        durable: bool,
        now: float,
    ) -> None:
        """Take events that arrived by links."""
        flow = self._flows.get(sender)
        if flow is not None and flow.incarnation == incarnation:
            self._event(flow, number, parcel, durable=durable, now=now)

    def _event(
        self, flow: _Inflow, number: int, parcel: Parcel, *, durable: bool, now: float
    ) -> None:
        if flow.ack_at == inf:
            flow.ack_at = self._due(now + ACK_S)
        flow.news += 1
        if number < flow.next or number in flow.held:
            self.duplicates += 1
        elif number > flow.next:
            self._hold(flow, number, parcel, durable=durable)
            self._note_top(flow, number, now)
        else:
            flow.next += 1
            self._arrived(parcel, durable)
            self._deliver_held(flow, now)
        if flow.news >= ACK_EVENTS:
            self._send_ack(flow)

    def _hold(self, flow: _Inflow, number: int, parcel: Parcel, *, durable: bool) -> None:
        is_full = flow.held_bytes > MAX_HELD_BYTES * self._share
        if is_full or self._held_bytes > MAX_ALL_HELD_BYTES * self._share:
            self.overflowed += 1
            return
        flow.held[number] = (parcel, durable)
        self._account(flow, parcel.held_bytes)

    def _account(self, flow: _Inflow, nbytes: int) -> None:
        flow.held_bytes += nbytes
        self._held_bytes += nbytes

    def _note_top(self, flow: _Inflow, number: int, now: float) -> None:
        """Note that the sender has used numbers up to this one; ask later for missing ones."""
        flow.top = max(flow.top, number)
        if flow.next <= flow.top and flow.lack_at == inf:
            flow.lack_at = self._due(now + self._wait_s(flow))

    def _deliver_held(self, flow: _Inflow, now: float) -> None:
        """Deliver held events that are next, and not too many at once."""
        done = 0
        while flow.next in flow.held:
            if done == MAX_TOGETHER:
                flow.more_at = self._due(now)
                break
            done += 1
            parcel, durable = flow.held.pop(flow.next)
            self._account(flow, -parcel.held_bytes)
            flow.next += 1
            self._arrived(parcel, durable)
        flow.top = max(flow.top, flow.next - 1)
        if flow.lack_at < inf:
            flow.asked = 0
            lacks = flow.next <= flow.top
            flow.lack_at = self._due(now + self._wait_s(flow)) if lacks else inf

    def _skip(self, flow: _Inflow, gone: int, now: float) -> None:
        """Skip numbers that can no longer be resent, but deliver held events among them."""
        for number in sorted(flow.held):
            if number > gone:
                break
            self.lost += number - flow.next
            parcel, durable = flow.held.pop(number)
            self._account(flow, -parcel.held_bytes)
            flow.next = number + 1
            self._arrived(parcel, durable)
        self.lost += gone + 1 - flow.next
        flow.next = gone + 1
        self._deliver_held(flow, now)

    def _wait_s(self, flow: _Inflow) -> float:
        """Return the wait before asking, spread over receivers, as one repair may serve many."""
        wait_s = min(MOST_LACK_S, LACK_S * 2.0**flow.asked)
        share = crc32(f"{self.name}/{flow.name}/{flow.next}/{flow.asked}".encode()) / (1 << 32)
        return wait_s * (1 + share)

    def _send_ack(self, flow: _Inflow, lacking: tuple[tuple[int, int], ...] = ()) -> None:
        flow.news = 0
        flow.ack_at = inf
        self.outgoing.append(
            FlowAck(flow.name, flow.incarnation, flow.stage, flow.next - 1, lacking)
        )

    # --- time ---

    def _due(self, at: float) -> float:
        """Have `tick` called by a time."""
        self.wake_at = min(self.wake_at, at)
        return at

    def tick(self, now: float) -> None:
        """Send due acks, and ask for missing events."""
        if now < self.wake_at:
            return
        behind = next((each for each in self._flows.values() if now >= each.more_at), None)
        if behind is not None:
            behind.more_at = inf
            self._deliver_held(behind, now)
        for flow in self._flows.values():
            if now >= flow.lack_at:
                ranges = tuple(
                    each for each, _ in zip(flow.lacking(), range(MAX_RANGES), strict=False)
                )
                flow.asked += 1
                flow.lack_at = now + self._wait_s(flow)
                self._send_ack(flow, ranges)
            elif now >= flow.ack_at:
                self._send_ack(flow)
        flows = self._flows.values()
        due = (min(flow.ack_at, flow.lack_at, flow.more_at) for flow in flows)
        self.wake_at = min(due, default=inf)
