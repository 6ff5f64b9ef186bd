"""A neighbour that joins is told long tables in pieces, with others served in between."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from palio.language.parsing import parse_filter
from palio.node import sessions
from palio.node.effects import Effect, Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.node.settings import Settings
from palio.protocol import streams
from palio.protocol.limits import ACK_EVERY_ROUTES, PROTOCOL_VERSION, ROUTES_UNDER_WAY
from palio.protocol.messages import (
    Digest,
    Done,
    Forward,
    Hello,
    Message,
    Route,
    StreamAck,
    Subscribe,
    Unsubscribe,
    Update,
)
from palio.routing import messages as routing
from palio.routing.acyclic import Acyclic
from palio.routing.messages import PORTION
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.conftest import seeds
from tests.node.events import heard
from tests.node.test_core import event

AT: Final = Moment(0.0, 1)
CLIENT, NEIGHBOUR = 1, 2
COUNT: Final = 10 * PORTION


class Broker:
    """A node with a client that has many subscriptions, and a neighbour that has just joined. Its
    disk writes at once.
    """

    def __init__(self, count: int = COUNT) -> None:
        self.node = Node(
            "b1", Acyclic("b1"), MemoryStore(), settings=Settings(window_bytes=1 << 30)
        )
        self.sent: list[Message] = []
        """What the neighbour was sent."""
        self.note(self.node.start(AT))
        self.node.accept(CLIENT, AT)
        self.say(CLIENT, Hello("client", "alice", PROTOCOL_VERSION, incarnation="1"))
        for key in range(count):
            self.say(CLIENT, Subscribe(key, key, f"x = {key}"))
        self.node.accept(NEIGHBOUR, AT)
        self.say(NEIGHBOUR, Hello("broker", "b2", PROTOCOL_VERSION))
        self.say(NEIGHBOUR, Digest({}))

    def say(self, link: int, message: Message) -> None:
        self.note(self.node.receive(link, message, AT))

    def tick(self) -> None:
        self.note(self.node.tick(AT))

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:  # which grow meanwhile
            if isinstance(effect, Append):
                effects += self.node.stored(effect.ticket, AT)
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
    assert any(isinstance(each, Digest) for each in broker.sent)


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
    assert not broker.node._core.table_sync.waiting


# --- a busy link ---


class Busy(Broker):
    """A broker whose neighbour has seen nothing of so many updates."""

    def __init__(self, updates: int) -> None:
        super().__init__(1)
        self.rest()
        self.seen()
        self.before = len(self.sent)
        self.say(CLIENT, Subscribe(2, 2, "y > :low", {"low": 0}))
        self.version = 0
        for _ in range(1, updates):
            self.update()

    def update(self) -> None:
        self.version += 1
        self.say(CLIENT, Update(2 + self.version, 2, {"low": self.version}))

    def seen(self) -> None:
        self.say(NEIGHBOUR, StreamAck(self.node._core.neighbours["b2"].stream.sent))
        self.rest()

    @property
    def new(self) -> list[Message]:
        """What was sent since the neighbour had seen all."""
        return self.sent[self.before :]


def routes(messages: list[Message]) -> list[routing.Control]:
    return [each.control for each in messages if isinstance(each, Route)]


@pytest.mark.parametrize("beyond", [-1, 0, 1, 100])
def test_while_so_much_is_unseen_updates_wait_and_are_joined(beyond: int) -> None:
    broker = Busy(ROUTES_UNDER_WAY + beyond)
    assert len(routes(broker.new)) == min(ROUTES_UNDER_WAY + beyond, ROUTES_UNDER_WAY)
    assert broker.node.wake_at > AT.now  # nothing is to be done before the neighbour speaks
    broker.seen()
    assert len(routes(broker.new)) == min(ROUTES_UNDER_WAY + beyond, ROUTES_UNDER_WAY + 1)
    last = broker.told[-1]
    assert isinstance(last, routing.Update)
    assert last.values == {"0": broker.version}
    broker.update()
    assert len(routes(broker.new)) == min(ROUTES_UNDER_WAY + beyond + 1, ROUTES_UNDER_WAY + 2)


def test_the_other_end_speaks_before_it_is_waited_for() -> None:
    assert ROUTES_UNDER_WAY >= 2 * ACK_EVERY_ROUTES


def test_events_and_answers_do_not_overtake_what_waits() -> None:
    """Who hears the event and replies finds the way back; who is answered finds all in force."""
    broker = Busy(ROUTES_UNDER_WAY + 5)
    wants = routing.Subscribe(0, parse_filter("x = 0"))
    broker.say(NEIGHBOUR, Route(routing.Batch((wants,), fresh=True, wave=7)))
    broker.say(CLIENT, event(1))
    broker.update()  # joined to what waits, before the answer
    assert len(broker.new) == ROUTES_UNDER_WAY
    broker.seen()
    update, settled, forward = broker.new[ROUTES_UNDER_WAY:]
    (batch,) = routes([update])
    assert isinstance(batch, routing.Batch)
    assert [each.values for each in batch.requests if isinstance(each, routing.Update)] == [
        {"0": broker.version}
    ]
    assert settled == Route(routing.Settled(7))
    assert isinstance(forward, Forward)


@pytest.mark.parametrize("tree", [routing.Join(), routing.Leave(), routing.LinkState("b9", 1, ())])
def test_no_batch_is_said_before_a_change_of_the_tree_that_came_before_it(
    tree: routing.Control,
) -> None:
    broker = Busy(ROUTES_UNDER_WAY + 1)
    core = broker.node._core
    core.table_sync.send(core.neighbours["b2"], Route(tree))
    broker.update()
    broker.update()
    broker.seen()
    first, second, third = routes(broker.new)[ROUTES_UNDER_WAY:]
    assert second == tree
    assert isinstance(first, routing.Batch)
    assert isinstance(third, routing.Batch)
    assert len(third.requests) == 1


def test_as_much_as_was_seen_goes_on_and_the_rest_is_waited_for_without_work() -> None:
    broker = Busy(ROUTES_UNDER_WAY + 1)
    core = broker.node._core
    core.table_sync.send(core.neighbours["b2"], Route(routing.Leave()))
    broker.update()  # waits by itself
    broker.say(NEIGHBOUR, StreamAck(core.neighbours["b2"].stream.sent - ROUTES_UNDER_WAY + 1))
    broker.rest()
    first, second = routes(broker.new)[ROUTES_UNDER_WAY:]
    assert isinstance(first, routing.Batch)
    assert second == routing.Leave()
    assert broker.node.wake_at > AT.now
    broker.seen()
    (third,) = routes(broker.new)[ROUTES_UNDER_WAY + 2 :]
    assert isinstance(third, routing.Batch)


def test_no_batch_is_said_before_one_that_was_too_long_to_wait_with_others() -> None:
    broker = Busy(ROUTES_UNDER_WAY + 1)
    core = broker.node._core
    table = tuple(routing.Unsubscribe(1_000 + key) for key in range(PORTION + 1))
    core.table_sync.send(core.neighbours["b2"], Route(routing.Batch(table)))
    broker.update()
    broker.seen()
    sizes = [len(each.requests) for each in routes(broker.new) if isinstance(each, routing.Batch)]
    assert sizes[ROUTES_UNDER_WAY:] == [1, PORTION, 1, 1]


def test_what_waits_while_a_neighbour_is_away_goes_when_it_is_back() -> None:
    broker = Busy(ROUTES_UNDER_WAY + 50)
    neighbour = broker.node._core.neighbours["b2"]
    broker.node.lost(NEIGHBOUR, AT)
    broker.update()
    before = len(broker.sent)
    broker.node.accept(NEIGHBOUR, AT)
    count = neighbour.stream.sent
    hello = Hello("broker", "b2", PROTOCOL_VERSION, session=neighbour.id, received=count)
    broker.say(NEIGHBOUR, hello)
    broker.rest()
    (batch,) = routes(broker.sent[before:])
    assert isinstance(batch, routing.Batch)
    assert len(batch.requests) == 1


def test_what_is_too_long_for_one_message_is_not_joined() -> None:
    broker = Busy(ROUTES_UNDER_WAY)
    keys = range(10, 10 + PORTION + 1)
    for key in keys:
        broker.say(CLIENT, Subscribe(key, key, f"z = {key}"))
    broker.seen()
    sizes = [len(each.requests) for each in routes(broker.new) if isinstance(each, routing.Batch)]
    assert sizes[ROUTES_UNDER_WAY:] == [PORTION, 1]


class Slow:
    """Three brokers, the last link of which takes 250 ms; what goes over it is counted."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World.of(line(3), seed=seed)
        self.hearer = self.world.client("hearer", "b1")
        self.publisher = self.world.client("publisher", "b3")
        self.routes = 0
        self.world.spoils = self.count
        self.world.delay("b2", "b3", 0.25)

    def count(self, who: str, message: Message) -> bool:
        """What b2 says of what is wanted goes to b3 only."""
        if (
            who == "b2"
            and isinstance(message, Route)
            and isinstance(message.control, routing.Batch)
        ):
            self.routes += bool(message.control.requests)
        return False


def test_a_slow_link_carries_what_it_can_of_3000_updates_a_second_and_the_last_comes_through() -> (
    None
):
    slow = Slow()
    key = slow.hearer.subscribe("x > :low", {"low": 0})
    slow.world.run(2.0)
    slow.routes = 0
    agenda = slow.world.agenda
    for number in range(1, 3_001):
        agenda.at(agenda.now_us + number * 333, 0, partial(slow.hearer.update, key, low=number))
    for number in range(30):  # one that any value lets through, and one that the last ones did
        events = {"x": 9_999}, {"x": max(1, number * 100 - 50)}
        at_us = agenda.now_us + 50_000 + number * 33_300
        agenda.at(at_us, 0, partial(slow.publisher.publish, *events))
    slow.world.run(1.1)
    settled = slow.hearer.settle()
    slow.world.run(0.5)
    assert settled not in slow.hearer.answers
    slow.world.run(1.0)
    assert slow.hearer.answers[settled] == Done(settled)
    assert slow.routes <= 4 * ROUTES_UNDER_WAY  # two round trips, and the ends
    slow.publisher.publish({"x": 3_000}, {"x": 3_001})
    slow.world.run(1.0)
    assert heard(slow.hearer) == [9_999] * 30 + [3_001]


@pytest.mark.parametrize("seed", seeds(3, nightly=100))
def test_whatever_waits_nothing_old_is_heard_and_nothing_always_wanted_is_missed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ROUTES_UNDER_WAY", 2)
    monkeypatch.setattr(streams, "ACK_EVERY_ROUTES", 1)
    random = Randomness(seed)
    slow = Slow(seed)
    filters = ["x >= :low AND x < 100", "x - :low >= 0", "x >= :low", "x >= :low OR y = :low"]
    hearers = [slow.hearer, slow.world.client("second", "b2"), slow.world.client("third", "b1")]
    lows = [0] * len(hearers)
    keys = [each.subscribe(random.choice(filters), {"low": 0}) for each in hearers]
    slow.world.run(2.0)
    for step in range(150):
        which = random.below(len(hearers))
        lows[which] = random.between(0, 50)
        hearers[which].update(keys[which], low=lows[which])
        if random.chance(0.3):
            slow.publisher.publish({"x": 60})
        if random.chance(0.1):
            other = random.choice(hearers)
            extra = other.subscribe("x >= :low AND z = 1", {"low": step})
            if random.chance(0.5):
                other.unsubscribe(extra)
        slow.world.run(random.below(50) / 1_000)
    wanted = slow.publisher.core.publications.next - 1
    settled = hearers[0].settle()
    slow.world.run(5.0)
    assert slow.hearer.answers[settled] == Done(settled)
    slow.publisher.publish(*({"x": x} for x in range(51)))
    slow.world.run(5.0)
    for hearer, low in zip(hearers, lows, strict=True):
        assert heard(hearer) == [60] * wanted + list(range(low, 51))
