"""Who decides on the tree of a graph, and that it keeps what is in use."""

from __future__ import annotations

from functools import partial

import pytest

from palio.routing import plans as plans_module
from palio.routing.general import General
from palio.routing.graphs import MAX_VERSION
from palio.routing.messages import TreePlan
from palio.routing.plans import Plans
from palio.routing.trees import Edge
from palio.simulation import Link, Network, Randomness, Topology, connected_random
from palio.simulation.clients import Client
from tests.routing.seeds import SEEDS
from tests.routing.test_general import survivors_are_served

PAIR = {"a": {"b": 1}, "b": {"a": 1}}
LINE = {"a": {"b": 1}, "b": {"a": 1, "c": 1}, "c": {"b": 1}}


def tree_at(network: Network, broker: str) -> frozenset[Edge]:
    router = network.routers[broker]
    assert isinstance(router, General)
    return router.tree


def publish_while_it_changes(network: Network, clients: list[Client]) -> int:
    """An event every 5 ms, by one after the other; how many."""
    for step in range(60):
        publisher = clients[step % len(clients)]
        network.after(5.0 * step, partial(publisher.publish, {"a": 1}))
    network.run()
    return 60


def test_the_least_name_decides_and_the_others_do_not() -> None:
    assert Plans("b").decide(PAIR) is None
    assert Plans("c").decide(LINE) is None
    plans = Plans("a")
    assert plans.decide(LINE) == TreePlan("a", 1, (("a", "b"), ("b", "c")))
    assert plans.decide(LINE) is None
    assert Plans("a").decide({"a": {}}) is None  # alone


def test_who_decides_next_goes_on_from_what_is_in_use() -> None:
    ring = {name: {other: 1 for other in "abcd" if other != name} for name in "abcd"}
    plans = Plans("a")
    used = (("b", "c"), ("c", "d"))
    assert plans.learn(TreePlan("b", 7, used))
    plan = plans.decide(ring)
    assert plan is not None
    assert plan.version == 8
    assert set(used) < set(plan.links)
    assert len(plan.links) == 3


def test_two_parts_go_by_their_own_plans_until_there_is_one_for_both() -> None:
    plans = Plans("b")
    plans.learn(TreePlan("a", 5, (("a", "b"),)))
    plans.learn(TreePlan("c", 9, (("c", "d"),)))
    assert plans.tree == {("a", "b")}
    plans.learn(TreePlan("a", 10, (("a", "b"), ("b", "c"), ("c", "d"))))
    assert len(plans.tree) == 3
    assert plans.all() == [TreePlan("a", 10, (("a", "b"), ("b", "c"), ("c", "d")))]


@pytest.mark.parametrize(
    ("newer", "is_past"),
    [
        (TreePlan("c", 6, ()), True),
        (TreePlan("c", 6, (("b", "c"),)), False),
        (TreePlan("c", 5, ()), False),
        (TreePlan("c", 4, ()), False),
    ],
)
def test_who_decided_by_itself_later_is_past_a_plan(newer: TreePlan, is_past: bool) -> None:
    """Unless it holds the link in question all the same."""
    plans, plan = Plans("b"), TreePlan("a", 5, (("a", "b"), ("b", "c")))
    plans.learn(plan)
    assert not plans.is_past(plan, ("b", "c"), "c")
    plans.learn(newer)
    assert plans.is_past(plan, ("b", "c"), "c") is is_past


def test_of_the_links_to_a_part_with_a_plan_of_its_own_one_stays() -> None:
    """Both ends of each decide alike, and there is no circle."""
    plan = TreePlan("a", 9, (("a", "b"), ("b", "c")))
    for name in "abc":
        plans = Plans(name)
        plans.learn(plan)
        plans.learn(TreePlan("x", 3, (("a", "z"), ("b", "x"), ("c", "y"), ("x", "y"))))
        kept = {
            edge: plans.holds_on_to(plan, edge, edge[1])
            for edge in (("b", "x"), ("c", "y"), ("a", "z"), ("a", "x"))
        }
        assert kept == {("b", "x"): True, ("c", "y"): False, ("a", "z"): True, ("a", "x"): True}
    assert Plans("b").holds_on_to(TreePlan("", 0, ()), ("b", "x"), "x")


def test_all_go_by_one_plan_only_if_there_is_one() -> None:
    plans = Plans("c")
    assert plans.is_whole({"c": {}})
    assert not plans.is_whole(LINE)
    plans.learn(TreePlan("a", 1, (("a", "b"),)))
    assert not plans.is_whole(LINE)
    plans.learn(TreePlan("a", 2, (("a", "b"), ("b", "c"))))
    assert plans.is_whole(LINE)


# --- who is the root ---

STAR = {"a": {"m": 1}, "b": {"m": 1}, "c": {"m": 1}, "m": {"a": 1, "b": 1, "c": 1}}
LINKS = (("a", "m"), ("b", "m"), ("c", "m"))


def root_by(plans: Plans, below: set[str]) -> tuple[str, bool]:
    plan = plans.decide(STAR, below)
    assert plan is not None
    assert plans.is_as_wanted(STAR, below)
    assert plans.decide(STAR, below) is None
    return plan.root, plan.calm


def test_the_root_is_the_middle_unless_it_has_a_parent_and_others_have_none() -> None:
    for below, root in (
        (set(), "m"),
        ({"m"}, "a"),
        ({"m", "a"}, "b"),
        ({"m", "a", "b"}, "c"),
        ({"a", "b", "c"}, "m"),
        (set(STAR), "m"),
    ):
        assert root_by(Plans("a", has_ranks=True), below)[0] == root, below


def test_a_root_remains_as_long_as_it_may() -> None:
    plans = Plans("a", has_ranks=True)
    assert plans.learn(TreePlan("a", 4, LINKS, root="c"))
    assert plans.decide(STAR) is None
    assert plans.decide(STAR, set("abm")) is None
    assert root_by(plans, {"c"}) == ("m", True)  # links turn round
    assert root_by(plans, {"m"}) == ("a", True)
    gone = {"b": {"m": 1}, "c": {"m": 1}, "m": {"b": 1, "c": 1}}
    others = Plans("b", has_ranks=True)
    others.learn(TreePlan("a", 4, LINKS, root="a"))
    plan = others.decide(gone)
    assert plan is not None
    assert (plan.root, plan.links) == ("m", LINKS[1:])


def test_of_two_parts_the_newer_one_keeps_its_root() -> None:
    graph = {"a": {"b": 1}, "b": {"a": 1, "c": 1}, "c": {"b": 1, "d": 1}, "d": {"c": 1}}
    for version in (3, 9):
        plans = Plans("a", has_ranks=True)
        plans.learn(TreePlan("a", 5, (("a", "b"),), root="a"))
        plans.learn(TreePlan("c", version, (("c", "d"),), root="d"))
        plan = plans.decide(graph)
        assert plan is not None
        assert (plan.root, plan.calm) == ("d" if version > 5 else "a", True)


@pytest.mark.parametrize(
    ("links", "root", "is_one"),
    [
        ((("a", "b"), ("b", "c")), "b", True),
        ((("a", "b"), ("b", "c")), "", False),
        ((("a", "b"), ("b", "c")), "z", False),
        ((("a", "b"), ("b", "c"), ("a", "c")), "b", False),
        ((("a", "b"), ("a", "b")), "b", False),
        ((("a", "b"), ("c", "d")), "b", False),
        ((("a", "a"),), "a", False),
        ((), "", True),
        ((), "a", False),
    ],
)
def test_with_ranks_a_plan_is_a_tree_with_a_root(
    links: tuple[Edge, ...], root: str, is_one: bool
) -> None:
    plan = TreePlan("a", 1, links, root=root)
    assert Plans("b", has_ranks=True).learn(plan) == is_one
    assert Plans("b").learn(plan) == (not root)


def test_of_two_plans_of_a_version_the_lesser_name_counts() -> None:
    for order in (("a", "c"), ("c", "a")):
        plans = Plans("b")
        for origin in order:
            plans.learn(TreePlan(origin, 3, ((origin, "b") if origin < "b" else ("b", origin),)))
        assert plans.tree == {("a", "b")}


def test_plans_that_are_old_or_cannot_be_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = Plans("b")
    links = (("a", "b"),)
    assert plans.learn(TreePlan("a", 3, links))
    assert not plans.learn(TreePlan("a", 3, ()))
    assert not plans.learn(TreePlan("a", 2, ()))
    assert not plans.learn(TreePlan("a", MAX_VERSION, ()))
    assert plans.learn(TreePlan("a", MAX_VERSION - 1, links))
    monkeypatch.setattr(plans_module, "MAX_ORIGINS", 2)
    longer = (("a", "b"), ("b", "c"), ("c", "d"))
    assert not Plans("b").learn(TreePlan("a", 1, longer))
    assert Plans("b").learn(TreePlan("a", 1, longer[:2]))


@pytest.mark.parametrize(("most", "kept"), [(5, ["b", "c"]), (4, ["c"])])
def test_plans_that_were_made_up_take_only_so_much_room(
    most: int, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two links and an origin, one link and an origin: those of the lesser version go."""
    monkeypatch.setattr(plans_module, "MAX_PLANNED", most)
    plans = Plans("a")
    plans.learn(TreePlan("b", 1, (("a", "b"),)))
    plans.learn(TreePlan("c", 2, (("c", "d"), ("d", "e"))))
    assert [plan.origin for plan in plans.all()] == kept


@pytest.mark.parametrize("seed", SEEDS[:100:8])
@pytest.mark.parametrize("name", ["a0", "zz"])
def test_a_broker_that_joins_and_leaves_costs_nobody_an_event(seed: int, name: str) -> None:
    """Under load, wherever it joins: the tree of the others stays as it is."""
    random = Randomness(seed)
    network = Network.of(connected_random(30, 20, random), General, seed=seed)
    clients = [network.client(f"at-{broker}", broker) for broker in list(network.routers)]
    for client in clients:
        client.subscribe("a = 1")
    network.run()
    tree = tree_at(network, "b1")
    near = random.sample(sorted(network.routers), random.between(1, 3))
    network.add_broker(name, General)
    for each in near:
        network.after(random.between(0, 30), partial(network.connect, name, each))
    published = publish_while_it_changes(network, clients)
    joined = tree_at(network, "b1")
    assert tree < joined, f"seed {seed}"
    assert len(joined - tree) == 1
    for each in near:
        network.after(100.0 + random.between(0, 30), partial(network.cut, name, each))
    published += publish_while_it_changes(network, clients)
    assert tree_at(network, "b1") == tree
    heard = sum(len(client.received) for client in clients)
    assert heard == published * (len(clients) - 1), f"seed {seed}"


def test_links_that_weigh_less_are_taken_and_a_new_one_only_if_it_is_much_lighter() -> None:
    network = Network(seed=1)
    for broker in ("b1", "b2", "b3"):
        network.add_broker(broker, General)
        network.client(f"at-{broker}", broker)
    network.connect("b1", "b2", Link(latency_ms=500))
    network.run()
    network.connect("b1", "b3", Link(latency_ms=2))
    network.run()
    network.connect("b3", "b2", Link(latency_ms=2))
    network.run()
    tree = tree_at(network, "b1")
    assert tree == {("b1", "b3"), ("b2", "b3")}
    survivors_are_served(network)


@pytest.mark.parametrize("price", [1, 2])
def test_prices_count_for_more_than_round_trips(price: float) -> None:
    topology = Topology(("b1", "b2", "b3"), (("b1", "b2"), ("b1", "b3"), ("b2", "b3")))
    network = Network(seed=1)
    for broker in topology.brokers:
        network.add_broker(broker, General)
    network.connect("b1", "b2", Link(price=100))
    network.connect("b1", "b3", Link(price=price, latency_ms=90))
    network.connect("b3", "b2", Link(price=price, latency_ms=90))
    network.run()
    assert tree_at(network, "b2") == {("b1", "b3"), ("b2", "b3")}


@pytest.mark.parametrize("seed", range(10))
def test_plans_come_to_an_end_and_all_go_by_one(seed: int) -> None:
    """Brokers and links come and go at once; then it is quiet, and there is one tree."""
    random = Randomness(seed)
    topology = connected_random(random.between(3, 10), random.below(10), random)
    network = Network.of(topology, General, seed=seed)
    crashed: list[str] = []
    for step in range(12):
        moment = network.now_ms + 7.0 * step
        edge = random.choice(topology.edges)
        broker = random.choice(topology.brokers)
        if random.chance(0.5):
            network.at(moment, partial(network.cut, *edge))
            network.at(moment + random.below(80), partial(network.heal, *edge))
        elif broker not in crashed:
            crashed.append(broker)
            network.at(moment, partial(network.crash, broker))
            network.at(moment + 90 + step, partial(network.restart, broker))
    network.run(20_000)
    before = network.costs.topology
    network.run(40_000)
    assert network.costs.topology == before, f"seed {seed}: it does not end"
    trees = {tree_at(network, broker) for broker in network.routers}
    assert len(trees) == 1
    assert Topology(topology.brokers, tuple(sorted(trees.pop()))).is_tree
