"""`LatestValues`: the last event for each value of some attributes, for clients that come late.

A broker with `Settings.latest_by` subscribes to these attributes itself, so that it knows the last
values of its whole network from its start on, and live events cost nothing where it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from palio.errors import NotSupported
from palio.matching.protocol import RowMask
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op
from palio.model.parcels import Parcel, event_bytes
from palio.node.limits import LATEST_BYTES
from palio.node.seeking import filter_of_query
from palio.node.sessions import Session
from palio.routing.messages import Subscribe
from palio.routing.protocol import Peer

LATEST_PEER: Final = Peer.session("last values")
"""The endpoint in the routing table that receives their events; no session has this name."""


class LatestValues:
    """The last events of one broker, the least recently replaced first."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._events: dict[tuple[str, Any], tuple[str, Mapping[str, Any]]] = {}
        self._bytes = 0
        self._dropped: Counter[str] = Counter()
        """By key, the values that had no room."""

    @property
    def request(self) -> Subscribe:
        """The subscription to all events that have a key."""
        exist = [Conjunction.of([Constraint(key, Op.EXISTS)]) for key in self._keys]
        return Subscribe(0, Filter.of(exist), {})

    def note(self, parcel: Parcel, mask: RowMask) -> None:
        """Keep the last events of a parcel."""
        for row in parcel.select(mask).rows:
            for key in self._keys:
                if row.get(key) is not None:
                    self._put((key, row[key]), parcel.publisher, row)

    def _put(self, place: tuple[str, Any], publisher: str, row: Mapping[str, Any]) -> None:
        self._drop(place)
        self._events[place] = publisher, row
        self._bytes += event_bytes(row)
        while self._bytes > LATEST_BYTES:
            oldest = next(iter(self._events))
            self._dropped[oldest[0]] += 1
            self._drop(oldest)

    def _drop(self, place: tuple[str, Any]) -> None:
        event = self._events.pop(place, None)
        if event is not None:
            self._bytes -= event_bytes(event[1])

    def query(self, session: Session, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return the last event for each value of a key if it matches a client's filter, narrowed
        to the client's grant; and how many values were dropped.
        """
        key = str(about.get("by"))
        if key not in self._keys:
            raise NotSupported(
                f"this broker keeps no last values by {key!r:.80}; name it in broker.latest_by "
                "there, or leave latest_by= out"
            )
        bound = filter_of_query(session, about)
        last = [event for (by, _), event in self._events.items() if by == key]
        wanted = [(publisher, dict(row)) for publisher, row in last if bound.matches(row, {})]
        return {"events": wanted, "dropped": self._dropped[key]}
