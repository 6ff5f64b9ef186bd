"""One broker and a few: what clients are promised, on the virtual clock, through real frames."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest

from palio.language.parsing import parse_filter
from palio.model.filters import TRUE
from palio.node.authority import Limits, Principal
from palio.node.settings import Settings
from palio.protocol.limits import ANSWER_S, MAX_NAME_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Done,
    Failed,
    Hello,
    Message,
    Query,
    Subscribe,
    Welcome,
)
from palio.routing.algorithms import find_algorithm
from palio.simulation.member import Member
from palio.simulation.topologies import line
from palio.simulation.world import World
from tests.node.badges import Names
from tests.node.events import heard

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


def world_of(size: int, **options: Any) -> World:
    return World.of(line(size), settings=options.pop("settings", QUICK), **options)


def answer(world: World, member: Member, id: int) -> Message:
    world.run(1.0)
    return member.answers[id]


# --- live events ---


def test_an_event_goes_to_those_who_listen_and_to_no_other() -> None:
    world = world_of(3)
    near, far, deaf = world.client("a", "b1"), world.client("b", "b3"), world.client("c", "b2")
    near.subscribe("x > 1")
    far.subscribe("x > :low", {"low": 2})
    deaf.subscribe("y > 0")
    world.run(1.0)
    publisher = world.client("p", "b1")
    world.run(1.0)
    publisher.publish({"x": 1}, {"x": 2}, {"x": 3})
    world.run(1.0)
    assert (heard(near), heard(far), heard(deaf)) == ([2, 3], [3], [])
    assert publisher.accepted == 3


def test_an_event_comes_once_however_many_subscriptions_it_matches() -> None:
    world = world_of(2)
    member, publisher = world.client("a", "b2"), world.client("p", "b1")
    for low in range(3):
        member.subscribe(f"x > {low}")
    world.run(1.0)
    publisher.publish({"x": 9})
    world.run(1.0)
    assert heard(member) == [9]


def test_a_wider_subscription_leaves_a_narrower_one_alone() -> None:
    world = world_of(2)
    member, publisher = world.client("a", "b2"), world.client("p", "b1")
    member.subscribe("x > 5")
    wide = member.subscribe("x > 0")
    world.run(1.0)
    member.unsubscribe(wide)
    world.run(1.0)
    publisher.publish({"x": 3}, {"x": 7})
    world.run(1.0)
    assert heard(member) == [7]


# --- what is refused ---


def test_events_with_names_of_the_system_are_refused_and_others_go_on() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    member.subscribe("x > 0")
    world.run(1.0)
    member.publish({"x": 1, "$time": 3})
    member.publish({"x": 2})
    world.run(1.0)
    assert [each.failure.kind for each in member.refused] == ["InvalidEvent"]
    assert heard(member) == [2]


def test_numbers_of_publications_grow() -> None:
    world = world_of(1)
    member = world.client("a", "b1")
    world.run(1.0)
    member.publish({"x": 1})
    member.core.publications.next = 1
    member.publish({"x": 1})
    world.run(1.0)
    refused, *_ = (each for _, each in world.reports if each.event == "connection_rejected")
    assert "number 1 was published before" in refused.details["reason"]


@pytest.mark.parametrize(
    "hello",
    [
        Hello("client", "", PROTOCOL_VERSION),
        Hello("client", "n" * (MAX_NAME_BYTES + 1), PROTOCOL_VERSION),
        Hello("client", "a", 99),
        Hello("king", "a", PROTOCOL_VERSION),
        Hello("broker", "b1", PROTOCOL_VERSION),
        # names that could be taken for two
        Hello("client", "a/b", PROTOCOL_VERSION),
        Hello("client", "a\nb", PROTOCOL_VERSION),
        Hello("client", "a", PROTOCOL_VERSION, incarnation="b/c"),
        Hello("client", "a", PROTOCOL_VERSION, incarnation="b" * (MAX_NAME_BYTES + 1)),
        Hello("client", "..", PROTOCOL_VERSION),
        Hello("client", " a", PROTOCOL_VERSION),
        Hello("broker", "../../etc", PROTOCOL_VERSION),
        Hello("broker", "a\x1b[2J", PROTOCOL_VERSION),
        Hello("broker", "n" * (MAX_NAME_BYTES + 1), PROTOCOL_VERSION),
    ],
)
def test_a_greeting_that_will_not_do_ends_the_connection(hello: Hello) -> None:
    world = world_of(1)
    node, at = world.nodes["b1"], world.at
    node.accept(900, at)
    effects = node.receive(900, hello, at)
    assert [type(each).__name__ for each in effects] == ["Report", "Send", "Close"]


def test_strangers_say_hello_first_and_soon() -> None:
    world = world_of(1)
    node = world.nodes["b1"]
    node.accept(900, world.at)
    assert node.receive(900, Query(1, "status"), world.at)[-1].__class__.__name__ == "Close"
    node.accept(901, world.at)
    world.run(QUICK.handshake_timeout_s + 1.0)
    assert node.receive(901, Hello("client", "a", PROTOCOL_VERSION), world.at) == []


@pytest.mark.parametrize(
    ("waits_s", "is_closed"), [(ANSWER_S - 1.0, False), (ANSWER_S + 1.5, True)]
)
def test_who_was_dialled_may_take_longer_to_answer(waits_s: float, is_closed: bool) -> None:
    world = world_of(1)
    node = world.nodes["b1"]
    node.dial(900, world.at)
    world.run(waits_s)
    welcome = Welcome("b2", "s", resumed=False, received=0)
    assert (node.receive(900, welcome, world.at) == []) == is_closed


# --- sessions ---


def test_a_broken_connection_loses_and_doubles_nothing() -> None:
    world = world_of(1)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    member.subscribe("x >= 0")
    world.run(1.0)
    for number in range(20):
        publisher.publish({"x": number})
        if number % 5 == 2:
            member.cut()
        if number % 5 == 4:
            publisher.cut()
        world.run(0.003)
    world.run(2.0)
    assert heard(member) == list(range(20))


def test_a_slow_receiver_is_told_what_it_lost_and_costs_no_more_than_its_budget() -> None:
    settings = msgspec.structs.replace(QUICK, window_bytes=2_000, queue_bytes=10_000)
    world = world_of(1, settings=settings)
    slow, publisher = world.client("slow", "b1"), world.client("p", "b1")
    slow.subscribe("x >= 0")
    world.run(1.0)
    held: list[Message] = []
    stalled = patch.object(slow.core.session, "receive", lambda message, _now: held.append(message))
    stalled.start()
    for number in range(300):
        publisher.publish({"x": number})
    world.run(0.5)
    node = world.nodes["b1"]
    assert 0 < node.status()["queued_bytes"] <= settings.queue_bytes
    assert node.status()["dropped"] > 0
    stalled.stop()
    for message in held:
        slow.core.session.receive(message, world.now)
    world.run(5.0)
    assert heard(slow)[-1] == 299
    lost = sum(gap.count for gap in slow.gaps)
    assert lost + len(slow.heard) == 300
    missing = sorted(set(range(300)) - set(heard(slow)))
    assert (slow.gaps[0].first_seq - 1, slow.gaps[-1].last_seq - 1) == (missing[0], missing[-1])


def test_all_queues_together_have_a_budget() -> None:
    settings = msgspec.structs.replace(
        QUICK, window_bytes=500, queue_bytes=500_000, memory_bytes=200_000
    )
    world = world_of(1, settings=settings)
    slow = [world.client(f"slow{number}", "b1") for number in range(4)]
    publisher = world.client("p", "b1")
    for each in slow:
        each.subscribe("x >= 0")
    world.run(1.0)
    for each in slow:
        patch.object(each.core.session, "receive", lambda _message, _now: None).start()
    for number in range(200):
        publisher.publish({"x": number})
    world.run(0.5)
    assert 0 < world.nodes["b1"].status()["queued_bytes"] <= settings.memory_bytes


# --- durable subscriptions ---


def test_what_a_home_is_yet_to_store_is_counted() -> None:
    world = World.of(line(2), settings=QUICK)
    owner, publisher = world.client("a", "b2"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="orders")
    world.run(1.0)
    world.kill("b2")
    publisher.publish({"x": 1}, durable=True)
    world.run(1.0)
    assert world.nodes["b1"].status()["custody_carried"] == {"b2": 1}
    world.start("b2")
    world.run(5.0)
    assert world.nodes["b1"].status()["custody_carried"] == {}


def test_a_durable_subscription_waits_for_its_owner() -> None:
    world = world_of(2)
    owner, publisher = world.client("a", "b2"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="orders")
    world.run(1.0)
    owner.broker = "nowhere"
    owner.cut()
    world.run(QUICK.client_grace_s + 2.0)
    publisher.publish({"x": 1}, {"x": 0}, {"x": 2}, durable=True)
    world.run(1.0)
    assert publisher.accepted_durable == 3
    assert world.nodes["b2"].status()["custody_waiting"] == {"a/orders": 1}
    owner.broker = "b2"
    world.run(2.0)
    assert heard(owner) == [1, 2]
    assert world.nodes["b2"].status()["custody_entries"] == 0


def test_live_events_reach_durable_subscriptions_while_their_owner_is_here() -> None:
    world = world_of(2)
    owner, publisher = world.client("a", "b2"), world.client("p", "b1")
    owner.subscribe("x > 0", durable="d")
    world.run(1.0)
    publisher.publish({"x": 1})
    publisher.publish({"x": 2}, durable=True)
    world.run(1.0)
    assert heard(owner) == [1, 2]


def test_a_full_disk_refuses_durable_events_and_live_ones_go_on() -> None:
    world = world_of(1)
    member, publisher = world.client("a", "b1"), world.client("p", "b1")
    member.subscribe("x > 0")
    member.subscribe("x > 5", durable="d")
    world.run(1.0)
    world.disks["b1"].is_full = True
    publisher.publish({"x": 9}, durable=True)
    world.run(1.0)
    assert [(each.first_seq, each.last_seq) for each in publisher.refused] == [(1, 1)]
    assert heard(member) == [9], "live"
    world.disks["b1"].is_full = False
    world.run(2.0)
    publisher.publish({"x": 8}, durable=True)
    world.run(1.0)
    assert [(each.first_seq, each.last_seq) for each in publisher.refused] == [(1, 1)]
    assert publisher.accepted_durable == 2
    assert heard(member) == [9, 8, 8], "live, and as what is durable"
    assert world.nodes["b1"].status()["custody_entries"] == 0


def test_a_damaged_entry_is_not_served_and_told_as_a_gap() -> None:
    world = world_of(1)
    owner, publisher = world.client("a", "b1"), world.client("p", "b1")
    key = owner.subscribe("x > 0", durable="d")
    world.run(1.0)
    owner.broker = "nowhere"
    owner.cut()
    for number in (1, 2, 3):
        publisher.publish({"x": number}, durable=True)
    world.run(1.0)
    world.kill("b1")
    world.disks["b1"].flip(2)
    world.start("b1")
    owner.broker = "b1"
    world.run(3.0)
    assert heard(owner) == [1, 3]
    (gap,) = owner.gaps
    name = gap.publisher
    assert name.startswith("p/")
    assert (gap.first_seq, gap.last_seq, gap.count, gap.key) == (2, 2, 1, key)
    assert [each.details for _, each in world.reports if each.event == "entry_lost"] == [
        {"entry": 2, "publisher": name, "first_seq": 2, "last_seq": 2, "subscription": "a/d"}
    ]


def test_settled_means_everywhere_and_names_whom_it_could_not_reach() -> None:
    world = world_of(3)
    member = world.client("a", "b1")
    member.subscribe("x > 0")
    member.subscribe("x > 5", durable="d")
    world.run(1.0)
    assert answer(world, member, settle := member.settle()) == Done(settle)
    world.kill("b3")
    world.run(QUICK.peer_grace_s + 2.0)
    member.subscribe("x > 7", durable="e")
    done = answer(world, member, member.settle())
    assert isinstance(done, Done)
    assert done.unreached == ("b3",)


# --- the network ---


def test_a_trace_tells_every_hop() -> None:
    world = world_of(3)
    near, far = world.client("near", "b2"), world.client("far", "b3")
    near.subscribe("x > 0")
    far.subscribe("x > 5", durable="d")
    asker = world.client("p", "b1")
    world.run(1.0)
    traced = answer(world, asker, asker.ask(lambda id: Query(id, "trace", {"x": 9})))
    assert isinstance(traced, Answer)
    by_broker = {hop["broker"]: hop for hop in traced.data["hops"]}
    assert list(by_broker) == ["b1", "b2", "b3"]
    assert by_broker["b1"]["forwards"] == ["b2"]
    assert by_broker["b1"]["durable"] == ["b3"]
    assert by_broker["b1"]["kept_for"] == ["far/d"]
    assert by_broker["b2"]["sessions"] == ["near"]
    assert by_broker["b2"]["matched"] == [
        {"subscriber": "near", "filter": "x > 0", "parameters": {}, "durable": ""}
    ]
    assert [each["durable"] for each in by_broker["b3"]["matched"]] == ["far/d"]
    nobody = answer(world, asker, asker.ask(lambda id: Query(id, "trace", {"x": 0})))
    assert isinstance(nobody, Answer)
    assert [hop["broker"] for hop in nobody.data["hops"]] == ["b1"]
    assert heard(near) == heard(far) == []


def test_the_topology_and_the_catalogue_are_known() -> None:
    world = world_of(2)
    member = world.client("a", "b2")
    member.subscribe("x > :low", {"low": 1})
    member.subscribe("x > 5", durable="d")
    world.run(1.0)
    topology = answer(world, member, member.ask(lambda id: Query(id, "topology")))
    assert isinstance(topology, Answer)
    assert topology.data["brokers"]["b2"] == {
        "links": ["b1"],
        "parent": "",
        "reachable": True,
        "found": [],
        "url": "",
        "durable_subscriptions": ["a/d"],
        "multicast": "",
        "leaving": False,
    }
    assert topology.data["root"] == ""
    catalogue = answer(world, member, member.ask(lambda id: Query(id, "catalogue")))
    assert isinstance(catalogue, Answer)
    listed = [(each["filter"], each["parameters"]) for each in catalogue.data["subscriptions"]]
    assert sorted(listed, key=str) == [("x > 5", {}), ("x > :low", {"low": 1})]
    assert catalogue.data["next"] == ""


def test_the_topology_of_a_hierarchy_says_who_is_above_whom() -> None:
    new = find_algorithm("proxies").new
    world = World.of(line(4), lambda name: new(name, has_parent=name != "b2"))
    member = world.client("a", "b4")
    world.run(1.0)
    topology = answer(world, member, member.ask(lambda id: Query(id, "topology")))
    assert isinstance(topology, Answer)
    assert topology.data["root"] == "b2"
    shown = {name: each["parent"] for name, each in topology.data["brokers"].items()}
    assert shown == {"b1": "b2", "b2": "", "b3": "b2", "b4": "b3"}


# --- authority ---


def guarded(*principals: Principal) -> tuple[World, Names]:
    world = world_of(1)
    names = Names(*principals)
    world.nodes["b1"]._core.authority = names
    return world, names


def test_grants_bound_what_is_heard_and_published() -> None:
    world, _ = guarded(
        Principal("reader", allow_subscribe=parse_filter("x < 5")),
        Principal("writer", allow_publish=parse_filter("x > 0")),
    )
    reader, writer = world.client("reader", "b1"), world.client("writer", "b1")
    reader.token, writer.token = "reader", "writer"
    reader.subscribe("x IS NOT NULL")
    world.run(1.0)
    writer.publish({"x": 0}, {"x": 3}, {"x": 9})
    world.run(1.0)
    assert heard(reader) == [3]
    assert [(each.first_seq, each.failure.kind) for each in writer.refused] == [(1, "NotPermitted")]
    beyond = answer(world, reader, reader.ask(lambda id: Subscribe(id, 5, "x > 7")))
    assert isinstance(beyond, Failed)
    assert beyond.failure.kind == "NotPermitted"


def test_whoever_is_struck_off_is_sent_away() -> None:
    world, names = guarded(Principal("reader", allow_subscribe=TRUE))
    reader = world.client("reader", "b1")
    reader.token = "reader"
    world.run(1.0)
    assert reader.is_connected
    names.struck_off.add("reader")
    world.run(2.0)
    assert not reader.is_connected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_principal_has_so_many_subscriptions(count: int) -> None:
    world, _ = guarded(Principal("reader", allow_subscribe=TRUE, limits=Limits(subscriptions=2)))
    reader = world.client("reader", "b1")
    reader.token = "reader"
    world.run(1.0)
    ids = [
        reader.ask(lambda id, key=key: Subscribe(id, key, "x > 0"))  # type: ignore[misc]  # bound now
        for key in range(count)
    ]
    world.run(1.0)
    kinds = [type(reader.answers[id]) for id in ids]
    assert kinds == [Done, Done, Failed][:count]


def test_rates_are_kept() -> None:
    world, _ = guarded(Principal("writer", allow_publish=TRUE, limits=Limits(events_per_s=2)))
    writer = world.client("writer", "b1")
    writer.token = "writer"
    world.run(1.0)
    for number in range(4):
        writer.publish({"x": number})
    world.run(0.1)
    assert [(each.first_seq, each.failure.kind) for each in writer.refused] == [(4, "NotPermitted")]
    world.run(1.0)
    writer.publish({"x": 5})
    world.run(0.1)
    assert (writer.accepted, len(writer.refused)) == (5, 1)


def test_rates_are_kept_however_many_sessions_there_are() -> None:
    world, _ = guarded(Principal("writer", allow_publish=TRUE, limits=Limits(events_per_s=2)))
    writers = [world.client(f"w{number}", "b1") for number in range(5)]
    for writer in writers:
        writer.token = "writer"
    world.run(1.0)
    for writer in writers:
        for number in range(3):
            writer.publish({"x": number})
    world.run(0.1)
    assert sum(len(writer.refused) for writer in writers) == 12


def test_a_session_is_resumed_under_the_rates_of_the_newest_grant() -> None:
    world, names = guarded(Principal("writer", allow_publish=TRUE))
    writer = world.client("writer", "b1")
    writer.token = "writer"
    world.run(1.0)
    names.known["writer"] = Principal("writer", allow_publish=TRUE, limits=Limits(events_per_s=2))
    writer.cut()
    world.run(1.0)
    for number in range(4):
        writer.publish({"x": number})
    world.run(0.1)
    assert [(each.first_seq, each.failure.kind) for each in writer.refused] == [(4, "NotPermitted")]


def test_a_session_is_not_resumed_under_another_grant() -> None:
    world, names = guarded(Principal("reader", allow_subscribe=TRUE))
    reader = world.client("reader", "b1")
    reader.token = "reader"
    reader.subscribe("x > 0")
    world.run(1.0)
    names.known["reader"] = Principal("reader", allow_subscribe=parse_filter("x < 5"))
    reader.cut()
    world.run(1.0)
    publisher = world.client("reader2", "b1")
    publisher.token = "reader2"
    names.known["reader2"] = Principal("reader2", allow_publish=TRUE)
    world.run(1.0)
    publisher.publish({"x": 9}, {"x": 3})
    world.run(1.0)
    assert heard(reader) == [3]


def test_what_waited_under_a_wider_grant_is_not_heard_under_a_narrower_one() -> None:
    world, names = guarded(
        Principal("reader", allow_subscribe=TRUE), Principal("writer", allow_publish=TRUE)
    )
    reader, writer = world.client("reader", "b1"), world.client("writer", "b1")
    reader.token, writer.token = "reader", "writer"
    reader.subscribe("x > 0", durable="d")
    world.run(2.0)
    reader.broker = "nowhere"
    reader.cut()
    writer.publish({"x": 3}, {"x": 9}, durable=True)
    world.run(QUICK.client_grace_s + 2.0)
    names.known["reader"] = Principal("reader", allow_subscribe=parse_filter("x < 5"))
    reader.broker = "b1"
    world.run(2.0)
    assert heard(reader) == [3]
    assert world.nodes["b1"].status()["custody_entries"] == 0
