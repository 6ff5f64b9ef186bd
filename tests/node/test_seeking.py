"""Whether anybody offers what a filter wants, asked of one broker after another."""

from __future__ import annotations

from functools import partial

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.filters import TRUE, Filter
from palio.node import seeking
from palio.node.authority import Principal
from palio.node.effects import Effect, Moment
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Bye,
    Digest,
    Failed,
    Hello,
    Message,
    Query,
    Route,
    Seek,
    Sought,
)
from palio.routing import messages as routing
from palio.routing.protocol import Peer
from palio.routing.proxies import Proxies
from tests.node.badges import Badge, Names, broker, greet
from tests.node.test_grants import sent

AT = Moment(0.0, 1_000_000)
BELOW, ABOVE, CLIENT = range(3)
DEAR = parse_filter("x > 5")


class Middle:
    """A broker with one above it, one below, and a client."""

    def __init__(self, below: Filter = TRUE, client: Filter = TRUE) -> None:
        listed = [broker("below", TRUE, below), broker("above"), Principal("ann", TRUE, client)]
        router = Proxies("b")
        router.above = Peer.broker("above")
        self.node = Node(
            "b",
            router,
            MemoryStore(),
            authority=Names(broker("b"), *listed),
            identity=Badge("b"),
        )
        self.node.start(AT)
        for link in (BELOW, ABOVE):
            self.node.accept(link, AT)
            greet(partial(self.say, link), listed[link].name)
            self.say(link, Digest({}))
            self.say(link, Route(routing.Batch((), fresh=True)))
        self.node.accept(CLIENT, AT)
        self.say(CLIENT, Hello("client", "ann", PROTOCOL_VERSION, "ann"))

    def say(self, link: int, message: Message) -> list[Effect]:
        return self.node.receive(link, message, AT)

    def offer(self, text: str) -> None:
        offer = routing.Advertise(0, parse_advertisement(text))
        self.say(BELOW, Route(routing.Batch((offer,))))

    def ask(self, filter: str, **values: object) -> list[Effect]:
        return self.say(CLIENT, Query(1, "source", {"filter": filter, "values": values}))


def test_what_is_offered_below_is_known_here() -> None:
    middle = Middle()
    middle.offer("x > 0")
    assert sent(middle.ask("x > :low", low=3), Answer) == [Answer(1, data=True)]
    assert sent(middle.say(BELOW, Seek(7, DEAR)), Sought) == [Sought(7, has_source=True)]


@pytest.mark.parametrize("there", [True, False])
def test_what_is_not_is_asked_of_the_broker_above(there: bool) -> None:
    middle = Middle()
    middle.offer("x < 0")
    (asked,) = sent(middle.ask("x > :low", low=3), Seek)
    assert str(asked.filter) == "x > 3"
    (again,) = sent(middle.say(BELOW, Seek(7, DEAR)), Seek)
    assert sent(middle.say(ABOVE, Sought(again.id, there)), Sought) == [Sought(7, there)]
    assert sent(middle.say(ABOVE, Sought(asked.id, there)), Answer) == [Answer(1, data=there)]
    assert middle.say(ABOVE, Sought(asked.id, there)) == []


def test_only_who_was_asked_answers() -> None:
    middle = Middle()
    (asked,) = sent(middle.ask("x > 3"), Seek)
    assert not sent(middle.say(BELOW, Sought(asked.id, has_source=True)), Answer)
    assert sent(middle.say(ABOVE, Sought(asked.id, has_source=False)), Answer)


def test_a_broker_above_that_asks_is_not_asked_back() -> None:
    assert sent(Middle().say(ABOVE, Seek(7, DEAR)), Sought) == [Sought(7, has_source=False)]


def test_everybody_is_told_of_what_he_may_hear() -> None:
    cheap = parse_filter("x < 5")
    middle = Middle(below=cheap, client=cheap)
    middle.offer("x > 10")
    (asked,) = sent(middle.ask("x > 3"), Seek)
    assert str(asked.filter) == "x < 5 AND x > 3"
    (asked,) = sent(middle.say(BELOW, Seek(7, parse_filter("x > 3"))), Seek)
    assert str(asked.filter) == "x < 5 AND x > 3"
    assert sent(middle.say(BELOW, Seek(7, DEAR)), Sought) == [Sought(7, has_source=False)]
    assert sent(middle.ask("x > 6"), Failed)


def test_what_is_too_long_to_narrow_may_have_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(*_: object) -> Filter:
        raise LimitExceeded("a filter", limit="MAX_CONJUNCTIONS", maximum=1)

    monkeypatch.setattr(seeking, "narrow", too_long)
    assert sent(Middle().say(BELOW, Seek(7, DEAR)), Sought) == [Sought(7, has_source=True)]


def test_who_is_gone_may_know_of_a_source() -> None:
    middle = Middle()
    middle.ask("x > 3")
    middle.node.lost(ABOVE, AT)
    effects = middle.node.tick(Moment(AT.now + 60.0, AT.wall_us))
    assert sent(effects, Answer) == [Answer(1, data=True)]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_many_questions_wait_for_answers(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "MAX_PROBES", 3)
    middle = Middle()
    given = [
        each
        for number in range(3 + more)
        for each in sent(middle.say(BELOW, Seek(number, DEAR)), Sought)
    ]
    assert given == ([Sought(0, has_source=True)] if more > 0 else [])


def test_a_parameter_without_its_value_is_illegal() -> None:
    (bye,) = sent(Middle().say(BELOW, Seek(1, parse_filter("x > :low"))), Bye)
    assert bye.code == "IllegalMessage"


@pytest.mark.parametrize(
    "about",
    [
        None,
        {},
        {"filter": "x >", "values": {}},
        {"filter": "x > 1"},
        {"filter": "x > 1", "values": 1},
        {"filter": "x > :low", "values": {}},
        {"filter": "x > 1 THEN x > 2", "values": {}},
    ],
)
def test_what_is_no_filter_with_its_values_is_refused(about: object) -> None:
    assert sent(Middle().say(CLIENT, Query(1, "source", about)), Failed)
