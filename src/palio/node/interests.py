"""`Interests`: matches events with the durable subscriptions of the whole network.

The origin of an event matches it, by the filters in the claims that it has; homes do not match
again. So an event is matched by the filter in force when it was accepted, even if the filter
changes while the event waits.
"""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidInput, LimitExceeded
from palio.language.parsing import parse_filter
from palio.matching.protocol import Matcher, RowMask
from palio.model.filters import TRUE, Filter
from palio.model.masks import ONE_ROW
from palio.model.parcels import Parcel
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
        self.unread: dict[str, str] = {}
        """By broker, a filter of its claims that cannot be parsed here, until `Core` logs it."""

    def learn(self, claim: Claim) -> None:
        """Replace the filter of a durable subscription by that of its newest claim."""
        filter, number = self._read(claim), self._number(claim.subject)
        self._unreadable.discard(number)
        if filter is TRUE and claim.filter != _TRUE:
            self._unreadable.add(number)
            self.unread[claim.home] = claim.filter
        if filter is not None:
            try:
                self._matcher.add(number, filter, destination=number)
            except LimitExceeded:  # the engine has no capacity for its kind of filter
                self._matcher.add(number, TRUE, destination=number)
            self._wanted.add(number)
        elif number in self._wanted:
            self._matcher.remove(number)
            self._wanted.remove(number)

    def _read(self, claim: Claim) -> Filter | None:
        return filter_of(claim)

    def is_unread(self, subject: str) -> bool:
        """Return whether a filter cannot be parsed here, so that its home must match instead."""
        return self._numbers.get(subject) in self._unreadable

    def wanted(self, parcel: Parcel) -> dict[str, RowMask]:
        """Return the durable subscriptions that match, with their rows. A loss marker matches all:
        nobody knows what the lost events were.
        """
        if LossMarker.of(parcel) is not None:
            return {self._subjects[number]: ONE_ROW for number in sorted(self._wanted)}
        matches = routed(self._matcher, parcel)
        return {self._subjects[number]: mask for number, mask in sorted(matches.items())}

    def _number(self, subject: str) -> int:
        if subject not in self._numbers:
            self._numbers[subject] = len(self._subjects)
            self._subjects.append(subject)
        return self._numbers[subject]


def filter_of(claim: Claim) -> Filter | None:
    """Return the filter of a claim: None if it is over, or is known from an entry alone. One that
    this broker cannot parse counts as TRUE, so that no event is lost.
    """
    if claim.is_over or not claim.filter:
        return None
    try:
        filter = parse_filter(claim.filter)
    except InvalidInput:
        return TRUE
    return TRUE if filter.variables else filter
