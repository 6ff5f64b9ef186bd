"""`Quest`: a pattern that brokers assemble for a client of the campaign, and what they found.

What is found must be occurrences of the text that the user wrote, and all of them as long as
nothing breaks: those that the model's `Monitor` finds in what the client heard singly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from palio.language.parsing import parse_pattern
from palio.model.filters import Filter
from palio.model.patterns import Monitor, Occurrence, place_of

EVERY_EVENT: Final[tuple[Mapping[str, Any], ...]] = tuple(
    {"kind": kind, "x": x, **({} if s is None else {"s": s})}
    for kind, x, s in product(range(3), range(6), (None, "a", "b", "ab"))
)
"""All that is ever published, so that filters can be held against each other by what they match."""


BOTH_S: Final = 3.0
"""So long after it set out a client may receive what the broker that it leaves has found, at
least."""


class FoundSequence(NamedTuple):
    """An occurrence, and when it came."""

    at_s: float
    parts: tuple[Occurrence, ...]


class Quest:
    """One such pattern.

    >>> quest = Quest("pair", 1, "kind = 0 THEN kind = 1", asked_s=0.5)
    >>> [row["kind"] for row in quest.example()]
    [0, 1]
    """

    def __init__(self, name: str, key: int, text: str, asked_s: float) -> None:
        self.name = name
        self.key = key
        self.text = text
        self.asked_s = asked_s
        self.pattern = parse_pattern(text)
        self.found: list[FoundSequence] = []

    def example(self, admitted: Filter | None = None) -> list[Mapping[str, Any]]:
        """Events that complete it one after the other, of those that are admitted, if there are
        such.
        """
        rows = [each for each in EVERY_EVENT if admitted is None or admitted.matches(each)]
        firsts = [next((row for row in rows if step.matches(row)), None) for step in self.steps]
        found = [row for row in firsts if row is not None]
        return found if len(found) == len(self.steps) else []

    @property
    def steps(self) -> tuple[Filter, ...]:
        """What it waits for, one after the other."""
        return self.pattern.steps

    def expected(self, events: Sequence[Occurrence]) -> list[tuple[Occurrence, ...]]:
        """What one monitor finds among these events."""
        return Monitor(self.pattern).push(sorted(events, key=place_of))

    def faults_of(
        self,
        published: Mapping[tuple[str, int], Mapping[str, Any]],
        gaps_s: Sequence[float],
        moves_s: Sequence[float] = (),
        crossings_s: Sequence[tuple[float, float]] = (),
    ) -> Iterator[str]:
        """What is wrong with the occurrences that were found, whatever was lost. After a gap some
        may be found again, and a broker to which its client moves begins anew: from when until when
        it heard both, `crossings_s` say.
        """
        moving_s = (*((move_s, move_s + BOTH_S) for move_s in moves_s), *crossings_s)
        for _, parts in self.found:
            rows = [_bare(each) for each in parts]
            if any(published.get((each.publisher, each.seq)) != _bare(each) for each in parts):
                yield f"it has events that nobody published: {parts}"
            elif len(rows) != len(self.steps) or not all(
                step.matches(row) for step, row in zip(self.steps, rows, strict=True)
            ):
                yield f"it does not match: {rows}"
            elif any(place_of(one) >= place_of(other) for one, other in pairwise(parts)):
                yield f"it is not in order: {parts}"
            elif (
                self.pattern.within is not None
                and parts[-1].time - parts[0].time > self.pattern.within
            ):
                yield f"it took too long: {parts}"
        for before, after in pairwise(self.found):
            is_anew = any(before.at_s <= gap_s <= after.at_s for gap_s in gaps_s) or any(
                from_s <= after.at_s and before.at_s <= until_s for from_s, until_s in moving_s
            )
            if not is_anew and place_of(after.parts[0]) <= place_of(before.parts[-1]):
                yield f"{after.parts} began before {before.parts} had ended"


def _bare(occurrence: Occurrence) -> dict[str, Any]:
    return {name: value for name, value in occurrence.event.items() if not name.startswith("$")}
