"""Durable subscriptions that move, and what is heard of them: of alice's `d` at b1."""

from __future__ import annotations

from typing import Any, Final

from palio.model.events import SEQ
from palio.node.effects import Assign
from palio.protocol.messages import Carry, Deliver, Fact, Facts, Subscribe, Visit
from tests.node.alone import Alone, parcel, subscribed

MOVED: Final = Facts(
    (Fact("b2", 5, "alice/d", (), "x = 1", 9_000_000), Fact("b2", 6, "links", ("b1",)))
)

LINKS_OF_B2: Final = Fact("b2", 6, "links", ("b1", "b5"))


def carried(alone: Alone) -> list[list[Any]]:
    """The numbers that the neighbour was handed."""
    return [
        each.parcel.batch.column(SEQ).to_pylist()
        for each in alone.heard(Carry)
        if isinstance(each, Carry)
    ]


def claimed(by: str, version: int, visit: int, *, claimed_us: int = 9_000_000) -> Fact:
    """A broker says that alice's subscription lives there, by a visit of hers."""
    return Fact(by, version, "alice/d", (), "x = 1", claimed_us, Visit("alice/1", visit))


def delivered(alone: Alone) -> list[list[Any]]:
    """The numbers that the client was given."""
    return [
        each.parcel.batch.column(SEQ).to_pylist()
        for each in alone.heard(Deliver)
        if isinstance(each, Deliver)
    ]


def wait(alone: Alone) -> None:
    """Time for what could not be written."""
    for _ in range(3):
        alone.tick()
        alone.sync()


def back_as_what_is_kept_is_written() -> Alone:
    """One moved away as an event came to the disk, and was back before: what is kept of that for it
    is about to be written.
    """
    alone = subscribed()
    alone.tell(2, Carry(parcel(1), 1, ("b1",)))
    alone.tell(2, MOVED)
    alone.tell(1, Subscribe(2, 2, "x = 1", durable="d"))
    alone.sync(steps=1)
    while not any(isinstance(each, Assign) for each in alone.open[0].operations):
        alone.sync(steps=1)
    return alone
