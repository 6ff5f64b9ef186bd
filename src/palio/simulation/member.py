"""Simulates clients: real sessions, on the virtual clock and simulated pipes.

`Member` sends requests, and records the events and answers that it receives, for tests to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from math import inf
from operator import not_
from typing import Any, Final, Protocol

import msgspec

from palio.errors import IllegalMessage, PalioError, Unreachable
from palio.matching.protocol import RowMask
from palio.model.events import rows, to_batches
from palio.model.masks import unpack_mask
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
)
from palio.protocol.receipts import Receipts
from palio.protocol.requests import Outcome, Request
from palio.simulation.agenda import TIMER, US, Agenda, to_us_rounded_up
from palio.simulation.computers import AccessPolicy
from palio.simulation.pipes import End
from palio.simulation.randomness import Randomness

RETRY_US: Final = US // 10
"""Wait of a client before it retries its first connection."""


class ClientWorld(Protocol):
    """The part of a `World` that its clients use."""

    agenda: Agenda
    access: AccessPolicy
    random: Randomness

    @property
    def now(self) -> float:
        """The time, in seconds."""

    def open_client(self, name: str, broker: str) -> End | None:
        """Connect a client to a broker; None if the broker is not running."""

    def broker_at(self, url: str) -> str:
        """Return the name of the broker at an address; empty if there is none."""


class Publication:
    """The outcome of events that were published together (see `Receipt`)."""

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
        """The acknowledgements: a correct broker sends one."""
        self.answered_s = inf
        """Time of the first acknowledgement."""

    def refuse(self, refused: Refused) -> None:
        """Record events that the broker refused."""
        self.refused.append(refused)

    def fail(self, error: PalioError) -> None:
        """Record the error that ended the publication."""
        self.error = error

    def answer(self, level: str) -> None:
        """Record an acknowledgement."""
        self.levels.append(level)
        self.answered_s = min(self.answered_s, self._now())


class _Connection(Connector):
    """A client's session with one broker, its pipe, and its timer on the agenda."""

    def __init__(
        self, client: SimulatedClient, broker: str, hello: Hello, draw: Callable[[], float]
    ) -> None:
        self.client = client
        self.end: End | None = None
        self.session = ClientSession(self, client.core, [broker], hello, draw, soon=self._flush)
        self.is_wanted = True
        self._timer_at = inf

    def connect(self) -> None:
        """Connect; retry until it succeeds."""
        self.is_wanted = True
        self.session.connect(self.client.world.now)
        self.schedule_tick()

    def schedule_tick(self) -> None:
        """Schedule the session's next `tick`, unless an earlier one is scheduled already."""
        agenda, at = self.client.world.agenda, self.session.wake_at
        if at < self._timer_at:
            self._timer_at = at
            agenda.at(max(agenda.now_us, to_us_rounded_up(at)), TIMER, partial(self._tick, at))

    def _flush(self) -> None:
        """Send pending messages after all actions that are due now."""
        agenda = self.client.world.agenda
        agenda.at(agenda.now_us, TIMER, self.session.flush)

    def _tick(self, at: float) -> None:
        if at == self._timer_at:  # else an earlier tick superseded this one
            self._timer_at = inf
            self.session.tick(self.client.world.now)
            self.schedule_tick()

    # --- `Connector` ---

    def dial(self, url: str) -> None:
        world = self.client.world
        self.end = world.open_client(self.client.name, url)
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
        self.client.opened(self.session)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        self.client.errors.append(error)
        if again:
            return
        if self.session is not self.client.core.session:
            self.client.moved()
        elif self.is_wanted:
            agenda = self.client.world.agenda
            agenda.at(agenda.now_us + RETRY_US, TIMER, self._reconnect)

    def _reconnect(self) -> None:
        if self.is_wanted and self.end is None:
            self.connect()


class SimulatedClient(Application):
    """A client of a world: connected to one broker, and to two while it moves."""

    def __init__(self, world: ClientWorld, name: str, broker: str, identity: str = "") -> None:
        self.world = world
        self.name = name
        self.core = ClientCore(self)
        self.errors: list[PalioError] = []
        self._draw = world.random.branch().uniform
        token = world.access.token(name)
        self._hello = Hello(
            "client", name, PROTOCOL_VERSION, token, incarnation="1", identity=identity
        )
        self._connection = _Connection(self, broker, self._hello, self._draw)
        self._moving_to: _Connection | None = None
        """During a move, the connection to the new broker until that has accepted it."""
        self._leaving: _Connection | None = None
        """During a move, the connection to the old broker after that."""
        self._receives_from_old_broker = False
        """True while it handles a message of the old broker; subclasses in tests read it."""
        self.core.session = self._connection.session

    @property
    def token(self) -> str:
        """The token that it presents to its broker."""
        return self._hello.token

    @token.setter
    def token(self, token: str) -> None:
        self._hello = msgspec.structs.replace(self._hello, token=token)
        self._connection.session.hello = self._hello

    @property
    def broker(self) -> str:
        """The broker that it dials."""
        return self._connection.session.urls[0]

    @broker.setter
    def broker(self, broker: str) -> None:
        self._connection.session.urls[:] = [broker]
        if not self.is_connected and self._connection.is_wanted:
            self.connect()

    @property
    def is_connected(self) -> bool:
        """True if its messages are sent at once."""
        return self.core.session.is_connected

    @property
    def is_moving(self) -> bool:
        """True while it has connections to two brokers."""
        return self._moving_to is not None or self._leaving is not None

    def connect(self) -> None:
        """Connect; retry until it succeeds."""
        self._connection.connect()

    def cut(self) -> None:
        """Break the connection."""
        end = self._connection.end
        if end is not None:
            end.pipe.break_off()

    def vanish(self) -> None:
        """Break the connection without a message, and do not reconnect."""
        self._connection.is_wanted = False
        self._connection.session.abandon()

    def suspend(self) -> None:
        """Disconnect until `resume` is called."""
        self._connection.is_wanted = False
        self._connection.session.pause()

    def resume(self, broker: str) -> None:
        """Reconnect to the same or another broker."""
        self._connection.is_wanted = True
        self.broker = broker

    def move(self, broker: str) -> None:
        """Disconnect, and connect to another broker."""
        if not self.is_moving:
            self.suspend()
            self.resume(broker)

    def move_over(self, broker: str) -> None:
        """Connect to another broker; leave the old one once subscriptions are in force there."""
        if not self.is_moving:
            self._moving_to = _Connection(self, broker, self._hello, self._draw)
            self.core.move(self._moving_to.session)
            self._moving_to.connect()

    def opened(self, session: ClientSession) -> None:
        """Handle a session that has connected."""
        new, old = self._moving_to, self._connection
        if new is not None and session is new.session is self.core.session:
            self._connection, self._moving_to, self._leaving = new, None, old
            self.core.table.ask(Settle(0), lambda _outcome: self._schedule_leaving(old))

    def _schedule_leaving(self, old: _Connection) -> None:
        """Leave the old broker after `CROSSING_S`: until then its events may be in flight."""

        def leave() -> None:
            if self._leaving is old:  # else the move has ended already
                self.moved()

        agenda = self.world.agenda
        agenda.at(agenda.now_us + round(CROSSING_S * US), TIMER, leave)

    def moved(self) -> None:
        """End a move: the client has arrived at the new broker, or failed to connect to it."""
        ended = self._moving_to or self._leaving
        if ended is not None:
            ended.is_wanted = False
            self._moving_to = self._leaving = None
            self.core.moved(self.world.now)

    def _connections(self, end: End) -> list[_Connection]:
        connections = (self._connection, self._moving_to, self._leaving)
        return [each for each in connections if each is not None and each.end is end]

    def receive(self, end: End, message: Message) -> None:
        """Handle a message."""
        for connection in self._connections(end):
            self._receives_from_old_broker = connection is self._leaving
            connection.session.receive(message, self.world.now)
            connection.schedule_tick()

    def lost(self, end: End) -> None:
        """Handle a broken connection."""
        for connection in self._connections(end):
            connection.end = None
            connection.session.lost(Unreachable("the connection was cut"), self.world.now)
            connection.schedule_tick()

    def illegal(self, end: End, error: IllegalMessage) -> None:
        """Handle a message that cannot be decoded."""
        for connection in self._connections(end):
            connection.session.illegal(error, self.world.now)
            connection.schedule_tick()

    def redirected(self, urls: Sequence[str]) -> None:
        """Move to one of the brokers that a leaving broker names."""
        brokers = (self.world.broker_at(url) for url in urls)
        target = next((broker for broker in brokers if broker not in {"", self.broker}), "")
        if target:
            self.move_over(target)


class Member(SimulatedClient):
    """A client that records the events that it receives, and the outcomes of its requests."""

    def __init__(self, world: ClientWorld, name: str, broker: str, identity: str = "") -> None:
        super().__init__(world, name, broker, identity)
        self.heard: list[tuple[str, int, dict[str, Any]]] = []
        """Publisher, number and attributes of each received event, in order."""
        self.assembled: list[Assembled] = []
        """Occurrences of patterns that brokers have assembled, in order."""
        self.gaps: list[Gap] = []
        self.answers: dict[int, Done | Failed | Answer] = {}
        self.outcomes: dict[int, list[Outcome]] = {}
        """The answers to each request by its number: a correct broker sends one."""
        self.publications: list[Publication] = []
        self.acknowledges = True
        """True if it acknowledges durable events as they arrive."""
        self.receipts: dict[int, Receipts] = {}
        """The unacknowledged events of each durable subscription, by key."""
        self._next_id = 1
        self._next_key = 1

    @property
    def accepted(self) -> int:
        """The number of the last event that its broker acknowledged in memory."""
        return self._last_at("memory")

    @property
    def accepted_durable(self) -> int:
        """The number of the last event that its broker acknowledged on its disk."""
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

    # --- requests ---

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
        id = self._new_id()
        request = Subscribe(id, key, filter, values or {}, durable, assembled=assembled)
        if durable:
            self.receipts[key] = Receipts(self.core.table.report, key)
        self.core.table.ask(request, partial(self.answered, id))
        return key

    def update(self, key: int, **values: Any) -> int:
        """Change parameters of a subscription; return the number of the request."""
        return self.ask(lambda id: Update(id, key, values))

    def unsubscribe(self, key: int, *, forget: bool = False) -> int:
        """Unsubscribe; return the number of the request."""
        id = self._new_id()
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
        """Send a `Settle`; return the number of the request."""
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
        """Create the record of the outcome of these events."""
        return Publication(first, last, durable=durable, now=lambda: self.world.now)

    def ask(self, request: Callable[[int], Request]) -> int:
        """Send the request that `request` makes of a new number; return the number."""
        id = self._new_id()
        self.core.table.ask(request(id), partial(self.answered, id))
        return id

    def answered(self, id: int, outcome: Outcome) -> None:
        """Record the outcome of a request."""
        self.outcomes.setdefault(id, []).append(outcome)
        if not isinstance(outcome, PalioError):
            self.answers[id] = msgspec.structs.replace(outcome, id=id)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    # --- `client.Application` ---

    def deliver(self, message: Deliver) -> None:
        """Record events of live subscriptions."""
        self.record(message, unpack_mask(message.rows, len(message.parcel)))

    def deliver_durable(self, message: Deliver) -> None:
        """Record new events of a durable subscription, and acknowledge them."""
        receipts = self.receipts.get(message.key)
        if receipts is None:
            return
        parcel = message.parcel
        mask = unpack_mask(message.rows, len(parcel))
        if not message.entry:
            self.record(message, mask)
            return
        numbers = parcel.numbers[mask].tolist()
        entry = receipts.came(
            message.entry, parcel.publisher, numbers, message.attempt, is_part=message.part
        )
        self.note_duplicates(message, list(compress(numbers, map(not_, entry.fresh))))
        mask = mask.copy()
        mask[mask] = entry.fresh
        self.record(message, mask)
        count = int(mask.sum())
        receipts.expect(entry, count)
        receipts.take(receipts.make(entry, count))
        if self.acknowledges:
            receipts.finish()

    def note_duplicates(self, message: Deliver, numbers: list[int]) -> None:
        """Note redelivered events, which are not recorded twice."""

    def record(self, message: Deliver, mask: RowMask) -> None:
        """Record the events of a message that the mask selects."""
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
        """Reset the receipts: in a new session the broker redelivers unacknowledged events."""
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
