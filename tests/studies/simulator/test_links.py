from __future__ import annotations

import pytest

from palio.simulation.randomness import Randomness
from palio_studies.simulator.links import Direction, Link


def arrivals(link: Link, count: int = 2000, gap_us: int = 100) -> list[int]:
    direction = Direction(link, Randomness(3))
    return [direction.arrival_us(number * gap_us) for number in range(count)]


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_link_keeps_order_and_everything(loss: float) -> None:
    times = arrivals(Link(latency_ms=5, jitter_ms=20, loss=loss))
    assert times == sorted(times)
    assert min(times) >= 5000


def test_loss_is_delay() -> None:
    slow, fast = arrivals(Link(loss=0.3), gap_us=10**6), arrivals(Link(), gap_us=10**6)
    late = sum(one != other for one, other in zip(slow, fast, strict=True))
    assert 500 < late < 700


@pytest.mark.parametrize(
    ("price", "weight"), [(None, 80), (0.2, 1), (1.0, 1), (1, 1), (2.6, 3), (90.0, 90)]
)
def test_a_link_weighs_its_price_also_if_that_is_1_and_else_its_round_trip(
    price: float | None, weight: int
) -> None:
    assert Link(latency_ms=40, price=price).weight == weight
