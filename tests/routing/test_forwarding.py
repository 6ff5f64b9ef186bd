"""The table: after any sequence of changes each neighbour was told the frontier, and no more."""

from __future__ import annotations

import pytest

from palio.model.filters import Filter
from palio.model.relations import covers
from palio.routing.forwarding import Forwarding
from palio.routing.normalized import Stated
from palio.routing.protocol import Peer
from palio.simulation import Randomness
from tests.conftest import seeds
from tests.routing.helpers import ALICE, BOB, ONE, TWO, parse
from tests.routing.scenarios import random_filter


def expected(wanted: dict[Peer, list[Filter]], neighbour: Peer) -> list[Filter]:
    """siena's formula, literally: what others want and nothing else that others want covers."""
    eligible = {f for peer, filters in wanted.items() if peer != neighbour for f in filters}
    return [f for f in eligible if not any(g != f and covers(g, f) for g in eligible)]


def same_up_to_equivalence(told: list[Filter], frontier: list[Filter], all_: list[Filter]) -> bool:
    """Each told filter is in the frontier or equal in meaning to another that was there first."""
    lasting = [f for f in all_ if all(covers(f, g) for g in all_ if g != f and covers(g, f))]
    return set(frontier) <= set(told) and set(told) <= {*frontier, *lasting}


@pytest.mark.parametrize("seed", seeds(5, nightly=300))
def test_each_neighbour_is_told_exactly_the_frontier(seed: int) -> None:
    random = Randomness(seed)
    table = Forwarding()
    peers = [ALICE, BOB, ONE, TWO, Peer.broker("s3")]
    wanted: dict[Peer, list[Filter]] = {peer: [] for peer in peers}
    told: dict[Peer, set[Filter]] = {}
    pool = [random_filter(random) for _ in range(12)]
    for _ in range(80):
        for _ in range(random.between(1, 4)):
            peer = random.choice(peers)
            if not peer.is_client and random.chance(0.1):
                if peer in told:
                    table.disconnect(peer)
                    for each in wanted[peer]:
                        table.remove(peer, each)
                    wanted[peer] = []
                    del told[peer]
                else:
                    table.connect(peer)
                    told[peer] = set()
            elif wanted[peer] and random.chance(0.5):
                filter = wanted[peer].pop(random.below(len(wanted[peer])))
                table.remove(peer, filter)
            elif peer.is_client or peer in told:
                wanted[peer].append(random.choice(pool))
                table.add(peer, wanted[peer][-1])
        for peer, (added, dropped) in table.changes().items():
            assert not told[peer] & set(added)
            assert set(dropped) <= told[peer]
            told[peer] = (told[peer] | set(added)) - set(dropped)
        table.check()
        for peer, known in told.items():
            assert set(table.sent(peer)) == known
            eligible = [f for p, fs in wanted.items() if p != peer for f in fs]
            assert same_up_to_equivalence(list(known), expected(wanted, peer), eligible)


class OnlyOne:
    """Everything may go to `ONE`, and what it is asked about it remembers."""

    def __init__(self) -> None:
        self.known: set[Filter] = set()

    def towards(self, filter: Stated) -> list[Peer]:
        self.known.add(filter)
        return [ONE, BOB]

    def forget(self, filter: Stated) -> None:
        self.known.discard(filter)


def test_filters_go_where_they_may_and_are_forgotten_with_the_last_who_asks() -> None:
    aim = OnlyOne()
    table = Forwarding(aim=aim)
    table.connect(ONE)
    table.connect(TWO)
    wide = parse("a > 1")
    table.add(ALICE, wide)
    table.add(BOB, wide)
    assert list(table.changes()) == [ONE]
    table.remove(BOB, wide)
    table.changes()
    assert aim.known == {wide}
    table.remove(ALICE, wide)
    assert table.changes()[ONE].dropped == [wide]
    assert aim.known == set()


def test_a_filter_counts_who_asks_for_it_and_how_often() -> None:
    table, shared, other = Forwarding(), parse("a > 1"), parse("a > 2")
    for each in (shared, other):
        table.add(ALICE, each)
    assert table.nodes[shared].subscribers is table.nodes[other].subscribers  # nothing twice
    for peer in (ALICE, ONE, ONE):
        table.add(peer, shared)
    assert table.nodes[shared].subscribers == {ALICE: 2, ONE: 2}
    assert table.nodes[other].subscribers == {ALICE: 1}
    for peer in (ALICE, ONE, ALICE):
        table.remove(peer, shared)
    assert table.nodes[shared].subscribers == {ONE: 1}
    table.remove(ONE, shared)
    assert not table.nodes[shared].subscribers
    table.changes()
    assert list(table.nodes) == [other]
