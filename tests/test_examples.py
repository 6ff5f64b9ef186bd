"""The examples that need no Spark run, and do what they say."""

from __future__ import annotations

import math

import palio.testing
from examples import nearby


def test_who_walks_sees_the_cabs_that_are_near() -> None:
    seen = palio.testing.run(nearby.walk())
    for place, names in seen.items():
        near = [each for each, (x, y) in nearby.CABS.items() if math.hypot(x - place, y) < 3]
        assert names == near
    assert len({tuple(names) for names in seen.values()}) > 3
