"""Prices: the optimum against trying every set of links, and what plans are told."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import FRINGE, Extent, Wan
from palio_studies.multicast_prices import PRICES, Optimum, priced_limits
from tests.studies.test_multicast_network import small_wan


def tiny_wan(seed: int) -> Wan:
    """So few links that all sets of them can be tried."""
    return Wan(Extent(transits=2, stubs=1, stub_size=4, publishers=1), Randomness(seed))


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


def test_brokers_share_the_links_of_their_region_and_sends_pay_the_way_there() -> None:
    wan = small_wan()
    dear, plain = (priced_limits(wan, PRICES[name], 40) for name in ("fringe dear", "equal prices"))
    assert dear.prices is not None
    assert plain.prices is not None
    assert min(dear.prices) >= 10, "each has a fringe link of its own"
    extra = dear.send_price - plain.send_price
    assert extra == pytest.approx(9), "only the publisher's fringe link is dearer"
    everyone = np.arange(len(wan.brokers))[None, :] < len(wan.subscribers)
    roots = range(len(wan.subscribers), len(wan.brokers))
    in_all = np.mean([wan.crossed(root, everyone).sum() for root in roots])
    assert sum(plain.prices) < in_all < sum(plain.prices) + 3 * plain.send_price


def test_limits_know_prices_only_if_they_are_told() -> None:
    wan = small_wan()
    blind, priced = (priced_limits(wan, prices, 40) for prices in (None, PRICES["backbone dear"]))
    assert blind.prices is None
    assert blind.send_price == 1
    assert priced.prices is not None
    assert len(priced.prices) == len(wan.subscribers)
    assert priced.send_price > 10, "most ways into a region cross the backbone"
    assert blind.clusters == priced.clusters
