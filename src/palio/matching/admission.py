"""Count what a filter costs an index when it is admitted, and refuse the one cost without a bound.

Nearly everything about a filter is bounded by the limits of the model (palio.model.limits), and
costs an index no more than its rows and distinct intervals. Text tests that have no literal to be
found by (`LIKE '_%_'`, CIDR, lists that ignore case), or more to look for beside it (`LIKE
'%a%b%'`), are different: each may read every distinct text of every batch, from any publisher. So
an index has a limit for these, all filters together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from palio.errors import LimitExceeded
from palio.matching.subscriptions import Subscription, may_scan, recipe_of
from palio.matching.texts import scans
from palio.model.constraints import domain_of
from palio.model.domains import Domain
from palio.model.texts import TextTest

Scan: TypeAlias = tuple[str, TextTest]
"""A text test that is tried on every text of an attribute."""

MAX_SCANS: Final = 1_000
"""Distinct text tests of an index that may read every distinct text: about a millisecond for each
of them and a thousand short texts, 2 to 6 for a text of 1 MiB."""

MAX_SCANS_TRIED: Final = 2 * MAX_SCANS
"""Those of filters that were removed are tried until the next merge, and count if all of them
together are this many: nobody makes an index slow by changes that are quicker than its merges."""


@dataclass(frozen=True)
class Admission:
    """The work of matching that one filter adds, counted.

    `rows` are its conjunctions and `intervals` the intervals of codes that these name; `lookups`
    are text tests decided by a literal, `scans` those that may read every distinct text.
    `residual_cost` is spent on each event that the rest of a conjunction leaves (units of
    `MAX_RESIDUAL_COST`).
    """

    rows: int
    intervals: int
    lookups: int
    scans: int
    residual_cost: int

    def __str__(self) -> str:
        parts = [f"{self.rows} rows", f"{self.intervals} intervals"]
        if self.lookups:
            parts.append(f"{self.lookups} text tests by their literals")
        if self.scans:
            parts.append(f"{self.scans} text tests on every distinct text")
        if self.residual_cost:
            parts.append(f"residual conditions of cost {self.residual_cost} on what is left")
        return ", ".join(parts)


def admission_of(subscription: Subscription) -> Admission:
    """The counts for one filter with its values."""
    domains = list(_domains(subscription))
    tests = {(name, test) for name, domain in domains for test in _tests(domain)}
    scanning = sum(scans(test) for _, test in tests)
    conjunctions = subscription.filter.conjunctions
    return Admission(
        rows=len(conjunctions),
        intervals=sum(_intervals(domain) for _, domain in domains),
        lookups=len(tests) - scanning,
        scans=scanning,
        residual_cost=sum(residual.cost for one in conjunctions for residual in one.residuals),
    )


def scans_of(subscription: Subscription) -> frozenset[Scan]:
    """The tests of a filter that are tried on every text."""
    if subscription.comparisons is not None or not recipe_of(subscription.skeleton).may_scan:
        return frozenset()
    return frozenset(
        (name, test)
        for name, domain in _domains(subscription, only_scans=True)
        for test in _tests(domain)
        if scans(test)
    )


def _domains(
    subscription: Subscription, *, only_scans: bool = False
) -> Iterator[tuple[str, Domain]]:
    """Attributes and domains of all constraints, or of those alone that may scan."""
    for conjunction in subscription.filter.conjunctions:
        for constraint in conjunction.constraints:
            if not only_scans or may_scan(constraint):
                yield constraint.name, domain_of(constraint.substitute(subscription.values))


def _tests(domain: Domain) -> Iterator[TextTest]:
    for values in domain.kinds.values():
        yield from values.tests


def _intervals(domain: Domain) -> int:
    """Intervals of codes: absence and NaN are one each."""
    of_kinds = sum(len(values.spans) + values.nan for values in domain.kinds.values())
    return of_kinds + domain.absent


class Scans:
    """The scans that an index was given so far, at most `MAX_SCANS`."""

    def __init__(self) -> None:
        self.known: set[Scan] = set()

    def fits(self, more: frozenset[Scan]) -> bool:
        """Check whether there is room for some more."""
        return more <= self.known or len(self.known | more) <= MAX_SCANS

    def admit(self, more: frozenset[Scan]) -> None:
        """Take some more in; `LimitExceeded` if there are too many."""
        if not self.fits(more):
            raise LimitExceeded(
                "the number of text tests that no single literal decides, in all filters together,",
                limit="MAX_SCANS",
                maximum=MAX_SCANS,
                actual=len(self.known | more),
            )
        self.known |= more
