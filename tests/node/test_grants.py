"""Grants between brokers: what is carried, and what is not, over whole networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import TRUE, Filter
from palio.node import admin_queries
from palio.node.authority import Principal
from palio.node.effects import Effect, Moment, Send
from palio.node.limits import MAX_HOPS
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.node.settings import Settings
from palio.protocol.limits import MAX_PUBLISHER_CHARS
from palio.protocol.messages import (
    AddPeer,
    Apply,
    Bye,
    Carry,
    Digest,
    Done,
    Drain,
    EntriesStored,
    Failed,
    Forward,
    Message,
    Parcel,
    Probe,
    Probed,
    RemoveBroker,
    RemovePeer,
    Route,
)
from palio.protocol.requests import Request
from palio.routing import messages as routing
from palio.routing.acyclic import Acyclic
from palio.routing.general import General
from palio.simulation.computers import AccessPolicy
from palio.simulation.member import Member
from palio.simulation.topologies import line
from palio.simulation.world import EPOCH_US, World
from tests.node.badges import Badge, Names, broker, greet
from tests.node.events import begin, heard, parcel, reports
from tests.node.signing import Keyring
from tests.older import NEWER, older_brokers

AnyMessage = TypeVar("AnyMessage")

AT = Moment(1.0, EPOCH_US)

QUICK = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def network(size: int, **grants: Mapping[str, Principal]) -> World:
    """A line of brokers that know each other by keys; by broker, whose grants differ."""
    names = [f"b{number + 1}" for number in range(size)] + ["ann", "bob"]

    def authority(of: str) -> Names:
        return Names(*{**{name: broker(name) for name in names}, **grants.get(of, {})}.values())

    return World.of(line(size), settings=QUICK, access=AccessPolicy(authority, Badge, str))


def hears(name: str, text: str) -> dict[str, Principal]:
    return {name: broker(name, TRUE, parse_filter(text))}


def brings(name: str, filter: Filter) -> dict[str, Principal]:
    return {name: broker(name, filter, TRUE)}


def subscribed(world: World, at: str) -> Member:
    bob = world.client("bob", at)
    bob.subscribe("EXISTS x", durable="d")
    id = bob.settle()
    world.run(3.0)
    assert bob.answers[id] == Done(id)
    return bob


def held(world: World) -> int:
    return sum(node.status()["custody_entries"] for node in world.nodes.values())


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "alone"])
def test_durable_events_are_carried_only_to_brokers_that_may_hear_them(batch: bool) -> None:
    world = network(3, b1=hears("b2", "a = 1"))
    bob = subscribed(world, "b3")
    ann = world.client("ann", "b1")
    events = [{"x": x, "a": x % 2} for x in range(6)]
    for some in [events] if batch else [[each] for each in events]:
        ann.publish(*some, durable=True)
    world.run(5.0)
    assert heard(bob) == [1, 3, 5]
    assert ann.accepted_durable == 6
    assert held(world) == 0
    told = reports(world, "events_withheld")
    assert {(name, each["source"]) for name, each in told} == {("b1", "b2")}
    world.run(15.0)
    assert sum(each["count"] for _, each in reports(world, "events_withheld")) == 3


@pytest.mark.parametrize("grant", ["a = 1", "TRUE"])
@pytest.mark.parametrize("durable", ["", "d"])
def test_what_cannot_be_read_counts_as_everything_to_grants_too(durable: str, grant: str) -> None:
    """A live subscription has of everything what its broker may receive; a durable one has no home
    that may not hear everything, and its owner is told who did not take it.
    """
    with older_brokers("b1"):
        world = network(2, b1=hears("b2", grant))
        ann, bob = world.client("ann", "b1"), world.client("bob", "b2")
        bob.subscribe(f"a = 1 AND x != {NEWER}", durable=durable)
        id = bob.settle()
        world.run(3.0)
        is_refused = bool(durable) and grant != "TRUE"
        assert bob.answers[id] == Done(id, ("b1",) if is_refused else ())
        seen: list[Message] = []

        def spoils(who: str, message: Message) -> bool:
            if who == "b1":
                seen.append(message)
            return False

        world.spoils = spoils
        for x in range(4):
            ann.publish({"x": x, "a": x % 2}, durable=bool(durable))
        world.run(5.0)
    assert heard(bob) == ([] if is_refused else [1, 3])
    sent = [each.parcel for each in seen if isinstance(each, Forward | Carry)]
    expected = {1} if grant == "a = 1" else {0, 1}
    assert {a for each in sent for a in each.batch["a"].to_pylist()} == expected
    is_carried = any(isinstance(each, Carry) for each in seen)
    assert is_carried is (bool(durable) and not is_refused)
    told = "fact_rejected" if is_refused else "filter_unreadable"
    assert ("b1", "b2") in {(name, each["source"]) for name, each in reports(world, told)}
    assert held(world) == 0


def test_what_a_broker_may_not_bring_is_kept_nowhere_and_raises_no_alarm() -> None:
    world = network(3, b2=brings("b1", parse_filter("a = 1")))
    bob = subscribed(world, "b3")
    ann = world.client("ann", "b1")
    for x in range(20):
        ann.publish({"x": x, "a": 0}, durable=True)
    ann.publish({"x": 20, "a": 1}, {"x": 21, "a": 0}, durable=True)
    world.run(20.0)
    assert heard(bob) == [20]
    assert not reports(world, "entry_lost")
    assert held(world) == 0
    assert not world.disks["b2"].held(), "brokers between keep nothing"
    denied = reports(world, "grant_exceeded")
    assert sum(each["count"] for _, each in denied) == 42  # the live way and in custody
    assert len(denied) < 6


def with_narrow(tmp_path: Path, narrow: str) -> World:
    """Three brokers with keys, of which one may receive `a = 1` only."""
    ring = Keyring(tmp_path)
    ring.identities[narrow] = ring.broker(narrow, allow_subscribe="a = 1")
    return World.of(line(3), General, settings=QUICK, access=ring.access)


def claimed(world: World, at: str, of: str) -> str:
    """What a broker knows that another asks for, for bob."""
    fact = world.nodes[at]._core.durability.cluster_state.fact(of, "bob/d")
    assert fact is not None
    return fact.filter


def test_a_broker_asks_others_for_what_it_may_hear_of_a_durable_subscription(
    tmp_path: Path,
) -> None:
    world = with_narrow(tmp_path, "b3")
    bob, ann, near = subscribed(world, "b3"), world.client("ann", "b1"), world.client("eve", "b3")
    assert parse_filter(claimed(world, "b1", "b3")) == parse_filter("a = 1 AND EXISTS x")
    ann.publish({"x": 1, "a": 1}, {"x": 2, "a": 2}, durable=True)
    world.run(5.0)
    near.publish({"x": 3, "a": 3}, durable=True)
    world.run(5.0)
    assert heard(bob) == [1, 3], "of its own clients it may receive anything"
    assert held(world) == 0
    assert not reports(world, "events_withheld"), "nobody keeps what it may not hear"
    world.kill("b3")
    world.run(5.0)
    world.start("b3")
    world.run(5.0)
    ann.publish({"x": 4, "a": 1}, {"x": 5, "a": 2}, durable=True)
    world.run(5.0)
    assert heard(bob) == [1, 3, 4]
    assert not reports(world, "fact_rejected")


def test_a_durable_subscription_waits_where_all_of_it_may_be_heard(tmp_path: Path) -> None:
    world = with_narrow(tmp_path, "b3")
    bob, ann = subscribed(world, "b1"), world.client("ann", "b2")
    bob.suspend()
    world.run(1.0)
    ann.publish({"x": 1, "a": 1}, {"x": 2, "a": 2}, durable=True)
    world.run(1.0)
    bob.resume("b3")
    world.run(5.0)
    (error,) = bob.errors
    assert "is 'b1', and this broker may not receive all" in str(error)
    ann.publish({"x": 3, "a": 1}, {"x": 4, "a": 2}, durable=True)
    world.run(10.0)
    bob.move("b2")
    world.run(10.0)
    bob.subscribe("EXISTS x", durable="d")
    world.run(10.0)
    assert heard(bob) == [1, 2, 3, 4]
    assert held(world) == 0
    assert not reports(world, "fact_rejected")


@pytest.mark.parametrize("is_back", [True, False])
def test_a_token_that_grants_less_than_before_narrows_what_a_broker_asks_for(
    is_back: bool, tmp_path: Path
) -> None:
    """Else all that it says is refused with it, and it is no part of the network."""
    ring = Keyring(tmp_path)
    world = World.of(line(3), General, settings=QUICK, access=ring.access)
    bob, ann = subscribed(world, "b3"), world.client("ann", "b1")
    assert parse_filter(claimed(world, "b1", "b3")) == parse_filter("EXISTS x")
    if not is_back:
        bob.suspend()
    world.kill("b3")
    ring.identities["b3"] = ring.broker("b3", allow_subscribe="a = 1")
    world.run(5.0)
    world.start("b3")
    world.run(5.0)
    assert parse_filter(claimed(world, "b1", "b3")) == parse_filter("a = 1 AND EXISTS x")
    ann.publish({"x": 1, "a": 1}, {"x": 2, "a": 2}, durable=True)
    world.run(5.0)
    bob.resume("b3")
    world.run(5.0)
    assert heard(bob) == [1]
    assert not reports(world, "fact_rejected")


CHANGES: dict[str, Callable[[int], Request]] = {
    "add": lambda id: AddPeer(id, "palio://127.0.0.1:9"),
    "remove": lambda id: RemovePeer(id, "b2"),
    "drain": lambda id: Drain(id, "b1"),
    "undo": lambda id: Drain(id, "b1", undo=True),
    "retire": lambda id: RemoveBroker(id, "b9"),
    "apply": lambda id: Apply(id, ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_who_may_publish_and_hear_all_changes_nothing_of_the_network(change: str) -> None:
    world = network(2, b1={"ann": Principal("ann", TRUE, TRUE, may_monitor=True)})
    ann = world.client("ann", "b1")
    world.run(3.0)
    id = ann.ask(CHANGES[change])
    world.run(5.0)
    failed = ann.answers[id]
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "NotPermitted"
    assert "needs the grant `operate` (palio token create --operate" in failed.failure.message
    assert list(world.nodes["b1"]._core.neighbours) == ["b2"]
    assert not reports(world, "drain_started")


@pytest.mark.parametrize("change", CHANGES)
def test_who_may_operate_needs_no_other_grant(change: str) -> None:
    world = network(2, b1={"ann": Principal("ann", may_operate=True)})
    ann = world.client("ann", "b1")
    world.run(3.0)
    id = ann.ask(CHANGES[change])
    world.run(15.0)
    answer = ann.answers[id]
    assert not isinstance(answer, Failed) or answer.failure.kind in {"InvalidInput", "Unreachable"}


@pytest.mark.parametrize("operate", [True, False])
def test_a_broker_without_the_grant_refuses_what_others_would_not_believe(
    operate: bool, tmp_path: Path
) -> None:
    ring = Keyring(tmp_path)
    ring.identities["b1"] = ring.broker("b1", operate=operate)
    world = World.of(line(3), settings=QUICK, access=ring.access)
    ann = world.client("ann", "b1")
    world.run(3.0)
    world.kill("b3")
    world.run(5.0)
    id = ann.ask(lambda id: RemoveBroker(id, "b3"))
    world.run(3.0)
    answer = ann.answers[id]
    assert isinstance(answer, Failed) is not operate
    assert not isinstance(answer, Failed) or "'b1' may not retire" in answer.failure.message
    retired = [node._core.durability.cluster_state.removed for node in world.nodes.values()]
    assert retired == [{"b3"} if operate else set()] * 2


# --- what a neighbour may ask for without bound ---


class Near:
    """A node with a neighbour that says whatever a test likes."""

    def __init__(self, hears: Filter = TRUE, brings: Filter = TRUE) -> None:
        """`n` may bring, and `m` may receive what matches."""
        listed = [
            replace(each, may_monitor=True)
            for each in (broker("n", brings, TRUE), broker("m", TRUE, hears))
        ]
        self.store = MemoryStore()
        authority = Names(broker("b"), broker("stranger0"), *listed)
        self.node = Node("b", Acyclic("b"), self.store, authority=authority, identity=Badge("b"))
        begin(self.node, AT, self.store)
        for link, each in enumerate(listed):
            self.node.accept(link, AT)
            greet(partial(self.say, link=link), each.name)
            self.say(Digest({}), link)
            self.say(Route(routing.Batch((routing.Subscribe(1, TRUE),), fresh=True)), link)

    def say(self, message: Message, link: int = 0) -> list[Effect]:
        """What follows, once all that it wrote is on the disk."""
        effects = self.node.receive(link, message, AT)
        done = list(effects)
        for each in effects:
            if isinstance(each, Append):
                self.store.write((*each.released, *each.operations))
                done += self.node.stored(each.ticket, AT)
        return done


def test_what_goes_to_brokers_that_nobody_knows_is_told_and_kept_nowhere() -> None:
    near = Near()
    for number in range(3):
        names = ("n", f"stranger{number + 1}")
        for origin, home in (names, names[::-1]):
            near.say(Carry(parcel({"x": number}), origin, 1, home, 1, 1, 0, ()))
            near.say(EntriesStored(home, 1, origin, 1, 1))
    assert near.node.status()["custody_entries"] == 0
    assert near.node.status()["rejections"]["broker_unknown"] == 12


def sent(effects: list[Effect], kind: type[AnyMessage]) -> list[AnyMessage]:
    return [
        each.message for each in effects if isinstance(each, Send) and type(each.message) is kind
    ]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_publisher_has_a_name_that_somebody_could_have(more: int) -> None:
    publisher = "p" * (MAX_PUBLISHER_CHARS + more)
    byes = sent(Near().say(Forward(parcel({"x": 1}, publisher=publisher))), Bye)
    assert [each.code for each in byes] == (["IllegalMessage"] if more > 0 else [])


def traced(origin: str, x: int = 1) -> Parcel:
    """An event that a broker traces."""
    return parcel({"x": x}, publisher=f"$probe/{origin}/1")


@pytest.mark.parametrize(
    ("path", "legal"),
    [
        (("n",), True),
        (("x",) * (MAX_HOPS - 1) + ("n",), True),
        (("x",) * MAX_HOPS + ("n",), False),
        ((), False),
        (("n", "m"), False),
    ],
)
def test_a_trace_comes_from_where_it_says(path: tuple[str, ...], legal: bool) -> None:
    byes = sent(Near().say(Probe(1, traced("".join(path[:1])), path)), Bye)
    assert [each.code for each in byes] == ([] if legal else ["IllegalMessage"])


def test_a_trace_that_goes_round_ends() -> None:
    (answered,) = sent(Near().say(Probe(7, traced("b"), ("b", "n"))), Probed)
    assert answered.id == 7
    assert answered.hops[0]["loop"]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_so_many_traces_wait_for_answers(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_queries, "MAX_PROBES", 3)
    near = Near()
    answered = [
        each
        for number in range(3 + more)
        for each in sent(near.say(Probe(number, traced("n"), ("n",))), Probed)
    ]
    assert [each.id for each in answered] == ([0] if more > 0 else [])
    assert all(each.hops[-1] == {"broker": "m", "unreachable": True} for each in answered)


@pytest.mark.parametrize(("size", "kept"), [(900_000, True), (1_100_000, False)])
def test_an_answer_to_a_trace_that_is_too_long_is_none(size: int, kept: bool) -> None:
    near = Near()
    near.say(Probe(1, traced("n"), ("n",)))
    hop = {"broker": "m", "path": ["x" * size]}
    (answered,) = sent(near.say(Probed(1, (hop,)), link=1), Probed)
    assert (hop in answered.hops) is kept
    assert ({"broker": "m", "unreachable": True} in answered.hops) is not kept


@pytest.mark.parametrize(("x", "asked"), [(1, True), (2, False)])
def test_a_trace_goes_where_its_event_would(x: int, asked: bool) -> None:
    near = Near(parse_filter("x = 1"))
    effects = near.say(Probe(1, traced("n", x), ("n",)))
    assert bool(sent(effects, Probe)) is asked
    if not asked:
        (answered,) = sent(effects, Probed)
        assert answered.hops[0]["withheld_from"] == ["m"]
