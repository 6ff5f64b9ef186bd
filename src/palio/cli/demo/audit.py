"""The recount: what every subscriber should have heard, worked out apart from the bus.

It sees what is published and how parameters change, tests every event with `Filter.matches`, and
holds what the subscribers report against it, in order: nothing wanted is missing, nothing unwanted
comes, and a gap names exactly what was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from palio.client.events import Event, Gap
from palio.model.filters import Filter
from palio.model.patterns import Pattern

__all__ = ["Audit", "Promise"]

_KEPT_COMPLAINTS: Final = 20


class Copy(msgspec.Struct, frozen=True):
    """A published event, as the audit keeps it."""

    publisher: str
    seq: int
    time: datetime
    attributes: dict[str, Any]


class Promise:
    """What one subscription is owed: the sequences that matched and were not yet accounted for.

    A filter is a sequence of one.
    """

    def __init__(self, what: Filter | Pattern, values: Mapping[str, Any]) -> None:
        self._steps: tuple[Filter, ...] = what.steps if isinstance(what, Pattern) else (what,)
        within = what.within if isinstance(what, Pattern) else None
        self._within = timedelta.max if within is None else within
        self.values = dict(values)
        self._owed: deque[list[Copy]] = deque()
        self._begun: list[Copy] = []
        self.matched = 0
        """Sequences that matched when they were published."""
        self.heard = 0
        self.left_out = 0
        """Those that no longer matched when their turn came."""
        self.lost = 0
        self.gaps = 0

    def take_in(self, copy: Copy) -> None:
        """Work out whether an event completes anything."""
        if self._begun and copy.time - self._begun[0].time > self._within:
            self._begun = []
        if self._fits(len(self._begun), copy):
            self._begun.append(copy)
        if len(self._begun) == len(self._steps):
            self._owed.append(self._begun)
            self._begun = []
            self.matched += 1

    def hear(self, event: Event) -> str | None:
        """Account for a delivery and all that should have come before it; a complaint or None."""
        parts = [(part.publisher, part.seq, dict(part)) for part in event.parts or (event,)]
        self.heard += 1
        while self._owed:
            owed = self._owed.popleft()
            if [(each.publisher, each.seq, each.attributes) for each in owed] == parts:
                return None if self._is_wanted(owed) else f"heard {event}, which it does not want"
            if self._is_wanted(owed):
                return f"did not hear {owed}, but {event}"
            self.left_out += 1
        return f"heard {event}, which it was not owed"

    def lose(self, gap: Gap) -> str | None:
        """Account for a gap: the oldest of that publisher are gone."""
        self.lost += gap.count
        self.gaps += 1
        gone = [each for each in self._owed if each[-1].publisher == gap.publisher][: gap.count]
        for each in gone:
            self._owed.remove(each)
        seqs = [each[-1].seq for each in gone]
        if len(seqs) == gap.count and (seqs[0], seqs[-1]) == (gap.first_seq, gap.last_seq):
            return None
        return f"was told {gap}, but lost {seqs}"

    def settle(self) -> str | None:
        """Nothing more will come: what is still owed must be what is no longer wanted."""
        missing = [owed for owed in self._owed if self._is_wanted(owed)]
        self.left_out += len(self._owed) - len(missing)
        return f"never heard {missing[0]}" if missing else None

    def _is_wanted(self, sequence: Sequence[Copy]) -> bool:
        return all(self._fits(step, copy) for step, copy in enumerate(sequence))

    def _fits(self, step: int, copy: Copy) -> bool:
        return self._steps[step].matches(copy.attributes, self.values)


class Audit:
    """Promises by subscriber, and the complaints about them."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = {}
        self.complaints: list[str] = []
        self.published = 0
        self.delivered = 0
        """Deliveries that the bus says it made."""
        self._seqs: dict[str, int] = {}

    def promise(self, name: str, what: Filter | Pattern, values: Mapping[str, Any]) -> None:
        """From now on this subscriber is to hear what matches."""
        self.promises[name] = Promise(what, values)

    def publish(self, publisher: str, events: Sequence[dict[str, Any]], time: datetime) -> None:
        """Events that are about to be published."""
        for event in events:
            seq = self._seqs[publisher] = self._seqs.get(publisher, 0) + 1
            self.published += 1
            for promise in self.promises.values():
                promise.take_in(Copy(publisher, seq, time, event))

    def change(self, name: str, **values: Any) -> None:
        """Parameters of a subscriber that changed just now."""
        self.promises[name].values.update(values)

    def hear(self, name: str, event: Event) -> None:
        """A subscriber heard something."""
        self._note(name, self.promises[name].hear(event))

    def lose(self, name: str, gap: Gap) -> None:
        """A subscriber was told of a gap."""
        self._note(name, self.promises[name].lose(gap))

    def settle(self) -> None:
        """Draw the line: every promise must be kept, and the bus must have counted right."""
        for name, promise in self.promises.items():
            self._note(name, promise.settle())
        matched = sum(promise.matched for promise in self.promises.values())
        if matched != self.delivered:
            self._note("the bus", f"counts {self.delivered} deliveries, and there were {matched}")

    def _note(self, name: str, complaint: str | None) -> None:
        if complaint is not None and len(self.complaints) < _KEPT_COMPLAINTS:
            self.complaints.append(f"{name}: {complaint}")
