"""The interface of every matching engine, and the shape of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from palio.engine import np, npt, pa
from palio.model.events import RowMask
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings

__all__ = ["Matcher", "Matches", "RowMask"]


class Matches(NamedTuple):
    """Pairs of an event's row and a matching filter's key, sorted by row and then by key."""

    rows: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]


class Matcher(Protocol):
    """Filters by key, and which of them a batch of events satisfies.

    A filter belongs to a *destination* (by default its own key): `route` asks only which
    destinations an event goes to, and stops looking at the first of a destination's filters that
    matches.
    """

    def add(
        self,
        key: int,
        filter: Filter,
        values: Bindings = NO_VALUES,
        *,
        destination: int | None = None,
    ) -> None:
        """Add or replace the filter of a key, with the values of its parameters."""

    def remove(self, key: int) -> None:
        """Forget a key; `KeyError` if it is not there."""

    def bind(self, key: int, values: Bindings) -> None:
        """Change some parameters of a filter; the next `match` sees them."""

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs of a row and the key of a filter that it matches."""

    def match_event(self, event: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """The keys of the filters that one event matches, ascending."""

    def route_event(self, event: Mapping[str, Any]) -> list[int]:
        """The destinations that one event goes to, ascending."""

    def route(self, events: pa.RecordBatch) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""

    def count(self, events: pa.RecordBatch) -> dict[int, int]:
        """Count the rows that each key matches; keys without any are left out."""

    def __len__(self) -> int:
        """The number of filters."""
