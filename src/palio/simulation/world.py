"""`World`: whole brokers, with their disks and clients, on one virtual clock.

Where `Network` drives bare routers, a world drives the very `Node` that the server runs: sessions,
custody, the registry, timers. Messages travel as frames, through the real codec. Links break and
heal, brokers are killed and start again with what is on their disks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from palio.errors import IllegalMessage, InvalidInput
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.events import rows, to_batches
from palio.node.effects import Append, Close, Effect, Moment, Report, Send
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    UNCOUNTED,
    Accepted,
    Acknowledge,
    Bye,
    Deliver,
    Done,
    Failed,
    Gap,
    Gaps,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Refused,
    Seen,
    Settle,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
    unpack_mask,
)
from palio.protocol.streams import Stream
from palio.protocol.wire import UNREADABLE, Decoder, Encoder
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Router
from palio.simulation.agenda import MESSAGE, TIMER, Agenda
from palio.simulation.disks import Disk
from palio.simulation.doors import Doors
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology

__all__ = ["Member", "World"]

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
        self.clients: dict[str, Member] = {}
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
            self._cut_pipe(link)

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
            self._cut_pipe(link)

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
            self.agenda.now_us + self.latency_us, MESSAGE, lambda: self._cut_pipe(link, but=who)
        )

    def _cut_pipe(self, link: int, but: str = "") -> None:
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
        member = self.clients[name] = Member(self, name, at)
        member.connect()
        return member

    def open_client(self, name: str, broker: str) -> int | None:
        """A connection of a client to its broker, if that is running."""
        if broker not in self.nodes:
            return None
        link = self._open(name, broker)
        self._do(broker, self.nodes[broker].accept(link, self.at, self.doors.shown(name)))
        return link


class Member:
    """A client: a small one, that does what the protocol asks and remembers what it heard."""

    def __init__(self, world: World, name: str, broker: str) -> None:
        self.world = world
        self.name = name
        self.broker = broker
        self.token = world.doors.token(name)
        self.link: int | None = None
        self.is_connected = False
        self.heard: list[tuple[str, int, dict[str, Any]]] = []
        """Publisher, number and attributes of what came, in order."""
        self.gaps: list[Gap] = []
        self.answers: dict[int, Message] = {}
        self.accepted = 0
        self.accepted_durable = 0
        self.refused: list[Refused] = []
        self.acknowledges = True
        self._session = ""
        self._stream = Stream()
        self._next_id = 1
        self._next_key = 1
        self._standing: dict[int, Subscribe] = {}
        self._next_seq = 1
        self._unaccepted: list[Publish] = []
        self._early: list[Message] = []
        self._entries: dict[int, int] = {}
        self._had: dict[tuple[int, str, int], None] = {}

    # --- verbs ---

    def subscribe(
        self, filter: str, values: Mapping[str, Any] | None = None, *, durable: str = ""
    ) -> int:
        """Hear something; the key."""
        key = self._next_key
        self._next_key += 1
        request = Subscribe(self._id(), key, filter, values or {}, durable)
        self._standing[key] = request
        self._say(request)
        return key

    def update(self, key: int, **values: Any) -> int:
        """Change parameters."""
        known = self._standing[key]
        merged = {**known.values, **values}
        self._standing[key] = Subscribe(known.id, key, known.filter, merged, known.durable)
        id = self._id()
        self._say(Update(id, key, values))
        return id

    def unsubscribe(self, key: int, *, forget: bool = False) -> None:
        """Hear it no more."""
        del self._standing[key]
        self._say(Unsubscribe(self._id(), key, forget))

    def settle(self) -> int:
        """Ask whether all is in force everywhere; the number of the answer."""
        id = self._id()
        self._say(Settle(id))
        return id

    def publish(self, *events: Mapping[str, Any], durable: bool = False) -> int:
        """Publish events; the number of the last."""
        for batch in to_batches(events):
            message = Publish(Parcel.of("", batch), self._next_seq, durable)
            self._next_seq += batch.num_rows
            if durable:
                self._unaccepted.append(message)
            self._say(message)
        return self._next_seq - 1

    def ask(self, request: Callable[[int], Message]) -> int:
        """Send any request with an id; the id."""
        id = self._id()
        self._say(request(id))
        return id

    def move(self, broker: str) -> None:
        """Leave for another broker."""
        if self.link is not None:
            self.world.send(self.name, self.link, Bye("closed"))
        self.broker, self._session = broker, ""
        self._entries.clear()  # another broker counts its own
        self._lose()
        self.connect()

    # --- the connection ---

    def connect(self) -> None:
        """Connect, or try again in a moment."""
        if self.link is not None:
            return
        self.link = self.world.open_client(self.name, self.broker)
        if self.link is None:
            self._later()
            return
        hello = Hello(
            "client",
            self.name,
            PROTOCOL_VERSION,
            self.token,
            incarnation="1",
            session=self._session,
            received=self._stream.received,
            refused=self._stream.refused,
        )
        self.world.send(self.name, self.link, hello)

    def cut(self) -> None:
        """The connection breaks."""
        if self.link is not None:
            self.world._cut_pipe(self.link)

    def lost(self, link: int) -> None:
        """The connection broke."""
        if link == self.link:
            self._lose()
            self._later()

    def illegal(self, link: int, error: IllegalMessage) -> None:
        """Something came that cannot be read: it is told when the session is resumed."""
        if link == self.link:
            self._stream.refuse(str(error))
            self.cut()

    def _lose(self) -> None:
        self.link, self.is_connected = None, False

    def _later(self) -> None:
        self.world.agenda.at(self.world.agenda.now_us + US // 10, TIMER, self.connect)

    def receive(self, link: int, message: Message) -> None:
        """A message came."""
        if link != self.link:
            return
        if type(message) not in UNCOUNTED:
            self._stream.arrive(message)
        self._take(link, message)
        word = self._stream.word(now=True)
        if word is not None and self.link is not None:
            self.world.send(self.name, self.link, word)

    def _take(self, link: int, message: Message) -> None:
        match message:
            case Welcome():
                self._welcomed(link, message)
            case Ping():
                self.world.send(self.name, link, Pong())
            case Seen(count):
                self._stream.seen(count)
            case Deliver():
                self._delivered(message)
            case Done() | Failed():
                self.answers[message.id] = message
            case Gaps(gaps):
                self.gaps += gaps
            case Refused():
                self.refused.append(message)
            case Accepted(seq, "durable"):
                self.accepted_durable = max(seq, self.accepted_durable)
                self._unaccepted = [
                    each
                    for each in self._unaccepted
                    if each.first_seq + len(each.parcel) - 1 > self.accepted_durable
                ]
            case Accepted(seq):
                self.accepted = max(seq, self.accepted)
            case Bye():
                self.world.hang_up(self.name, link)
            case _ if "id" in message.__struct_fields__:
                self.answers[message.id] = message  # type: ignore[union-attr]  # as was asked
            case _:
                raise IllegalMessage(self.broker, f"{type(message).__name__} to a client")

    def _welcomed(self, link: int, welcome: Welcome) -> None:
        self.is_connected = True
        if welcome.resumed:
            self._stream.refused = ""
            self._stream.seen(welcome.received)
            if welcome.refused and self._stream.returned() is not None:
                self._stream.replace(())
            for each in self._stream.resume(welcome.received):
                self.world.send(self.name, link, each)
            return
        self._session = welcome.session
        self._stream = Stream()
        for request in self._standing.values():
            self._say(request)
        early, self._early = self._early, []
        for message in [*self._unaccepted, *early]:
            self._say(message)

    def _delivered(self, message: Deliver) -> None:
        if message.entry and message.entry <= self._entries.get(message.key, 0):
            self._say(Acknowledge(message.key, message.entry))  # that word was lost
            return
        mask = unpack_mask(message.rows, len(message.parcel))
        publisher = message.parcel.publisher
        for row in rows(message.parcel.select(mask).batch):
            seq = row.pop("$seq")
            row.pop("$time")
            if message.entry:  # what was dealt with before a move may come again at the new home
                if (message.key, publisher, seq) in self._had:
                    continue
                self._had[message.key, publisher, seq] = None
            self.heard.append((publisher, seq, row))
        if message.entry:
            self._entries[message.key] = message.entry
            if self.acknowledges:
                self._say(Acknowledge(message.key, message.entry))

    def _say(self, message: Message) -> None:
        if self.is_connected and self.link is not None:
            self._stream.send(message)
            self.world.send(self.name, self.link, message)
        elif self._session:
            self._stream.send(message)  # it goes when the session is resumed
        elif not isinstance(message, Subscribe) and message not in self._unaccepted:
            self._early.append(message)

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id - 1
