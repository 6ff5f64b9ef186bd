"""gryphon's workload: attributes of falling popularity, Zipf values, random events (gryphon 5).

A subscription tests attribute i with probability `first * decay**i`, so the first attributes are
the popular ones. The paper chose its values so that *the matches of an event do not depend on the
number of subscriptions*; `held_decay` finds the decay that does this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.model import Conjunction, Constraint, Filter

FIRST: Final = 0.98
"""How likely the most popular attribute is tested: nearly always, so that it can be factored."""

LOOSEST: Final = 0.5
"""A range holds for half of the values at the most, and for a quarter on average."""

Floats: TypeAlias = npt.NDArray[np.float64]


class MatchingWorkload(msgspec.Struct, frozen=True):
    """What is drawn: the schema, and how subscriptions test it. Events are uniform.

    `ranges` makes 40% of the tests `<=` and 40% `>=`.
    """

    attributes: int
    values: int
    decay: float
    ranges: bool = False

    @property
    def names(self) -> list[str]:
        """The attributes, the most popular first."""
        return [f"a{number:02}" for number in range(self.attributes)]

    @property
    def popularity(self) -> Floats:
        """How likely each attribute is tested."""
        falling: Floats = np.power(self.decay, np.arange(self.attributes, dtype=np.float64))
        return FIRST * falling

    @property
    def satisfied(self) -> float:
        """How likely a random event satisfies a random test."""
        if self.ranges:
            reaches = np.arange(1, _reach(self.values) + 1)
            return float(0.8 * reaches.mean() / self.values + 0.2 / self.values)
        return 1 / self.values

    @property
    def matched(self) -> float:
        """How likely a random event matches a random subscription; each has one test or more."""
        asked = self.popularity
        nothing = prod(1 - asked)
        agreed = prod(1 - asked * (1 - self.satisfied))
        return float((agreed - nothing) / (1 - nothing))

    def filters(self, count: int, rng: np.random.Generator) -> Iterator[Filter]:
        """Subscriptions: as many as asked for."""
        names = self.names
        for _ in range(count):
            tested = rng.random(self.attributes) < self.popularity
            while not tested.any():
                tested = rng.random(self.attributes) < self.popularity
            chosen = [names[at] for at in np.flatnonzero(tested).tolist()]
            yield Filter.of([Conjunction.of(self._tests(chosen, rng))])

    def events(self, count: int, rng: np.random.Generator) -> pa.RecordBatch:
        """Events with a value of every attribute."""
        drawn = rng.integers(self.values, size=(count, self.attributes))
        return pa.record_batch({name: drawn[:, at] for at, name in enumerate(self.names)})

    def _tests(self, names: Sequence[str], rng: np.random.Generator) -> Iterator[Constraint]:
        if not self.ranges:
            constants = rng.choice(self.values, size=len(names), p=zipf(self.values))
            for name, value in zip(names, constants.tolist(), strict=True):
                yield Constraint.of(name, "=", value)
            return
        for name, kind in zip(names, rng.random(len(names)).tolist(), strict=True):
            reach = int(rng.integers(1, _reach(self.values) + 1))
            if kind < 0.4:
                yield Constraint.of(name, "<=", reach - 1)
            elif kind < 0.8:
                yield Constraint.of(name, ">=", self.values - reach)
            else:
                yield Constraint.of(name, "=", int(rng.integers(self.values)))


def _reach(values: int) -> int:
    """How many values the loosest range holds for."""
    return max(1, int(values * LOOSEST))


@cache
def zipf(values: int) -> Floats:
    """Return the probabilities of values 0, 1, ...: each in inverse proportion to its rank.

    >>> zipf(3).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights: Floats = 1 / np.arange(1, values + 1, dtype=np.float64)
    weights /= weights.sum()
    return weights


def held_decay(workload: MatchingWorkload, matches: float, subscriptions: int) -> float:
    """The decay at which an event matches this many of so many subscriptions, on average.

    >>> drawn = MatchingWorkload(30, 10, 0.0)
    >>> few, many = (held_decay(drawn, 5.0, size) for size in (500, 50_000))
    >>> print(f"{few:.2f} {many:.2f}")
    0.68 0.86
    """
    wanted = matches / subscriptions

    def matched(decay: float) -> float:
        return msgspec.structs.replace(workload, decay=decay).matched

    low, high = 0.0, 1.0
    if not matched(high) < wanted < matched(low):
        raise InvalidInput(
            f"no decay makes {matches:g} of {subscriptions:,} subscriptions match: "
            f"between {matched(high) * subscriptions:.2g} and {matched(low) * subscriptions:.2g} do"
        )
    for _ in range(60):
        middle = (low + high) / 2
        if matched(middle) > wanted:
            low = middle
        else:
            high = middle
    return high
