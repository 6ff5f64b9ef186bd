"""Prices: the optimum against trying every set of links, and what plans are told."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import FRINGE, Extent, Wan, wide_area
from palio_studies.multicast_prices import PRICES, Optimum, priced_limits, shares_of
from tests.studies.test_multicast_network import small_wan


def tiny_wan(seed: int) -> Wan:
    """So few links that all sets of them can be tried."""
    return wide_area(Extent(transits=2, stubs=1, stub_size=4, publishers=1), Randomness(seed))


def reached(wan: Wan, links: tuple[int, ...], start: str) -> set[str]:
    """Where one comes from a node by some links."""
    found = {start}
    while True:
        more = {
            end
            for link in links
            for end in wan.links[link]
            if not found.isdisjoint(wan.links[link])
        } - found
        if not more:
            return found
        found |= more


def tried(wan: Wan, wanted: list[int], prices: tuple[float, float, float]) -> float:
    """The least price of any links that join the publisher with all who want an event."""
    inner = [place for place, kind in enumerate(wan.classes) if kind != FRINGE]
    ends = [wan.brokers[place] for place in (*wanted, len(wan.subscribers))]
    hosts = {next(iter(wan.graph[end])) for end in ends}
    best = float("inf")
    for count in range(len(inner) + 1):
        for chosen in combinations(inner, count):
            price = sum(prices[wan.classes[link]] for link in chosen)
            if price < best and hosts <= reached(wan, chosen, min(hosts)):
                best = price
    return best + prices[FRINGE] * len(ends)


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_optimum_is_the_best_of_all_sets_of_links(seed: int) -> None:
    wan = tiny_wan(seed)
    wanted = np.random.default_rng(seed).random((12, 8)) < 0.35
    wanted[0] = False
    links = Optimum(wan).links(wanted, np.zeros(12, np.int64))
    assert links[0].tolist() == [0, 0, 0]
    for prices in ((1.0, 1.0, 1.0), (7.0, 2.0, 3.0)):
        for row, places in zip(links[1:], wanted[1:], strict=True):
            found = np.flatnonzero(places).tolist()
            if found:
                assert row @ prices == tried(wan, found, prices)


def test_a_stub_with_two_ways_out_is_refused() -> None:
    wan = tiny_wan(1)
    graph = {name: dict(near) for name, near in wan.graph.items()}
    graph["r3"]["r8"] = graph["r8"]["r3"] = 5
    with pytest.raises(InvalidInput, match="links to others, not 1"):
        Optimum(Wan(graph, 2, 8, 2, [0]))


def test_brokers_share_the_links_of_their_region_and_sends_pay_the_way_there() -> None:
    wan = small_wan()
    dear = shares_of(wan, PRICES["fringe dear"])
    assert (dear.brokers >= 10).all(), "each has a fringe link of its own"
    plain = shares_of(wan, PRICES["equal prices"])
    assert dear.send == pytest.approx(plain.send + 9), "only the publisher's fringe link is dearer"
    for publisher in range(len(wan.publishers)):
        assert wan.tree(len(wan.subscribers) + publisher).paths.any()
    in_all = np.mean(
        [
            wan.crossed(
                len(wan.subscribers) + publisher,
                np.array([[True] * len(wan.subscribers) + [False] * len(wan.publishers)]),
            ).sum()
            for publisher in range(len(wan.publishers))
        ]
    )
    assert plain.brokers.sum() < in_all < plain.brokers.sum() + 3 * plain.send


def test_limits_know_prices_only_if_they_are_told() -> None:
    wan = small_wan()
    blind, priced = (priced_limits(wan, prices, 40) for prices in (None, PRICES["backbone dear"]))
    assert blind.prices is None
    assert blind.send_price == 1
    assert priced.prices is not None
    assert len(priced.prices) == len(wan.subscribers)
    assert priced.send_price > 10, "most ways into a region cross the backbone"
    assert blind.clusters == priced.clusters
