"""`Hostile`: a client that does what it should not; nobody else may notice.

It says nonsense of seven kinds, as fast as it can, and takes up again once it was thrown out. What
it publishes legally is an event like others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from palio.errors import IllegalMessage
from palio.language.parsing import parse_filter
from palio.model.events import to_batches
from palio.model.parcels import Parcel
from palio.protocol.limits import MAX_NUMBER, PROTOCOL_VERSION
from palio.protocol.messages import (
    Acknowledge,
    Advertise,
    Digest,
    Fact,
    Facts,
    Hello,
    Message,
    Nack,
    Ping,
    Pong,
    Publish,
    Query,
    Replace,
    Route,
    Settle,
    StreamAck,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from palio.routing import messages as routing
from palio.simulation.pipes import End
from palio.simulation.randomness import Randomness
from palio.simulation.world import World

HOSTILE: Final = "mallory"
"""What such clients are called, with a number."""

MANY: Final = 300
"""Requests that are said at once."""


class Hostile:
    """One of them: it holds its end of a connection itself."""

    def __init__(self, world: World, name: str, broker: str) -> None:
        self._world = world
        self._name = name
        self._broker = broker
        self._end: End | None = None
        self._is_welcome = False
        self._waiting: list[Message] = []
        self._number = 1

    def harm(self, kind: str) -> None:
        """Say something of a kind, connected anew if need be."""
        world = self._world
        said = HARMS[kind](world.random.branch())
        if self._end is None:
            self._is_welcome = False
            self._end = world.open_client(self._name, self._broker)
            hello = Hello("client", self._name, PROTOCOL_VERSION, incarnation="1")
            self._waiting = list(said)
            self._say(hello)
        elif self._is_welcome:
            for message in said:
                self._say(message)
        else:
            self._waiting += said

    def _say(self, message: Message) -> None:
        if self._end is not None:
            self._end.send(message)

    def receive(self, _end: End, message: Message) -> None:
        """It reads nothing but whether it is welcome."""
        if isinstance(message, Welcome):
            self._is_welcome = True
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._say(each)

    def lost(self, _end: End) -> None:
        """It was thrown out."""
        self._end = None

    def illegal(self, end: End, _error: IllegalMessage) -> None:
        """No broker says anything that cannot be read."""
        self.lost(end)


def _parcel(*events: dict[str, Any]) -> Parcel:
    return Parcel.of("", next(iter(to_batches(events))))


def _nonsense(random: Randomness) -> Sequence[Message]:
    """Filters that are none, keys that are not there or taken, values that do not fit."""
    return [
        Subscribe(1, 1, "x >"),
        Subscribe(2, 1, "x = :v"),
        Subscribe(3, 2, "x = 1", {"v": 1}),
        Subscribe(4, 3, "(" * random.between(1, 5_000) + "x = 1"),
        Subscribe(5, 4, " OR ".join(f"x = {each}" for each in range(random.between(1, 400)))),
        Subscribe(6, 4, "kind = 1"),
        Subscribe(7, 5, "x = 1 THEN x = 2 WITHIN 5s"),
        Update(8, 77, {"least": 1}),
        Update(9, 4, {"x": "a"}),
        Replace(10, 78, "x = 1"),
        Unsubscribe(11, 79),
        Advertise(12, 1, "x = :y"),
    ]


def _publications(random: Randomness) -> Sequence[Message]:
    """Numbers that do not grow, or to the end of all numbers."""
    event = {"kind": random.below(3), "x": random.below(6)}
    first = random.below(1 << 40)
    return [
        Publish(_parcel(event), first, durable=True),
        Publish(_parcel(event), first, durable=True),
        Publish(_parcel(event, event), max(0, first - 1)),
        Publish(_parcel({"kind": None, "x": 1.5}), first + 5),
        Publish(_parcel(event), MAX_NUMBER),
    ]


def _receipts(random: Randomness) -> Sequence[Message]:
    """Receipts for what it was never given."""
    return [
        Acknowledge(random.below(5), random.below(1 << 50)),
        Acknowledge(1, 0, held=MAX_NUMBER, bookmark=b"x" * 100),
        Acknowledge(1, 0, others=(random.below(50), MAX_NUMBER), seqs=(1, random.below(9))),
        Nack(random.below(5), random.below(50), (random.below(9),), random.below(3)),
        StreamAck(random.below(1_000)),
    ]


def _as_a_broker(random: Randomness) -> Sequence[Message]:
    """What only brokers say."""
    wish = routing.Subscribe(1, parse_filter("TRUE"))
    said: Sequence[Message] = (
        Route(routing.Batch((wish,), fresh=True)),
        Facts((Fact("b1", 1 << 60, "links", ()),)),
        Digest({"b1": 1 << 60}),
        Route(routing.Settled(random.below(9))),
    )
    return [random.choice(said)]


def _unreadable(_random: Randomness) -> Sequence[Message]:
    """Bytes that are no message: the play spoils its pongs."""
    return [Pong()]


def _too_much(_random: Randomness) -> Sequence[Message]:
    """More than anybody needs to know."""
    return [
        message
        for number in range(MANY)
        for message in (Settle(1_000 + number), Query(2_000 + number, "status"), Ping())
    ]


def _hears_all(_random: Randomness) -> Sequence[Message]:
    """It wants everything, and never says that it has seen any of it."""
    return [Subscribe(21, 21, "TRUE"), Subscribe(22, 22, "TRUE", durable="all")]


HARMS: Final[dict[str, Callable[[Randomness], Sequence[Message]]]] = {
    "nonsense": _nonsense,
    "publications": _publications,
    "receipts": _receipts,
    "as a broker": _as_a_broker,
    "unreadable": _unreadable,
    "too much": _too_much,
    "hears all": _hears_all,
}
"""What it does, by name."""
