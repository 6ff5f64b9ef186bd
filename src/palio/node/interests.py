"""`Interests`: for which durable subscriptions of the whole network some events are.

The broker that accepts an event finds that out, by the filters that it knows from their claims; a
home takes what it gets as it is. So an event that was accepted before a filter was changed is for
the filter that it met.
"""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.matching.protocol import Matcher, RowMask
from palio.model.filters import TRUE, Filter
from palio.model.parcels import ONE_ROW, Parcel
from palio.node.loss_markers import LossMarker
from palio.node.operations import Claim
from palio.routing.protocol import routed

_TRUE: Final = str(TRUE)


class Interests:
    """Durable subscriptions by number in a matching engine."""

    def __init__(self, name: str, matcher: Matcher) -> None:
        self.name = name
        self._matcher = matcher
        self._numbers: dict[str, int] = {}
        self._subjects: list[str] = []
        self._wanted: set[int] = set()
        self._unreadable: set[int] = set()
        """Those whose filters cannot be read here."""
        self.unread: dict[str, str] = {}
        """By broker, a filter in what it says that cannot be read here. The caller takes it out.
        """

    def learn(self, claim: Claim) -> None:
        """A claim counts from now on, with its filter."""
        filter, number = self._read(claim), self._number(claim.subject)
        self._unreadable.discard(number)
        if filter is TRUE and claim.filter != _TRUE:
            self._unreadable.add(number)
            self.unread[claim.home] = claim.filter
        if filter is not None:
            try:
                self._matcher.add(number, filter, destination=number)
            except LimitExceeded:  # the engine takes no more of its kind
                self._matcher.add(number, TRUE, destination=number)
            self._wanted.add(number)
        elif number in self._wanted:
            self._matcher.remove(number)
            self._wanted.remove(number)

    def _read(self, claim: Claim) -> Filter | None:
        return filter_of(claim)

    def is_unread(self, subject: str) -> bool:
        """Return whether its filter cannot be read here: its home is to look which events it
        wants.
        """
        return self._numbers.get(subject) in self._unreadable

    def wanted(self, parcel: Parcel) -> dict[str, RowMask]:
        """For whom these events are, and which of them. A notice of lost ones is for anybody."""
        if LossMarker.of(parcel) is not None:
            return {self._subjects[number]: ONE_ROW for number in sorted(self._wanted)}
        found = routed(self._matcher, parcel)
        return {self._subjects[number]: mask for number, mask in sorted(found.items())}

    def _number(self, subject: str) -> int:
        if subject not in self._numbers:
            self._numbers[subject] = len(self._subjects)
            self._subjects.append(subject)
        return self._numbers[subject]


def filter_of(claim: Claim) -> Filter | None:
    """The filter of a claim: nothing if it is over, or was only learned of by an entry for it. One
    that this broker cannot read is for everything: better too much.
    """
    if claim.is_over or not claim.filter:
        return None
    try:
        filter = parse_filter(claim.filter)
    except InvalidInput:
        return TRUE
    return TRUE if filter.variables else filter
