"""Networks of awkward shape take back a broker that starts again, at a cost that is bounded.

Of n brokers all hear of the one that is back, and it of all of them: n messages for a leaf. Where
the middle of a star is back each of its n neighbours has something to say to all others.
"""

from __future__ import annotations

import pytest

from benchmarks.restarts import ROUTINGS, Restarts, victims_of
from palio.simulation.topologies import line, star
from tests.conftest import NIGHTLY, share

SIZES, STAR_ROUTINGS = ((60, 500), ROUTINGS) if NIGHTLY else ((60,), ("general", "source-trees"))
STARS = [(size, routing) for size in SIZES for routing in STAR_ROUTINGS]


@pytest.mark.parametrize("routing", share(ROUTINGS, 2))
def test_a_chain_of_24_takes_back_each_of_its_brokers(routing: str) -> None:
    chain = line(24)
    network = Restarts(chain, routing)
    for name in chain.brokers if NIGHTLY else victims_of(chain):
        cost = network.restart(name)
        network.check()
        assert cost.messages < 60 * 24, name
        assert cost.names < 150 * 24, name
        assert cost.cpu_s < 3.0, name


@pytest.mark.parametrize(("size", "routing"), share(STARS, 1))
def test_a_star_takes_back_its_middle_and_each_leaf(size: int, routing: str) -> None:
    network = Restarts(star(size), routing)
    for name in victims_of(star(size)):
        cost = network.restart(name)
        network.check()
        assert cost.messages < (12 * size if name == "b1" else 60) * size, name
        assert cost.names < 30 * size * size, name
        assert cost.cpu_s < 10.0 * (size / 60) ** 2, name
