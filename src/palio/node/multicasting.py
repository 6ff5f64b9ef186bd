"""Connect the multicast flows to a broker: the events that it addresses to others, and receives.

With a plan of groups, events go by flows (docs/concepts/multicast.md, "On the network").
`palio.multicast.outflows` and `inflows` are the flows; this module gives them facts, links and
clients. Facts state the participants and the plan in force. Links carry events that no group
carries, and the flows' states and acks. Received events go to the clients here as any others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.multicast.datagrams import Datagram
from palio.multicast.epochs import Epoch
from palio.multicast.inflows import FlowAck, Inflows
from palio.multicast.limits import JOIN_S
from palio.multicast.outflow import ByLinks, FlowState
from palio.multicast.outflows import FlowMessage, Outflows
from palio.node.addressed_forwarding import AddressedForwarding
from palio.node.core import Core
from palio.node.effects import Cast, Tune
from palio.node.fact_verifier import PART, REMOVED
from palio.node.limits import MEMORY_BYTES
from palio.node.participants import Participants, text_of
from palio.node.replanning import Replanning
from palio.node.sessions import Neighbour
from palio.protocol.datagrams import fits
from palio.protocol.messages import Addressed, Fact, FlowAcks, FlowStatus, Forward
from palio.routing.protocol import Addressing, Destined, Peer

EARLY_S: Final = 1e-6
"""A timer due within this time is due: sums of times differ by the order of their addition."""


class Multicasting:
    """Run the flows of one broker; `arrived` is called with the events that they deliver."""

    def __init__(self, core: Core, arrived: Callable[[Parcel, bool], None]) -> None:
        self._core = core
        router = core.router
        self._router = router if isinstance(router, Addressing) else None
        self._arrived = arrived
        self._forwarding = AddressedForwarding(core, self._router)
        self.participants = Participants()
        self._replanning = Replanning(core)
        self._incarnation = 0
        share = self._share = min(1.0, core.settings.memory_bytes / MEMORY_BYTES)
        self._out = Outflows(core.name, 0, share)
        self._in = Inflows(core.name, self._arrive, share)
        self._epochs: dict[int, Epoch] = {}
        """Plans whose groups are joined, by id, the newest last."""
        self._members: dict[tuple[int, int], tuple[int, int]] = {}
        """By plan and group: the index of this broker among its members, and their number."""
        self._used = 0
        """The plan by which this broker sends; 0 for none."""
        self._since = 0.0
        """When this broker received the newest plan."""
        self.dropped = 0
        """Datagrams of plans and groups that this broker has not joined."""
        self._lost = 0

    # --- incarnation ---

    def begin(self) -> None:
        """Start the flows of a new incarnation, with a greater number than any earlier one."""
        core = self._core
        if self._router is None:
            return
        stated = core.durability.cluster_state.fact(core.name, PART)
        earlier = 0 if stated is None else stated.claimed_us
        self._incarnation = max(core.at.wall_us, earlier + 1)
        self._out = Outflows(core.name, self._incarnation, self._share)
        cluster_state = core.durability.cluster_state
        self.learn(cluster_state.facts())
        self._adopt()
        if core.plans.current is None:
            if stated is not None and stated.filter:
                self._announce()
            elif not cluster_state.is_new:  # it may have announced a fact that its disk lacks
                cluster_state.announce(PART, claimed_us=self._incarnation)

    @property
    def is_on(self) -> bool:
        """True if events published here are addressed to brokers, as others take part."""
        return self._router is not None and bool(self.participants)

    # --- facts ---

    def learn(self, facts: Iterable[Fact]) -> None:
        """Apply new facts: participants, removed brokers, and the plan in force."""
        new = list(facts)
        is_other = self._core.plans.learn(new)
        if self._router is None:
            return
        for name in self.participants.learn(fact for fact in new if fact.origin != self.name):
            self._update_flow(name)
        if any(fact.subject.startswith(REMOVED) for fact in new):
            for name in self._core.durability.cluster_state.removed & self.participants.keys():
                del self.participants[name]
                self._out.end(name)
        if is_other and self._incarnation:
            self._adopt()
        self.switch_plan()
        self._send_outgoing()

    @property
    def name(self) -> str:
        """The broker's name."""
        return self._core.name

    def _update_flow(self, name: str) -> None:
        """Begin the flow to a broker that takes part, or end it if the broker no longer does."""
        participant = self.participants.get(name)
        if participant is None:
            self._out.end(name)
        else:
            self._out.begin(name, participant.incarnation)
            self._out.join(name, participant.joined)

    def _adopt(self) -> None:
        """Join the groups of a plan that came into force; `switch_plan` decides when to use it."""
        core, current = self._core, self._core.plans.current
        if self._core.plans.problem:
            core.report("warning", "plan_rejected", reason=self._core.plans.problem)
        self._since = core.at.now
        self._replanning.begin()
        if current is not None:
            self._epochs.pop(current.id, None)  # an earlier plan in force again is the newest
            epoch = self._epochs[current.id] = Epoch(current.id, current.plan)
            while len(self._epochs) > 2:
                self._leave(next(iter(self._epochs)))
            if core.settings.multicast:
                core.out.append(Tune(current.id, epoch.groups_of(core.name)))
        if current is not None or self._used:
            self._announce()
            self.switch_plan()

    def switch_plan(self) -> None:
        """Use the newest plan once all receivers of the old one have joined it, or after `JOIN_S`.
        Leave the old plan once every reachable participant sends by the newest.
        """
        current = self._core.plans.current
        newest = 0 if current is None else current.id
        is_old_left = self._used not in self._epochs
        can_use = newest in self._epochs and (is_old_left or self._have_joined(newest))
        if self._used != newest and (can_use or not newest):
            self._use(newest)
        if self._used == newest and len(self._epochs) > bool(newest):
            near = (self.participants[name] for name in self._near())
            if all(participant.used == newest for participant in near):
                for old in [plan for plan in self._epochs if plan != newest]:
                    self._leave(old)

    def _have_joined(self, plan: int) -> bool:
        if self._core.at.now >= self._since + JOIN_S:
            return True
        near = (self.participants[name].joined for name in self._near())
        return all(plan in joined for joined in near if self._used in joined)

    def _near(self) -> list[str]:
        """Return the reachable participants: others cannot hold up a switch of plans."""
        cluster_state = self._core.durability.cluster_state
        return [name for name in self.participants if cluster_state.next_hop(name) is not None]

    def _use(self, plan: int) -> None:
        self._used = plan
        self._out.use(self._epochs.get(plan) if self._core.settings.multicast else None)
        self._announce()

    def _leave(self, plan: int) -> None:
        del self._epochs[plan]
        self._members.clear()
        if self._core.settings.multicast:
            self._core.out.append(Tune(plan, ()))

    def _announce(self) -> None:
        """Announce to all brokers the plan that this one has joined, and that by which it sends."""
        can_receive = self._core.settings.multicast and self._epochs
        joined = next(reversed(self._epochs)) if can_receive else 0
        text = text_of(joined, self._used)
        cluster_state = self._core.durability.cluster_state
        stated = cluster_state.fact(self.name, PART)
        if stated is None or (stated.filter, stated.claimed_us) != (text, self._incarnation):
            cluster_state.announce(PART, filter=text, claimed_us=self._incarnation)

    # --- events that are published here ---

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Return the brokers and the clients here that events are for."""
        assert self._router is not None
        return self._router.destined(sender, parcel)

    def send(self, parcel: Parcel, brokers: Mapping[str, RowMask], *, durable: bool) -> None:
        """Send each broker the events that it wants, by its flow if that has begun, else by links.
        Events beyond a datagram go by links, so each broker is sent only its own rows.
        """
        flows, others = self._out.split(tuple(brokers))
        for names, rows in _grouped(parcel, brokers, others):
            self._by_links(rows, tuple((name, 0) for name in names), durable=durable)
        if not flows:
            return
        now = self._core.at.now
        small = self._small(parcel, brokers, flows)
        if small is not None:
            self._replanning.count(flows)
            self._out.send(small, flows, durable=durable, now=now)
        else:
            for names, rows in _grouped(parcel, brokers, flows):
                self._out.send(rows, names, durable=durable, is_small=False, now=now)
        self._send_outgoing()

    def _small(
        self, parcel: Parcel, brokers: Mapping[str, RowMask], flows: tuple[str, ...]
    ) -> Parcel | None:
        """Return the events that any flow wants; None if they exceed a datagram."""
        most = self._core.settings.cast_bytes
        if parcel.nbytes > most:
            return None
        if len(parcel) > 1:
            parcel = parcel.select(np.logical_or.reduce([brokers[name] for name in flows]))
        return parcel if fits(parcel, most) else None

    # --- from other brokers ---

    def receive_datagram(self, datagram: Datagram) -> None:
        """Receive a datagram of a group that this broker has joined; drop any other."""
        index, members = self._member(datagram.plan, datagram.group)
        if index < 0 or len(datagram.counts) != 4 * members or datagram.source == self.name:
            self.dropped += 1
            return
        self._in.datagram(datagram, index, self._core.at.now)
        self._send_outgoing()

    def _member(self, plan: int, group: int) -> tuple[int, int]:
        member = self._members.get((plan, group))
        if member is None:
            epoch = self._epochs.get(plan)
            if epoch is None:
                return -1, 0
            member = epoch.place(self.name, group), len(epoch.members(group))
            if 0 <= group < epoch.plan.group_count:  # a hostile number must not fill the cache
                self._members[plan, group] = member
        return member

    def forward(self, neighbour: Neighbour, message: Forward, parcel: Parcel) -> None:
        """Deliver or forward addressed events; `parcel` is those that the neighbour may publish.
        Numbered ones need a peer with all rights, as a false number displaces a true event.
        """
        addressed = message.addressed
        assert addressed is not None
        principal = neighbour.principal
        is_free = principal.publishes_all and principal.may_receive_all
        onward: list[tuple[str, int]] = []
        for name, number in addressed.to:
            if number and not is_free:
                continue
            if name != self.name:
                onward.append((name, number))
            elif not number:
                self._arrive(parcel, message.durable)
            else:
                self._in.event(
                    message.source,
                    addressed.incarnation,
                    number,
                    parcel,
                    durable=message.durable,
                    now=self._core.at.now,
                )
        if onward:
            passed = Addressed(tuple(onward), addressed.incarnation, addressed.hops + 1)
            self._forwarding.pass_on(
                message.source, parcel, passed, neighbour.name, durable=message.durable
            )
        self._send_outgoing()

    def receive(self, neighbour: Neighbour, message: FlowStatus | FlowAcks) -> None:
        """Process a flow's state or ack, from a peer that may publish and receive all events."""
        principal = neighbour.principal
        if not (principal.publishes_all and principal.may_receive_all):
            self._core.warn("grant_exceeded", neighbour.name, 1, message=type(message).__name__)
        elif isinstance(message, FlowStatus):
            self._receive_state(neighbour, message)
        else:
            self._receive_ack(neighbour, message)

    def _receive_state(self, neighbour: Neighbour, message: FlowStatus) -> None:
        """Process the state of a flow to this broker, or relay that of another."""
        if message.receiver != self.name:
            self._forwarding.relay(message.sender, message.receiver, message, neighbour.name)
        elif message.receiver_life == self._incarnation:
            self._in.state(
                message.sender,
                message.incarnation,
                stage=message.stage,
                number=message.number,
                gone=message.gone,
                now=self._core.at.now,
            )
            self._send_outgoing()

    def _receive_ack(self, neighbour: Neighbour, message: FlowAcks) -> None:
        """Process an ack of a flow from this broker, or relay that of another."""
        if message.sender != self.name:
            self._forwarding.relay(message.receiver, message.sender, message, neighbour.name)
        elif message.incarnation == self._incarnation:
            self._out.receive_ack(
                message.receiver,
                message.receiver_life,
                stage=message.stage,
                number=message.number,
                lacking=message.lacking,
                now=self._core.at.now,
            )
            self._send_outgoing()

    def _arrive(self, parcel: Parcel, durable: bool) -> None:  # a callback
        """Deliver events to the clients here; a failure must not stop the flow's later events."""
        try:
            self._arrived(parcel, durable)
        except Exception as error:  # noqa: BLE001  # a fault here; the sender can do nothing
            self._core.fault("addressed events", error)
            self._core.loss_reports.note("addressed events failed")

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Return the clients here that want events addressed to this broker."""
        return {} if self._router is None else self._router.local(parcel)

    # --- links ---

    def _send_outgoing(self) -> None:
        """Send the pending messages of the flows, and report their losses."""
        self._core.has_follow_up = True
        out, into = self._out, self._in
        while out.outgoing or into.outgoing:  # to send one may add others
            messages, out.outgoing = out.outgoing, []
            for message in messages:
                self._send_flow_message(message)
            acks, into.outgoing = into.outgoing, []
            for ack in acks:
                self._send_ack(ack)
        if out.moved:
            moved, out.moved = out.moved, []
            for name in moved:
                self._core.report("warning", "peer_moved_to_links", broker=name)
        lost = out.lost + into.lost
        if lost != self._lost:
            self._core.report("warning", "flow_events_lost", events=lost - self._lost)
            self._core.loss_reports.note("a flow lost events")
            self._lost = lost

    def _send_flow_message(self, message: FlowMessage) -> None:
        if isinstance(message, Datagram):
            self._core.out.append(Cast(message))
        elif isinstance(message, ByLinks):
            self._by_links(message.parcel, message.to, durable=message.durable)
        else:
            self._forwarding.relay(self.name, message.receiver, self._encoded(message), "")

    def _encoded(self, state: FlowState) -> FlowStatus:
        return FlowStatus(
            self.name,
            self._incarnation,
            state.receiver,
            state.receiver_life,
            state.stage,
            state.number,
            state.gone,
            state.is_cast,
        )

    def _send_ack(self, ack: FlowAck) -> None:
        message = FlowAcks(
            self.name,
            self._incarnation,
            ack.sender,
            ack.sender_incarnation,
            ack.stage,
            ack.number,
            ack.lacking,
        )
        self._forwarding.relay(self.name, ack.sender, message, "")

    def _by_links(self, parcel: Parcel, to: tuple[tuple[str, int], ...], *, durable: bool) -> None:
        to_all = Addressed(to, self._incarnation)
        self._forwarding.pass_on(self.name, parcel, to_all, "", durable=durable)

    # --- time ---

    @property
    def wake_at(self) -> float:
        """The time at which `tick` is due. Timers run also in a broker that has left the plan:
        others send to it until they receive its fact, much later if the disk here is full.
        """
        return min(self._out.wake_at, self._in.wake_at, self._replanning.wake_at)

    def tick(self) -> bool:
        """Run the timers; return whether any was due."""
        now = self._core.at.now + EARLY_S
        if self.wake_at > now:
            return False
        self._replanning.tick(now, self._near)
        self._out.tick(now)
        self._in.tick(now)
        self._send_outgoing()
        return True

    def flush(self) -> None:
        """Send unacked events by links before this broker stops and its links close."""
        self._out.flush(self._core.at.now)
        self._send_outgoing()

    # --- admin queries ---

    def explain(self, sender: Peer, parcel: Parcel) -> dict[str, Any] | None:
        """Return the groups and links that would carry an event published here; None without plan.
        Each group lists its addressees, and the members that receive the event `in_vain`.
        """
        if not self.is_on or not self._used:
            return None
        wanted = self.destined(sender, parcel).brokers
        if wanted and self._small(parcel, wanted, tuple(wanted)) is None:
            return {"groups": [], "by_links": sorted(wanted)}
        carried = self._out.paths.carriage(sorted(wanted))
        epoch = self._epochs[self._used]
        groups = [
            {
                "group": group,
                "to": list(names),
                "in_vain": [
                    name for name in epoch.members(group) if name not in {*names, self.name}
                ],
            }
            for group, names in carried.groups
        ]
        return {"groups": groups, "by_links": list(carried.by_link)}

    def standings(self, brokers: Iterable[str]) -> dict[str, str]:
        """Return the state of brokers, this one too, in the plan in force: one has `joined` its
        groups, was `moved` to links by this one as it is slow, uses `links` as it cannot receive
        multicast, or is `waiting`, as it has not adopted the plan. Empty without a plan.
        """
        slow = frozenset(self._out.slow)
        return {name: self._standing_of(name, slow) for name in brokers}

    def _standing_of(self, broker: str, slow: frozenset[str]) -> str:
        current, stated = self._core.plans.current, Participants()
        if current is None:
            return ""
        fact = self._core.durability.cluster_state.fact(broker, PART)
        stated.learn([] if fact is None else [fact])
        participant = stated.get(broker)
        if participant is not None and current.id in participant.joined:
            return "moved" if broker in slow else "joined"
        return "links" if participant is not None and participant.used == current.id else "waiting"

    def status(self) -> dict[str, Any]:
        """Return the plan in use, the receivers by carrier, and counters, by name."""
        current = self._core.plans.current
        receivers = self._out.receivers()
        return {
            "plan": None if current is None else {"id": current.id, "epoch_us": current.epoch_us},
            "used": self._used,
            "groups_joined": sum(len(plan.groups_of(self.name)) for plan in self._epochs.values()),
            "by_datagrams": sorted(name for name, is_cast in receivers.items() if is_cast),
            "by_links": sorted(name for name, is_cast in receivers.items() if not is_cast),
            "datagrams": self._out.datagrams,
            "repaired": self._out.repaired,
            "window": round(self._out.window),
            "doubled": self._in.duplicates,
            "dropped": self.dropped + self._in.overflowed,
            "lost": self._lost,
        }


def _grouped(
    parcel: Parcel, brokers: Mapping[str, RowMask], names: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], Parcel]]:
    """Return groups of brokers that want the same events, each with those events."""
    if len(parcel) == 1:
        return [(names, parcel)] if names else []
    wanted: dict[bytes, list[str]] = {}
    for name in names:
        wanted.setdefault(brokers[name].tobytes(), []).append(name)
    return [(tuple(group), parcel.select(brokers[group[0]])) for group in wanted.values()]
