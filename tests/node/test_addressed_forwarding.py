"""Ways of what is addressed, from one broker with neighbours that a test plays."""

from __future__ import annotations

from functools import partial

import pytest

from palio.language.parsing import parse_filter
from palio.node.effects import Effect, Moment, Send
from palio.node.limits import MAX_HOPS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.messages import Addressed, Digest, FlowAcks, FlowStatus, Forward, Message, Route
from palio.routing.flooded import Flooded
from palio.routing.messages import Flood
from tests.node.badges import Badge, Names, broker, greet
from tests.node.events import begin, parcel

AT = Moment(0.0, 1)
LINKS = {"b1": 1, "b3": 2, "b5": 3}


class Middle:
    """`b2`, with `b1` before it, `b3` and then `b4` on one side, and `b5` on the other."""

    def __init__(self, **grants: str) -> None:
        """`grants` say what a neighbour may receive, and publish, if that is not everything."""
        everything = parse_filter("TRUE")
        authority = Names(
            *(
                broker(
                    name,
                    parse_filter(grants[f"{name}_publishes"])
                    if f"{name}_publishes" in grants
                    else everything,
                    parse_filter(grants[name]) if name in grants else everything,
                )
                for name in ("b2", *LINKS)
            )
        )
        self.node = Node(
            "b2", Flooded("b2"), MemoryStore(), authority=authority, identity=Badge("b2")
        )
        begin(self.node, AT)
        for name, link in LINKS.items():
            self.node.accept(link, AT)
            greet(partial(self.node.receive, link, at=AT), name)
            self.say(name, Digest({}))
            self.say(name, Route(Flood(name, (), fresh=True)))
        self.say("b3", Route(Flood("b4", (), fresh=True)))

    def say(self, name: str, message: Message) -> list[tuple[str, Message]]:
        """What is said to whom in answer."""
        return sent(self.node.receive(LINKS[name], message, AT))


def sent(effects: list[Effect]) -> list[tuple[str, Message]]:
    names = {link: name for name, link in LINKS.items()}
    return [
        (names[each.link], each.message)
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, Forward | FlowStatus | FlowAcks)
    ]


EVENTS = parcel({"x": 1}, {"x": 2})


def forward(*to: tuple[str, int], hops: int = 0) -> Forward:
    return Forward(EVENTS, source="b1", addressed=Addressed(to, 7, hops))


def test_each_neighbour_gets_it_once_for_all_beyond() -> None:
    passed = Middle().say("b1", forward(("b3", 1), ("b4", 0), ("b5", 9)))
    assert [name for name, _ in passed] == ["b3", "b5"]
    addressed = [each.addressed for _, each in passed if isinstance(each, Forward)]
    assert addressed == [
        Addressed((("b3", 1), ("b4", 0)), 7, 1),
        Addressed((("b5", 9),), 7, 1),
    ]


def test_nothing_goes_back_or_to_nobody_or_too_far() -> None:
    middle = Middle()
    assert middle.say("b3", forward(("b4", 1), ("b9", 1))) == []
    assert middle.say("b1", forward(("b4", 1), hops=MAX_HOPS)) == []
    assert len(middle.say("b1", forward(("b4", 1), hops=MAX_HOPS - 1))) == 1


def test_what_is_said_of_flows_goes_on() -> None:
    middle = Middle()
    stands = FlowStatus("b1", 1, "b4", 2, 1, 5, 0, is_cast=True)
    assert middle.say("b1", stands) == [
        ("b3", FlowStatus("b1", 1, "b4", 2, 1, 5, 0, is_cast=True, hops=1))
    ]
    heard = FlowAcks("b4", 2, "b1", 1, 1, 5, ((6, 7),))
    assert middle.say("b3", heard) == [("b1", FlowAcks("b4", 2, "b1", 1, 1, 5, ((6, 7),), hops=1))]
    assert middle.say("b3", FlowAcks("b4", 2, "b9", 1, 1, 5)) == []


def test_a_neighbour_hears_what_it_may_and_nothing_that_has_a_number_in_part() -> None:
    passed = Middle(b3="x < 2").say("b1", forward(("b3", 0), ("b4", 5)))
    assert [name for name, _ in passed] == ["b3"]
    (message,) = [each for _, each in passed if isinstance(each, Forward)]
    assert message.addressed == Addressed((("b3", 0),), 7, 1)
    assert message.parcel.batch.column("x").to_pylist() == [1]
    assert Middle(b3="x < 1").say("b1", forward(("b3", 0), ("b4", 5))) == []


@pytest.mark.parametrize("grants", [{"b1_publishes": "x < 3"}, {"b1": "x < 3"}])
def test_nothing_with_a_number_is_taken_from_who_may_not_do_everything(
    grants: dict[str, str],
) -> None:
    """Or it would take the places of others' events."""
    passed = Middle(**grants).say("b1", forward(("b3", 0), ("b5", 5)))
    assert [name for name, _ in passed] == ["b3"]
    middle = Middle(**grants)
    middle.say("b1", forward(("b2", 5)))
    assert middle.node.status()["routed"] == 0


def test_flows_are_for_those_who_may_do_everything() -> None:
    for grants in ({"b1": "x < 2"}, {"b1_publishes": "x < 2"}):
        middle = Middle(**grants)
        assert middle.say("b1", FlowStatus("b1", 1, "b4", 2, 1, 5, 0, is_cast=True)) == []
        assert middle.say("b1", FlowAcks("b1", 1, "b4", 2, 1, 5)) == []
        assert "grant_exceeded" in middle.node.status()["rejections"]
