"""Which neighbours a filter may go to: what asking about every pair would say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.advertisements import Advertisement, UnreadAdvertisement
from palio.model.filters import Filter
from palio.model.relations import overlaps
from palio.routing.overlap_index import OverlapIndex
from palio.routing.protocol import Peer
from tests.conftest import seeds
from tests.routing.helpers import ONE, TWO, parse
from tests.strategies import combined, some_test

THREE = Peer.broker("s3")


def drawn(rng: random.Random, read: Callable[[str], Any]) -> Any:
    """A filter or an advertisement with all that the language has."""
    while True:
        try:
            return read(combined(rng, [some_test(rng) for _ in range(rng.randint(1, 4))]))
        except InvalidInput:  # too large, or constants that cannot be compared
            continue


class Scan:
    """The same by asking about every pair."""

    def __init__(self) -> None:
        self.filters: dict[Filter, None] = {}
        self.heard: dict[Peer, dict[Advertisement, None]] = {ONE: {}, TWO: {}, THREE: {}}

    def towards(self, filter: Filter) -> set[Peer]:
        return {
            peer for peer, heard in self.heard.items() if any(overlaps(a, filter) for a in heard)
        }

    def set_offers(self, peer: Peer, advertisements: dict[Advertisement, None]) -> list[Filter]:
        before = {each: peer in self.towards(each) for each in self.filters}
        self.heard[peer] = advertisements
        return [each for each in self.filters if before[each] != (peer in self.towards(each))]


@pytest.mark.parametrize("seed", seeds(2, nightly=200))
def test_it_says_what_asking_about_every_pair_says(seed: int) -> None:
    rng, index, scan = random.Random(seed), OverlapIndex(), Scan()
    for _ in range(100):
        chance, peer = rng.random(), rng.choice(list(scan.heard))
        if chance < 0.4:
            scan.filters[drawn(rng, parse_filter)] = None
        elif chance < 0.6 and scan.filters:
            gone = rng.choice(list(scan.filters))
            del scan.filters[gone]
            index.forget(gone)
        elif chance < 0.95:
            kept = {each: None for each in scan.heard[peer] if rng.random() < 0.75}
            kept |= {drawn(rng, parse_advertisement): None for _ in range(rng.randint(0, 2))}
            if rng.random() < 0.1:
                kept[UnreadAdvertisement("x RESEMBLES 1")] = None
            assert set(scan.set_offers(peer, kept)) <= set(index.set_offers(peer, list(kept)))
        else:
            scan.heard[peer] = {}
            index.drop(peer)
        for each in scan.filters:
            assert set(index.towards(each)) == scan.towards(each), str(each)


def test_only_the_first_and_the_last_overlap_are_told() -> None:
    index = OverlapIndex()
    cheap, dear = parse("price < 5"), parse("price > 50")
    assert index.towards(cheap) == index.towards(dear) == []
    wide, low = parse_advertisement("price > 0"), parse_advertisement("price < 10")
    assert index.set_offers(ONE, [low]) == [cheap]
    assert index.set_offers(ONE, [low, wide]) == [dear]
    assert index.set_offers(TWO, [low]) == [cheap]
    assert index.set_offers(ONE, [wide]) == []
    assert index.towards(cheap) == [ONE, TWO]
    assert index.set_offers(ONE, []) == [cheap, dear]
    index.drop(TWO)
    assert index.towards(cheap) == []


def test_a_filter_that_comes_again_is_asked_about_again() -> None:
    index = OverlapIndex()
    many = [parse(f"price = {n}") for n in range(40)]
    index.set_offers(ONE, [parse_advertisement("price < 20")])
    assert [len(index.towards(each)) for each in many] == [1] * 20 + [0] * 20
    for each in many:
        index.forget(each)
    assert [len(index.towards(each)) for each in reversed(many)] == [0] * 20 + [1] * 20


def test_what_matches_nothing_goes_nowhere() -> None:
    index = OverlapIndex()
    index.set_offers(ONE, [parse_advertisement("price > 0")])
    never = parse("price = 1 AND price = 2")
    assert index.towards(never) == []
    index.forget(never)
    index.forget(parse("price = 1"))  # nobody asked about it


def test_what_is_offered_and_cannot_be_read_may_be_anything() -> None:
    index, unread = OverlapIndex(), UnreadAdvertisement("price RESEMBLES 5")
    cheap, dear = parse("price < 5"), parse("price > 50")
    assert index.towards(cheap) == []
    assert index.set_offers(ONE, [unread]) == [cheap]
    assert index.towards(dear) == [ONE]
    assert index.set_offers(ONE, [unread, parse_advertisement("price > 0")]) == []
    assert index.set_offers(ONE, [parse_advertisement("price > 10")]) == [cheap]
    assert index.set_offers(ONE, [unread]) == [cheap]
    index.drop(ONE)
    assert index.towards(cheap) == index.towards(dear) == []
