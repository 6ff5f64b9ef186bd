"""A neighbour that joins is told long tables in pieces, with others served in between."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from palio.language.parsing import parse_filter
from palio.node.effects import Effect, Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Forward,
    Hello,
    Known,
    Message,
    Route,
    Subscribe,
    Unsubscribe,
)
from palio.routing import messages as routing
from palio.routing.acyclic import Acyclic
from palio.routing.messages import PORTION
from tests.node.test_core import event

AT: Final = Moment(0.0, 1)
CLIENT, NEIGHBOUR = 1, 2
COUNT: Final = 10 * PORTION


class Broker:
    """A node with a client that has many subscriptions, and a neighbour that has just joined."""

    def __init__(self) -> None:
        self.node = Node(
            "b1", Acyclic("b1"), MemoryStore(), settings=Settings(window_bytes=1 << 30)
        )
        self.node.start(AT)
        self.sent: list[Message] = []
        """What the neighbour was sent."""
        self.node.accept(CLIENT, AT)
        self.say(CLIENT, Hello("client", "alice", PROTOCOL_VERSION, incarnation="1"))
        for key in range(COUNT):
            self.say(CLIENT, Subscribe(key, key, f"x = {key}"))
        self.node.accept(NEIGHBOUR, AT)
        self.say(NEIGHBOUR, Hello("broker", "b2", PROTOCOL_VERSION))

    def say(self, link: int, message: Message) -> None:
        self.note(self.node.receive(link, message, AT))

    def tick(self) -> None:
        self.note(self.node.tick(AT))

    def note(self, effects: list[Effect]) -> None:
        sent = (each for each in effects if isinstance(each, Send) and each.link == NEIGHBOUR)
        self.sent += [each.message for each in sent]

    def rest(self) -> None:
        """As many ticks as the broker wants at once."""
        while self.node.wake_at <= AT.now:
            self.tick()

    @property
    def told(self) -> list[routing.Request]:
        """The requests of all batches, in order."""
        controls = [each.control for each in self.sent if isinstance(each, Route)]
        return [
            request
            for each in controls
            if isinstance(each, routing.Batch)
            for request in each.requests
        ]


def test_a_tick_tells_about_a_portion() -> None:
    broker = Broker()
    counts = [len(broker.told)]
    while broker.node.wake_at <= AT.now:
        broker.tick()
        counts.append(len(broker.told))
    assert counts[0] == PORTION
    assert counts[-1] == COUNT
    assert max(after - before for before, after in pairwise(counts)) < 2 * PORTION


def test_what_is_said_meanwhile_comes_after_it_in_order() -> None:
    broker = Broker()
    broker.say(CLIENT, Unsubscribe(COUNT, COUNT - 1))
    broker.say(CLIENT, Subscribe(COUNT + 1, COUNT, "y = 1"))
    assert len(broker.told) == PORTION
    broker.rest()
    *table, gone, new = broker.told
    assert len(table) == COUNT
    assert isinstance(gone, routing.Unsubscribe)
    assert isinstance(new, routing.Subscribe)
    assert str(new.filter) == "y = 1"
    assert any(isinstance(each, Known) for each in broker.sent)


def test_events_wait_until_all_is_told() -> None:
    broker = Broker()
    wants = routing.Subscribe(0, parse_filter("x = 0"))
    broker.say(NEIGHBOUR, Route(routing.Batch((wants,), fresh=True)))
    broker.say(CLIENT, event(1))
    assert not [each for each in broker.sent if isinstance(each, Forward)]
    broker.rest()
    assert isinstance(broker.sent[-1], Forward)
    assert len(broker.told) == COUNT


def test_a_neighbour_that_leaves_is_told_nothing_more() -> None:
    broker = Broker()
    broker.node.lost(NEIGHBOUR, AT)
    broker.node._peers.end_neighbour(broker.node._core.neighbours["b2"])
    before = len(broker.sent)
    broker.rest()
    assert len(broker.sent) == before
    assert not broker.node._core.telling.waiting
