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
from palio.simulation import Randomness, Topology, connected_random
from palio_studies.simulator import Link, Network
from palio_studies.simulator.clients import Client
from tests.conftest import seeds

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


@pytest.mark.parametrize(
    ("newer", "is_superseded"),
    [
        (TreePlan("c", 6, ()), True),
        (TreePlan("c", 6, (("b", "c"),)), False),
        (TreePlan("c", 5, ()), False),
        (TreePlan("c", 4, ()), False),
    ],
)
def test_who_decided_by_itself_later_is_past_a_plan(newer: TreePlan, is_superseded: bool) -> None:
    """Unless it holds the link in question all the same."""
    plans, plan = Plans("b"), TreePlan("a", 5, (("a", "b"), ("b", "c")))
    plans.learn(plan)
    assert not plans.is_superseded_at(plan, ("b", "c"), "c")
    plans.learn(newer)
    assert plans.is_superseded_at(plan, ("b", "c"), "c") is is_superseded


def test_all_go_by_one_plan_only_if_there_is_one() -> None:
    plans = Plans("c")
    assert plans.is_whole({"c": {}})
    assert not plans.is_whole(LINE)
    plans.learn(TreePlan("a", 1, (("a", "b"),)))
    assert not plans.is_whole(LINE)
    plans.learn(TreePlan("a", 2, (("a", "b"), ("b", "c"))))
    assert plans.is_whole(LINE)


def test_a_tree_of_which_a_link_is_gone_is_not_whole_though_a_way_leads_round_it() -> None:
    plans = Plans("c")
    plans.learn(TreePlan("a", 2, (("a", "b"), ("b", "c"))))
    assert not plans.is_whole({"a": {"b": 1, "c": 1}, "b": {"a": 1}, "c": {"a": 1}})
    assert plans.is_whole({"a": {"b": 1}, "b": {"a": 1}, "c": {}}), "nobody else is in reach"


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


@pytest.mark.parametrize("seed", seeds(2, nightly=100))
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


@pytest.mark.parametrize("seed", seeds(3, nightly=300))
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
