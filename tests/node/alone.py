"""One node by itself, whose disk and neighbours do what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import pyarrow as pa

from palio.model.events import SEQ, TIME, timestamp_type
from palio.node.effects import Close, Effect, Moment, Report, Send
from palio.node.fact_verifier import LOG
from palio.node.node import Node
from palio.node.operations import Append
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    Carry,
    ClaimNumbers,
    Digest,
    EntriesStored,
    Fact,
    Facts,
    Hello,
    Message,
    Parcel,
    SessionEpoch,
    Share,
    Subscribe,
)
from palio.routing.acyclic import Acyclic
from palio.simulation.disks import Disk
from palio.simulation.randomness import Randomness

Kind = TypeVar("Kind")

FAR_LOG: Final = 7
"""Which log b3 has."""


class Alone:
    """One node whose disk does what the test says, a client on link 1 and a broker on link 2."""

    def __init__(
        self,
        store: Disk | None = None,
        *,
        settings: Settings | None = None,
        known: Digest | None = None,
        now: float = 0.0,
    ) -> None:
        self.disk = store or Disk(Randomness(0))
        self.node = Node("b1", Acyclic("b1"), self.disk, settings=settings)
        self.said: list[tuple[int, Message]] = []
        self.open: list[Append] = []
        self.reports: list[Report] = []
        self.closed: list[int] = []
        self.now = now
        self.do(self.node.start(self.at))
        self.greet(1, "client", "alice")
        self.greet(2, "broker", "b2")
        self.tell(2, known or Digest({}))
        self.sync()

    @property
    def at(self) -> Moment:
        return Moment(self.now, 1_000_000 + round(self.now * 1e6))

    @property
    def log(self) -> int:
        """Which log the node has."""
        return self.node._core.durability.events.streams.log_number

    def greet(self, link: int, role: str, name: str) -> None:
        self.do(self.node.accept(link, self.at))
        self.tell(link, Hello(role, name, PROTOCOL_VERSION, incarnation="1"))

    def tell(self, link: int, message: Message) -> None:
        self.do(self.node.receive(link, message, self.at))

    def carry(
        self,
        events: Parcel,
        offset: int,
        previous: int = 0,
        *,
        rows: bytes | None = None,
        subjects: Sequence[str] = ("alice/d",),
        number: int = 1,
    ) -> None:
        """The neighbour brings an entry of its own for durable subscriptions here."""
        shares = tuple(Share(subject, number, rows) for subject in subjects)
        self.tell(2, Carry(events, "b2", 1, "b1", self.log, offset, previous, shares))

    def has_stored(self, carry: Carry) -> None:
        """The home of what was carried from here has it."""
        here, there = (carry.origin, carry.log), (carry.home, carry.home_log)
        self.tell(2, EntriesStored(*there, *here, carry.offset))

    def tick(self) -> None:
        self.now += 1.0
        self.do(self.node.tick(self.at))

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, message):
                    self.said.append((link, message))
                case Append():
                    self.open.append(effect)
                case Report():
                    self.reports.append(effect)
                case Close(link):
                    self.closed.append(link)

    def sync(self, *, fails: bool = False, steps: int = 1_000) -> None:
        """Answer for what is being written."""
        while self.open and steps:
            steps -= 1
            append = self.open.pop(0)
            if self._write(append, refuses=fails):
                self.do(self.node.stored(append.ticket, self.at))
            else:
                self.do(self.node.failed(append.ticket, "the disk is full", self.at))

    def _write(self, append: Append, *, refuses: bool) -> bool:
        if refuses:
            self.disk.refusals.append(True)
        return self.disk.append(append) and self.disk.sync()

    def rest(self) -> None:
        """Time passes until all that is over has left the disk."""
        for _ in range(3):
            self.sync()
            self.tick()
        self.sync()

    def recover(self) -> None:
        """The disk takes writes again, and the node is told."""
        self.disk.refusals.clear()
        assert self.disk.takes_writes()
        self.do(self.node.writable(self.at))

    def crash(self, *, refused: int | None = None) -> None:
        """Nobody hears of what is being written; one of that may be refused, and all behind it."""
        for place, append in enumerate(self.open):
            self._write(append, refuses=place == refused)
        self.open.clear()
        self.disk.crash()

    def heard(self, kind: type[Kind]) -> list[Kind]:
        return [message for _, message in self.said if isinstance(message, kind)]

    def told(self, event: str) -> list[dict[str, object]]:
        """The details of what it said to people of one kind."""
        return [each.details for each in self.reports if each.event == event]


def far(version: int = 1) -> Facts:
    """There is a broker b3 beyond b2."""
    links = Fact("b3", version, "links", ("b2",))
    log = Fact("b3", version + 1, LOG, claimed_us=FAR_LOG)
    return Facts((links, log, Fact("b2", version + 8, "links", ("b1", "b3"))))


def lives(
    home: str,
    version: int,
    number: int = 1,
    *,
    subject: str = "alice/d",
    filter: str = "x = 1",
    claimed_us: int = 1,
    session_epoch: SessionEpoch = NO_SESSION_EPOCH,
) -> Facts:
    """A broker claims a durable subscription; without a filter it says that it is over."""
    numbers = ClaimNumbers(number, 0, 1)
    return Facts((Fact(home, version, subject, (), filter, claimed_us, session_epoch, numbers),))


def parcel(*numbers: int, publisher: str = "p/1") -> Parcel:
    return Parcel(
        publisher,
        pa.RecordBatch.from_pydict(
            {
                "x": pa.array([1] * len(numbers), pa.int64()),
                SEQ: pa.array(numbers, pa.int64()),
                TIME: pa.array([0] * len(numbers), timestamp_type()),
            }
        ),
    )


def subscribed(store: Disk | None = None) -> Alone:
    """One with a durable subscription, `alice/d`, of `x = 1`."""
    alone = Alone(store)
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.sync()
    return alone


def event(x: int = 1) -> Parcel:
    return Parcel("", pa.RecordBatch.from_pydict({"x": [x]}))


def say(alone: Alone, *messages: Message) -> None:
    for each in messages:
        alone.tell(2, each)
    alone.sync()
