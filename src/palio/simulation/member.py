"""`Member`: a simulated client of whole brokers (`World`), which remembers what it heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from palio.errors import IllegalMessage
from palio.model.events import rows, to_batches
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
from palio.simulation.agenda import TIMER, Agenda
from palio.simulation.doors import Doors
from palio.simulation.randomness import Randomness

__all__ = ["Member", "Surroundings"]

AGAIN_US: Final = 100_000
"""How long a client waits before it dials its broker again."""


class Surroundings(Protocol):
    """What a client needs of its world."""

    agenda: Agenda
    doors: Doors
    random: Randomness

    @property
    def now(self) -> float:
        """The time, in seconds."""

    def open_client(self, name: str, broker: str) -> int | None:
        """A connection to a broker, if that is running."""

    def send(self, who: str, link: int, message: Message) -> None:
        """Write a message to a connection."""

    def hang_up(self, who: str, link: int) -> None:
        """Close a connection, after what was written to it."""

    def cut_off(self, link: int) -> None:
        """Break a connection."""


class Member:
    """A client: a small one, that does what the protocol asks and remembers what it heard."""

    def __init__(self, world: Surroundings, name: str, broker: str) -> None:
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
            self.world.cut_off(self.link)

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
        self.world.agenda.at(self.world.agenda.now_us + AGAIN_US, TIMER, self.connect)

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
