"""Relations: `covers` of filters, `covers_advertisement` of advertisements, `overlaps` of both
(siena 3.3).

All three are sound. `covers` and `covers_advertisement` may err to False, `overlaps` to True:

- text tests are compared by the rules of texts.py, which do not know every implication;
- an alternative covered only by several alternatives together is found when they split one
  attribute's values between them, not otherwise;
- residuals are compared by structure, and `overlaps` ignores them;
- what takes more effort than a limit is not compared to its end (`palio.model.limits`).

docs/reference/model.md lists these gaps, and a test counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from palio.model.advertisements import (
    Advertisement,
    Alternative,
    UnreadAdvertisement,
    checked_advertisement,
)
from palio.model.domains import PRESENT, Domain
from palio.model.events import is_system_name
from palio.model.filters import Conjunction, Filter, checked_filter
from palio.model.limits import Effort
from palio.model.merging import merged
from palio.model.patterns import Pattern
from palio.model.values import NO_VALUES, Bindings


def covers(
    general: Filter,
    specific: Filter,
    general_values: Bindings | None = None,
    specific_values: Bindings | None = None,
    *,
    effort: Effort | None = None,
) -> bool:
    """Check whether every event that matches `specific` certainly matches `general`.

    Several questions may share an `effort`; when it is spent, the answer is no.

    >>> import palio
    >>> palio.covers(palio.parse("price < 10"), palio.parse("price < 5 AND symbol = 'IBM'"))
    True
    """
    general = checked_filter(general).bind(general_values or NO_VALUES)
    specific = checked_filter(specific).bind(specific_values or NO_VALUES)
    if general == specific:
        return True
    effort = effort or Effort()
    unmet = [
        conjunction
        for conjunction in specific.conjunctions
        if not _is_covered(conjunction, general.conjunctions, effort)
    ]
    if not unmet or len(general.conjunctions) < 2 or effort.is_spent:
        return not unmet
    wider = merged(general.conjunctions, effort)
    return all(_is_covered(conjunction, wider, effort) for conjunction in unmet)


def _is_covered(one: Conjunction, by: Sequence[Conjunction], effort: Effort) -> bool:
    """Check whether one of some conjunctions covers it; those beyond the effort do not."""
    for wide in by:
        if not effort.compare(wide, one):
            return False
        if wide.covers(one):
            return True
    return False


def roots(filters: Sequence[Filter]) -> list[Filter]:
    """The filters that no other one covers; of equals the first (the summary of siena 5).

    >>> import palio
    >>> [str(f) for f in roots([palio.parse("a > 3"), palio.parse("a > 1"), palio.parse("b = 1")])]
    ['a > 1', 'b = 1']
    """
    kept: list[Filter] = []
    for candidate in filters:
        if any(covers(other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not covers(candidate, other)]
        kept.append(candidate)
    return kept


def covers_advertisement(
    general: Advertisement,
    specific: Advertisement,
    *,
    open: bool = False,
    effort: Effort | None = None,
) -> bool:
    """Check whether `general` announces every event that advertisement `specific` announces.

    Several questions may share an `effort`; when it is spent, the answer is no.

    >>> from palio import parse_advertisement
    >>> covers_advertisement(parse_advertisement("a > 0 AND b > 0"), parse_advertisement("a > 5"))
    True
    """
    wide, narrow = checked_advertisement(general), checked_advertisement(specific)
    if isinstance(wide, UnreadAdvertisement) or isinstance(narrow, UnreadAdvertisement):
        return wide == narrow
    effort = effort or Effort()
    return all(
        any(_announcement_covers(one, alternative, open, effort) for one in wide.alternatives)
        for alternative in narrow.alternatives
    )


def _announcement_covers(
    general: Alternative, specific: Alternative, open: bool, effort: Effort
) -> bool:
    if not effort.spend(1) or not set(general.residuals) <= set(specific.residuals):
        return False
    wide, narrow = general.domains, specific.domains
    if open:  # what `specific` does not name may be anything, so `general` may not restrain it
        return all(
            _union_includes(domains, narrow.get(name, [PRESENT]), effort)
            for name, domains in wide.items()
        )
    return all(
        _union_includes(wide.get(name, []), domains, effort) for name, domains in narrow.items()
    )


def _union_includes(outer: list[Domain], inner: list[Domain], effort: Effort) -> bool:
    return all(
        not piece.has_present
        or any(effort.compare(wide, piece) and wide.includes(piece) for wide in outer)
        for piece in inner
    )


def overlaps(
    advertisement: Advertisement,
    subscription: Filter,
    subscription_values: Bindings | None = None,
    *,
    open: bool = False,
    effort: Effort | None = None,
) -> bool:
    """Check whether some event may be announced by `advertisement` and match `subscription`.

    When the effort is spent the answer is yes.

    >>> import palio
    >>> palio.overlaps(palio.parse_advertisement("price > 10"), palio.parse("price < 5"))
    False
    """
    announcing = checked_advertisement(advertisement)
    wanted = checked_filter(subscription).bind(subscription_values or NO_VALUES)
    effort = effort or Effort()
    if isinstance(announcing, UnreadAdvertisement):
        return any(not conjunction.is_contradiction for conjunction in wanted.conjunctions)
    return any(
        _may_meet(one.domains, other, open, effort)
        for one in announcing.alternatives
        for other in wanted.conjunctions
    )


def _may_meet(
    announcement: dict[str, list[Domain]], wanted: Conjunction, open: bool, effort: Effort
) -> bool:
    if not effort.spend(1):
        return True
    if wanted.is_contradiction:
        return False
    for name, domain in wanted.domains.items():
        if domain.absent or is_system_name(name):
            continue  # the event may do without it; system attributes are never announced
        offers = announcement.get(name)
        if offers is None:
            if not open:
                return False
        elif all(effort.compare(offer, domain) and offer.disjoint(domain) for offer in offers):
            return False
    return True


def covers_subscription(
    general: Filter | Pattern, specific: Filter | Pattern, effort: Effort | None = None
) -> bool:
    """Return whether a filter covers another one, or a pattern another of the same length,
    position by position (siena 3.3); neither covers one of the other kind.

    >>> import palio
    >>> covers_subscription(palio.parse("a > 1"), palio.parse("a > 5 THEN a > 9"))
    False
    """
    effort = effort or Effort()
    if isinstance(general, Filter):
        return isinstance(specific, Filter) and covers(general, specific, effort=effort)
    if not isinstance(specific, Pattern) or len(general.steps) != len(specific.steps):
        return False
    is_in_time = general.within is None or (
        specific.within is not None and specific.within <= general.within
    )
    return is_in_time and all(
        covers(wide, narrow, effort=effort)
        for wide, narrow in zip(general.steps, specific.steps, strict=True)
    )
