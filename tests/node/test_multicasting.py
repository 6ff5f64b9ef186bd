"""Events by multicast groups, between whole brokers on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from palio.multicast import outflows
from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.documents import pack
from palio.multicast.limits import MAX_RANGES
from palio.multicast.listed import ListedGroups, flooding
from palio.multicast.outflows import Outflows
from palio.node.effects import Moment, Tune
from palio.node.fact_verifier import PART, PLAN
from palio.node.limits import MEMORY_BYTES
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import PutFacts
from palio.node.settings import Settings
from palio.protocol.messages import Answer, Apply, Done, Fact, Failed, Query
from palio.routing.acyclic import Acyclic
from palio.routing.algorithms import find_algorithm
from palio.routing.flooded import Flooded
from palio.routing.protocol import Router
from palio.simulation.medium import Weather
from palio.simulation.member import Member
from palio.simulation.topologies import Topology
from palio.simulation.world import World

SETTINGS = Settings(multicast=True, heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)
TAIL = 1
"""After the last event its sender asks how far all have got."""


def star(spokes: int) -> Topology:
    """A broker `b0` in the middle of others."""
    names = tuple(f"b{place}" for place in range(spokes + 1))
    return Topology(names, tuple(("b0", name) for name in names[1:]))


def world_of(
    topology: Topology, routing: str = "flooded", settings: Settings = SETTINGS, seed: int = 0
) -> World:
    """A world whose brokers have a multicast way."""
    world = World(seed=seed, settings=settings)

    def router(name: str) -> Router:
        return find_algorithm(routing).new(name, incarnation=world.wall_us)

    for name in topology.brokers:
        world.add_broker(name, router)
    for edge in topology.edges:
        world.connect(*edge)
    world.run(1.0)
    return world


def apply(world: World, operator: Member, brokers: Sequence[str]) -> None:
    """All brokers are one group from now on."""
    text = pack(flooding(tuple(brokers))) if brokers else ""
    id = operator.ask(lambda id: Apply(id, text))
    world.run(1.0)
    assert isinstance(operator.answers[id], Done)


def hearing(world: World, *names: str, filter: str = "x > 0") -> dict[str, Member]:
    """A client at each broker that hears `filter`."""
    members = {name: world.client(f"at-{name}", name) for name in names}
    for each in members.values():
        each.subscribe(filter)
    world.run(1.0)
    return members


def flows(world: World, name: str) -> dict[str, Any]:
    """What a broker says of its flows."""
    found: dict[str, Any] = world.nodes[name].status()["multicast"]
    return found


def heard(member: Member) -> list[int]:
    return [row["x"] for _, _, row in member.heard]


LINE = Topology(("b0", "b1", "b2"), (("b0", "b1"), ("b1", "b2")))


def group_world(
    topology: Topology, routing: str = "flooded", settings: Settings = SETTINGS
) -> tuple[World, dict[str, Member], Member]:
    """A world with a client at each broker, a publisher at `b0`, and all in one group."""
    world = world_of(topology, routing, settings)
    members = hearing(world, *topology.brokers)
    publisher = world.client("pub", "b0")
    apply(world, publisher, topology.brokers)
    return world, members, publisher


def star_world(
    spokes: int = 4, settings: Settings = SETTINGS, routing: str = "flooded"
) -> tuple[World, dict[str, Member], Member]:
    """A star with a client at each broker, a publisher in the middle, and all in one group."""
    return group_world(star(spokes), routing, settings)


@pytest.mark.parametrize("routing", ["flooded", "source-trees"])
def test_an_event_for_all_is_cast_once_and_heard_by_all(routing: str) -> None:
    world, members, publisher = star_world(routing=routing)
    publisher.publish({"x": 1}, {"x": 2})
    for number in range(3, 6):
        publisher.publish({"x": number})
    world.run(1.0)
    assert all(heard(each) == [1, 2, 3, 4, 5] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 4 + TAIL


def test_an_event_that_no_datagram_takes_goes_by_links() -> None:
    world, members, publisher = star_world(3)
    names = {f"{place}".zfill(250): True for place in range(300)}
    publisher.publish({"x": 1})
    publisher.publish({"x": 2, **names})
    publisher.publish({"x": 3})
    world.run(1.0)
    assert all(heard(each) == [1, 2, 3] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 2 + TAIL


def publish(
    world: World, publisher: Member, first: int, count: int, pause_s: float = 0.001
) -> None:
    for number in range(first, first + count):
        publisher.publish({"x": number})
        world.run(pause_s)


@pytest.mark.parametrize("routing", ["flooded", "source-trees"])
def test_what_is_lost_doubled_or_late_is_heard_once_in_order(routing: str) -> None:
    world, members, publisher = star_world(routing=routing)
    world.medium.weather = Weather(loss=0.1, doubled=0.1, late=0.2)
    publish(world, publisher, 1, 400)
    world.run(5.0)
    for member in members.values():
        assert heard(member) == list(range(1, 401))
        assert member.gaps == []
    assert flows(world, "b0")["repaired"] > 0


def test_who_does_not_want_an_event_hears_none() -> None:
    world, members, publisher = star_world()
    other = world.client("other", "b4")
    other.subscribe("y > 0")
    world.run(1.0)
    publisher.publish({"y": 1})
    publisher.publish({"x": 1})
    world.run(1.0)
    assert [row for _, _, row in other.heard] == [{"y": 1}]
    assert all(heard(each) == [1] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 1 + TAIL


def test_a_large_event_goes_by_links() -> None:
    world, members, publisher = star_world(settings=replace(SETTINGS, cast_bytes=1_000))
    publisher.publish({"x": 1, "text": "a" * 2_000})
    publisher.publish({"x": 2, "text": "a"})
    world.run(1.0)
    assert all(heard(each) == [1, 2] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 1 + TAIL


def test_of_many_events_by_links_each_broker_gets_what_it_wants() -> None:
    world, members, publisher = star_world(settings=replace(SETTINGS, cast_bytes=1_000))
    few = world.client("few", "b2")
    few.subscribe("x < 0 AND x > -10")
    world.run(1.0)
    publisher.publish(*({"x": number} for number in range(-20, 21)))
    world.run(1.0)
    assert all(heard(each) == list(range(1, 21)) for each in members.values())
    assert heard(few) == list(range(-9, 0))
    assert flows(world, "b0")["datagrams"] == 0


def test_durable_events_are_heard_once_by_live_and_durable_subscriptions() -> None:
    world, members, publisher = star_world()
    keeper = world.client("keeper", "b3")
    keeper.subscribe("x > 0", durable="d")
    world.run(1.0)
    world.medium.weather = Weather(loss=0.2)
    for number in range(1, 51):
        publisher.publish({"x": number}, durable=True)
        world.run(0.01)
    world.run(5.0)
    assert heard(keeper) == list(range(1, 51))
    assert all(heard(each) == list(range(1, 51)) for each in members.values())


def test_parameters_change_what_is_cast() -> None:
    world, _members, publisher = star_world()
    listener = world.client("listener", "b1")
    key = listener.subscribe("y > :low", {"low": 10})
    others = [world.client(f"also-{name}", name) for name in ("b2", "b3")]
    for each in others:
        each.subscribe("y > 0")
    world.run(1.0)
    publisher.publish({"y": 5})
    world.run(1.0)
    listener.update(key, low=3)
    world.run(1.0)
    publisher.publish({"y": 6})
    world.run(1.0)
    assert [row["y"] for _, _, row in listener.heard] == [6]
    assert all([row["y"] for _, _, row in each.heard] == [5, 6] for each in others)


def test_a_broker_without_a_multicast_way_gets_all_by_links() -> None:
    world, members, publisher = star_world(settings=replace(SETTINGS, multicast=False))
    publish(world, publisher, 1, 20)
    world.run(1.0)
    assert all(heard(each) == list(range(1, 21)) for each in members.values())
    assert flows(world, "b0")["datagrams"] == 0
    assert flows(world, "b0")["by_links"] == ["b1", "b2", "b3", "b4"]


def test_a_broker_that_is_deaf_is_moved_to_links_and_told() -> None:
    world, members, publisher = star_world()
    world.medium.deafen("b2")
    publish(world, publisher, 1, 3_000)
    world.run(3.0)
    assert all(heard(each) == list(range(1, 3_001)) for each in members.values())
    moved = [each.details for name, each in world.reports if each.event == "peer_moved_to_links"]
    assert {"broker": "b2"} in moved
    world.medium.undeafen("b2")
    world.run(3.0)
    publish(world, publisher, 3_001, 10)
    world.run(1.0)
    assert all(heard(each) == list(range(1, 3_011)) for each in members.values())
    assert "b2" in flows(world, "b0")["by_datagrams"]


def test_a_slow_link_is_sent_a_repair_once() -> None:
    world, members, publisher = group_world(LINE)
    publish(world, publisher, 1, 1)
    world.run(1.0)
    world.delay("b1", "b2", 0.12)
    world.medium.cut("b0", "b2")
    publish(world, publisher, 2, 5)
    world.run(0.05)
    world.medium.heal("b0", "b2")
    publish(world, publisher, 7, 1)
    world.run(3.0)
    assert all(heard(each) == list(range(1, 8)) for each in members.values())
    assert flows(world, "b2")["doubled"] == 0


def test_a_receiver_that_starts_anew_hears_what_comes_then() -> None:
    world, members, publisher = star_world()
    publish(world, publisher, 1, 5)
    world.run(1.0)
    world.kill("b2")
    world.run(0.5)
    publish(world, publisher, 6, 5)
    world.start("b2")
    world.run(4.0)
    publish(world, publisher, 11, 5)
    world.run(2.0)
    assert heard(members["b1"]) == list(range(1, 16))
    assert heard(members["b2"])[-5:] == list(range(11, 16))
    assert heard(members["b2"]) == sorted(set(heard(members["b2"])))


def test_a_sender_that_starts_anew_is_heard() -> None:
    world, members, publisher = star_world()
    publish(world, publisher, 1, 5)
    world.run(1.0)
    world.kill("b0")
    world.run(0.5)
    world.start("b0")
    world.run(5.0)
    publish(world, publisher, 6, 5)
    world.run(2.0)
    for member in members.values():
        assert heard(member)[-5:] == list(range(6, 11))
    assert set(flows(world, "b0")["by_datagrams"]) == {"b1", "b2", "b3", "b4"}


def test_another_plan_is_used_under_load_without_loss() -> None:
    world, members, publisher = star_world()
    world.medium.weather = Weather(loss=0.05, late=0.1)
    operator = world.client("operator", "b3")
    world.run(1.0)
    used = {flows(world, "b0")["used"]}
    for number, brokers in enumerate((("b0", "b1", "b2"), star(4).brokers, ("b0", "b1", "b2"))):
        publish(world, publisher, 1 + 300 * number, 150)
        text = pack(flooding(brokers))
        operator.ask(lambda id, text=text: Apply(id, text))  # type: ignore[misc]
        publish(world, publisher, 151 + 300 * number, 150)
        world.run(1.0)
        used.add(flows(world, "b0")["used"])
    world.run(5.0)
    assert len(used) == 4
    assert all(heard(each) == list(range(1, 901)) for each in members.values())
    assert flows(world, "b1")["groups_joined"] == 1


def test_of_plans_that_follow_each_other_quickly_the_last_is_used_at_once() -> None:
    world, members, publisher = star_world()
    for count in (2, 3, 4):
        text = pack(flooding(star(4).brokers[:count]))
        publisher.ask(lambda id, text=text: Apply(id, text))  # type: ignore[misc]
    id = publisher.ask(lambda id: Query(id, "trace", {"x": 1}))
    publish(world, publisher, 1, 50)
    world.run(2.0)
    assert isinstance(publisher.answers[id], Answer)
    assert all(heard(each) == list(range(1, 51)) for each in members.values())
    assert flows(world, "b0")["used"] == flows(world, "b0")["plan"]["id"]


@pytest.mark.parametrize("part", [1, 8])
def test_flows_take_their_share_of_the_memory_of_a_broker(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """An eighth of the memory is an eighth of what is kept for one who does not hear."""
    monkeypatch.setattr(outflows, "MAX_HISTORY_BYTES", 400_000)
    settings = replace(SETTINGS, memory_bytes=MEMORY_BYTES // part, peer_grace_s=30.0)
    world, _, publisher = star_world(3, settings)
    world.cut("b0", "b1")
    for number in range(200):
        publisher.publish({"x": number, "text": "a" * 500})
        world.run(0.002)
    assert (flows(world, "b0")["lost"] > 0) == (part > 1)


def test_a_batch_that_is_more_than_their_share_is_not_lost() -> None:
    world, members, publisher = star_world(3, replace(SETTINGS, memory_bytes=32 << 20))
    told = {name: len(each.gaps) for name, each in members.items()}
    texts = {f"t{place}": "a" * 65_000 for place in range(12)}
    for first in (1, 5, 9):
        publisher.publish(*({"x": first + place, **texts} for place in range(4)))
        world.run(3.0)
    assert all(heard(each) == list(range(1, 13)) for each in members.values())
    assert told == {name: len(each.gaps) for name, each in members.items()}
    assert flows(world, "b0")["lost"] == 0


def test_a_broker_that_stops_leaves_nothing_unheard() -> None:
    world, members, publisher = star_world()
    del members["b0"]
    publish(world, publisher, 1, 5)
    world.run(1.0)
    for name in members:
        world.medium.deafen(name)
    publish(world, publisher, 6, 200, pause_s=0.0)
    world.run(0.01)
    assert flows(world, "b0")["datagrams"] < 205
    world.host("b0").close("it stops")
    world.run(0.5)
    assert all(heard(each) == list(range(1, 206)) for each in members.values())


def test_a_broker_that_does_not_know_whom_events_are_for_leaves_a_plan_alone() -> None:
    """It may have one on its disk, from when its routing was another."""
    store = MemoryStore()
    stated = Fact("b1", 7, PLAN, filter=pack(flooding(("b1", "b2"))), claimed_us=7)
    store.write([PutFacts((stated,))])
    for router, tuned in ((Acyclic("b1"), False), (Flooded("b1"), True)):
        node = Node("b1", router, store, settings=SETTINGS)
        effects = node.start(Moment(0.0, 1))
        assert any(isinstance(each, Tune) for each in effects) is tuned
        assert bool(node.status()["multicast"]["used"]) is tuned


def test_no_plan_ends_datagrams() -> None:
    world, members, publisher = star_world()
    apply(world, publisher, ())
    publish(world, publisher, 1, 5)
    world.run(1.0)
    assert all(heard(each) == [1, 2, 3, 4, 5] for each in members.values())
    assert flows(world, "b0")["datagrams"] == 0
    assert flows(world, "b0")["groups_joined"] == 0


def test_a_trace_tells_the_groups_and_for_whom_in_vain_and_who_hears_by_links() -> None:
    world = world_of(star(4))
    hearing(world, "b1", "b2", filter="x > 1")
    hearing(world, "b4", filter="x > 2")
    publisher = world.client("pub", "b0")

    def traced(x: int, **more: str) -> Any:
        id = publisher.ask(lambda id: Query(id, "trace", {"x": x, **more}))
        world.run(1.0)
        answer = publisher.answers[id]
        assert isinstance(answer, Answer)
        return next(hop for hop in answer.data["hops"] if hop["broker"] == "b0")["multicast"]

    assert traced(3) is None
    apply(world, publisher, ["b0", "b1", "b2", "b3"])
    group = {"group": 0, "to": ["b1", "b2"], "in_vain": ["b3"]}
    assert traced(3) == {"groups": [group], "by_links": ["b4"]}
    assert traced(2) == {"groups": [group], "by_links": []}
    assert traced(1) == {"groups": [], "by_links": []}
    large = "x" * SETTINGS.cast_bytes
    assert traced(3, more=large) == {"groups": [], "by_links": ["b1", "b2", "b4"]}


def standings(world: World, member: Member) -> dict[str, str]:
    """What brokers do with the plan in use, as one of them tells."""
    id = member.ask(lambda id: Query(id, "topology"))
    world.run(0.1)
    answer = member.answers[id]
    assert isinstance(answer, Answer)
    return {name: each["multicast"] for name, each in answer.data["brokers"].items()}


def test_it_is_told_what_each_broker_does_with_the_plan_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(star(2))
    hearing(world, "b1", "b2")
    publisher = world.client("pub", "b0")
    assert standings(world, publisher) == {"b0": "", "b1": "", "b2": ""}
    apply(world, publisher, ["b0", "b1", "b2"])
    assert standings(world, publisher) == dict.fromkeys(("b0", "b1", "b2"), "joined")
    with monkeypatch.context() as patch:
        patch.setattr(Outflows, "slow", ["b2"])
        assert standings(world, publisher) == {"b0": "joined", "b1": "joined", "b2": "moved"}
    world.kill("b1")
    publisher.ask(lambda id: Apply(id, pack(flooding(("b0", "b1")))))
    world.run(1.0)
    assert standings(world, publisher) == {"b0": "joined", "b1": "waiting", "b2": "joined"}


def test_a_question_stays_legal_of_which_a_broker_on_the_way_answers_every_other_number() -> None:
    """b3 hears no datagrams, and b2, on its way, has those of one group of two."""
    world = world_of(Topology(("b1", "b2", "b3", "b4"), (("b1", "b2"), ("b2", "b3"), ("b1", "b4"))))
    members = {
        **hearing(world, "b2", filter="x > 0 AND odd = FALSE"),
        **hearing(world, "b3"),
        **hearing(world, "b4", filter="x > 0 AND odd = TRUE"),
    }
    publisher = world.client("pub", "b1")
    names = ("b1", "b2", "b3", "b4")
    sets = rows_of([("b2", "b3"), ("b3", "b4")], numbered(names))
    publisher.ask(lambda id: Apply(id, pack(ListedGroups("ideal", names, sets))))
    world.run(1.0)
    numbers = [*range(1, 4 * MAX_RANGES)]
    for number in numbers:
        if number == MAX_RANGES:  # by now the window is wide enough for all others
            world.run(1.0)
            world.medium.deafen("b3")
        publisher.publish({"x": number, "odd": number % 2 == 1})
    world.run(0.5)
    world.medium.undeafen("b3")
    world.run(3.0)
    assert heard(members["b2"]) == numbers[1::2]
    assert heard(members["b3"]) == numbers
    assert heard(members["b4"]) == numbers[::2]
    assert not [report for _, report in world.reports if report.event == "connection_rejected"]


def test_a_broker_that_starts_takes_back_what_its_disk_did_not_take() -> None:
    """It took part, and told so with a full disk; the plan is withdrawn while it is away."""
    topology = star(3)
    world = world_of(topology)
    members = hearing(world, *topology.brokers)
    publisher = world.client("pub", "b0")
    world.disks["b1"].is_full = True
    apply(world, publisher, topology.brokers)
    assert not [each for each in world.disks["b1"].facts() if each.subject == PART]
    world.kill("b1")
    world.run(5.0)
    apply(world, publisher, ())
    world.disks["b1"].is_full = False
    world.start("b1")
    world.run(20.0)
    for number in range(1, 6):
        publisher.publish({"x": number})
        world.run(0.1)
    world.run(2.0)
    assert all(heard(each) == [1, 2, 3, 4, 5] for each in members.values())


@pytest.mark.parametrize("earlier", [False, True])
def test_a_plan_that_a_full_disk_refuses_counts_nowhere(*, earlier: bool) -> None:
    topology = star(3)
    world = world_of(topology)
    members = hearing(world, *topology.brokers)
    publisher, operator = world.client("pub", "b0"), world.client("op", "b1")
    if earlier:
        apply(world, operator, topology.brokers)
    plans = [flows(world, name)["plan"] for name in topology.brokers]
    world.disks["b1"].is_full = True
    asked = [
        each.ask(lambda id: Apply(id, pack(flooding(topology.brokers[:2]))))
        for each in (operator, world.client("other", "b1"))
    ]
    world.run(1.0)
    assert isinstance(operator.answers[asked[0]], Failed)
    for is_full in (True, False):
        world.disks["b1"].is_full = is_full
        world.run(5.0)
        assert [flows(world, name)["plan"] for name in topology.brokers] == plans
        publisher.publish({"x": 1})
        world.run(1.0)
    assert all(heard(each) == [1, 1] for each in members.values())
