"""Much that is learned at once is learned in pieces, and what comes of it is the same."""

from __future__ import annotations

from palio.node.authority import NamedAuthority
from palio.node.effects import Moment
from palio.node.later import Later
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.registry import Registry
from palio.node.vouching import LINKS, Vouching
from palio.protocol.limits import PORTION_FACTS, PROTOCOL_VERSION
from palio.protocol.messages import Echo, Fact, Facts, Hello, Known, Ping
from palio.routing.acyclic import Acyclic

AT = Moment(0.0, 0)
COUNT = 5 * PORTION_FACTS


def claims(first: int, count: int) -> list[Fact]:
    return [
        Fact("a", number, f"o/d{number}", (), "x = 1") for number in range(first, first + count)
    ]


def bereft() -> Registry:
    """A broker that heard much of its neighbour a from c and d, and has just lost a."""
    registry = Registry("b", (), Vouching("b", authority=NamedAuthority({})))
    for name in ("a", "c", "d"):
        registry.join(name, AT)
        registry.receive(name, Known({}), AT)
    for source in ("c", "d"):
        for first in range(1, COUNT, PORTION_FACTS):
            registry.receive(source, Facts(tuple(claims(first, PORTION_FACTS))), AT)
    registry.leave("a", AT)
    return registry


def known(registry: Registry) -> list[int]:
    return sorted(each.version for each in registry.facts() if each.origin == "a")


def rest(registry: Registry) -> None:
    while registry.later.waiting:
        registry.go_on(AT)


def test_what_comes_of_the_same_origin_meanwhile_is_learned_after_it() -> None:
    registry = bereft()
    registry.receive("c", Facts((Fact("a", COUNT + 9, LINKS, ("c",)),)), AT)
    registry.receive("c", Facts((Fact("e", 1, LINKS, ("c",)),)), AT)
    assert registry.links("a") == ()
    assert registry.links("e") == ("c",)
    rest(registry)
    assert registry.links("a") == ("c",)
    assert known(registry) == [*range(1, COUNT + 1), COUNT + 9]


def test_all_are_answered() -> None:
    registry = bereft()
    registry.outbox.clear()
    rest(registry)
    for start in range(1, COUNT + 1, PORTION_FACTS):
        versions = range(start, min(start + PORTION_FACTS, COUNT + 1))
        registry.receive("d", Echo("a", tuple(versions)), AT)
        registry.receive("c", Echo("a", tuple(versions)), AT)
    answered: dict[str, list[int]] = {"c": [], "d": []}
    for name, each in registry.outbox:
        if isinstance(each, Echo) and each.origin == "a":
            answered[name] += each.versions
    assert [sorted(each) for each in answered.values()] == [[*range(1, COUNT + 1)]] * 2


def test_of_what_a_neighbour_said_that_is_gone_too_nothing_more_is_learned() -> None:
    registry = bereft()
    registry.leave("d", AT)
    registry.leave("c", AT)
    assert not registry.later.waiting
    assert known(registry) == [*range(1, 2 * PORTION_FACTS + 1)]


def test_what_was_taken_out_concerns_nobody() -> None:
    later = Later()
    later.put("c", claims(1, PORTION_FACTS + 1))
    later.put("d", [Fact("e", 1, LINKS)])
    assert len(later.waiting) == 3
    later.take()
    assert later.concerns(claims(9, 1))
    later.forget("d")
    assert not later.concerns([Fact("e", 2, LINKS)])
    later.take()
    assert not later.concerns(claims(9, 1))
    assert later.take() is None


def test_a_node_learns_with_every_tick() -> None:
    node = Node("b", Acyclic("b"), MemoryStore())
    node.start(AT)
    node.accept(1, AT)
    node.receive(1, Hello("broker", "c", PROTOCOL_VERSION), AT)
    registry = node._core.durability.registry
    registry.later.put("c", claims(1, COUNT))
    counts = []
    node.receive(1, Ping(), AT)
    while node.wake_at <= AT.now:
        node.tick(AT)
        counts.append(len(known(registry)))
    assert counts[:5] == [*range(PORTION_FACTS, COUNT + 1, PORTION_FACTS)]
