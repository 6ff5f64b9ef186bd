"""What a broker tells about others, and to whom; the catalogue, and its pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given

from palio.errors import IllegalMessage
from palio.language.parsing import parse_filter
from palio.model.filters import TRUE
from palio.node import admin_queries
from palio.node.authority import Principal
from palio.protocol.messages import Answer, Failed, Message, Probe, Query, RemoveBroker
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.protocol import Router
from palio.simulation.member import Member
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.badges import Names
from tests.node.events import parcel
from tests.strategies import SEEDS, examples


def asked(world: World, member: Member, about: Any = None) -> Message:
    world.run(1.0)
    id = member.ask(lambda id: Query(id, "catalogue", about))
    world.run(1.0)
    return member.answers[id]


def listed(answer: Message) -> list[tuple[str, str, dict[str, Any]]]:
    assert isinstance(answer, Answer)
    found = answer.data["subscriptions"]
    return [(each["subscriber"], each["filter"], each["parameters"]) for each in found]


@pytest.fixture
def world() -> World:
    """A broker with someone who hears a part, someone who hears all, and one who watches them."""
    world = World.of(line(1))
    world.nodes["b1"]._core.authority = Names(
        Principal("part", allow_subscribe=parse_filter("x < 5")),
        Principal("all", TRUE, TRUE),
        Principal("another", TRUE, TRUE),
        Principal("ops", may_monitor=True),
    )
    return world


def member(world: World, name: str, at: str = "b1") -> Member:
    found = world.client(name, at)
    found.token = name
    return found


def test_filters_are_told_as_the_broker_runs_them(world: World) -> None:
    part, everyone = member(world, "part"), member(world, "all")
    part.subscribe("x > :low", {"low": 1})
    part.subscribe("y = 1", durable="d")
    everyone.subscribe("z = 1")
    assert sorted(listed(asked(world, member(world, "ops"))), key=str) == [
        ("all", "z = 1", {}),
        ("part", "x < 5 AND x > :low", {"low": 1}),
        ("part", "x < 5 AND y = 1", {}),
    ]


@pytest.mark.parametrize("name", ["part", "all"])
def test_others_subscriptions_are_for_who_may_monitor(world: World, name: str) -> None:
    asker, other = member(world, name), member(world, "part" if name == "all" else "all")
    asker.subscribe("x = 1")
    asker.subscribe("x = 2", durable="d")
    other.subscribe("x = 3")
    refused = asked(world, asker)
    assert isinstance(refused, Failed)
    assert refused.failure.kind == "NotPermitted"
    assert "grant `monitor`" in refused.failure.message
    own = listed(asked(world, asker, {"own": True}))
    assert {subscriber for subscriber, *_ in own} == {name}
    assert len(own) == 2


@pytest.mark.parametrize(("limit", "most"), [("CATALOGUE_ROWS", 3), ("CATALOGUE_BYTES", 15)])
def test_a_long_catalogue_comes_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(admin_queries, limit, most)
    members = [member(world, name) for name in ("all", "another")]
    for number in range(7):  # of five characters each; of three sessions, and durable ones
        durable = f"d{number}" if number % 3 == 2 else ""
        members[number % 2].subscribe(f"x = {number}", durable=durable)
    ops = member(world, "ops")
    pages, start = [], ""
    while True:
        page = asked(world, ops, {"from": start})
        assert isinstance(page, Answer)
        pages.append([filter for _, filter, _ in listed(page)])
        start = page.data["next"]
        if not start:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    assert sorted(chain.from_iterable(pages)) == [f"x = {number}" for number in range(7)]


def test_a_filter_that_is_larger_than_a_page_comes_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_queries, "CATALOGUE_BYTES", 1)
    everyone = member(world, "all")
    everyone.subscribe("x = 1")
    everyone.subscribe("x = 2")
    ops = member(world, "ops")
    page = asked(world, ops)
    assert len(listed(page)) == 1
    assert isinstance(page, Answer)
    assert len(listed(asked(world, ops, {"from": page.data["next"]}))) == 1


# --- what waits ---


def waits(world: World, member: Member, key: Any) -> Message:
    id = member.ask(lambda id: Query(id, "waiting", key))
    world.run(1.0)
    return member.answers[id]


def test_what_waits_is_told_to_whom_it_waits_for(world: World) -> None:
    one, other = member(world, "all"), member(world, "part")
    key = one.subscribe("x = 1", durable="d")
    world.run(1.0)
    answer = waits(world, one, key)
    assert isinstance(answer, Answer)
    assert answer.data == {"entries": 0, "sent": 0, "last": 0}
    for asker, wrong in ((other, key), (one, key + 1), (one, "d"), (one, None)):
        refused = waits(world, asker, wrong)
        assert isinstance(refused, Failed)
        assert "no durable subscription under the key" in refused.failure.message


# --- others ---

BROKERS: Final = ("b1", "b2", "b3")

OTHERS: Final = ("qxalice", "qxbob", "qxcarol")
"""What begins with qx (names, parameters) or holds 7777 (constants) is nobody's business."""

SPIES: Final = (
    Principal("spy"),
    Principal("spy", allow_subscribe=parse_filter("symbol = 'NOTHING'")),
    Principal("spy", TRUE, parse_filter("x < 5")),
    Principal("spy", TRUE, TRUE),
)

QUESTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("status", None),
    ("status", {"own": False}),
    ("topology", None),
    ("catalogue", None),
    ("catalogue", {"own": False, "from": "q"}),
    ("catalogue", {"own": True}),
    ("trace", {"x": 1, "symbol": "IBM"}),
    ("trace", {"x": 77770}),
    ("trace", {}),
    ("waiting", 1),
    ("waiting", 2),
    ("sessions", None),
)


class Network:
    """Three brokers with clients who have secrets, or without, and one who asks everything."""

    def __init__(self, spy: Principal, seed: int, *, with_others: bool) -> None:
        self.world = World.of(line(3))
        draw = random.Random(seed)
        others = [Principal(name, TRUE, TRUE) for name in OTHERS]
        for node in self.world.nodes.values():
            node._core.authority = Names(spy, *others, Principal("ops", may_monitor=True))
        for name in OTHERS:
            at, low, durable = draw.choice(BROKERS), draw.randrange(9), draw.random() < 0.6
            if with_others:
                other = member(self.world, name, at)
                other.subscribe("x > :qxlow AND x < 77770000", {"qxlow": low - 9})
                other.subscribe(f"x >= 7777{low} OR x = 1", durable="qxd" if durable else "")
                other.publish({"x": 7777}, {"x": 77771}, durable=durable)
        self.spy = member(self.world, "spy", draw.choice(BROKERS))
        self.spy.subscribe("x = 1 AND symbol = 'IBM'")
        self.spy.subscribe("x = :x", {"x": 1}, durable="mine")
        self.world.run(2.0)

    def answers(self) -> list[Message]:
        """To each question, one after the other."""
        found = []
        for what, about in QUESTIONS:
            id = self.spy.ask(lambda id, what=what, about=about: Query(id, what, about))  # type: ignore[misc]  # its own
            self.world.run(1.0)
            found.append(self.spy.answers[id])
        id = self.spy.ask(lambda id: RemoveBroker(id, "b9"))
        self.world.run(1.0)
        return [*found, self.spy.answers[id]]


def plain(answers: list[Message]) -> str:
    """Without the numbers of the asker's own sessions, which are drawn."""
    told = msgspec.to_builtins(answers)
    for each in told:
        rows = each["data"].get("subscriptions") if "data" in each else None
        for row in rows if isinstance(rows, list) else ():
            row.pop("id")
    return str(told)


@examples(12)
@given(SEEDS)
def test_who_may_not_monitor_is_told_the_same_whoever_else_is_there(seed: int) -> None:
    spy = SPIES[seed % len(SPIES)]
    answers = Network(spy, seed, with_others=True).answers()
    said = plain(answers)
    assert "qx" not in said
    assert "7777" not in said
    alone = Network(spy, seed, with_others=False).answers()
    assert said == plain(alone)


def test_who_may_monitor_is_told_all_of_it() -> None:
    watched = Network(Principal("spy", TRUE, TRUE, may_monitor=True), 1, with_others=True)
    status, _, topology, catalogue, *_ = watched.answers()
    assert isinstance(status, Answer)
    assert status.data["published"] + status.data["routed"] > 0
    assert "limited" not in status.data
    assert "qxd" in str(topology)
    assert "qxalice" in str(catalogue)


def test_a_trace_without_the_grant_tells_of_ones_own_and_says_so() -> None:
    spied = Network(SPIES[2], 1, with_others=True)
    trace = spied.answers()[6]
    assert isinstance(trace, Answer)
    (hop,) = trace.data["hops"]
    assert {each["subscriber"] for each in hop["matched"]} == {"spy"}
    assert [each["durable"] for each in hop["matched"]] == ["", "spy/mine"]
    assert (hop["kept_for"], hop["durable"]) == (["spy/mine"], [spied.spy.broker])
    assert hop["forwards"] == []
    assert trace.data["limited"].startswith(
        "only what belongs to 'spy'; what concerns others needs"
    )


def test_a_status_without_the_grant_counts_ones_own_and_says_so() -> None:
    status = Network(SPIES[2], 1, with_others=True).answers()[0]
    assert isinstance(status, Answer)
    assert status.data["custody_waiting"].keys() == {"spy/mine"}
    assert "unwritten_bytes" not in status.data, "it tells of what others publish"
    assert (status.data["sessions"], status.data["subscriptions"]) == (1, 2)
    assert "published" not in status.data
    assert "monitor" in status.data["limited"]


def test_a_neighbour_without_the_grant_is_told_nothing_of_ones_clients() -> None:
    world = World.of(line(3))
    for node in world.nodes.values():
        node._core.authority = Names(
            Principal("ops", may_monitor=True), Principal("all", TRUE, TRUE)
        )
    world.nodes["b2"]._core.neighbours["b1"].principal = Principal("b1", TRUE, TRUE)
    for at in BROKERS[1:]:
        other = world.client(f"all{at}", at)
        other.token = "all"
        other.subscribe("x = 7777")
    ops = member(world, "ops")
    world.run(1.0)
    id = ops.ask(lambda id: Query(id, "trace", {"x": 7777}))
    world.run(1.0)
    answer = ops.answers[id]
    assert isinstance(answer, Answer)
    here, there = sorted(answer.data["hops"], key=lambda hop: hop["broker"])
    assert here["forwards"] == ["b2"]
    assert there == {"broker": "b2", "path": ["b1", "b2"], "withheld": True}


# --- traces on graphs, whose routers take the numbers of a publisher once ---

GRAPHS: Final = (General, Flooded)


def traced(world: World, asker: Member) -> list[tuple[str, int]]:
    """By broker, how many subscriptions an event would match there."""
    id = asker.ask(lambda id: Query(id, "trace", {"x": 1}))
    world.run(1.0)
    answer = asker.answers[id]
    assert isinstance(answer, Answer)
    return sorted((hop["broker"], len(hop["matched"])) for hop in answer.data["hops"])


@pytest.mark.parametrize("router", GRAPHS)
def test_a_trace_is_asked_for_as_often_as_one_wants(router: Callable[[str], Router]) -> None:
    world = World.of(line(2), router)
    near, far = world.client("near", "b1"), world.client("far", "b2")
    near.subscribe("x = 1")
    far.subscribe("x = 1")
    world.run(1.0)
    whole = [("b1", 1), ("b2", 1)]
    assert [traced(world, near), traced(world, near)] == [whole, whole]
    world.kill("b1")
    world.start("b1")
    world.run(10.0)
    assert [traced(world, near), traced(world, near)] == [whole, whole]


@pytest.mark.parametrize("router", GRAPHS)
def test_a_trace_of_ones_own_is_asked_for_as_often_as_one_wants(
    router: Callable[[str], Router],
) -> None:
    world = World.of(line(1), router)
    world.nodes["b1"]._core.authority = Names(Principal("spy", TRUE, TRUE))
    spy = member(world, "spy")
    spy.subscribe("x = 1")
    world.run(1.0)
    assert [traced(world, spy) for _ in range(3)] == [[("b1", 1)]] * 3


@pytest.mark.parametrize("router", GRAPHS)
@pytest.mark.parametrize("publisher", ["alice/1", "$probe/b2/1", "$probe/", ""])
def test_a_neighbour_cannot_use_up_the_numbers_of_others_by_traces(
    router: Callable[[str], Router], publisher: str
) -> None:
    world = World.of(line(2), router)
    bob, alice = world.client("bob", "b2"), world.client("alice", "b1")
    bob.subscribe("x = 1")
    world.run(1.0)
    node = world.nodes["b2"]
    numbered = parcel({"x": 1}, publisher=publisher, first_seq=10**15)
    with pytest.raises(IllegalMessage, match="not those of a trace"):
        node._admin_queries.probe(node._core.neighbours["b1"], Probe(1, numbered, ("b1",)))
    alice.publish({"x": 1})
    world.run(1.0)
    assert [publisher for publisher, *_ in bob.heard] == ["alice/1"]
