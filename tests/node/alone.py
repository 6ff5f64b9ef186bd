"""One node by itself, whose disk and neighbours do what a test says."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.node.effects import Close, Effect, Moment, Report, Send
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Carry,
    EntriesStored,
    Fact,
    Facts,
    Hello,
    Known,
    Message,
    Parcel,
    Share,
    Subscribe,
)
from palio.routing.acyclic import Acyclic
from palio.simulation.disks import Disk
from palio.simulation.randomness import Randomness

B1_LOG: Final = 1_000_000
"""The log of b1, which it begins at that time of the wall."""

B2_LOG: Final = 7


class Alone:
    """One node whose disk does what the test says, a client on link 1 and a broker on link 2."""

    def __init__(self, store: Disk | None = None, wall_us: int = B1_LOG) -> None:
        self.disk = store or Disk(Randomness(0))
        self.node = Node("b1", Acyclic("b1"), self.disk)
        self.said: list[tuple[int, Message]] = []
        self.open: list[Append] = []
        self.reports: list[Report] = []
        self.closed: list[int] = []
        self.now = 0.0
        self._wall_us = wall_us
        self.do(self.node.start(self.at))
        self.greet(1, "client", "alice")
        self.greet(2, "broker", "b2")
        self.tell(2, Known({}))
        self.tell(
            2, Facts((Fact("b2", 1, "links", ("b1",)), Fact("b2", 2, "/log", claimed_us=B2_LOG)))
        )
        self.sync()

    @property
    def at(self) -> Moment:
        return Moment(self.now, self._wall_us + round(self.now * 1e6))

    def greet(self, link: int, role: str, name: str) -> None:
        self.do(self.node.accept(link, self.at))
        self.tell(link, Hello(role, name, PROTOCOL_VERSION, incarnation="1"))

    def tell(self, link: int, message: Message) -> None:
        self.do(self.node.receive(link, message, self.at))

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

    def recover(self) -> None:
        """The disk takes writes again, and the node is told."""
        assert self.disk.takes_writes()
        self.do(self.node.writable(self.at))

    def crash(self, *, refused: int | None = None) -> None:
        """Nobody hears of what is being written; one of that may be refused, and all behind it."""
        for place, append in enumerate(self.open):
            self._write(append, refuses=place == refused)
        self.open.clear()
        self.disk.crash()

    def heard(self, kind: type) -> list[Message]:
        return [message for _, message in self.said if isinstance(message, kind)]


def carry(events: Parcel, offset: int = 1, previous: int = 0, *, subject: str = "alice/d") -> Carry:
    """An entry of b2 for a durable subscription at b1."""
    shares = (Share(subject, 1, None),)
    return Carry(events, "b2", B2_LOG, "b1", B1_LOG, offset, previous, shares)


def stored(offset: int) -> EntriesStored:
    """The answer to that."""
    return EntriesStored("b1", B1_LOG, "b2", B2_LOG, offset)


def parcel(*numbers: int, publisher: str = "p/1") -> Parcel:
    return Parcel(
        publisher,
        pa.RecordBatch.from_pydict(
            {
                "x": pa.array([1] * len(numbers), pa.int64()),
                SEQ: pa.array(numbers, pa.int64()),
                TIME: pa.array([0] * len(numbers), TIMESTAMP),
            }
        ),
    )


def subscribed() -> Alone:
    alone = Alone()
    alone.tell(1, Subscribe(1, 1, "x = 1", durable="d"))
    alone.sync()
    return alone


def event(x: int = 1) -> Parcel:
    return Parcel("", pa.RecordBatch.from_pydict({"x": [x]}))
