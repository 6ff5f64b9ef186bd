"""`Network`: brokers, links and clients on one virtual clock.

The brokers are the real routers; this module is only their shell. It carries messages, tells
routers of links that come and go, and counts. Whatever decides where something goes is in the
routing room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, cast, get_args

from palio.errors import InvalidInput
from palio.model.events import TIME
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.gateway import Gateway
from palio.routing.messages import (
    Advertise,
    Batch,
    Control,
    Flood,
    Request,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.routing.patterns.messages import (
    Composite,
    PatternControl,
    SubscribePattern,
    UnsubscribePattern,
)
from palio.routing.patterns.router import Patterned
from palio.routing.protocol import Peer, Router, Send
from palio.routing.source_trees import SourceTrees
from palio.routing.trees import LEAVING_LINK_COST, MAX_LINK_COST
from palio.simulation.agenda import FAULT, MESSAGE, TIMER, US_PER_MS, Agenda
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology
from palio_studies.simulator.clients import Client
from palio_studies.simulator.inbox import Envelope, Inbox, Service
from palio_studies.simulator.links import Direction, Link
from palio_studies.simulator.trace import Costs, Trace

RouterFactory: TypeAlias = Callable[[str], Router]

Message: TypeAlias = Control | RowParcel

Crossing: TypeAlias = Callable[[str, str, Message], object]
"""Told of a message that crosses a link: the broker, or the client, that it leaves; the one that
it goes to; and the message."""

START: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""What stands for time 0 in the events of a network that matches patterns."""

MOST_HELD_MS: Final = 10_000.0
"""So long a change of the tree may keep events waiting; a broker then goes over to it at once."""

LIFE: Final = 1 << 40
"""Versions that one incarnation of a broker has; the next incarnation's are all greater."""


class _Wire:
    """A link: two ways, up or down. A new `epoch` loses what was on its way."""

    def __init__(self, ends: tuple[str, str], link: Link) -> None:
        self.ends = ends
        self.link = link
        self.is_cut = False
        self.is_up = False
        self.epoch = 0

    def other(self, end: str) -> str:
        one, other = self.ends
        return other if end == one else one


class _Way:
    """One way of a wire. `sender` is what the broker at its begin is to the one at its end."""

    __slots__ = ("direction", "sender", "source", "target", "wire")

    def __init__(self, wire: _Wire, source: str, sender: Peer, direction: Direction) -> None:
        self.wire = wire
        self.source = source
        self.target = wire.other(source)
        self.sender = sender
        self.direction = direction


class Network:
    """A virtual network. The same calls with the same seed give the same trace.

    >>> from palio.routing.general import General
    >>> from palio.simulation.topologies import ring
    >>> def trace_of(seed):
    ...     network = Network.of(ring(5), General, seed=seed, link=Link(jitter_ms=1))
    ...     network.run()
    ...     return network.trace.hash
    >>> trace_of(1) == trace_of(1), trace_of(1) == trace_of(2)
    (True, False)
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        service: Service | None = None,
        client_ms: float = 0.0,
        coalescing: bool = True,
    ) -> None:
        self._service = service
        """How long a broker works on what comes, and what waits meanwhile; without, no time."""
        self.client_us = round(client_ms * US_PER_MS)
        """How long it takes from a client to its broker, and back."""
        self.coalescing = coalescing
        """Whether batches that wait for a broker are joined."""
        self.on_crossing: Crossing | None = None
        """Who counts more than `costs` does, if anybody: where messages go, and of what class."""
        self.random = Randomness(seed)
        self.agenda = Agenda()
        self.trace = Trace()
        self.costs = Costs()
        self.routers: dict[str, Router] = {}
        self.clients: dict[str, Client] = {}
        self._factories: dict[str, RouterFactory] = {}
        self._wires: dict[tuple[str, str], _Wire] = {}
        self._ways: dict[str, dict[Peer, _Way]] = {}
        """From each broker to each neighbour."""
        self._crashed: dict[str, None] = {}
        self._remote: dict[str, tuple[tuple[Link, ...], int]] = {}
        """The links between a client and its broker, and how long a message takes."""
        self._incarnations: dict[str, int] = {}
        """How often a client or broker of a name began before: its epoch or incarnation."""
        self._inboxes: dict[str, dict[int, Inbox]] = {}
        """By broker and line (`Service.line`)."""
        self._wakes_us: dict[str, int] = {}
        self._held: dict[str, list[Envelope]] = {}
        """By broker whose tree changes, the events that wait for it."""

    @classmethod
    def of(
        cls,
        topology: Topology,
        routing: RouterFactory = Acyclic,
        *,
        seed: int = 0,
        link: Link | None = None,
        service: Service | None = None,
        client_ms: float = 0.0,
        coalescing: bool = True,
    ) -> Network:
        """A network of one kind of router. In a hierarchy an edge's first end is the master."""
        network = cls(seed, service=service, client_ms=client_ms, coalescing=coalescing)
        for name in topology.brokers:
            network.add_broker(name, routing)
        for one, other in topology.edges:
            network.connect(one, other, link or Link())
        return network

    @property
    def now_ms(self) -> float:
        """The time."""
        return self.agenda.now_us / US_PER_MS

    @property
    def now(self) -> datetime:
        """The time as events are stamped with it."""
        return START + timedelta(microseconds=self.agenda.now_us)

    # --- building ---

    def add_broker(self, name: str, routing: RouterFactory = Acyclic) -> Router:
        """A broker without links."""
        if name in self.routers:
            raise InvalidInput(f"there is a broker {name!r} already; choose another name")
        self._factories[name] = routing
        self.routers[name] = routing(name)
        self._ways[name] = {}
        return self.routers[name]

    def connect(self, one: str, other: str, link: Link | None = None) -> None:
        """Link two brokers; in a hierarchy the first is the second's master."""
        ends = (one, other)
        wire = self._wires[ends] = _Wire(ends, link or Link())
        random = self.random.branch()
        for end in ends:
            sender = self._peer(wire, wire.other(end))
            way = _Way(wire, end, sender, Direction(wire.link, random))
            self._ways[end][self._peer(wire, end)] = way
        self._update(wire)

    def client(self, name: str, at: str, way: Sequence[Link] = ()) -> Client:
        """A client of a broker, as far away from it as a way of links is long and expensive."""
        if name in self.clients:
            raise InvalidInput(f"there is a client {name!r} already; choose another name")
        epoch = self._incarnations[name] = self._incarnations.get(name, -1) + 1
        client = self.clients[name] = Client(self, name, at, epoch)
        travel_us = round(sum(link.latency_ms for link in way) * US_PER_MS)
        self._remote[name] = tuple(way), self.client_us + travel_us
        self._carry(at, self.routers[at].attach(client.peer))
        return client

    def leave(self, client: Client) -> None:
        """A client goes away."""
        del self.clients[client.name]
        self._note(client.name, client.broker, "detach")
        if client.broker not in self._crashed:
            self._carry(client.broker, self.routers[client.broker].detach(client.peer))

    # --- running ---

    def run(self, until_ms: float | None = None) -> None:
        """Let time pass: to a moment, or until the network is quiet."""
        self.agenda.run(None if until_ms is None else round(until_ms * US_PER_MS))

    def after(self, delay_ms: float, action: Callable[[], object]) -> None:
        """Do something later."""
        self.agenda.at(self.agenda.now_us + round(delay_ms * US_PER_MS), TIMER, action)

    # --- faults ---

    def cut(self, one: str, other: str) -> None:
        """A link fails; what was on its way is lost and both ends notice."""
        self._set_cut(one, other, True)

    def heal(self, one: str, other: str) -> None:
        """A link works again."""
        self._set_cut(one, other, False)

    def partition(self, group: Iterable[str]) -> list[tuple[str, str]]:
        """Cut every link between a group and the rest; the links, for `heal`."""
        inside = set(group)
        crossing = [ends for ends in self._wires if (ends[0] in inside) != (ends[1] in inside)]
        for ends in crossing:
            self.cut(*ends)
        return crossing

    def crash(self, name: str) -> None:
        """A broker stops and forgets everything; its clients are gone."""
        self._note(name, name, "crash")
        self._crashed[name] = None
        self._inboxes.pop(name, None)
        self._wakes_us.pop(name, None)
        self._held.pop(name, None)
        self.clients = {key: each for key, each in self.clients.items() if each.broker != name}
        for wire in self._wires.values():
            if name in wire.ends:
                self._update(wire)

    def restart(self, name: str) -> None:
        """A crashed broker starts again, empty."""
        self._note(name, name, "restart")
        del self._crashed[name]
        router = self.routers[name] = self._factories[name](name)
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        if isinstance(router, SourceTrees):
            router.begin(self._incarnations[name] * LIFE)
        for wire in self._wires.values():
            if name in wire.ends:
                self._update(wire)

    def at(self, time_ms: float, fault: Callable[[], None]) -> None:
        """Plan a fault, before whatever else is due at that moment."""
        self.agenda.at(round(time_ms * US_PER_MS), FAULT, fault)

    def avoid(self, broker: str, other: str = "") -> None:
        """A broker, or its link to another, is to go: ways lead round wherever that is possible."""
        for wire in self._wires.values():
            if broker in wire.ends and other in ("", *wire.ends):
                peer = self._peer(wire, broker)
                weight = MAX_LINK_COST if other else LEAVING_LINK_COST
                self._carry(broker, self.routers[broker].set_link_cost(peer, weight))

    def _set_cut(self, one: str, other: str, value: bool) -> None:
        wire = self._wires.get((one, other)) or self._wires[other, one]
        self._note(one, other, "cut" if value else "heal")
        wire.is_cut = value
        self._update(wire)

    def _update(self, wire: _Wire) -> None:
        """Bring a wire up or down, and tell the routers at its ends."""
        up = not wire.is_cut and not any(end in self._crashed for end in wire.ends)
        if up == wire.is_up:
            return
        wire.is_up = up
        wire.epoch += 1
        for end in wire.ends:
            if end not in self._crashed:
                router, peer = self.routers[end], self._peer(wire, end)
                self._carry(end, router.set_link_cost(peer, wire.link.weight))
                self._carry(end, router.attach(peer) if up else router.detach(peer))

    def _peer(self, wire: _Wire, end: str) -> Peer:
        """What the broker at the other end is to the one at this end."""
        other = wire.other(end)
        peer, router = Peer.broker(other), self.routers[end]
        below = isinstance(router, Hierarchical) or (
            isinstance(router, Gateway) and router.is_below and router.is_outside(peer)
        )
        return Peer.master(other) if below and end == wire.ends[1] else peer

    # --- carrying ---

    def control(self, client: Client, message: Batch | PatternControl) -> None:
        """A client's request reaches its broker after `client_us`."""
        self._bring(client, Envelope(client.name, client.peer, 0, message))

    def publish(self, client: Client, parcel: RowParcel) -> None:
        """A client's events are stamped, if patterns need it, and brought to its broker."""
        if isinstance(self.routers[client.broker], Patterned):
            rows = [{**row, TIME: self.now} for row in parcel.rows]
            parcel = parcel.replace(rows)
        self._bring(client, Envelope(client.name, client.peer, 0, parcel))

    def _bring(self, client: Client, letter: Envelope) -> None:
        """To its broker, in order, unless the client has left when it would arrive."""
        delay_us = self._cross(client, letter.message)
        if self.on_crossing is not None and self._remote[client.name][0]:
            self.on_crossing(client.name, client.broker, letter.message)
        if not delay_us:
            self._receive(client.broker, letter)
            return

        def arrive() -> None:
            if self.clients.get(client.name) is client:
                self._receive(client.broker, letter)

        self.agenda.at(self.agenda.now_us + delay_us, MESSAGE, arrive)

    def _cross(self, client: Client, message: Message) -> int:
        """A message goes between a client and its broker: how long that takes."""
        links, delay_us = self._remote[client.name]
        for link in links:
            self._count(message, link.price)
        return delay_us

    def _route(self, broker: str, sender: Peer, parcel: RowParcel) -> None:
        self.costs.steps += 1
        router = self.routers[broker]
        if isinstance(router, Patterned):
            observed = router.observed
            found = router.route(sender, parcel)
            observed = router.observed - observed
            self._plan_wake(broker, router)
        else:
            observed = 0
            found = router.route(sender, parcel)
        if not found and not sender.is_client:
            self.costs.stray += len(parcel) - observed
        for peer, mask in found.items():
            self._deliver(broker, peer, parcel.select(mask))

    def _carry(self, broker: str, sends: Iterable[Send]) -> None:
        for peer, message in sends:
            self._deliver(broker, peer, message)
        router = self.routers[broker]
        if isinstance(router, Patterned):
            self._plan_wake(broker, router)
        if router.is_changing or broker in self._held:
            self._hold(broker, router)

    def _hold(self, broker: str, router: Router) -> None:
        """Keep what is published as long as a router wants that, and no longer than it may."""
        if router.is_changing and broker not in self._held:
            held = self._held[broker] = []
            self.after(MOST_HELD_MS, lambda: self._give_up(broker, held))
        elif not router.is_changing and broker in self._held:
            for letter in self._held.pop(broker):
                self._work(broker, letter)

    def _give_up(self, broker: str, held: list[Envelope]) -> None:
        if self._held.get(broker) is held:
            del self._held[broker]
            self._carry(broker, self.routers[broker].give_up())
            for letter in held:
                self._work(broker, letter)

    def _plan_wake(self, broker: str, router: Patterned) -> None:
        """Call a router's `advance` when it wants to be woken."""
        wake = router.wake
        if wake is None:
            return
        time_us = max(self.agenda.now_us, (wake - START) // timedelta(microseconds=1))
        if time_us < self._wakes_us.get(broker, time_us + 1):
            self._wakes_us[broker] = time_us
            self.agenda.at(time_us, TIMER, lambda: self._wake(broker, router, time_us))

    def _wake(self, broker: str, router: Patterned, time_us: int) -> None:
        if self.routers[broker] is not router or broker in self._crashed:
            return
        if self._wakes_us.get(broker) == time_us:
            del self._wakes_us[broker]
        self._carry(broker, router.advance(self.now))

    def _deliver(self, broker: str, peer: Peer, message: Message) -> None:
        way = self._ways[broker].get(peer)
        if way is None:
            assert peer.is_client, f"{broker} has no link to {peer}"
            self._hand_over(broker, peer.name, message)
            return
        if not way.wire.is_up:
            return
        agenda, direction = self.agenda, way.direction
        self._count(message, way.wire.link.price)
        if self.on_crossing is not None:
            self.on_crossing(way.source, way.target, message)
        epoch = way.wire.epoch
        if direction.steady_us is not None:
            letter = Envelope(way.source, way.sender, epoch, message)
            agenda.at(agenda.now_us + direction.steady_us, MESSAGE, self._arrive, way, letter)
            return
        lost = direction.lost
        time_us = direction.arrival_us(agenda.now_us)
        letter = Envelope(way.source, way.sender, epoch, message)
        agenda.at(time_us, MESSAGE, self._arrive, way, letter)
        self.costs.lost += direction.lost - lost

    def _arrive(self, way: _Way, letter: Envelope) -> None:
        if way.wire.epoch != letter.epoch:
            self.costs.lost += 1
        elif self._service is None:
            self._work(way.target, letter)
        else:
            self._receive(way.target, letter)

    def _receive(self, broker: str, letter: Envelope) -> None:
        """Work on a message, or let it wait until the broker has time."""
        service = self._service
        if service is None:
            self._work(broker, letter)
            return
        line = service.line(letter)
        lines = self._inboxes.setdefault(broker, {})
        inbox = lines.get(line)
        if inbox is None:
            inbox = lines[line] = Inbox(joining=self.coalescing)
        inbox.put(letter)
        if not inbox.is_busy:
            self._serve(broker, service, lines, inbox)

    def _serve(
        self, broker: str, service: Service, lines: Mapping[int, Inbox], inbox: Inbox
    ) -> None:
        letter = inbox.take()
        inbox.is_busy = True
        ready_us = self.agenda.now_us + service.time_us(broker, letter)

        def served() -> None:
            if self._inboxes.get(broker) is not lines or not self._is_connected(broker, letter):
                self.costs.lost += 1  # the broker crashed, or who sent it is gone
            else:
                self._work(broker, letter)
            inbox.is_busy = False
            if len(inbox):
                self._serve(broker, service, lines, inbox)

        self.agenda.at(ready_us, MESSAGE, served)

    def _is_connected(self, broker: str, letter: Envelope) -> bool:
        if letter.sender.is_client:
            return letter.sender.name in self.clients
        return self._ways[broker][letter.sender].wire.epoch == letter.epoch

    def _work(self, broker: str, letter: Envelope) -> None:
        """A broker takes a message in hand."""
        message: Message = letter.message
        if isinstance(message, RowParcel):
            if broker in self._held and self.routers[broker].holds(letter.sender):
                self._held[broker].append(letter)
                return
            self.trace.note(self.agenda.now_us, letter.source, broker, message)
            self._route(broker, letter.sender, message)
            return
        self.trace.note(self.agenda.now_us, letter.source, broker, message)
        self.costs.steps += 1
        router = self.routers[broker]
        if type(message) in _ABOUT_PATTERNS and not isinstance(router, Patterned):
            raise InvalidInput(f"{broker} matches no patterns: its router must be a Patterned")
        self._carry(broker, router.receive(letter.sender, message))

    def _hand_over(self, broker: str, name: str, message: Message) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        delay_us = self._cross(client, message)
        if self.on_crossing is not None and self._remote[name][0]:
            self.on_crossing(broker, name, message)
        if not delay_us:
            self._give(broker, client, message)
            return

        def arrive() -> None:
            if self.clients.get(name) is client:
                self._give(broker, client, message)

        self.agenda.at(self.agenda.now_us + delay_us, MESSAGE, arrive)

    def _give(self, broker: str, client: Client, message: Message) -> None:
        now_us = self.agenda.now_us
        self.trace.note(now_us, broker, client.name, message)
        taken = client.take(message, now_us)
        self.costs.delivered += taken
        if isinstance(message, RowParcel):
            self.costs.spurious += len(message) - taken
        elif isinstance(message, Composite):
            self.costs.spurious += 1 - taken

    def _note(self, source: str, target: str, what: str | Message) -> None:
        self.trace.note(self.agenda.now_us, source, target, what)

    def _count(self, message: Message, price: float | None) -> None:
        costs = self.costs
        costs.priced += 1.0 if price is None else price
        if isinstance(message, RowParcel):
            costs.notifications += len(message)
            return
        if isinstance(message, Composite):
            costs.notifications += 1
            return
        if type(message) in _ABOUT_PATTERNS:
            costs.batches += 1
            self._count_request(cast("PatternControl", message))
            return
        if isinstance(message, Batch | Flood):
            costs.batches += 1
            costs.waves += message.wave is not None
            for request in message.requests:
                if type(request) is Update:  # the most frequent
                    costs.updates += 1
                else:
                    self._count_request(request)
        elif isinstance(message, Settled):
            costs.waves += 1
        else:
            costs.topology += 1

    def _count_request(self, request: Request | PatternControl) -> None:
        name = _COUNTERS.get(type(request))
        if name is not None:
            setattr(self.costs, name, getattr(self.costs, name) + 1)


_ABOUT_PATTERNS: Final = frozenset(get_args(PatternControl))
"""Looked up for every message: `isinstance` of a union tries its members one by one."""

_COUNTERS: Final[Mapping[type, str]] = {
    Subscribe: "subscribes",
    Update: "updates",
    Unsubscribe: "unsubscribes",
    SubscribePattern: "subscribes",
    UnsubscribePattern: "unsubscribes",
    Advertise: "advertises",
    Unadvertise: "unadvertises",
}
