"""Brokers that are linked and parted while they run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from palio.node import membership
from palio.node.cluster_state import AddressBook
from palio.node.limits import MAX_PEERS
from palio.node.link_drain import DRAIN_TIMEOUT_HEARTBEATS
from palio.node.settings import Settings
from palio.protocol.messages import (
    AddPeer,
    Answer,
    Failed,
    Hello,
    Message,
    Query,
    RemovePeer,
)
from palio.routing.acyclic import Acyclic
from palio.routing.algorithms import find_algorithm
from palio.routing.general import General
from palio.simulation.cluster import address_of
from palio.simulation.member import Member
from palio.simulation.topologies import Topology, line, ring
from palio.simulation.world import World
from tests.node.events import links_of


def world_of(topology: Topology, routing: str = "general", **settings: Any) -> World:
    given = Settings(routing=routing, discovery=True, **settings)
    return World.of(topology, find_algorithm(routing).new, settings=given)


def asked(world: World, member: Member, message: Any, seconds: float = 8.0) -> Any:
    """The answer, or the kind and the words of a refusal."""
    number = member.ask(lambda id: type(message)(id, *_fields(message)))
    world.run(seconds)
    answer = member.answers[number]
    if isinstance(answer, Failed):
        return answer.failure.kind, answer.failure.message
    assert isinstance(answer, Answer)
    return answer.data


def _fields(message: Any) -> list[Any]:
    return [getattr(message, name) for name in message.__struct_fields__[1:]]


TWO = Topology(("b1", "b2"), ())


def test_a_broker_is_added_and_dialled_again_after_a_restart() -> None:
    world = world_of(TWO)
    ann = world.client("ann", "b1")
    added = asked(world, ann, AddPeer(0, address_of("b2")), 0.5)
    assert added == {"peer": "b2", "url": address_of("b2"), "remembered": True}
    for name in ("b1", "b2"):
        world.kill(name)
        world.run(1.0)
        world.start(name)
        world.run(3.0)
        assert links_of(world, "b1") == ["b2"]
    (listed,) = asked(world, ann, Query(0, "peers"))
    assert listed == {"peer": "b2", "url": address_of("b2"), "kind": "added", "up": True}


def test_a_configured_peer_that_has_dialed_this_broker_is_known_by_its_address() -> None:
    world = world_of(line(2), peers=(address_of("b1"), address_of("b2")))
    world.run(3.0)
    for one, other in (("b1", "b2"), ("b2", "b1")):
        listed = world.nodes[one].status()["links"]
        (peer,) = [each for each in listed if each["url"] == address_of(other)]
        assert peer == {"peer": other, "url": address_of(other), "kind": "configured", "up": True}


@pytest.mark.parametrize("one", ["b1", "b2"])
def test_who_is_linked_already_is_added_without_another_link(one: str) -> None:
    """Whoever of the two dialled."""
    world = world_of(line(2))
    other = "b2" if one == "b1" else "b1"
    ann = world.client("ann", one)
    added = asked(world, ann, AddPeer(0, address_of(other)), 0.5)
    assert added == {"peer": other, "url": address_of(other), "remembered": True}
    world.run(60.0)
    assert not {"peer_down", "connection_lost"} & {report.event for _, report in world.reports}
    world.kill(one)
    world.run(1.0)
    world.disconnect("b1", "b2")  # by its configuration
    world.start(one)
    world.run(3.0)
    assert links_of(world, one) == [other]


def test_who_is_added_is_dialled_though_it_was_looked_for_and_not_found() -> None:
    """It dials this broker as well, and that link is the one that is added."""
    world = world_of(line(3))
    ann = world.client("ann", "b1")
    world.run(1.0)
    world.kill("b2")
    world.delay("b1", "b3", 0.6)
    world.run(1.5)
    assert world.calls("b1", address_of("b3"))
    world.pause("b3", 5.5)  # longer than b1 looks for it, not so long as it waits to add it
    assert asked(world, ann, AddPeer(0, address_of("b3")), 9.0)["peer"] == "b3"
    assert links_of(world, "b1") == ["b3"]
    assert world.calls("b1", address_of("b3"))


@pytest.mark.parametrize(("one", "other"), [("b1", "b3"), ("b3", "b1")])
def test_a_link_that_was_found_ends_on_request_though_somebody_is_missed(
    monkeypatch: pytest.MonkeyPatch, one: str, other: str
) -> None:
    """Whoever of the two has found the other."""
    world = world_of(line(3))
    ann = world.client("ann", one)
    world.run(1.0)
    world.kill("b2")
    world.run(3.0)
    assert links_of(world, one) == [other]
    monkeypatch.setattr(General, "is_in_order", False)  # it does not end at once
    assert asked(world, ann, RemovePeer(0, other)) == {"peer": other, "configured": []}
    assert links_of(world, one) == []


def test_who_could_not_be_added_is_looked_for_as_before() -> None:
    world = world_of(line(3))
    ann = world.client("ann", "b1")
    world.run(1.0)
    world.cut("b1", "b3")
    assert asked(world, ann, AddPeer(0, address_of("b3")))[0] == "Unreachable"
    world.heal("b1", "b3")
    world.kill("b2")
    world.run(3.0)
    assert links_of(world, "b1") == ["b3"]


def test_who_could_not_be_added_is_dialled_as_long_as_it_is_looked_for() -> None:
    world = world_of(line(3))
    ann = world.client("ann", "b1")
    world.run(1.0)
    world.cut("b1", "b3")
    world.kill("b2")
    while not world.calls("b1", address_of("b3")):
        world.run(0.1)
    number = ann.ask(lambda id: AddPeer(id, address_of("b3")))
    while number not in ann.answers:
        world.run(0.1)
    assert isinstance(ann.answers[number], Failed)
    assert "discovery_failed" not in {report.event for _, report in world.reports}
    assert world.calls("b1", address_of("b3"))


def test_who_is_added_while_it_is_looked_for_is_not_dialled_as_a_way_to_others() -> None:
    """It might refuse such a call, and then nobody would have been added."""
    world = world_of(line(3))
    said: list[bool] = []

    def note(_sender: str, message: Message) -> bool:
        if isinstance(message, Hello) and message.role == "broker":
            said.append(message.seeks)
        return False

    world.cut("b1", "b3")
    world.kill("b2")
    ann, bob = world.client("ann", "b1"), world.client("bob", "b3")
    while "discovery_started" not in {report.event for _, report in world.reports}:
        world.run(0.1)
    ann.ask(lambda id: AddPeer(id, address_of("b3")))
    bob.ask(lambda id: AddPeer(id, address_of("b1")))
    world.run(0.05)
    world.spoils = note
    world.heal("b1", "b3")
    world.run(2.0)
    assert links_of(world, "b1") == ["b3"]
    assert said
    assert True not in said


def test_what_is_removed_is_not_dialled_again_by_either_end_and_may_be_added_again() -> None:
    world = world_of(TWO)
    ann, bob = world.client("ann", "b1"), world.client("bob", "b2")
    asked(world, ann, AddPeer(0, address_of("b2")))
    removed = asked(world, bob, RemovePeer(0, "b1"))
    assert removed == {"peer": "b1", "configured": []}
    assert asked(world, ann, Query(0, "peers")) == []
    world.run(100.0)
    assert links_of(world, "b1") == links_of(world, "b2") == []
    refused = asked(world, ann, AddPeer(0, address_of("b2")))
    assert refused[0] == "NotPermitted"
    assert "palio peer add it there" in refused[1]
    assert asked(world, bob, AddPeer(0, address_of("b1")))["peer"] == "b1"
    assert links_of(world, "b1") == ["b2"]


@pytest.mark.parametrize("restarts", [False, True])
def test_who_is_away_is_removed_and_dialled_no_more(restarts: bool) -> None:
    world = world_of(TWO)
    ann = world.client("ann", "b1")
    asked(world, ann, AddPeer(0, address_of("b2")))
    world.kill("b2")
    world.run(30.0)
    if restarts:
        world.kill("b1")
        world.start("b1")
        world.run(3.0)
    assert world.calls("b1", address_of("b2"))
    removed = asked(world, ann, RemovePeer(0, "b2"))
    assert removed == {"peer": "b2", "configured": []}
    assert not world.calls("b1", address_of("b2"))
    assert asked(world, ann, Query(0, "peers")) == []


def test_a_neighbour_by_configuration_is_removed_until_a_restart() -> None:
    world = world_of(line(2))
    ann = world.client("ann", "b1")
    asked(world, ann, RemovePeer(0, "b2"))
    world.run(20.0)
    assert links_of(world, "b2") == []


def test_events_take_other_ways_before_a_link_is_removed() -> None:
    world = world_of(ring(4))
    ann, bob = world.client("ann", "b1"), world.client("bob", "b2")
    ann.subscribe("TRUE")
    world.run(1.0)
    number = ann.ask(lambda id: RemovePeer(id, "b2"))
    for count in range(300):
        bob.publish({"x": count})
        world.run(0.01)
    world.run(1.0)
    assert isinstance(ann.answers[number], Answer)
    assert links_of(world, "b1") == ["b4"]
    assert [row["x"] for _, _, row in ann.heard] == list(range(300))


def test_a_link_that_comes_up_while_it_is_about_to_end_was_not_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AddressBook, "of", lambda _, __: None)  # whose the address is shows then
    world = world_of(ring(4))
    ann = world.client("ann", "b1")
    world.run(0.5)
    number = ann.ask(lambda id: AddPeer(id, address_of("b2")))
    world.run(0.6)  # it is dialled again after a second
    ann.ask(lambda id: RemovePeer(id, "b2"))
    assert world.disconnect("b1", "b2")
    world.run(0.02)
    world.drop("b1", "b2")
    world.run(2.0)
    answer = ann.answers[number]
    assert isinstance(answer, Failed)
    assert "being drained" in answer.failure.message


def test_two_that_were_told_to_part_from_each_other_are_linked_again() -> None:
    world = world_of(line(2))
    ann, bob = world.client("ann", "b1"), world.client("bob", "b2")
    world.run(1.0)
    numbers = ann.ask(lambda id: RemovePeer(id, "b2")), bob.ask(lambda id: RemovePeer(id, "b1"))
    world.run(DRAIN_TIMEOUT_HEARTBEATS + 2.0)
    assert world.disconnect("b1", "b2")
    assert isinstance(ann.answers[numbers[0]], Answer)
    assert isinstance(bob.answers[numbers[1]], Answer)
    kind, words = asked(world, ann, AddPeer(0, address_of("b2")))
    assert kind == "NotPermitted"
    assert "palio peer add it there" in words
    assert asked(world, bob, AddPeer(0, address_of("b1")))["peer"] == "b1"


def test_a_link_that_is_about_to_end_cannot_be_added_before() -> None:
    world = world_of(TWO)
    ann = world.client("ann", "b1")
    asked(world, ann, AddPeer(0, address_of("b2")), 1.0)
    ann.ask(lambda id: RemovePeer(id, "b2"))
    kind, words = asked(world, ann, AddPeer(0, address_of("b2")), 0.1)
    assert kind == "InvalidInput"
    assert words == "the link to 'b2' is being drained; add it after that"
    world.run(DRAIN_TIMEOUT_HEARTBEATS + 1.0)
    assert links_of(world, "b1") == []
    assert asked(world, ann, AddPeer(0, address_of("b2")), 1.0)["peer"] == "b2"


def test_a_link_without_which_there_is_no_way_ends_all_the_same() -> None:
    world = world_of(line(2))
    ann = world.client("ann", "b2")
    number = ann.ask(lambda id: RemovePeer(id, "b1"))
    world.run(DRAIN_TIMEOUT_HEARTBEATS + 1.0)
    assert isinstance(ann.answers[number], Answer)
    assert links_of(world, "b1") == []


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("palio://nowhere:1", "Unreachable", "cannot be reached: nobody answers"),
        (address_of("b1"), "InvalidInput", "is 'b1' itself"),
        ("http://b2", "InvalidConfiguration", "no address of a broker"),
        (address_of("b3"), "NotSupported", "would close a circle"),
    ],
)
def test_what_cannot_be_added_is_told_in_words_and_changes_nothing(
    url: str, kind: str, words: str
) -> None:
    routing = "acyclic" if kind == "NotSupported" else "general"
    world = world_of(line(3), routing)
    ann = world.client("ann", "b1")
    failed = asked(world, ann, AddPeer(0, url), 12.0)
    assert failed[0] == kind
    assert words in failed[1]
    world.run(30.0)
    assert links_of(world, "b1") == ["b2"]


def test_who_is_no_neighbour_cannot_be_removed() -> None:
    world = world_of(line(2))
    ann = world.client("ann", "b1")
    for name in ("b7", ""):
        kind, words = asked(world, ann, RemovePeer(0, name))
        assert kind == "InvalidInput"
        assert "its peers: b2" in words


def test_so_many_are_added_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 5
    monkeypatch.setattr(membership, "MAX_PEERS", most)
    world = World(settings=Settings(routing="acyclic"))
    for number in range(most + 2):
        world.add_broker(f"b{number}", Acyclic)
    ann = world.client("ann", "b0")
    for number in range(1, most + 1):
        assert asked(world, ann, AddPeer(0, address_of(f"b{number}")), 0.2)["peer"]
    kind, words = asked(world, ann, AddPeer(0, address_of(f"b{most + 1}")), 0.2)
    assert kind == "LimitExceeded"
    assert "MAX_PEERS" in words


def test_those_that_are_being_added_count() -> None:
    world = World(settings=Settings(routing="acyclic"))
    world.add_broker("b0", Acyclic)
    ann = world.client("ann", "b0")
    world.run(1.0)
    added = [
        ann.ask(partial(AddPeer, url=f"palio://10.0.0.1:{number}"))
        for number in range(1, MAX_PEERS + 2)
    ]
    world.run(0.05)
    last = ann.answers[added[-1]]
    assert isinstance(last, Failed)
    assert last.failure.kind == "LimitExceeded"
    assert added[-2] not in ann.answers or "cannot be reached" in str(ann.answers[added[-2]])


def test_what_was_answered_is_remembered_though_the_broker_stops_then() -> None:
    world = world_of(TWO)
    ann = world.client("ann", "b1")
    asked(world, ann, AddPeer(0, address_of("b2")))
    world.sync_us = 50_000
    ann.ask(lambda id: RemovePeer(id, "b2"))
    while len(ann.answers) < 2:
        world.run(0.001)
    world.kill("b1")
    world.run(1.0)
    world.start("b1")
    assert not world.calls("b1", address_of("b2"))
