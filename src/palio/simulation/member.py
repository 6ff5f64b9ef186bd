"""`Member`: a client of a world, with the core of all clients, that records what it received."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, Protocol

import msgspec

from palio.errors import IllegalMessage, PalioError, Unreachable
from palio.matching.protocol import RowMask
from palio.model.events import rows, to_batches
from palio.protocol.client import Application, ClientCore
from palio.protocol.client_session import ClientSession, Connector
from palio.protocol.limits import CROSSING_S, PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Assembled,
    Deliver,
    Done,
    Failed,
    Gap,
    Hello,
    Message,
    Parcel,
    Refused,
    Settle,
    StoredAt,
    Subscribe,
    Unsubscribe,
    Update,
    unpack_mask,
)
from palio.protocol.receipts import Receipts
from palio.protocol.requests import Outcome, Request
from palio.simulation.agenda import TIMER, US, EventQueue, at_least
from palio.simulation.computers import Doors
from palio.simulation.pipes import End
from palio.simulation.randomness import Randomness

AGAIN_US: Final = US // 10
"""Wait of a member before it retries its first connection."""


class Surroundings(Protocol):
    """The services that a member needs of its world."""

    agenda: EventQueue
    doors: Doors
    random: Randomness

    @property
    def now(self) -> float:
        """The time, in seconds."""

    def open_client(self, name: str, broker: str) -> End | None:
        """Connect a client to a broker, if that is running."""

    def broker_at(self, url: str) -> str:
        """The broker at an address; empty if there is none."""


class Publication:
    """Events that were published together, and their outcome (see `Receipt`)."""

    def __init__(
        self, first: int, last: int, *, durable: StoredAt, now: Callable[[], float]
    ) -> None:
        self._now = now
        self.first = first
        self.last = last
        self.durable = durable
        self.refused: list[Refused] = []
        self.error: PalioError | None = None
        self.levels: list[str] = []
        """The acknowledgements: one, if all is well."""
        self.answered_s = inf
        """Time of the first answer."""

    def refuse(self, refused: Refused) -> None:
        """Note events that were refused."""
        self.refused.append(refused)

    def fail(self, error: PalioError) -> None:
        """Note the error that ended it."""
        self.error = error

    def answer(self, level: str) -> None:
        """Note an acknowledgement."""
        self.levels.append(level)
        self.answered_s = min(self.answered_s, self._now())


class _Line(Connector):
    """One session of a member, with its connection and its timer (see `Connector`)."""

    def __init__(
        self, member: Visitor, broker: str, hello: Hello, draw: Callable[[], float]
    ) -> None:
        self.member = member
        self.end: End | None = None
        self.session = ClientSession(self, member.core, [broker], hello, draw, soon=self._soon)
        self.is_wanted = True
        self._timer_at = inf

    def connect(self) -> None:
        """Connect, or try again in a moment."""
        self.is_wanted = True
        self.session.connect(self.member.world.now)
        self.look()

    def look(self) -> None:
        """Plan a timer so that `tick` is called in time."""
        agenda, at = self.member.world.agenda, self.session.wake_at
        if at < self._timer_at:
            self._timer_at = at
            agenda.at(max(agenda.now_us, at_least(at)), TIMER, partial(self._tick, at))

    def _soon(self) -> None:
        """Send pending messages after everything that is due now."""
        agenda = self.member.world.agenda
        agenda.at(agenda.now_us, TIMER, self.session.flush)

    def _tick(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = inf
            self.session.tick(self.member.world.now)
            self.look()

    # --- `Connector` ---

    def dial(self, url: str) -> None:
        world = self.member.world
        self.end = world.open_client(self.member.name, url)
        if self.end is None:
            self.session.lost(ConnectionRefusedError(), world.now)
        else:
            self.session.dialled(world.now)

    def send(self, message: Message) -> None:
        if self.end is not None:
            self.end.send(message)

    def close(self) -> None:
        end, self.end = self.end, None
        if end is not None:
            end.close()

    def opened(self, *, resumed: bool) -> None:
        del resumed
        self.member.opened(self.session)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        self.member.errors.append(error)
        if again:
            return
        if self.session is not self.member.core.session:
            self.member.moved()
        elif self.is_wanted:
            agenda = self.member.world.agenda
            agenda.at(agenda.now_us + AGAIN_US, TIMER, self._connect_again)

    def _connect_again(self) -> None:
        if self.is_wanted and self.end is None:
            self.connect()


class Visitor(Application):
    """A client's connections in a world: to one broker, and to two while it moves."""

    def __init__(self, world: Surroundings, name: str, broker: str, identity: str = "") -> None:
        self.world = world
        self.name = name
        self.core = ClientCore(self)
        self.errors: list[PalioError] = []
        self._draw = world.random.branch().uniform
        self._hello = Hello(
            "client",
            name,
            PROTOCOL_VERSION,
            world.doors.token(name),
            incarnation="1",
            identity=identity,
        )
        self._line = _Line(self, broker, self._hello, self._draw)
        self._other: _Line | None = None
        """The session at the other broker during a move."""
        self._hears_left = False
        """True if the current message comes from the broker that it leaves."""
        self.core.session = self._line.session

    @property
    def token(self) -> str:
        """The token that it presents to its broker."""
        return self._hello.token

    @token.setter
    def token(self, token: str) -> None:
        self._hello = self._line.session.hello = msgspec.structs.replace(self._hello, token=token)

    @property
    def broker(self) -> str:
        """The broker that it dials."""
        return self._line.session.urls[0]

    @broker.setter
    def broker(self, broker: str) -> None:
        self._line.session.urls[:] = [broker]
        if not self.is_connected and self._line.is_wanted:
            self.connect()

    @property
    def is_connected(self) -> bool:
        """True if its messages are sent at once."""
        return self.core.session.is_connected

    def connect(self) -> None:
        """Connect, or try again in a moment."""
        self._line.connect()

    def cut(self) -> None:
        """Break the connection."""
        end = self._line.end
        if end is not None:
            end.pipe.break_off()

    def vanish(self) -> None:
        """Break the connection without a message, and do not reconnect."""
        self._line.is_wanted = False
        self._line.session.abandon()

    def suspend(self) -> None:
        """Disconnect for a while."""
        self._line.is_wanted = False
        self._line.session.pause()

    def resume(self, broker: str) -> None:
        """Reconnect, perhaps to another broker."""
        self._line.is_wanted = True
        self.broker = broker

    def move(self, broker: str) -> None:
        """Move to another broker at once."""
        if self._other is None:
            self.suspend()
            self.resume(broker)

    def move_over(self, broker: str) -> None:
        """Move to another broker; leave the old one once all subscriptions are in force there."""
        if self._other is None:
            self._other = _Line(self, broker, self._hello, self._draw)
            self.core.move(self._other.session)
            self._other.connect()

    def opened(self, session: ClientSession) -> None:
        """Handle a session that has connected."""
        other = self._other
        if other is not None and session is other.session is self.core.session:
            self._line, self._other = other, self._line
            self.core.table.ask(Settle(0), lambda _outcome: self._cross(other))

    def _cross(self, other: _Line) -> None:
        """Read from the old broker for a moment more, as all is in force at the new one."""

        def crossed() -> None:
            if self._other is not None and self._line is other:
                self.moved()

        agenda = self.world.agenda
        agenda.at(agenda.now_us + round(CROSSING_S * US), TIMER, crossed)

    def moved(self) -> None:
        """End a move: all is in force at the new broker, or it was not reached."""
        if self._other is not None:
            self._other.is_wanted = False
            self._other = None
            self.core.moved(self.world.now)

    def _lines(self, end: End) -> list[_Line]:
        lines = (self._line, self._other)
        return [line for line in lines if line is not None and line.end is end]

    def receive(self, end: End, message: Message) -> None:
        """Handle a message."""
        for line in self._lines(end):
            self._hears_left = line is self._other
            line.session.receive(message, self.world.now)
            line.look()

    def lost(self, end: End) -> None:
        """Handle a broken connection."""
        for line in self._lines(end):
            line.end = None
            line.session.lost(Unreachable("the connection was cut"), self.world.now)
            line.look()

    def illegal(self, end: End, error: IllegalMessage) -> None:
        """Handle a message that cannot be decoded."""
        for line in self._lines(end):
            line.session.illegal(error, self.world.now)
            line.look()

    def redirected(self, urls: Sequence[str]) -> None:
        """Move to one of the brokers that a leaving broker names."""
        others = (self.world.broker_at(url) for url in urls)
        broker = next((other for other in others if other not in {"", self.broker}), "")
        if broker:
            self.move_over(broker)


class Member(Visitor):
    """A client that records what it received, and the outcomes of its requests."""

    def __init__(self, world: Surroundings, name: str, broker: str, identity: str = "") -> None:
        super().__init__(world, name, broker, identity)
        self.heard: list[tuple[str, int, dict[str, Any]]] = []
        """Publisher, number and attributes of each received event, in order."""
        self.assembled: list[Assembled] = []
        """Occurrences that brokers have assembled, in order."""
        self.gaps: list[Gap] = []
        self.answers: dict[int, Done | Failed | Answer] = {}
        self.outcomes: dict[int, list[Outcome]] = {}
        """Answers to each request: one, if all is well."""
        self.publications: list[Publication] = []
        self.acknowledges = True
        """True if it acknowledges events as they arrive; else `deal` does."""
        self.receipts: dict[int, Receipts] = {}
        """By durable subscription, its unacknowledged events."""
        self._next_id = 1
        self._next_key = 1

    @property
    def accepted(self) -> int:
        """The last event that its broker holds in memory."""
        return self._last_at("memory")

    @property
    def accepted_durable(self) -> int:
        """The last event that its broker has on its disk."""
        return self._last_at("durable")

    @property
    def refused(self) -> list[Refused]:
        """Publications that its broker refused."""
        return [refused for publication in self.publications for refused in publication.refused]

    def _last_at(self, level: str) -> int:
        return max(
            (publication.last for publication in self.publications if level in publication.levels),
            default=0,
        )

    # --- verbs ---

    def subscribe(
        self,
        filter: str,
        values: Mapping[str, Any] | None = None,
        *,
        durable: str = "",
        assembled: bool = False,
    ) -> int:
        """Subscribe; return the key."""
        key = self._next_key
        self._next_key += 1
        id = self._id()
        request = Subscribe(id, key, filter, values or {}, durable, assembled=assembled)
        if durable:
            self.receipts[key] = Receipts(self.core.table.report, key)
        self.core.table.ask(request, partial(self.answered, id))
        return key

    def update(self, key: int, **values: Any) -> int:
        """Change parameters."""
        return self.ask(lambda id: Update(id, key, values))

    def unsubscribe(self, key: int, *, forget: bool = False) -> int:
        """Unsubscribe; return the number of the request."""
        id = self._id()
        request = Unsubscribe(id, key, forget)
        if not self.core.table.unsubscribe(request, partial(self.answered, id)):
            self.answered(id, Done(id))
        self.receipts.pop(key, None)
        return id

    @property
    def requested(self) -> range:
        """The numbers of all requests."""
        return range(1, self._next_id)

    def settle(self) -> int:
        """Ask whether all is in force everywhere; return the number of the request."""
        return self.ask(Settle)

    def publish(self, *events: Mapping[str, Any], durable: StoredAt = False) -> int:
        """Publish events; return the number of the last."""
        for batch in to_batches(events):
            first = self.core.publications.next
            last = first + batch.num_rows - 1
            publication = self.published(first, last, durable=durable)
            self.publications.append(publication)
            self.core.publish(Parcel.of("", batch), [publication], durable=durable)
        return self.core.publications.next - 1

    def published(self, first: int, last: int, *, durable: StoredAt) -> Publication:
        """Return the receipt of these events."""
        return Publication(first, last, durable=durable, now=lambda: self.world.now)

    def ask(self, request: Callable[[int], Request]) -> int:
        """Send any request with an id; the id."""
        id = self._id()
        self.core.table.ask(request(id), partial(self.answered, id))
        return id

    def deal(self) -> None:
        """Acknowledge all received events."""
        for receipts in self.receipts.values():
            receipts.finish()

    def answered(self, id: int, outcome: Outcome) -> None:
        """Record the outcome of a request."""
        self.outcomes.setdefault(id, []).append(outcome)
        if not isinstance(outcome, PalioError):
            self.answers[id] = msgspec.structs.replace(outcome, id=id)

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    # --- `client.Application` ---

    def deliver(self, message: Deliver) -> None:
        """Deliver events to the subscriptions that match."""
        self.record(message, unpack_mask(message.rows, len(message.parcel)))

    def deliver_durable(self, message: Deliver) -> None:
        """Deliver events to one durable subscription."""
        receipts = self.receipts.get(message.key)
        if receipts is None:
            return
        parcel = message.parcel
        mask = unpack_mask(message.rows, len(parcel))
        if not message.entry:
            self.record(message, mask)
            return
        numbers = parcel.numbers[mask]
        entry = receipts.came(message.entry, parcel.publisher, numbers, message.attempt)
        self.note_again(message, numbers[~entry.fresh].tolist())
        mask = mask.copy()
        mask[mask] = entry.fresh
        self.record(message, mask)
        count = int(mask.sum())
        receipts.expect(entry, count)
        receipts.take(receipts.make(entry, count))
        if self.acknowledges:
            receipts.finish()

    def note_again(self, message: Deliver, numbers: list[int]) -> None:
        """Note events that came before, and are not heard again."""

    def record(self, message: Deliver, mask: RowMask) -> None:
        """Record some of the events of a message."""
        parcel = message.parcel
        for row in rows(parcel.select(mask).batch):
            seq = row.pop("$seq")
            row.pop("$time")
            self.heard.append((parcel.publisher, seq, row))

    def deliver_assembled(self, message: Assembled) -> None:
        """Record an occurrence of a pattern."""
        self.assembled.append(message)

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Record gaps."""
        self.gaps += gaps

    def renewed(self, *, may_have_missed: bool) -> None:
        """Begin a session, in which unacknowledged events are retransmitted."""
        del may_have_missed
        for receipts in self.receipts.values():
            receipts.renew()

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """Record that the broker ended a subscription."""
        del ended
        self.errors.append(error)

    def ended(self, error: PalioError) -> None:
        """Record the error that ended the client."""
        self.errors.append(error)
