"""`Outflows`: the flows from one broker to others: numbers, window, history and repair.

A flow is known by its receiver and has its numbers. What was sent and not received is kept, in the
order of the numbers, so that the place in that line is the number. A datagram, and what goes by
links to several, is kept once for all flows that it is of.
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
from palio.multicast.flow_paths import FlowPaths, GroupWay
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
    UnheardEvents,
    WaitingEvents,
)

Said: TypeAlias = Datagram | ByLinks | FlowState


class Outflows:
    """The flows from a broker. What is to be sent is left in `said`; the caller takes it out.

    >>> from palio.model.row_parcels import RowParcel
    >>> flows = Outflows("b1", incarnation=1)
    >>> flows.begin("b2", incarnation=5)
    >>> flows.said.pop()
    FlowState(receiver='b2', receiver_life=5, stage=0, number=0, gone=0, is_cast=False)
    >>> flows.can_reach("b2")
    False
    >>> flows.hear("b2", 5, stage=0, number=0, lacking=(), now=0.0)
    >>> flows.said.pop().stage, flows.can_reach("b2")
    (1, True)
    >>> flows.send(RowParcel("p", [{"x": 1}]), ("b2",), now=0.0)
    >>> flows.said.pop().to
    (('b2', 1),)
    """

    def __init__(self, name: str, incarnation: int, share: float = 1.0) -> None:
        self.name = name
        self.incarnation = incarnation
        self._share = share
        """Share of the memory limits."""
        self.said: list[Said] = []
        self.moved: list[str] = []
        """Receivers that were moved to links. The caller takes them out."""
        self.lost = 0
        """Events that were forgotten before they were received."""
        self.window: float = FIRST_WINDOW
        self.datagrams = 0
        """Sent so far."""
        self.repaired = 0
        """Events sent again."""
        self._flows: dict[str, Outflow] = {}
        self.paths = FlowPaths(self._flows)
        self._ended = Bounded[str, int](MAX_FLOWS)
        """The last numbers of flows that ended: receivers may come back in the same incarnation."""
        self._waiting: deque[WaitingEvents] = deque()
        self._waiting_bytes = 0
        self._under_way = 0
        """Datagrams that somebody keeps the window shut for."""
        self._history_bytes = 0
        self._calm: float = MOST_WINDOW
        """Up to this the window grows fast."""
        self._halved_at = -inf
        self._shut_since = self._more_at = inf
        self._tail_s = TAIL_S
        self._tail_at = inf
        self._back_at = inf
        """Time at which the next receiver on links may come back."""

    # --- receivers ---

    def begin(self, broker: str, incarnation: int) -> None:
        """A broker takes part, in an incarnation of it: its flow begins, or starts over."""
        before = self._flows.get(broker)
        if before is not None and before.incarnation == incarnation:
            return
        if before is not None:
            self.end(broker)
        flow = self._flows[broker] = Outflow(broker, incarnation, self._ended.pop(broker, 0))
        self.paths.forget()
        self.said.append(flow.state)
        self._tail_soon(0.0)

    def end(self, broker: str) -> None:
        """A broker takes part no longer. What it has not received is lost, and so is what waits to
        be sent to it: that has numbers too, so that the broker is informed if it comes back.
        """
        flow = self._flows.pop(broker, None)
        if flow is None:
            return
        self._lose(flow, len(flow.unheard))
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            others = tuple(name for name in each.brokers if name != broker)
            self._waiting.append(each._replace(brokers=others))
            flow.number += len(each.brokers) - len(others)
        self.lost += flow.number - flow.gone
        self._ended[broker] = flow.number
        self.paths.forget()

    def parted(self, brokers: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Divide brokers into those reached by their flows, and the others."""
        found = self.paths.parted.get(brokers)
        if found is None:
            reached = tuple(filter(self.can_reach, brokers))
            others = tuple(name for name in brokers if not self.can_reach(name))
            found = self.paths.parted[brokers] = reached, others
        return found

    def can_reach(self, broker: str) -> bool:
        """Return whether events for a broker go by its flow."""
        flow = self._flows.get(broker)
        return flow is not None and flow.stage > 0

    def receivers(self) -> dict[str, bool]:
        """Those of all flows, each with whether it is sent datagrams."""
        return {name: flow.is_cast for name, flow in self._flows.items()}

    @property
    def slow(self) -> list[str]:
        """Those that were moved to links, and have not received all since."""
        return [name for name, flow in self._flows.items() if not flow.may_cast]

    def join(self, broker: str, plans: tuple[int, ...]) -> None:
        """A broker receives the groups of these plans."""
        flow = self._flows.get(broker)
        if flow is not None and flow.joined != plans:
            flow.joined = plans
            self._look(flow)

    def use(self, epoch: Epoch | None) -> None:
        """Send to the groups of this plan from now on, or to none."""
        self.paths.epoch = epoch
        for flow in self._flows.values():
            self._look(flow)
        self.paths.forget()

    def _look(self, flow: Outflow) -> None:
        """Find out whether a receiver is sent datagrams from now on."""
        is_in = self.paths.epoch is not None and self.paths.epoch.id in flow.joined
        is_cast = is_in and flow.may_cast and flow.stage > 1
        if is_cast == flow.is_cast:
            return
        flow.is_cast = is_cast
        self.paths.forget()
        if not is_cast:  # the window does not wait for it any longer
            for sent in islice(flow.unheard, flow.released - flow.heard, None):
                self._unblock(sent)
            flow.released = flow.number
            self._more_at = 0.0

    def _unblock(self, sent: UnheardEvents) -> None:
        if sent.blocks:
            sent.blocks -= 1
            if not sent.blocks:
                self._under_way -= 1

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
        """Send events to receivers that can be reached; only what is small goes in datagrams."""
        waiting = WaitingEvents(parcel, durable, brokers, is_small)
        if self._waiting or self._under_way >= self.window:
            if not self._waiting:
                self._shut_since = now
                self._tell_tails(now, 0.0)
            self._waiting.append(waiting)
            self._waiting_bytes += parcel.held_bytes
            if self._waiting_bytes > MAX_WAITING_BYTES * self._share:
                self._move_slowest(now)
        else:
            self._send(waiting, now)
        self._tail_soon(now + TAIL_S)

    def _send(self, what: WaitingEvents, now: float) -> None:
        way = self.paths.to(what.brokers)
        parcel, flows = what.parcel, way.flows
        if not flows:
            return
        for flow in flows:
            flow.number += 1
            if not flow.unheard:
                flow.further_at = now
        if what.is_small:
            for each in way.groups:
                self._cast(parcel, each, now, durable=what.durable)
            by_links = way.by_links
        else:
            by_links = flows
        if by_links:
            sent = UnheardEvents(parcel, now, durable=what.durable, open=len(by_links))
            for flow in by_links:
                flow.unheard.append(sent)
            to = tuple((flow.name, flow.number) for flow in by_links)
            self.said.append(ByLinks(parcel, what.durable, to))
            self._history_bytes += parcel.held_bytes
        if self._history_bytes > MAX_HISTORY_BYTES * self._share:
            self._relieve(flows)

    def _cast(self, parcel: Parcel, way: GroupWay, now: float, *, durable: bool) -> None:
        """Send events to one group."""
        heard_by = way.heard_by
        sent = UnheardEvents(parcel, now, durable=durable, open=len(heard_by))
        sent.blocks = len(heard_by)
        for flow in heard_by:
            flow.unheard.append(sent)
        sent.datagram = self._datagram(way, parcel, durable=durable)
        self.said.append(sent.datagram)
        self._under_way += 1
        self._history_bytes += parcel.held_bytes

    def _datagram(
        self, way: GroupWay, parcel: Parcel | None = None, *, durable: bool = False
    ) -> Datagram:
        """The next: events for a group, or how far the flows of its members have got."""
        assert self.paths.epoch is not None
        self.datagrams += 1
        plan, counts = self.paths.epoch.id, way.counts()
        return Datagram(
            self.name, self.incarnation, plan, way.group, self.datagrams, counts, parcel, durable
        )

    # --- what receivers say ---

    def hear(
        self,
        broker: str,
        incarnation: int,
        *,
        stage: int,
        number: int,
        lacking: Sequence[tuple[int, int]],
        now: float,
    ) -> None:
        """Take a receiver's report of how far it has got, and what it lacks of what came after."""
        flow = self._flows.get(broker)
        if flow is None or flow.incarnation != incarnation or number > flow.number:
            return
        if stage == flow.stage < 2:  # it is there; from now on events go by its flow
            flow.stage += 1
            self.paths.forget()
            self.said.append(flow.state)
            self._look(flow)
        done = number - flow.heard
        if done > 0:
            self._heard(flow, done, now)
        if lacking and flow.stage:
            self._repair(flow, lacking, now)

    def _heard(self, flow: Outflow, done: int, now: float) -> None:
        before = self._under_way
        flow.further_at = now
        self._forget(flow, done)
        done = before - self._under_way
        if done:
            self.window = min(
                MOST_WINDOW,
                self.window + (done if self.window < self._calm else done / self.window),
            )
        self._try_again(flow, now)
        self._go_on(now)

    def _forget(self, flow: Outflow, count: int) -> None:
        """The first of what a receiver has not received need not be kept for it any longer."""
        unheard = flow.unheard
        for number in range(flow.heard + 1, flow.heard + count + 1):
            sent = unheard.popleft()
            if number > flow.released:
                self._unblock(sent)
            sent.open -= 1
            if not sent.open:
                self._history_bytes -= sent.parcel.held_bytes
        flow.heard += count
        flow.released = max(flow.released, flow.heard)

    def _go_on(self, now: float) -> None:
        """Send of what waits for the window as much as goes through, and not too much at once."""
        done = 0
        while self._waiting and self._under_way < self.window:
            if done == MAX_TOGETHER:
                self._more_at = now
                return
            done += 1
            waiting = self._waiting.popleft()
            self._waiting_bytes -= waiting.parcel.held_bytes
            self._shut_since = now
            self._send(waiting, now)
        if not self._waiting:
            self._shut_since = inf
        elif self._shut_since == now:
            self._tell_tails(now, 0.0)

    def _repair(self, flow: Outflow, lacking: Iterable[tuple[int, int]], now: float) -> None:
        if flow.is_cast and now - self._halved_at > LACK_S:
            self._halved_at = now
            self._calm = self.window = max(LEAST_WINDOW, self.window / 2)
        is_stuck = now >= flow.further_at + LINK_S
        if is_stuck:
            flow.further_at = now
        numbers = (
            number
            for first, last in lacking
            for number in range(max(first, flow.heard + 1), min(last, flow.number) + 1)
        )
        done = 0
        for number in islice(numbers, MAX_LOST):
            sent = flow.unheard[number - flow.heard - 1]
            went_by_links = sent.datagram is None or sent.asked_by == flow.name
            if is_stuck or not went_by_links:
                self._repeat(flow, number, sent, now)
                done += 1
                if done >= MAX_REPAIRED:
                    break
        if any(first <= flow.gone for first, _ in lacking):
            self.said.append(flow.state)
        if flow.is_cast and flow.lacks_most():
            self._move(flow, now)

    def _repeat(self, flow: Outflow, number: int, sent: UnheardEvents, now: float) -> None:
        """Send events again: by links to the first who asks, to the group if another does, and by
        links again to who does not receive that either.
        """
        if now - sent.repeated_at < LACK_S:
            return  # it is on its way to all
        self.repaired += 1
        flow.repaired += 1
        is_new = sent.repeated_at == -inf and sent.asked_by not in ("", flow.name)
        if is_new and sent.datagram is not None and flow.is_cast:
            sent.repeated_at = now
            self.said.append(sent.datagram)
        else:
            sent.asked_by = flow.name
            self.said.append(ByLinks(sent.parcel, sent.durable, ((flow.name, number),)))

    # --- time ---

    @property
    def wake_at(self) -> float:
        """Time of the next call of `tick`."""
        return min(self._tail_at, self._more_at, self._shut_since + SLOW_S, self._back_at)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if now >= self._more_at:
            self._more_at = inf
            self._go_on(now)
        if now >= self._shut_since + SLOW_S:
            self._move_slowest(now)
        if now >= self._tail_at:
            self._tell_tails(now)
        if now >= self._back_at:
            for flow in self._flows.values():
                self._try_again(flow, now)
            later = (flow.back_at for flow in self._flows.values() if flow.back_at > now)
            self._back_at = min(later, default=inf)

    def _try_again(self, flow: Outflow, now: float) -> None:
        """A receiver that was moved to links and has caught up comes back."""
        if not flow.unheard and not flow.may_cast and now >= flow.back_at:
            flow.come_back()
            self._look(flow)

    def _tail_soon(self, at: float) -> None:
        self._tail_s = TAIL_S
        self._tail_at = min(self._tail_at, at)

    def _tell_tails(self, now: float, after_s: float = TAIL_S) -> None:
        """Say how far flows have got of which not all was received, and to which nothing was sent
        after: by the group, and by links to who has not received something for long.
        """
        groups: dict[int, GroupWay] = {}
        plan = None if self.paths.epoch is None else self.paths.epoch.id
        is_open = False
        for flow in self._flows.values():
            if flow.stage > 1 and not flow.unheard:
                continue
            is_open = True
            is_late = not flow.unheard or now - flow.unheard[0].at >= MOST_TAIL_S
            if not is_late and now - flow.unheard[-1].at < after_s:
                continue
            datagram = None if is_late else flow.unheard[-1].datagram
            if flow.is_cast and datagram is not None and datagram.plan == plan:
                group = datagram.group
                if group not in groups:
                    groups[group] = self.paths.to_group(group, ())
            else:
                self.said.append(flow.state)
        self.said += map(self._datagram, groups.values())
        self._tail_at = now + self._tail_s if is_open or self._waiting else inf
        self._tail_s = min(MOST_TAIL_S, 2 * self._tail_s)

    def flush(self, now: float) -> None:
        """Nobody will be here to be asked: what was not received and what waits goes by links."""
        to: dict[UnheardEvents, list[tuple[str, int]]] = {}
        for flow in self._flows.values():
            for number, sent in enumerate(flow.unheard, flow.heard + 1):
                if sent.datagram is not None:
                    to.setdefault(sent, []).append((flow.name, number))
        self.said += (ByLinks(sent.parcel, sent.durable, tuple(to[sent])) for sent in to)
        self.use(None)
        while self._waiting:
            self._go_on(now)

    def _move_slowest(self, now: float) -> None:
        """A receiver that has not received the oldest datagram is moved to links: the window waits
        for it.
        """
        cast = self._flows.values() if self._under_way >= self.window else ()
        oldest = {flow.name: flow.oldest for flow in cast if flow.is_cast}
        first = min(oldest.values(), default=inf)
        for name, number in oldest.items():
            if number == first < inf:
                self._move(self._flows[name], now)
        self._shut_since = now if self._waiting else inf
        self._go_on(now)

    def _move(self, flow: Outflow, now: float) -> None:
        """A receiver does not keep up with datagrams: it is sent all by links, for longer each time
        that it comes back and is no better.
        """
        flow.move(now)
        self._back_at = min(self._back_at, flow.back_at)
        self.moved.append(flow.name)
        self._look(flow)
        self.said.append(flow.state)

    def _relieve(self, sent_to: Collection[Outflow]) -> None:
        """Too much is kept: flows lose of the older half of what was not received, that first which
        has waited longest. What was sent just now is kept, however large it is.
        """
        while self._history_bytes > MAX_HISTORY_BYTES * self._share:
            most = {each: len(each.unheard) - (each in sent_to) for each in self._flows.values()}
            behind = [each for each, count in most.items() if count > 0]
            if not behind:
                break
            flow = min(behind, key=lambda each: each.unheard[0].at)
            self._lose(flow, min(len(flow.unheard) // 2 + 1, most[flow], MAX_LOST))
            self.said.append(flow.state)
        self._more_at = 0.0  # not from here: what is sent then may call for this again

    def _lose(self, flow: Outflow, count: int) -> None:
        """The first of what a receiver has not received cannot be had any longer."""
        self._forget(flow, count)
        self.lost += count
        flow.gone = flow.heard
