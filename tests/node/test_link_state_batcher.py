"""Links that come and go are told of together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from palio.node.effects import Effect, Moment, Send
from palio.node.limits import LINK_STATE_BURST, LINK_STATE_INTERVAL_S
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Digest, Hello, Route
from palio.routing.general import General
from palio.routing.messages import LinkState

COUNT = LINK_STATE_BURST + 4


def joined() -> tuple[Node, list[tuple[str, ...]]]:
    """A broker that so many others join at once, and its own lists of links as it says them."""
    node = Node("b1", General("b1"), MemoryStore())
    node.start(Moment(0.0, 0))
    said: list[tuple[str, ...]] = []
    for number in range(COUNT):
        node.accept(number, Moment(0.0, 0))
        said += lists(greet(node, number, f"n{number}", Moment(0.0, 0)))
    return node, said


def greet(node: Node, link: int, name: str, at: Moment) -> list[Effect]:
    """A broker joins that knows nothing."""
    return [
        *node.receive(link, Hello("broker", name, PROTOCOL_VERSION), at),
        *node.receive(link, Digest({}), at),
    ]


def lists(effects: Sequence[Effect]) -> list[tuple[str, ...]]:
    controls = [
        each.message.control
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, Route)
    ]
    return [each.neighbours for each in controls if isinstance(each, LinkState)]


def links(node: Node) -> tuple[str, ...]:
    return node._core.durability.cluster_state.links("b1")


def test_a_few_links_are_told_of_at_once_and_the_others_together() -> None:
    node, said = joined()
    assert [len(each) for each in said] == [
        number for number in range(1, LINK_STATE_BURST + 1) for _ in range(number)
    ]
    assert len(links(node)) == LINK_STATE_BURST
    assert node.wake_at == pytest.approx(LINK_STATE_INTERVAL_S)
    everybody = tuple(sorted(f"n{number}" for number in range(COUNT)))
    assert lists(node.tick(Moment(node.wake_at, 0))) == [everybody] * COUNT
    assert links(node) == everybody


def test_as_many_again_are_told_of_at_once_after_a_while() -> None:
    node, _ = joined()
    node.tick(Moment(node.wake_at, 0))
    at = Moment((LINK_STATE_BURST + 2) * LINK_STATE_INTERVAL_S, 0)
    said = [
        len(lists(greet(node, link, f"z{link}", at)))
        for link in range(COUNT, COUNT + LINK_STATE_BURST + 1)
        if node.accept(link, at) == []
    ]
    assert said[: LINK_STATE_BURST - 1] == [*range(COUNT + 1, COUNT + LINK_STATE_BURST)]
    assert said[-1] == 0
