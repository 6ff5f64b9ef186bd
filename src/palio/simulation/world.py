"""`World`: whole brokers, with their disks and clients, on one virtual clock.

Where `Network` drives bare routers, a world drives the very `Node` that the server runs: sessions,
custody, the registry, timers. Messages travel as frames, through the real codec. Links break and
heal, brokers are killed and start again with what is on their disks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from palio.errors import IllegalMessage, InvalidInput
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.node.effects import Append, Close, Effect, Moment, Report, Send
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.messages import Message
from palio.protocol.wire import UNREADABLE, Decoder, Encoder
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Router
from palio.simulation.agenda import MESSAGE, TIMER, Agenda
from palio.simulation.disks import Disk
from palio.simulation.doors import Doors
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology

__all__ = ["Visitor", "World"]

NodeRouter: TypeAlias = Callable[[str], Router]

US: Final = 1_000_000
EPOCH_US: Final = 1_700_000_000_000_000
"""The time on the wall when a world begins."""


class _Pipe:
    """A connection: frames that are on their way, in order, until it is cut."""

    def __init__(self, number: int, ends: tuple[_End, _End]) -> None:
        self.number = number
        self.ends = ends
        self.is_open = True


class _End:
    """One end of a connection: who reads there, and the codec of what it writes."""

    def __init__(
        self,
        reader: Callable[[int, Message], None],
        lost: Callable[[int], None],
        illegal: Callable[[int, IllegalMessage], None],
    ) -> None:
        self.reader = reader
        self.lost = lost
        self.illegal = illegal
        self.encoder = Encoder()
        self.decoder = Decoder("the other end")


class Visitor(Protocol):
    """Whoever connects to a broker and is none of its world: a client, or worse."""

    def receive(self, link: int, message: Message) -> None:
        """A message came."""

    def lost(self, link: int) -> None:
        """A connection broke."""

    def illegal(self, link: int, error: IllegalMessage) -> None:
        """Something came that cannot be read."""


class World:
    """Brokers, links and clients. The same calls with the same seed do the same.

    >>> from palio.simulation.topologies import line
    >>> world = World.of(line(2))
    >>> alice, bob = world.client("alice", "b1"), world.client("bob", "b2")
    >>> _ = alice.subscribe("x > 1")
    >>> world.run(1.0)
    >>> _ = bob.publish({"x": 1}, {"x": 2})
    >>> world.run(1.0)
    >>> [row["x"] for _, _, row in alice.heard]
    [2]
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        settings: Settings | None = None,
        latency_s: float = 0.01,
        sync_s: float = 0.002,
        matcher: Callable[[], Matcher] = Reference,
        doors: Doors | None = None,
    ) -> None:
        self.random = Randomness(seed)
        self.agenda = Agenda()
        self.settings = settings or Settings()
        self.latency_us = round(latency_s * US)
        self.sync_us = round(sync_s * US)
        self.nodes: dict[str, Node] = {}
        self.disks: dict[str, Disk] = {}
        self.clients: dict[str, Visitor] = {}
        self.reports: list[tuple[str, Report]] = []
        self.spoils: Callable[[str, Message], bool] = lambda _who, _message: False
        """Which messages of whom nobody can read."""
        self._matcher = matcher
        self.doors = doors or Doors()
        self._routers: dict[str, NodeRouter] = {}
        self._pipes: dict[int, _Pipe] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._next_link = 1
        self._wires: dict[tuple[str, str], bool] = {}
        self._lives: dict[str, int] = {}

    @classmethod
    def of(cls, topology: Topology, router: NodeRouter = Acyclic, **options: Any) -> World:
        """A world with brokers and links, which have found each other."""
        world = cls(**options)
        for name in topology.brokers:
            world.add_broker(name, router)
        for one, other in topology.edges:
            world.connect(one, other)
        world.run(1.0)
        return world

    @property
    def now(self) -> float:
        """The time, in seconds."""
        return self.agenda.now_us / US

    @property
    def at(self) -> Moment:
        """The time, by both clocks."""
        return Moment(self.now, EPOCH_US + self.agenda.now_us)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.agenda.run(self.agenda.now_us + round(seconds * US))

    # --- brokers ---

    def add_broker(self, name: str, router: NodeRouter = Acyclic) -> None:
        """A broker, with an empty disk."""
        self._routers[name] = router
        self.disks[name] = Disk(self.random.branch())
        self._lives[name] = 0
        self.start(name)

    def start(self, name: str) -> None:
        """A broker starts, with what is on its disk."""
        if name in self.nodes:
            raise InvalidInput(f"{name} is running already; kill it first")
        life = self._lives[name] = self._lives[name] + 1
        node = self.nodes[name] = Node(
            name,
            self._routers[name](name),
            self.disks[name],
            settings=self.settings,
            authority=self.doors.authority(name),
            identity=self.doors.identity(name),
            new_id=lambda: f"{name}.{life}.{self.random.below(1 << 40)}",
            matcher=self._matcher,
        )
        self._do(name, node.start(self.at))
        self._wake(name, life)
        for one, other in self._wires:
            if name in (one, other):
                self._dial(one, other)

    def kill(self, name: str) -> None:
        """A broker stops dead; of what it had not synced, its disk keeps what it likes."""
        del self.nodes[name]
        self.disks[name].crash()
        self._lives[name] += 1
        for link in [link for (who, link) in self._ends if who == name]:
            self.cut_off(link)

    def _wake(self, name: str, life: int) -> None:
        def tick() -> None:
            node = self.nodes.get(name)
            if node is not None and self._lives[name] == life:
                self._do(name, node.tick(self.at))
                self._wake(name, life)

        node = self.nodes[name]
        self.agenda.at(max(self.agenda.now_us, round(node.wake_at * US)), TIMER, tick)

    # --- links between brokers ---

    def connect(self, one: str, other: str) -> None:
        """A link between two brokers: the first dials, and dials again when it breaks."""
        self._wires[one, other] = True
        self._dial(one, other)

    def cut(self, one: str, other: str) -> None:
        """A link fails."""
        wire = (one, other) if (one, other) in self._wires else (other, one)
        self._wires[wire] = False
        for link in [
            link
            for link, pipe in self._pipes.items()
            if {wire[0], wire[1]} == {who for who, each in self._ends if each == link}
        ]:
            self.cut_off(link)

    def heal(self, one: str, other: str) -> None:
        """A link works again."""
        wire = (one, other) if (one, other) in self._wires else (other, one)
        self._wires[wire] = True
        self._dial(*wire)

    def _dial(self, one: str, other: str) -> None:
        if not (self._wires.get((one, other)) and one in self.nodes and other in self.nodes):
            return
        link = self._open(one, other)
        self._do(other, self.nodes[other].accept(link, self.at, self.doors.shown(one)))
        self._do(one, self.nodes[one].dial(link, self.at, other, self.doors.shown(other)))

    def _open(self, one: str, other: str) -> int:
        """A connection from one broker (or client) to a broker."""
        link = self._next_link
        self._next_link += 1
        self._pipes[link] = _Pipe(link, (self._end(one), self._end(other)))
        self._ends[one, link] = 0
        self._ends[other, link] = 1
        return link

    def _end(self, name: str) -> _End:
        if name in self.clients:
            client = self.clients[name]
            return _End(client.receive, client.lost, client.illegal)
        life = self._lives[name]

        def read(link: int, message: Message) -> None:
            if self._lives[name] == life:
                self._do(name, self.nodes[name].receive(link, message, self.at))

        def lost(link: int) -> None:
            if self._lives[name] == life:
                self._do(name, self.nodes[name].lost(link, self.at))

        def illegal(link: int, error: IllegalMessage) -> None:
            if self._lives[name] == life:
                self._do(name, self.nodes[name].illegal(link, error, self.at))

        return _End(read, lost, illegal)

    def send(self, who: str, link: int, message: Message) -> None:
        """Write a message to a connection."""
        pipe = self._pipes.get(link)
        if pipe is None or not pipe.is_open:
            return
        here = self._ends[who, link]
        if self.spoils(who, message):
            data = UNREADABLE
        else:
            data = b"".join(bytes(part) for part in pipe.ends[here].encoder.encode(message))
        there = pipe.ends[1 - here]

        def arrive() -> None:
            if pipe.is_open:
                try:
                    for each in there.decoder.feed(data):
                        there.reader(link, each)
                except IllegalMessage as error:
                    there.illegal(link, error)

        self.agenda.at(self.agenda.now_us + self.latency_us, MESSAGE, arrive)

    def hang_up(self, who: str, link: int) -> None:
        """Close a connection, after what was written to it."""
        self.agenda.at(
            self.agenda.now_us + self.latency_us, MESSAGE, lambda: self.cut_off(link, but=who)
        )

    def cut_off(self, link: int, but: str = "") -> None:
        """Break a connection; all who are on it hear of that, `but` one."""
        pipe = self._pipes.pop(link, None)
        if pipe is None:
            return
        pipe.is_open = False
        ends = [(who, side) for (who, each), side in self._ends.items() if each == link]
        for who, side in ends:
            del self._ends[who, link]
            if who != but and (who in self.nodes or who in self.clients):
                pipe.ends[side].lost(link)
        names = tuple(who for who, _ in ends)
        self._redial(names)

    def _redial(self, names: Sequence[str]) -> None:
        if all(name in self._lives for name in names) and len(names) == 2:
            wire = (names[0], names[1])
            if wire not in self._wires:
                wire = (names[1], names[0])
            self.agenda.at(self.agenda.now_us + US // 5, TIMER, lambda: self._redial_now(wire))

    def _redial_now(self, wire: tuple[str, str]) -> None:
        linked = {
            frozenset(who for who, each in self._ends if each == link) for link in self._pipes
        }
        if frozenset(wire) not in linked:
            self._dial(*wire)

    # --- effects ---

    def _do(self, name: str, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, message):
                    self.send(name, link, message)
                case Close(link):
                    self.hang_up(name, link)
                case Append(ticket, operations):
                    self._append(name, ticket, operations)
                case Report():
                    self.reports.append((name, effect))

    def _append(self, name: str, ticket: int, operations: tuple[Any, ...]) -> None:
        disk, life = self.disks[name], self._lives[name]
        written = disk.write(operations)

        def synced() -> None:
            if self._lives[name] != life:
                return
            node = self.nodes[name]
            if written:
                disk.sync()
                self._do(name, node.stored(ticket, self.at))
            else:
                self._do(name, node.failed(ticket, "the disk is full", self.at))

        self.agenda.at(self.agenda.now_us + self.sync_us, MESSAGE, synced)

    # --- clients ---

    def client(self, name: str, at: str) -> Member:
        """A client of a broker, which reconnects by itself."""
        if name in self.clients or name in self._lives:
            raise InvalidInput(f"there is a {name!r} already; choose another name")
        member = Member(self, name, at)
        self.clients[name] = member
        member.connect()
        return member

    def open_client(self, name: str, broker: str) -> int | None:
        """A connection of a client to its broker, if that is running."""
        if broker not in self.nodes:
            return None
        link = self._open(name, broker)
        self._do(broker, self.nodes[broker].accept(link, self.at, self.doors.shown(name)))
        return link
