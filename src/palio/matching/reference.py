"""`Reference`: the oracle of all engines, obvious and slow.

It evaluates every filter on every event by the definition of each operator, in three-valued logic,
and shares nothing with the engines it checks: no domains, no ranks, no index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from palio.engine import np, npt, pa
from palio.errors import InvalidBinding
from palio.matching.protocol import Matches, RowMask
from palio.model.events import conform, rows, to_batch
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings


class Reference:
    """Filters by key, matched one event and one filter at a time.

    >>> import palio
    >>> from palio.model import to_batch
    >>> engine = Reference()
    >>> engine.add(7, palio.parse("price < :limit"), {"limit": 10})
    >>> engine.match(to_batch({"price": 9.5})).keys.tolist()
    [7]
    """

    def __init__(self) -> None:
        self._filters: dict[int, Filter] = {}
        self._values: dict[int, Bindings] = {}
        self._destinations: dict[int, int] = {}

    def add(
        self,
        key: int,
        filter: Filter,
        values: Bindings = NO_VALUES,
        *,
        destination: int | None = None,
    ) -> None:
        """Add or replace the filter of a key."""
        filter.bind(values)  # refuses a missing or unusable value before anything changes
        self._filters[key] = filter
        self._values[key] = dict(values)
        self._destinations[key] = key if destination is None else destination

    def remove(self, key: int) -> None:
        """Forget a key; one that is not there is a `KeyError`."""
        del self._filters[key]
        del self._values[key]
        del self._destinations[key]

    def bind(self, key: int, values: Bindings) -> None:
        """Change some of a filter's parameters; the others keep their values."""
        changed = {**self._values[key], **values}
        for name in values:
            if name not in self._filters[key].variables:
                raise InvalidBinding(f"filter {key} has no parameter :{name}", name=name)
        self._filters[key].bind(changed)
        self._values[key] = changed

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs (row, key) of an event and a filter it matches, sorted."""
        pairs = list(self._pairs(events))
        return Matches(
            np.array([row for row, _ in pairs], np.int64),
            np.array([key for _, key in pairs], np.int64),
        )

    def match_event(self, event: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """The keys of the filters that one event matches, ascending."""
        return self.match(to_batch(event)).keys

    def route_event(self, event: Mapping[str, Any]) -> list[int]:
        """The destinations that one event goes to, ascending."""
        return list(self.route(to_batch(event)))

    def route(self, events: pa.RecordBatch) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""
        masks: dict[int, RowMask] = {}
        for row, key in self._pairs(events):
            destination = self._destinations[key]
            mask = masks.setdefault(destination, np.zeros(events.num_rows, np.bool_))
            mask[row] = True
        return dict(sorted(masks.items()))

    def count(self, events: pa.RecordBatch) -> dict[int, int]:
        """Count the events of a batch that each key matches (keys without any are left out)."""
        counts: dict[int, int] = {}
        for _, key in self._pairs(events):
            counts[key] = counts.get(key, 0) + 1
        return counts

    def _pairs(self, events: pa.RecordBatch) -> Iterator[tuple[int, int]]:
        ordered = sorted(self._filters)
        for row, event in enumerate(rows(conform(events))):
            for key in ordered:
                if self._filters[key].matches(event, self._values[key]):
                    yield row, key

    def __len__(self) -> int:
        return len(self._filters)
