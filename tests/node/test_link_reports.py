"""Links that come and go are told of together."""

from __future__ import annotations

from collections.abc import Sequence

from palio.node.effects import Effect, Moment, Send
from palio.node.limits import NEWS_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Hello, Route
from palio.routing.general import General
from palio.routing.messages import LinkState

COUNT = 5


def joined() -> tuple[Node, list[tuple[str, ...]]]:
    """A broker that so many others join at once, and its own lists of links as it says them."""
    node = Node("b1", General("b1"), MemoryStore())
    node.start(Moment(0.0, 0))
    said: list[tuple[str, ...]] = []
    for number in range(COUNT):
        node.accept(number, Moment(0.0, 0))
        hello = Hello("broker", f"n{number}", PROTOCOL_VERSION)
        said += lists(node.receive(number, hello, Moment(0.0, 0)))
    return node, said


def lists(effects: Sequence[Effect]) -> list[tuple[str, ...]]:
    controls = [
        each.message.control
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, Route)
    ]
    return [each.neighbours for each in controls if isinstance(each, LinkState)]


def links(node: Node) -> tuple[str, ...]:
    return node._core.durability.registry.links("b1")


def test_the_first_link_is_told_of_at_once_and_the_others_together() -> None:
    node, said = joined()
    assert said == [("n0",)]
    assert links(node) == ("n0",)
    assert node.wake_at == NEWS_S
    everybody = tuple(f"n{number}" for number in range(COUNT))
    assert lists(node.tick(Moment(NEWS_S, 0))) == [everybody] * COUNT
    assert links(node) == everybody


def test_what_comes_later_is_told_of_at_once_again() -> None:
    node, _ = joined()
    node.tick(Moment(NEWS_S, 0))
    at = Moment(2 * NEWS_S, 0)
    node.accept(COUNT, at)
    said = lists(node.receive(COUNT, Hello("broker", "z", PROTOCOL_VERSION), at))
    assert len(said) == COUNT + 1
    assert "z" in links(node)
