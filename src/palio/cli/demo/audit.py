"""The audit: the quotes that every subscriber should receive, worked out apart from the brokers.

Each quote is tested by brute force with `Filter.matches` just before it is published. A quote that
matches is owed until the subscriber receives it, or a gap reports it lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from palio.client.events import Gap
from palio.language.parsing import parse_filter

Quote: TypeAlias = dict[str, Any]

COUNTS: Final = ("expected", "received", "lost", "missing", "wrong", "twice")


class Outcome(msgspec.Struct, frozen=True):
    """The promise to one subscriber held against what it received."""

    subscriber: str
    at: str
    filter: str
    expected: int
    received: int
    lost: int
    """Quotes that gaps reported."""
    missing: int
    wrong: int
    """Quotes that do not match or were altered, and errors in the counts of gaps."""
    twice: int

    @property
    def is_kept(self) -> bool:
        """True if the promise was kept."""
        return not (self.missing or self.wrong or self.twice)


class Promise:
    """The account of one subscription: the quotes it is owed, and those it received."""

    def __init__(self, name: str, broker: str, text: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self.broker = broker
        self.text = text
        self.values = dict(values)
        """Of the filter's parameters, now."""
        self.expected = 0
        self.received = 0
        self.lost = 0
        self._numbers: set[int] = set()
        self._wrong = 0
        self._twice = 0
        self._owed: dict[int, Quote] = {}
        self._filter = parse_filter(text)

    @property
    def is_settled(self) -> bool:
        """True if nothing is owed."""
        return not self._owed

    def expect(self, number: int, quote: Quote) -> None:
        """Note a quote that is about to be published, if it matches."""
        if self._filter.matches(quote, self.values):
            self.expected += 1
            self._owed[number] = quote

    def receive(self, number: int, quote: Quote) -> None:
        """Account for a delivery."""
        self.received += 1
        if number in self._numbers:
            self._twice += 1
        elif self._owed.get(number) == quote:
            del self._owed[number]
            self._numbers.add(number)
        else:
            self._wrong += 1

    def lose(self, gap: Gap) -> None:
        """Account for a gap: it must count what is owed within its numbers, no more and no less.
        A possible loss alone changes nothing.
        """
        if not gap.is_certain:
            return
        gone = [number for number in self._owed if gap.first_seq <= number <= gap.last_seq]
        for number in gone:
            del self._owed[number]
        self.lost += gap.count
        self._wrong += abs(gap.count - len(gone))

    def outcome(self) -> Outcome:
        """The account as it stands: what is still owed is missing."""
        counts = (self.received, self.lost, len(self._owed), self._wrong, self._twice)
        return Outcome(self.name, self.broker, self.text, self.expected, *counts)


def table_of(outcomes: Iterable[Outcome]) -> str:
    """A table of promises and deliveries, 60 columns wide."""
    widths = [max(6, len(title) + 1) for title in COUNTS]
    rows = [("", "at", *COUNTS)] + [
        (outcome.subscriber, outcome.at, *(f"{getattr(outcome, title):,}" for title in COUNTS))
        for outcome in outcomes
    ]
    return "\n".join(
        f"{name:<9}{place:<7}"
        + "".join(f"{count:>{width}}" for count, width in zip(counts, widths, strict=True))
        for name, place, *counts in rows
    )
