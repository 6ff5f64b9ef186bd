"""Compile filters, one by one or as a skeleton with columns of constants, to flat rows.

A *row* is a conjunction: the ids of its predicates, ascending. A *predicate* is a slot and
intervals of codes, kept once however many rows name it. Compiling gathers cuts first, then ranks
them (`cuts.py`), so that everything after it is integers (`rows.py`). `RowTemplate` is what
one shape of filter contributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.compile.cuts import (
    ABSENT_CODE,
    NAN_CODE,
    CutCollector,
    Numbers,
    Universe,
    cuts_at,
    number_cuts,
    past_numbers,
)
from palio.matching.compile.rows import CompiledRows, IntervalTable, Span, assembled
from palio.matching.layers import Longs
from palio.model.domains import Domain
from palio.model.operators import Op
from palio.model.texts import TextTest
from palio.model.values import TOP, Kind, lowest


@dataclass(frozen=True)
class Range:
    """Numeric intervals; an end that is None is open.

    Interval i is on the attribute `names[which[i]]`, on `names[0]` if there is no `which`. The
    term's r-th row has interval `choice[r]`, without a choice interval r. `rows` are the rows of
    the template that have the term, None for all of them; likewise in `DomainChoice`.
    """

    names: tuple[str, ...]
    low: Numbers | None
    high: Numbers | None
    rows: Longs | None = None
    choice: Longs | None = None
    which: Longs | None = None

    def slots(self, slot_of: dict[str, int]) -> Longs:
        """The slot of each interval."""
        mine = np.array([slot_of[name] for name in self.names], np.int64)
        if self.which is not None:
            return np.asarray(mine[self.which])
        end = self.high if self.low is None else self.low
        return np.full(0 if end is None else len(end), mine[0])


@dataclass(frozen=True)
class DomainChoice:
    """For each row one of a few domains of one attribute: `domains[choice[row]]`."""

    name: str
    domains: Sequence[Domain]
    choice: Longs
    rows: Longs | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The one attribute."""
        return (self.name,)


@dataclass(frozen=True)
class RowTemplate:
    """Rows of one shape: an owner (a place in the list of keys) and a term for each constraint."""

    owners: Longs
    terms: Sequence[Range | DomainChoice]

    @property
    def repeats(self) -> bool:
        """True if a row may have two terms on one attribute."""
        names = [name for term in self.terms for name in term.names]
        mixed = any(isinstance(term, Range) and term.which is not None for term in self.terms)
        return mixed or len(set(names)) < len(names)


LOW_ENDS: Final = {Op.EQ: number_cuts, Op.GE: number_cuts, Op.GT: past_numbers}
HIGH_ENDS: Final = {Op.EQ: past_numbers, Op.LE: past_numbers, Op.LT: number_cuts}
"""The cuts at which the numbers that pass a comparison with some numbers begin, and end."""


def ranges_of(name: str, op: Op, values: npt.NDArray[Any], rows: Longs | None) -> Range | None:
    """A numeric comparison with a column of constants; None if it is no single interval."""
    if op not in LOW_ENDS and op not in HIGH_ENDS:
        return None
    if values.dtype != np.int64 and not bool(np.isfinite(values).all()):
        return None
    distinct, choice = _distinct(values)
    low = LOW_ENDS[op](distinct) if op in LOW_ENDS else None
    high = HIGH_ENDS[op](distinct) if op in HIGH_ENDS else None
    return Range((name,), low, high, rows, choice)


def _distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Longs]:
    """The distinct values, and which of them each is; integers that lie close are counted off."""
    if values.dtype == np.int64 and len(values):
        first, last = int(values.min()), int(values.max())
        if last - first < 4 * len(values):
            seen = np.zeros(last - first + 1, np.bool_)
            seen[values - first] = True
            return np.flatnonzero(seen) + first, (np.cumsum(seen) - 1)[values - first]
    distinct, choice = np.unique(values, return_inverse=True)
    return distinct, choice


def compile_templates(templates: Sequence[RowTemplate]) -> CompiledRows:
    """All templates as one set of rows."""
    universe, ranks, coded = _universe_of(templates)
    entries = IntervalTable()
    first_row = 0
    for template in templates:
        every = np.arange(first_row, first_row + len(template.owners))
        entries.repeats |= template.repeats
        for term in template.terms:
            rows = every if term.rows is None else first_row + term.rows
            if isinstance(term, Range):
                _add_ranges(entries, universe, rows, term, ranks)
            else:
                codes = [coded[term.name, id(domain)] for domain in term.domains]
                _add_choice(entries, universe.slot_of[term.name], rows, term, codes)
        first_row += len(template.owners)
    owners = np.concatenate([np.zeros(0, np.int64), *(template.owners for template in templates)])
    return assembled(universe, entries, owners)


Domains: TypeAlias = dict[tuple[str, int], Domain]
"""Domains by attribute and identity."""


class _Coded(NamedTuple):
    """A domain as intervals of codes, and the slots of its text tests."""

    spans: tuple[Span, ...]
    tests: tuple[int, ...]


def _universe_of(
    templates: Sequence[RowTemplate],
) -> tuple[Universe, Iterator[Longs], dict[tuple[str, int], _Coded]]:
    """The universe of some templates, the ranks of the cuts of their ranges, in turn, and their
    domains.
    """
    terms = [term for template in templates for term in template.terms]
    gathered = CutCollector(sorted({name for term in terms for name in term.names}))
    domains: Domains = {}
    for term in terms:
        if isinstance(term, DomainChoice):
            domains.update(((term.name, id(domain)), domain) for domain in term.domains)
            continue
        slots = term.slots(gathered.slot_of)
        for end in (term.low, term.high):
            if end is not None:
                gathered.add_numbers(slots, end)
    tests = _gather_domains(gathered, domains)
    universe, (*ranks, last) = gathered.universe(tests)
    numbers = iter(last.tolist())
    edges = {name: universe.edges_of(name) for name in universe.names}
    coded = {
        (name, place): _coded(universe, name, edges[name], domain, numbers)
        for (name, place), domain in domains.items()
    }
    return universe, iter(ranks), coded


def _gather_domains(gathered: CutCollector, domains: Domains) -> set[tuple[str, TextTest]]:
    """The cuts of domains, and their tests of texts. Their numbers come in one piece."""
    tests: set[tuple[str, TextTest]] = set()
    slots: list[int] = []
    numbers: list[Any] = []
    for (name, _), domain in domains.items():
        slot = gathered.slot_of[name]
        for kind, values in domain.kinds.items():
            if values.tests:
                tests.update((name, test) for test in values.tests)
            first = lowest(kind)
            ends = [end for span in values.spans for end in span]
            places = [end for end in ends if end is not TOP and end != first]
            if kind is Kind.NUMBER:
                slots += [slot] * len(places)
                numbers += places
            elif kind is Kind.STRING:
                gathered.add(slot, kind, [place.encode() for place in places])
            else:
                gathered.add(slot, kind, places)
    gathered.add_numbers(np.array(slots, np.int64), cuts_at(numbers))
    return tests


def _coded(
    universe: Universe, name: str, edges: Sequence[int], domain: Domain, numbers: Iterator[int]
) -> _Coded:
    """A domain coded; `numbers` are the ranks of the numeric cuts of this one and those behind."""
    spans: list[Span] = [(ABSENT_CODE, ABSENT_CODE + 1)] if domain.absent else []
    tests: set[int] = set()
    for kind, values in domain.kinds.items():
        if values.nan:
            spans.append((NAN_CODE, NAN_CODE + 1))
        first, base, top = lowest(kind), edges[kind], edges[kind + 1]
        codes = [
            top
            if end is TOP
            else base
            if end == first
            else base + 1 + next(numbers)
            if kind is Kind.NUMBER
            else universe.code_at_cut(name, kind, end.encode() if kind is Kind.STRING else end)
            for span in values.spans
            for end in span
        ]
        spans += zip(codes[::2], codes[1::2], strict=True)
        if values.tests:
            tests.update(universe.test_slots[name, test] for test in values.tests)
    return _Coded(_joined(spans), tuple(sorted(tests)))


def _add_ranges(
    entries: IntervalTable, universe: Universe, rows: Longs, term: Range, ranks: Iterator[Longs]
) -> None:
    """Numeric intervals; an open end is that of all numbers."""
    slots = term.slots(universe.slot_of)
    base = universe.bases[slots, Kind.NUMBER].astype(np.int64)
    top = universe.bases[slots, Kind.NUMBER + 1].astype(np.int64)
    lows = base if term.low is None else base + 1 + next(ranks)
    highs = top if term.high is None else base + 1 + next(ranks)
    entries.add(rows, slots, lows, highs, term.choice)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Ascending, and those that touch made one."""
    whole: list[Span] = []
    for low, high in sorted(spans):
        if whole and low <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(high, whole[-1][1]))
        elif low < high:
            whole.append((low, high))
    return tuple(whole)


def _add_choice(
    entries: IntervalTable, slot: int, rows: Longs, term: DomainChoice, coded: Sequence[_Coded]
) -> None:
    """Domains: one interval, or a union, and text tests, whose slots have codes 0 and 1."""
    bounds = [spans[0] if len(spans) == 1 else (0, 0) for spans, _ in coded]
    lows, highs = np.array(bounds, np.int64).reshape(-1, 2).T
    several = np.array([len(spans) > 1 for spans, _ in coded])
    plain = ~several[term.choice]
    slots = np.full(len(coded), slot)
    entries.add(rows[plain], slots, lows, highs, term.choice[plain])
    by_domain = np.argsort(term.choice, kind="stable")
    ends = np.cumsum(np.bincount(term.choice, minlength=len(coded)))
    for place, (spans, tests) in enumerate(coded):
        if len(spans) < 2 and not tests:
            continue
        here = rows[by_domain[ends[place - 1] if place else 0 : ends[place]]]
        if len(spans) > 1:
            entries.add_union(here, slot, spans)
        for test in tests:
            interval = np.array([test]), np.array([1]), np.array([2])
            entries.add(here, *interval, np.zeros(len(here), np.int64))
