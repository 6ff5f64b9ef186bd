"""Patterns that parties of siena's study want, and what parties find of them by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from palio.language.parsing import parse_advertisement, parse_pattern
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.simulation.randomness import Randomness
from palio_studies.siena_interests import VALUES
from palio_studies.siena_steady import Flow
from palio_studies.simulator.network import START

__all__ = ["ManySequences", "found_by_parties"]


class ManySequences:
    """`Interests` in patterns: each object publishes values of a kind of its own, and a party wants
    sequences of values from some bounds on, of one object or of several in turn.

    >>> print(ManySequences(objects=3, sources=2, steps=3).pattern(Randomness(1)))
    kind = 0 AND value >= 14 THEN kind = 2 AND value >= 94 THEN kind = 0 AND value >= 31
    """

    def __init__(self, *, objects: int, sources: int, steps: int) -> None:
        self._objects = range(objects)
        self._sources = sources
        self._steps = steps

    def pattern(self, random: Randomness) -> Pattern:
        """What a party asks for."""
        kinds = random.sample(self._objects, self._sources)
        steps = [
            f"kind = {kinds[step % len(kinds)]} AND value >= {random.below(VALUES)}"
            for step in range(self._steps)
        ]
        return parse_pattern(" THEN ".join(steps))

    def filter(self, party: int, random: Randomness) -> Filter:
        """See `Interests`: what any step wants."""
        del party
        return self.pattern(random).any_step

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """See `Interests`."""
        del random
        return parse_advertisement(f"kind = {thing} AND EXISTS value")

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """See `Interests`."""
        del number
        return {"kind": thing, "value": random.below(VALUES)}


def found_by_parties(run: Flow, patterns: list[Pattern]) -> int:
    """How often the patterns of parties occur in what each of them received."""
    found = 0
    for party, pattern in zip(run.parties, patterns, strict=True):
        taken = [
            Occurrence(
                START + timedelta(microseconds=run.published_us[each.publisher, each.seq]),
                each.publisher,
                each.seq,
                each.event,
            )
            for each in party.received
        ]
        monitor = Monitor(pattern)
        found += len(monitor.push(taken)) + len(monitor.flush())
    return found
