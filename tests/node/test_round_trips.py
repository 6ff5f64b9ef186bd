"""Link costs by round trips."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from palio.node.peers import LINK_COST_PACE_S
from palio.node.round_trips import FIRST_SAMPLES, SAMPLES, UNIT_S, RoundTrips
from palio.protocol.messages import Message, Route
from palio.routing.general import General
from palio.routing.messages import LinkState, LinkTable
from palio.routing.trees import MAX_USABLE_COST, UNMEASURED
from palio.simulation.topologies import ring
from palio.simulation.world import World
from palio.testing import Network, run
from tests.campaign.plays import SETTINGS


def fed(*seconds: float) -> RoundTrips:
    trips, now = RoundTrips(), 0.0
    for each in seconds:
        assert trips.start(1, now, every_s=1.0)
        assert trips.finish(1, now + each)
        now += 10.0
    return trips


def test_a_link_weighs_something_after_a_few_answers() -> None:
    assert fed().link_cost == UNMEASURED
    assert fed(*[UNIT_S] * (FIRST_SAMPLES - 1)).link_cost == UNMEASURED
    assert fed(*[UNIT_S] * FIRST_SAMPLES).link_cost == 1


@pytest.mark.parametrize(
    ("seconds", "cost"),
    [
        *((0.0, 1), (0.0099, 1), (0.0101, 2), (0.2, 20), (9.99, 999)),
        *(
            (9_999.985, MAX_USABLE_COST - 1),
            (10_000.0, MAX_USABLE_COST),
            (10_001.0, MAX_USABLE_COST),
        ),
    ],
)
def test_link_costs_are_coarse(seconds: float, cost: int) -> None:
    assert fed(*[seconds] * 3).link_cost == cost


def test_a_broker_that_is_busy_for_a_while_is_no_farther() -> None:
    assert fed(0.02, *[0.9] * (SAMPLES - 1)).link_cost == 2
    assert fed(0.02, *[0.9] * SAMPLES).link_cost == 90


def test_answers_that_nobody_asked_for_count_for_nothing() -> None:
    trips = RoundTrips()
    assert not trips.finish(1, 5.0)
    assert trips.start(1, 5.0, every_s=1.0)
    assert not trips.start(1, 9.0, every_s=1.0)  # it has not answered
    assert not trips.finish(2, 9.0)
    assert trips.start(2, 9.0, every_s=1.0)  # on a new connection
    assert not trips.finish(1, 9.5)
    assert trips.finish(2, 9.5)
    assert not trips.finish(2, 9.6)


def test_a_neighbour_that_is_silent_is_asked_sooner_and_no_answer_counts_sooner() -> None:
    trips = fed(*[0.1] * FIRST_SAMPLES)
    assert not trips.start(1, 20.5, every_s=5.0)
    for now in range(21, 21 + SAMPLES - 1):
        assert trips.start(1, now, every_s=SAMPLES, is_silent=True)
        assert not trips.start(1, now + 0.5, every_s=5.0, is_silent=True)  # it was asked
        assert not trips.finish(1, now + 0.9)
    assert trips.link_cost == 10
    assert trips.start(1, 26.0, every_s=5.0)
    assert trips.finish(1, 26.9)


def test_brokers_measure_and_the_tree_goes_round_a_slow_link() -> None:
    world = World(settings=SETTINGS)
    for name in ring(4).brokers:
        world.add_broker(name, General)
    world.delay("b1", "b2", 0.2)
    for one, other in ring(4).edges:
        world.connect(one, other)
    world.run(10.0)
    router = world.nodes["b3"]._core.router
    assert isinstance(router, General)
    assert router.tree == {("b1", "b4"), ("b2", "b3"), ("b3", "b4")}


def test_a_price_counts_instead_of_the_round_trip() -> None:
    world = World.of(ring(4), General, settings=replace(SETTINGS, link_costs={"b3": 50}))
    world.run(10.0)
    router = world.nodes["b1"]._core.router
    assert isinstance(router, General)
    assert sum("b3" in link for link in router.tree) == 1  # it has two links


def test_links_whose_length_goes_on_changing_do_not_fill_the_network() -> None:
    size, told = 12, Counter[int]()
    network = ring(size)
    world = World.of(network, General, settings=SETTINGS)
    world.run(20.0)

    def count(_: str, message: Message) -> bool:
        if isinstance(message, Route) and isinstance(message.control, LinkState | LinkTable):
            told[int(world.at.now)] += 1
        return False

    world.spoils = count
    since, lasts_s = world.at.now, 10 * size * LINK_COST_PACE_S
    for turn in range(int(lasts_s / SETTINGS.heartbeat_s)):
        for one, other in network.edges:  # what the shortest of the last few took changes twice
            world.delay(one, other, 0.3 if turn % (SAMPLES + 2) else 0.01)
        world.run(SETTINGS.heartbeat_s)
    floods = told.total() / (2 * len(network.edges))
    assert 1 < floods < 1.2 * (world.at.now - since) / LINK_COST_PACE_S


def test_a_broker_whose_name_sorts_first_joins_and_nobody_loses_an_event() -> None:
    """On whole brokers, with events under way all the time."""

    async def main() -> tuple[int, int]:
        async with Network("grid:3x3", delay_s=0.01) as net:
            ann, bob = await net.connect("b1"), await net.connect("b9")
            heard = await bob.subscribe("x >= 0")
            await heard.settled()
            net.add("a0", "b5", "b9")
            published = 0
            for _ in range(100):
                await ann.publish({"x": published})
                published += 1
            await net.up()
            for _ in range(100):
                await ann.publish({"x": published})
                published += 1
            found = [(await heard.receive(timeout=10.0))["x"] for _ in range(published)]
            return published, len(set(found))

    published, heard = run(main())
    assert published == heard
