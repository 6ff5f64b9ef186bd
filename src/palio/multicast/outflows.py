"""`Outflows`: the flows from one broker to others: numbers, window, history and repair.

A flow numbers the events to one receiver. Unacknowledged events are kept in the order of their
numbers, so that an event's index in the queue gives its number. A datagram, or a message by links
to several receivers, is kept once for all flows that it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from math import inf
from typing import TypeAlias

from palio.bounded import Bounded
from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.multicast.epochs import Epoch
from palio.multicast.flow_paths import FlowPaths, GroupRoute
from palio.multicast.limits import (
    FIRST_WINDOW,
    LACK_S,
    LEAST_WINDOW,
    LINK_S,
    MAX_FLOWS,
    MAX_HISTORY_BYTES,
    MAX_LOST,
    MAX_REPAIRED,
    MAX_TOGETHER,
    MAX_WAITING_BYTES,
    MOST_TAIL_S,
    MOST_WINDOW,
    SLOW_S,
    TAIL_S,
)
from palio.multicast.outflow import (
    ByLinks,
    FlowState,
    Outflow,
    PendingEvents,
    UnackedEvents,
)

FlowMessage: TypeAlias = Datagram | ByLinks | FlowState


class Outflows:
    """The flows from a broker. Messages to send are left in `outgoing`; the caller takes them out.

    >>> from palio.model.row_parcels import RowParcel
    >>> flows = Outflows("b1", incarnation=1)
    >>> flows.begin("b2", incarnation=5)
    >>> flows.outgoing.pop()
    FlowState(receiver='b2', receiver_life=5, stage=0, number=0, gone=0, is_cast=False)
    >>> flows.can_reach("b2")
    False
    >>> flows.receive_ack("b2", 5, stage=0, number=0, lacking=(), now=0.0)
    >>> flows.outgoing.pop().stage, flows.can_reach("b2")
    (1, True)
    >>> flows.send(RowParcel("p", [{"x": 1}]), ("b2",), now=0.0)
    >>> flows.outgoing.pop().to
    (('b2', 1),)
    """

    def __init__(self, name: str, incarnation: int, share: float = 1.0) -> None:
        self.name = name
        self.incarnation = incarnation
        self._share = share  # of the memory limits
        self.outgoing: list[FlowMessage] = []
        self.moved: list[str] = []
        """Receivers that were moved to links. The caller takes them out."""
        self.lost = 0
        """Events evicted before they were acknowledged."""
        self.window: float = FIRST_WINDOW
        self.datagrams = 0
        """Datagrams sent so far."""
        self.repaired = 0
        """Events resent so far."""
        self._flows: dict[str, Outflow] = {}
        self.paths = FlowPaths(self._flows)
        self._ended = Bounded[str, int](MAX_FLOWS)
        """The last numbers of ended flows: a receiver may return in the same incarnation."""
        self._pending: deque[PendingEvents] = deque()
        self._pending_bytes = 0
        self._in_flight = 0
        """Datagrams that lack an ack which the window needs."""
        self._history_bytes = 0
        self._slow_start_until: float = MOST_WINDOW
        """The window up to which each ack widens it by one; beyond, it grows by one a window."""
        self._halved_at = -inf
        self._shut_since = self._more_at = inf
        self._tail_s = TAIL_S
        self._tail_at = inf
        self._back_at = inf
        """Time to retry datagrams with the next receiver on links."""

    # --- receivers ---

    def begin(self, broker: str, incarnation: int) -> None:
        """Begin the flow to a broker, or restart it for a new incarnation of the broker."""
        before = self._flows.get(broker)
        if before is not None and before.incarnation == incarnation:
            return
        if before is not None:
            self.end(broker)
        flow = self._flows[broker] = Outflow(broker, incarnation, self._ended.pop(broker, 0))
        self.paths.forget()
        self.outgoing.append(flow.state)
        self._tail_soon(0.0)

    def end(self, broker: str) -> None:
        """End the flow to a broker. Unacknowledged and pending events are lost.

        Pending ones get numbers, too, so that the broker sees the gap if it returns.
        """
        flow = self._flows.pop(broker, None)
        if flow is None:
            return
        self._lose(flow, len(flow.unacked))
        pending, self._pending = self._pending, deque()
        for each in pending:
            others = tuple(name for name in each.brokers if name != broker)
            self._pending.append(each._replace(brokers=others))
            flow.number += len(each.brokers) - len(others)
        self.lost += flow.number - flow.gone
        self._ended[broker] = flow.number
        self.paths.forget()

    def split(self, brokers: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split brokers into those reached by their flows, and the others."""
        split = self.paths.split.get(brokers)
        if split is None:
            reached = tuple(filter(self.can_reach, brokers))
            others = tuple(name for name in brokers if not self.can_reach(name))
            split = self.paths.split[brokers] = reached, others
        return split

    def can_reach(self, broker: str) -> bool:
        """Return whether events for a broker go by its flow."""
        flow = self._flows.get(broker)
        return flow is not None and flow.stage > 0

    def receivers(self) -> dict[str, bool]:
        """Map the receivers of all flows to whether they are sent datagrams."""
        return {name: flow.is_cast for name, flow in self._flows.items()}

    @property
    def slow(self) -> list[str]:
        """The receivers that are served by links, as they did not keep up."""
        return [name for name, flow in self._flows.items() if not flow.may_cast]

    def join(self, broker: str, plans: tuple[int, ...]) -> None:
        """Note the plans whose groups a broker has joined."""
        flow = self._flows.get(broker)
        if flow is not None and flow.joined != plans:
            flow.joined = plans
            self._update_cast(flow)

    def use(self, epoch: Epoch | None) -> None:
        """Use the groups of a plan from now on, or none."""
        self.paths.epoch = epoch
        for flow in self._flows.values():
            self._update_cast(flow)
        self.paths.forget()

    def _update_cast(self, flow: Outflow) -> None:
        """Update whether a receiver is sent datagrams."""
        is_in = self.paths.epoch is not None and self.paths.epoch.id in flow.joined
        is_cast = is_in and flow.may_cast and flow.stage > 1
        if is_cast == flow.is_cast:
            return
        flow.is_cast = is_cast
        self.paths.forget()
        if not is_cast:  # the window no longer needs its acks
            for sent in islice(flow.unacked, flow.released - flow.acked, None):
                self._unblock(sent)
            flow.released = flow.number
            self._more_at = 0.0

    def _unblock(self, sent: UnackedEvents) -> None:
        if sent.blocks:
            sent.blocks -= 1
            if not sent.blocks:
                self._in_flight -= 1

    # --- events ---

    def send(
        self,
        parcel: Parcel,
        brokers: tuple[str, ...],
        *,
        durable: bool = False,
        is_small: bool = True,
        now: float,
    ) -> None:
        """Send events to receivers that can be reached; only small ones go in datagrams."""
        pending = PendingEvents(parcel, durable, brokers, is_small)
        if self._pending or self._in_flight >= self.window:
            if not self._pending:
                self._shut_since = now
                self._report_tails(now, 0.0)
            self._pending.append(pending)
            self._pending_bytes += parcel.held_bytes
            if self._pending_bytes > MAX_WAITING_BYTES * self._share:
                self._move_slowest(now)
        else:
            self._send(pending, now)
        self._tail_soon(now + TAIL_S)

    def _send(self, what: PendingEvents, now: float) -> None:
        route = self.paths.to(what.brokers)
        parcel, flows = what.parcel, route.flows
        if not flows:
            return
        for flow in flows:
            flow.number += 1
            if not flow.unacked:
                flow.progressed_at = now
        if what.is_small:
            for each in route.groups:
                self._cast(parcel, each, now, durable=what.durable)
            by_links = route.by_links
        else:
            by_links = flows
        if by_links:
            sent = UnackedEvents(parcel, now, durable=what.durable, open=len(by_links))
            for flow in by_links:
                flow.unacked.append(sent)
            to = tuple((flow.name, flow.number) for flow in by_links)
            self.outgoing.append(ByLinks(parcel, what.durable, to))
            self._history_bytes += parcel.held_bytes
        if self._history_bytes > MAX_HISTORY_BYTES * self._share:
            self._relieve(flows)

    def _cast(self, parcel: Parcel, route: GroupRoute, now: float, *, durable: bool) -> None:
        """Send events to one group."""
        receivers = route.receivers
        sent = UnackedEvents(parcel, now, durable=durable, open=len(receivers))
        sent.blocks = len(receivers)
        for flow in receivers:
            flow.unacked.append(sent)
        sent.datagram = self._datagram(route, parcel, durable=durable)
        self.outgoing.append(sent.datagram)
        self._in_flight += 1
        self._history_bytes += parcel.held_bytes

    def _datagram(
        self, route: GroupRoute, parcel: Parcel | None = None, *, durable: bool = False
    ) -> Datagram:
        """Make the next datagram: events for a group, or a report of its members' flows."""
        assert self.paths.epoch is not None
        self.datagrams += 1
        plan, counts = self.paths.epoch.id, route.counts()
        return Datagram(
            self.name, self.incarnation, plan, route.group, self.datagrams, counts, parcel, durable
        )

    # --- acks ---

    def receive_ack(
        self,
        broker: str,
        incarnation: int,
        *,
        stage: int,
        number: int,
        lacking: Sequence[tuple[int, int]],
        now: float,
    ) -> None:
        """Take a receiver's ack up to a number, and its request for missing later events."""
        flow = self._flows.get(broker)
        if flow is None or flow.incarnation != incarnation or number > flow.number:
            return
        if stage == flow.stage < 2:  # confirmed: from stage 1 on, events go by its flow
            flow.stage += 1
            self.paths.forget()
            self.outgoing.append(flow.state)
            self._update_cast(flow)
        done = number - flow.acked
        if done > 0:
            self._acked(flow, done, now)
        if lacking and flow.stage:
            self._repair(flow, lacking, now)

    def _acked(self, flow: Outflow, done: int, now: float) -> None:
        before = self._in_flight
        flow.progressed_at = now
        self._forget(flow, done)
        done = before - self._in_flight
        if done:
            self.window = min(
                MOST_WINDOW,
                self.window
                + (done if self.window < self._slow_start_until else done / self.window),
            )
        self._retry_cast(flow, now)
        self._send_pending(now)

    def _forget(self, flow: Outflow, count: int) -> None:
        """Release a receiver's first unacknowledged events."""
        unacked = flow.unacked
        for number in range(flow.acked + 1, flow.acked + count + 1):
            sent = unacked.popleft()
            if number > flow.released:
                self._unblock(sent)
            sent.open -= 1
            if not sent.open:
                self._history_bytes -= sent.parcel.held_bytes
        flow.acked += count
        flow.released = max(flow.released, flow.acked)

    def _send_pending(self, now: float) -> None:
        """Send pending events that fit the window, and not too many at once."""
        done = 0
        while self._pending and self._in_flight < self.window:
            if done == MAX_TOGETHER:
                self._more_at = now
                return
            done += 1
            pending = self._pending.popleft()
            self._pending_bytes -= pending.parcel.held_bytes
            self._shut_since = now
            self._send(pending, now)
        if not self._pending:
            self._shut_since = inf
        elif self._shut_since == now:
            self._report_tails(now, 0.0)

    def _repair(self, flow: Outflow, lacking: Iterable[tuple[int, int]], now: float) -> None:
        if flow.is_cast and now - self._halved_at > LACK_S:
            self._halved_at = now
            self._slow_start_until = self.window = max(LEAST_WINDOW, self.window / 2)
        is_stuck = now >= flow.progressed_at + LINK_S
        if is_stuck:
            flow.progressed_at = now
        numbers = (
            number
            for first, last in lacking
            for number in range(max(first, flow.acked + 1), min(last, flow.number) + 1)
        )
        done = 0
        for number in islice(numbers, MAX_LOST):
            sent = flow.unacked[number - flow.acked - 1]
            went_by_links = sent.datagram is None or sent.asked_by == flow.name
            if is_stuck or not went_by_links:
                self._resend(flow, number, sent, now)
                done += 1
                if done >= MAX_REPAIRED:
                    break
        if any(first <= flow.gone for first, _ in lacking):
            self.outgoing.append(flow.state)
        if flow.is_cast and flow.lacks_half():
            self._move(flow, now)

    def _resend(self, flow: Outflow, number: int, sent: UnackedEvents, now: float) -> None:
        """Resend events: by links to the first receiver that asks, to the group if a second one
        does, then by links to each that still lacks them.
        """
        if now - sent.repeated_at < LACK_S:
            return  # just resent to the group
        self.repaired += 1
        flow.repaired += 1
        is_new = sent.repeated_at == -inf and sent.asked_by not in ("", flow.name)
        if is_new and sent.datagram is not None and flow.is_cast:
            sent.repeated_at = now
            self.outgoing.append(sent.datagram)
        else:
            sent.asked_by = flow.name
            self.outgoing.append(ByLinks(sent.parcel, sent.durable, ((flow.name, number),)))

    # --- time ---

    @property
    def wake_at(self) -> float:
        """Time of the next call of `tick`."""
        return min(self._tail_at, self._more_at, self._shut_since + SLOW_S, self._back_at)

    def tick(self, now: float) -> None:
        """Do what is due by now."""
        if now >= self._more_at:
            self._more_at = inf
            self._send_pending(now)
        if now >= self._shut_since + SLOW_S:
            self._move_slowest(now)
        if now >= self._tail_at:
            self._report_tails(now)
        if now >= self._back_at:
            for flow in self._flows.values():
                self._retry_cast(flow, now)
            later = (flow.retry_at for flow in self._flows.values() if flow.retry_at > now)
            self._back_at = min(later, default=inf)

    def _retry_cast(self, flow: Outflow, now: float) -> None:
        """Send datagrams again to a receiver on links that has caught up, once its backoff ends."""
        if not flow.unacked and not flow.may_cast and now >= flow.retry_at:
            flow.resume_cast()
            self._update_cast(flow)

    def _tail_soon(self, at: float) -> None:
        self._tail_s = TAIL_S
        self._tail_at = min(self._tail_at, at)

    def _report_tails(self, now: float, after_s: float = TAIL_S) -> None:
        """Report the last number of flows with unacknowledged events and no later traffic.

        The report goes to the group, and by links to receivers that lack an event for long. It is
        how a receiver detects the loss of the last events.
        """
        groups: dict[int, GroupRoute] = {}
        plan = None if self.paths.epoch is None else self.paths.epoch.id
        is_open = False
        for flow in self._flows.values():
            if flow.stage > 1 and not flow.unacked:
                continue
            is_open = True
            is_late = not flow.unacked or now - flow.unacked[0].at >= MOST_TAIL_S
            if not is_late and now - flow.unacked[-1].at < after_s:
                continue
            datagram = None if is_late else flow.unacked[-1].datagram
            if flow.is_cast and datagram is not None and datagram.plan == plan:
                group = datagram.group
                if group not in groups:
                    groups[group] = self.paths.to_group(group, ())
            else:
                self.outgoing.append(flow.state)
        self.outgoing += map(self._datagram, groups.values())
        self._tail_at = now + self._tail_s if is_open or self._pending else inf
        self._tail_s = min(MOST_TAIL_S, 2 * self._tail_s)

    def flush(self, now: float) -> None:
        """Send unacknowledged and pending events by links, as this broker is about to stop and can
        answer no request.
        """
        to: dict[UnackedEvents, list[tuple[str, int]]] = {}
        for flow in self._flows.values():
            for number, sent in enumerate(flow.unacked, flow.acked + 1):
                if sent.datagram is not None:
                    to.setdefault(sent, []).append((flow.name, number))
        self.outgoing += (ByLinks(sent.parcel, sent.durable, tuple(to[sent])) for sent in to)
        self.use(None)
        while self._pending:
            self._send_pending(now)

    def _move_slowest(self, now: float) -> None:
        """Move the receivers that lack the oldest datagram, which shuts the window, to links."""
        cast = self._flows.values() if self._in_flight >= self.window else ()
        oldest = {flow.name: flow.oldest for flow in cast if flow.is_cast}
        first = min(oldest.values(), default=inf)
        for name, number in oldest.items():
            if number == first < inf:
                self._move(self._flows[name], now)
        self._shut_since = now if self._pending else inf
        self._send_pending(now)

    def _move(self, flow: Outflow, now: float) -> None:
        """Serve a receiver that does not keep up by links, for longer after each vain retry."""
        flow.move_to_links(now)
        self._back_at = min(self._back_at, flow.retry_at)
        self.moved.append(flow.name)
        self._update_cast(flow)
        self.outgoing.append(flow.state)

    def _relieve(self, sent_to: Collection[Outflow]) -> None:
        """Evict history beyond its limit: each time from the older half of the flow whose first
        unacknowledged event is the oldest. Events just sent are kept, however large they are.
        """
        while self._history_bytes > MAX_HISTORY_BYTES * self._share:
            most = {each: len(each.unacked) - (each in sent_to) for each in self._flows.values()}
            behind = [flow for flow, count in most.items() if count > 0]
            if not behind:
                break
            flow = min(behind, key=lambda flow: flow.unacked[0].at)
            self._lose(flow, min(len(flow.unacked) // 2 + 1, most[flow], MAX_LOST))
            self.outgoing.append(flow.state)
        self._more_at = 0.0  # `tick` sends pending events: sending them here could recurse

    def _lose(self, flow: Outflow, count: int) -> None:
        """Give up a receiver's first unacknowledged events."""
        self._forget(flow, count)
        self.lost += count
        flow.gone = flow.acked
