"""`Multicasting`: events that this broker addresses to others, and those addressed to it.

Where brokers have a plan of groups events go by flows (docs/concepts/multicast.md, "On the
network"). The flows themselves are `palio.multicast.outflows` and `inflows`. Here is what joins
them to a node: facts say who takes part and which plan counts, links carry what no group does, and
what arrives goes to the clients here as any event.
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
from palio.node.sessions import Neighbour
from palio.protocol.datagrams import fits
from palio.protocol.messages import Addressed, Fact, FlowStands, Forward, Heard
from palio.routing.protocol import Addressing, Destined, Peer

EARLY_S: Final = 1e-6
"""Times are added up in different orders: what is due so soon is due."""


class Multicasting:
    """The flows of one broker; `arrived` is called with events that came by one."""

    def __init__(self, core: Core, arrived: Callable[[Parcel, bool], None]) -> None:
        self._core = core
        router = core.router
        self._router = router if isinstance(router, Addressing) else None
        self._arrived = arrived
        self._ways = AddressedForwarding(core, self._router)
        self.participants = Participants()
        self._incarnation = 0
        share = self._share = min(1.0, core.settings.memory_bytes / MEMORY_BYTES)
        self._out = Outflows(core.name, 0, share)
        self._in = Inflows(core.name, self._arrive, share)
        self._epochs: dict[int, Epoch] = {}
        """Plans whose groups are joined, by id, the newest last."""
        self._members: dict[tuple[int, int], tuple[int, int]] = {}
        """By plan and group, the place of this broker in it and how many there are."""
        self._used = 0
        """The plan by which this broker sends; 0 for none."""
        self._since = 0.0
        """When the newest plan was learned."""
        self.dropped = 0
        """Datagrams of plans and groups that are not this broker's."""
        self._lost = 0

    # --- incarnation ---

    def begin(self) -> None:
        """The node starts: its flows are those of a new incarnation."""
        core = self._core
        if self._router is None:
            return
        said = core.durability.cluster_state.fact(core.name, PART)
        earlier = 0 if said is None else said.claimed_us
        self._incarnation = max(core.at.wall_us, earlier + 1)
        self._out = Outflows(core.name, self._incarnation, self._share)
        cluster_state = core.durability.cluster_state
        self.learn(cluster_state.facts())
        self._adopt()
        if core.plans.current is None:
            if said is not None and said.filter:
                self._take_part()
            elif not cluster_state.is_new:  # it may have told what its disk did not take
                cluster_state.announce(PART, claimed_us=self._incarnation)

    @property
    def is_on(self) -> bool:
        """True if events that are published here are addressed to brokers."""
        return self._router is not None and bool(self.participants)

    # --- facts ---

    def learn(self, facts: Iterable[Fact]) -> None:
        """Facts are new: who takes part, and which plan counts."""
        known = list(facts)
        is_other = self._core.plans.learn(known)
        if self._router is None:
            return
        for name in self.participants.learn(each for each in known if each.origin != self.name):
            self._meet(name)
        if any(each.subject.startswith(REMOVED) for each in known):
            for name in self._core.durability.cluster_state.removed & self.participants.keys():
                del self.participants[name]
                self._out.end(name)
        if is_other and self._incarnation:
            self._adopt()
        self.look()
        self.say()

    @property
    def name(self) -> str:
        """The broker's."""
        return self._core.name

    def _meet(self, name: str) -> None:
        """A broker has said that it takes part, or that it does no longer."""
        participant = self.participants.get(name)
        if participant is None:
            self._out.end(name)
        else:
            self._out.begin(name, participant.incarnation)
            self._out.join(name, participant.joined)

    def _adopt(self) -> None:
        """Another plan counts: join its groups. `look` says when it is used."""
        core, current = self._core, self._core.plans.current
        if self._core.plans.problem:
            core.report("warning", "plan_unusable", reason=self._core.plans.problem)
        self._since = core.at.now
        if current is not None:
            self._epochs.pop(current.id, None)  # it may have been stated before, and counts again
            epoch = self._epochs[current.id] = Epoch(current.id, current.plan)
            while len(self._epochs) > 2:
                self._leave(next(iter(self._epochs)))
            if core.settings.multicast:
                core.out.append(Tune(current.id, epoch.groups_of(core.name)))
        if current is not None or self._used:
            self._take_part()
            self.look()

    def look(self) -> None:
        """Use the newest plan once those who hear the old one hear it, and leave the old one once
        nobody sends by it.
        """
        current = self._core.plans.current
        newest = 0 if current is None else current.id
        is_old_left = self._used not in self._epochs
        can_use = newest in self._epochs and (is_old_left or self._have_joined(newest))
        if self._used != newest and (can_use or not newest):
            self._use(newest)
        if self._used == newest and len(self._epochs) > bool(newest):
            near = (self.participants[name] for name in self._near())
            if all(each.used == newest for each in near):
                for id in [each for each in self._epochs if each != newest]:
                    self._leave(id)

    def _have_joined(self, plan: int) -> bool:
        if self._core.at.now >= self._since + JOIN_S:
            return True
        known = (self.participants[name].joined for name in self._near())
        return all(plan in joined for joined in known if self._used in joined)

    def _near(self) -> list[str]:
        """The participants that can be reached."""
        cluster_state = self._core.durability.cluster_state
        return [name for name in self.participants if cluster_state.next_hop(name) is not None]

    def _use(self, plan: int) -> None:
        self._used = plan
        self._out.use(self._epochs.get(plan) if self._core.settings.multicast else None)
        self._take_part()

    def _leave(self, plan: int) -> None:
        del self._epochs[plan]
        self._members.clear()
        if self._core.settings.multicast:
            self._core.out.append(Tune(plan, ()))

    def _take_part(self) -> None:
        """Inform all brokers."""
        can_hear = self._core.settings.multicast and self._epochs
        joined = next(reversed(self._epochs)) if can_hear else 0
        text = text_of(joined, self._used)
        cluster_state = self._core.durability.cluster_state
        said = cluster_state.fact(self.name, PART)
        if said is None or (said.filter, said.claimed_us) != (text, self._incarnation):
            cluster_state.announce(PART, filter=text, claimed_us=self._incarnation)

    # --- events that are published here ---

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Whom they are for."""
        assert self._router is not None
        return self._router.destined(sender, parcel)

    def send(self, parcel: Parcel, brokers: Mapping[str, RowMask], *, durable: bool) -> None:
        """To each broker what it wants, by its flow if that has begun."""
        flows, others = self._out.split(tuple(brokers))
        for names, part in _parted(parcel, brokers, others):
            self._by_links(part, tuple((name, 0) for name in names), durable=durable)
        if not flows:
            return
        now = self._core.at.now
        small = self._small(parcel, brokers, flows)
        if small is not None:
            self._out.send(small, flows, durable=durable, now=now)
        else:
            for names, part in _parted(parcel, brokers, flows):
                self._out.send(part, names, durable=durable, is_small=False, now=now)
        self.say()

    def _small(
        self, parcel: Parcel, brokers: Mapping[str, RowMask], flows: tuple[str, ...]
    ) -> Parcel | None:
        """Return what any of some brokers wants, if a datagram takes it; names of attributes count
        too.
        """
        most = self._core.settings.cast_bytes
        if parcel.nbytes > most:
            return None
        if len(parcel) > 1:
            parcel = parcel.select(np.logical_or.reduce([brokers[name] for name in flows]))
        return parcel if fits(parcel, most) else None

    # --- from other brokers ---

    def receive_datagram(self, datagram: Datagram) -> None:
        """A datagram came."""
        place, members = self._member(datagram.plan, datagram.group)
        if place < 0 or len(datagram.counts) != 4 * members or datagram.source == self.name:
            self.dropped += 1
            return
        self._in.datagram(datagram, place, self._core.at.now)
        self.say()

    def _member(self, plan: int, group: int) -> tuple[int, int]:
        found = self._members.get((plan, group))
        if found is None:
            epoch = self._epochs.get(plan)
            if epoch is None:
                return -1, 0
            found = epoch.place(self.name, group), len(epoch.members(group))
            if 0 <= group < epoch.plan.group_count:
                self._members[plan, group] = found
        return found

    def forward(self, neighbour: Neighbour, message: Forward, parcel: Parcel) -> None:
        """Events come that are addressed; `parcel` is what the neighbour may bring of them. What
        has a number is of a flow, and others would not be believed if this were another event.
        """
        addressed = message.addressed
        assert addressed is not None
        principal = neighbour.principal
        is_free = principal.publishes_all and principal.may_receive_all
        on: list[tuple[str, int]] = []
        for name, number in addressed.to:
            if number and not is_free:
                continue
            if name != self.name:
                on.append((name, number))
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
        if on:
            passed = Addressed(tuple(on), addressed.incarnation, addressed.hops + 1)
            self._ways.pass_on(
                message.source, parcel, passed, neighbour.name, durable=message.durable
            )
        self.say()

    def receive(self, neighbour: Neighbour, message: FlowStands | Heard) -> None:
        """Something is said of a flow, by who may receive and publish all."""
        principal = neighbour.principal
        if not (principal.publishes_all and principal.may_receive_all):
            self._core.warn("beyond_grant", neighbour.name, 1, said=type(message).__name__)
        elif isinstance(message, FlowStands):
            self._stands(neighbour, message)
        else:
            self._hears(neighbour, message)

    def _stands(self, neighbour: Neighbour, message: FlowStands) -> None:
        """How a flow stands is for this broker, or is passed on."""
        if message.receiver != self.name:
            self._ways.relay(message.sender, message.receiver, message, neighbour.name)
        elif message.receiver_life == self._incarnation:
            self._in.state(
                message.sender,
                message.incarnation,
                stage=message.stage,
                number=message.number,
                gone=message.gone,
                now=self._core.at.now,
            )
            self.say()

    def _hears(self, neighbour: Neighbour, message: Heard) -> None:
        """How far a receiver has got is for this broker, or is passed on."""
        if message.sender != self.name:
            self._ways.relay(message.receiver, message.sender, message, neighbour.name)
        elif message.incarnation == self._incarnation:
            self._out.receive_ack(
                message.receiver,
                message.receiver_life,
                stage=message.stage,
                number=message.number,
                lacking=message.lacking,
                now=self._core.at.now,
            )
            self.say()

    def _arrive(self, parcel: Parcel, durable: bool) -> None:  # a callback
        """It goes to the clients here. Whatever it does to an engine, others go their way."""
        try:
            self._arrived(parcel, durable)
        except Exception as error:  # noqa: BLE001  # a fault of ours, and nobody is there to be told
            self._core.fault("addressed events", error)
            self._core.loss_reports.note("addressed events failed")

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Return the clients here that want events addressed to this broker."""
        return {} if self._router is None else self._router.local(parcel)

    # --- links ---

    def say(self) -> None:
        """Send what the flows want said."""
        self._core.has_follow_up = True
        out, into = self._out, self._in
        while out.outgoing or into.outgoing:
            said, out.outgoing = out.outgoing, []
            for each in said:
                self._say(each)
            acks, into.outgoing = into.outgoing, []
            for ack in acks:
                self._send_ack(ack)
        if out.moved:
            moved, out.moved = out.moved, []
            for name in moved:
                self._core.report("warning", "moved_to_links", broker=name)
        lost = out.lost + into.lost
        if lost != self._lost:
            self._core.report("warning", "flow_lost", events=lost - self._lost)
            self._core.loss_reports.note("a flow lost events")
            self._lost = lost

    def _say(self, said: FlowMessage) -> None:
        if isinstance(said, Datagram):
            self._core.out.append(Cast(said))
        elif isinstance(said, ByLinks):
            self._by_links(said.parcel, said.to, durable=said.durable)
        else:
            self._ways.relay(self.name, said.receiver, self._standing(said), "")

    def _standing(self, said: FlowState) -> FlowStands:
        return FlowStands(
            self.name,
            self._incarnation,
            said.receiver,
            said.receiver_life,
            said.stage,
            said.number,
            said.gone,
            said.is_cast,
        )

    def _send_ack(self, ack: FlowAck) -> None:
        message = Heard(
            self.name,
            self._incarnation,
            ack.sender,
            ack.sender_incarnation,
            ack.stage,
            ack.number,
            ack.lacking,
        )
        self._ways.relay(self.name, ack.sender, message, "")

    def _by_links(self, parcel: Parcel, to: tuple[tuple[str, int], ...], *, durable: bool) -> None:
        self._ways.pass_on(self.name, parcel, Addressed(to, self._incarnation), "", durable=durable)

    # --- time ---

    @property
    def wake_at(self) -> float:
        """When `tick` is next to be called. Who takes part no longer may still be sent events:
        others learn of it later, much later if the disk here is full.
        """
        return min(self._out.wake_at, self._in.wake_at)

    def tick(self) -> bool:
        """Time has passed: whether there was something to do."""
        now = self._core.at.now + EARLY_S
        if self.wake_at > now:
            return False
        self._out.tick(now)
        self._in.tick(now)
        self.say()
        return True

    def flush(self) -> None:
        """This broker is going down: links carry what groups have not, as long as there are any."""
        self._out.flush(self._core.at.now)
        self.say()

    # --- for people ---

    def explain(self, sender: Peer, parcel: Parcel) -> dict[str, Any] | None:
        """Return what would carry an event that is published here to other brokers: groups, each
        with those that it is for and those that hear it in vain, and links. None without a plan.
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
        """Return what brokers, this one too, do with the plan that counts: one has `joined` its
        groups, was `moved` to links by this one, hears by `links` as it has no multicast way, or is
        yet `waiting`. Empty without a plan.
        """
        slow = frozenset(self._out.slow)
        return {name: self._standing_of(name, slow) for name in brokers}

    def _standing_of(self, broker: str, slow: frozenset[str]) -> str:
        current, said = self._core.plans.current, Participants()
        if current is None:
            return ""
        fact = self._core.durability.cluster_state.fact(broker, PART)
        said.learn([] if fact is None else [fact])
        known = said.get(broker)
        if known is not None and current.id in known.joined:
            return "moved" if broker in slow else "joined"
        return "links" if known is not None and known.used == current.id else "waiting"

    def status(self) -> dict[str, Any]:
        """Counts, by name."""
        current = self._core.plans.current
        receivers = self._out.receivers()
        return {
            "plan": None if current is None else {"id": current.id, "epoch_us": current.epoch_us},
            "used": self._used,
            "groups_joined": sum(len(each.groups_of(self.name)) for each in self._epochs.values()),
            "by_datagrams": sorted(name for name, is_cast in receivers.items() if is_cast),
            "by_links": sorted(name for name, is_cast in receivers.items() if not is_cast),
            "datagrams": self._out.datagrams,
            "repaired": self._out.repaired,
            "window": round(self._out.window),
            "doubled": self._in.duplicates,
            "dropped": self.dropped + self._in.overflowed,
            "lost": self._lost,
        }


def _parted(
    parcel: Parcel, brokers: Mapping[str, RowMask], names: tuple[str, ...]
) -> Iterable[tuple[tuple[str, ...], Parcel]]:
    """Brokers that want the same events together, with these."""
    if len(parcel) == 1:
        return [(names, parcel)] if names else []
    wanted: dict[bytes, list[str]] = {}
    for name in names:
        wanted.setdefault(brokers[name].tobytes(), []).append(name)
    return [(tuple(each), parcel.select(brokers[each[0]])) for each in wanted.values()]
