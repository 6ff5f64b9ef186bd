"""What clients of the multicast study want, and what is published."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.multicast.broker_sets import Masks

__all__ = [
    "ATTRIBUTES",
    "FIRST",
    "VALUES",
    "DrawnEvents",
    "Interests",
    "changed_interests",
    "decay_for",
    "drawn_events",
    "drawn_interests",
]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ATTRIBUTES: Final = 15
VALUES: Final = 10
FIRST: Final = 0.98
"""How probable it is that a subscription names a value of the first attribute."""

NAMES: Final = tuple(f"a{place:02}" for place in range(ATTRIBUTES))
REGION: Final = "region"
"""An attribute besides, whose values are regions."""

ZIPF: Final[Floats] = 1 / np.arange(1, VALUES + 1) / np.sum(1 / np.arange(1, VALUES + 1))


class DrawnEvents(NamedTuple):
    """Events: values of the attributes, of the region, and at which of the publishers."""

    values: Longs
    regions: Longs
    publishers: Longs

    def batch(self) -> pa.RecordBatch:
        """As brokers match them."""
        columns = {name: self.values[:, place] for place, name in enumerate(NAMES)}
        return pa.record_batch({**columns, REGION: self.regions})


class Interests(NamedTuple):
    """Subscriptions: which attributes they name, their values, a region or -1, and where."""

    named: npt.NDArray[np.bool_]
    values: Longs
    regions: Longs
    brokers: Longs

    def indexed(self) -> Index:
        """The matching engine of a broker that knows them all."""
        index = Index()
        tests = [f"{name} = :{name}" for name in (*NAMES, REGION)]
        columns = {
            name: pa.array(self.values[:, place], mask=~self.named[:, place])
            for place, name in enumerate(NAMES)
        }
        columns[REGION] = pa.array(self.regions, mask=self.regions < 0)
        index.add_many(
            np.arange(len(self.brokers)),
            parse_filter(" AND ".join(tests)),
            columns,
            destinations=self.brokers,
        )
        return index

    def destinations(self, index: Index, events: DrawnEvents, brokers: int) -> Masks:
        """Which of so many brokers want each event."""
        masks = np.zeros((len(events.regions), brokers), np.bool_)
        for place, rows in index.route(events.batch()).items():
            masks[:, place] = rows
        return masks


def decay_for(match: float, regionalism: float = 0.0, regions: int = 1) -> float:
    """How fast attributes lose popularity if so many of the pairs of an event and a subscription
    are to match: attribute `i` is named with probability `FIRST * decay**i`.

    >>> decay = decay_for(0.01)
    >>> float(np.prod(1 - FIRST * decay ** np.arange(ATTRIBUTES) * (1 - ZIPF @ ZIPF))).__round__(6)
    0.01
    """
    wanted = match / (1 - regionalism + regionalism / regions)
    low, high = 0.0, 1.0
    if not _matching(high) <= wanted <= _matching(low):
        raise InvalidInput(f"no decay makes {match:.2g} of the pairs match")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _matching(middle) < wanted else (middle, high)
    return low


def _matching(decay: float) -> float:
    """The share of pairs that match, whatever the region; an event and a subscription have the same
    value of an attribute with the probability `ZIPF @ ZIPF`.
    """
    named = FIRST * decay ** np.arange(ATTRIBUTES)
    return float(np.prod(1 - named * (1 - ZIPF @ ZIPF)))


def drawn_interests(
    random: np.random.Generator, brokers: Longs, decay: float, regionalism: float, regions: Longs
) -> Interests:
    """A subscription for each of `brokers`, which are places; with the probability `regionalism` it
    is for the events of its broker's region only, which `regions` says.
    """
    shape = len(brokers), ATTRIBUTES
    named = random.random(shape) < FIRST * decay ** np.arange(ATTRIBUTES)
    values = random.choice(VALUES, shape, p=ZIPF)
    own = np.where(random.random(len(brokers)) < regionalism, regions[brokers], -1)
    return Interests(named, values, own, brokers)


def changed_interests(
    before: Interests, fresh: Interests, ended: npt.NDArray[np.bool_]
) -> Interests:
    """Of two subscriptions at each place the second where the first has ended."""
    return Interests(
        np.where(ended[:, None], fresh.named, before.named),
        np.where(ended[:, None], fresh.values, before.values),
        np.where(ended, fresh.regions, before.regions),
        before.brokers,
    )


def drawn_events(
    random: np.random.Generator, count: int, publishers: int, regions: int, homes: Longs | None
) -> DrawnEvents:
    """Events of random regions, or of the region of their publisher, if `homes` says which."""
    at = random.integers(0, publishers, count)
    where = random.integers(0, regions, count) if homes is None else homes[at]
    return DrawnEvents(random.choice(VALUES, (count, ATTRIBUTES), p=ZIPF), where, at)
