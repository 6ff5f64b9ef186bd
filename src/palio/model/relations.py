"""Relations between filters: `covers`, `covers_advertisement`, `overlaps` (SEMANTICS 1).

All three are sound. `covers` and `covers_advertisement` may err to False, `overlaps` to True:

- text tests are compared by the rules of texts.py, which do not know every implication;
- an alternative covered only by several alternatives together is found when they split one
  attribute's values between them, not otherwise;
- residuals are compared by structure, and `overlaps` ignores them.

docs/model.md lists these gaps, and a test counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from palio.model.domains import PRESENT, Domain
from palio.model.filters import Conjunction, Filter, domain_of
from palio.model.merging import merged
from palio.model.values import NO_VALUES, Bindings

__all__ = ["announces", "covers", "covers_advertisement", "overlaps"]


def covers(
    general: Filter,
    specific: Filter,
    general_values: Bindings | None = None,
    specific_values: Bindings | None = None,
) -> bool:
    """Whether every event that matches `specific` certainly matches `general`.

    >>> import palio
    >>> palio.covers(palio.parse("price < 10"), palio.parse("price < 5 AND symbol = 'IBM'"))
    True
    """
    general = general.bind(general_values or NO_VALUES)
    specific = specific.bind(specific_values or NO_VALUES)
    unmet = [
        each
        for each in specific.conjunctions
        if not any(conjunction_covers(wide, each) for wide in general.conjunctions)
    ]
    if not unmet or len(general.conjunctions) < 2:
        return not unmet
    wider = merged(general.conjunctions)
    return all(any(conjunction_covers(wide, each) for wide in wider) for each in unmet)


def conjunction_covers(general: Conjunction, specific: Conjunction) -> bool:
    """`covers` for conjunctions without variables."""
    inner = specific.domains
    for name, domain in general.domains.items():
        known = inner.get(name)
        if known is None or not domain.includes(known):
            return specific.is_contradiction
    if general.residuals and not set(general.residuals) <= set(specific.residuals):
        return specific.is_contradiction
    return True


def announces(
    advertisement: Filter, event: Mapping[str, Any], values: Bindings, *, open: bool
) -> bool:
    """Whether an event is one that an advertisement announces: see `Filter.advertises`."""
    return any(
        _conjunction_announces(each, event, values, open) for each in advertisement.conjunctions
    )


def _conjunction_announces(
    conjunction: Conjunction, event: Mapping[str, Any], values: Bindings, open: bool
) -> bool:
    # A residual restrains the values it reads when they are there: it must not be false.
    named_by_residuals: set[str] = set()
    for residual in conjunction.residuals:
        if residual.truth(event, values) is False:
            return False
        named_by_residuals |= residual.attributes
    for name, value in event.items():
        if value is None or name.startswith("$"):
            continue
        about = [each for each in conjunction.constraints if each.name == name]
        if about:
            if not any(each.truth(event, values) is True for each in about):
                return False
        elif not open and name not in named_by_residuals:
            return False
    return True


def covers_advertisement(
    general: Filter,
    specific: Filter,
    general_values: Bindings | None = None,
    specific_values: Bindings | None = None,
    *,
    open: bool = False,
) -> bool:
    """Whether every event that advertisement `specific` announces is announced by `general`.

    >>> import palio
    >>> palio.covers_advertisement(palio.parse("a > 0 AND b > 0"), palio.parse("a > 5"))
    True
    """
    general = general.bind(general_values or NO_VALUES)
    specific = specific.bind(specific_values or NO_VALUES)
    wide = [(each, announced(each)) for each in general.conjunctions]
    narrow = [(each, announced(each)) for each in specific.conjunctions]
    return all(any(_announcement_covers(one, each, open) for one in wide) for each in narrow)


_Announcement: TypeAlias = tuple[Conjunction, dict[str, list[Domain]]]


def _announcement_covers(general: _Announcement, specific: _Announcement, open: bool) -> bool:
    if not set(general[0].residuals) <= set(specific[0].residuals):
        return False
    wide, narrow = general[1], specific[1]
    if open:  # what `specific` does not name may be anything, so `general` may not restrain it
        return all(
            _union_includes(domains, narrow.get(name, [PRESENT])) for name, domains in wide.items()
        )
    return all(_union_includes(wide.get(name, []), domains) for name, domains in narrow.items())


def announced(conjunction: Conjunction) -> dict[str, list[Domain]]:
    """What an announced event may hold by each name: a union of domains, presence apart."""
    found: dict[str, list[Domain]] = {}
    for constraint in conjunction.constraints:
        known = found.setdefault(constraint.name, [])
        domain = domain_of(constraint).without_absent()
        for place, other in enumerate(known):
            whole = other.union(domain)
            if whole is not None:
                known[place] = whole
                break
        else:
            known.append(domain)
    for residual in conjunction.residuals:
        for name in residual.attributes:
            found.setdefault(name, [PRESENT])
    return found


def _union_includes(outer: list[Domain], inner: list[Domain]) -> bool:
    return all(not each.has_present or any(wide.includes(each) for wide in outer) for each in inner)


def overlaps(
    advertisement: Filter,
    subscription: Filter,
    advertisement_values: Bindings | None = None,
    subscription_values: Bindings | None = None,
    *,
    open: bool = False,
) -> bool:
    """Whether some event may be announced by `advertisement` and match `subscription`.

    >>> import palio
    >>> palio.overlaps(palio.parse("price > 10"), palio.parse("price < 5"))
    False
    """
    announcing = advertisement.bind(advertisement_values or NO_VALUES)
    hearing = subscription.bind(subscription_values or NO_VALUES)
    offered = [announced(one) for one in announcing.conjunctions]
    return any(_may_meet(one, other, open) for one in offered for other in hearing.conjunctions)


def _may_meet(announcement: dict[str, list[Domain]], heard: Conjunction, open: bool) -> bool:
    if heard.is_contradiction:
        return False
    for name, domain in heard.domains.items():
        if domain.absent or name.startswith("$"):
            continue  # the event may do without it; system attributes are never announced
        offers = announcement.get(name)
        if offers is None:
            if not open:
                return False
        elif all(offer.disjoint(domain) for offer in offers):
            return False
    return True
