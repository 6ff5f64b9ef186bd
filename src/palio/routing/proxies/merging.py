"""Merging event specifications into one that asks for exactly the same (proxy IV-A).

What a proxy tells a neighbour is one specification for all receivers on the other side. It grows
one receiver at a time, so merging is incremental: a specification that is already merged is taken
as it is, and only what is added is compared with its alternatives.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from palio.model.canonical import conjunction_key
from palio.model.filters import FALSE, TRUE, Conjunction, Filter
from palio.model.limits import MAX_CONJUNCTIONS
from palio.model.merging import merged
from palio.model.operators import Op
from palio.routing.proxies.messages import Wish

__all__ = [
    "Demand",
    "adjusted",
    "combined",
    "demand_of",
    "includes",
    "narrowed",
    "says_the_same",
    "unlimited",
    "widened",
    "wishes_of",
]

Demand: TypeAlias = dict[tuple[bool, Filter], int | None]
"""The wishes in one direction: (PRE bit, specification) -> count, None for any number."""

_REMEMBERED: Final = 1 << 12
"""Merges kept: neighbours that want nothing themselves are all told the same."""

_NOTHING: Final[Demand] = {}


def demand_of(wishes: Iterable[Wish]) -> Demand:
    """Wishes as a demand."""
    return {(each.pre, each.specification): each.count for each in wishes}


def unlimited(demand: Demand) -> dict[bool, Filter]:
    """The part without counts: what is wanted with and without the PRE bit."""
    return {pre: wish for (pre, wish), count in demand.items() if count is None}


def wishes_of(demand: Demand) -> tuple[Wish, ...]:
    """A demand as wishes."""
    return tuple(Wish(specification, pre, count) for (pre, specification), count in demand.items())


@lru_cache(_REMEMBERED)
def widened(specification: Filter, added: tuple[Filter, ...]) -> Filter:
    """The merge of a merged specification and some others, which is exactly their union.

    More than `MAX_CONJUNCTIONS` alternatives that do not merge become TRUE, a superset as the paper
    allows it: a proxy below then drops what nobody there wants.

    >>> import palio
    >>> cheap, cheaper = (palio.parse(f"name = 'A' AND price < {limit}") for limit in (15, 10))
    >>> str(widened(cheaper, (cheap,)))
    "name = 'A' AND price < 15"
    """
    before = dict.fromkeys(specification.conjunctions)
    gathered = _gathered([part for one in added for part in one.conjunctions])
    done = dict(before) if before else gathered
    for each in gathered if before else ():
        _insert(each, done)
    if done.keys() == before.keys():
        return specification
    if len(done) > MAX_CONJUNCTIONS:
        return TRUE
    ordered = [each for each in before if each in done]
    for each in done:
        if each not in before:
            insort(ordered, each, key=_key)
    return Filter(tuple(ordered))  # canonical: sorted, and nothing in it contains another


@lru_cache(_REMEMBERED)
def narrowed(specification: Filter, lost: tuple[Filter, ...], others: tuple[Filter, ...]) -> Filter:
    """A merged specification without some of those it was merged from; `others` are the rest.

    Only the alternatives that the lost ones went into are merged anew.

    >>> import palio
    >>> low, high = palio.parse("x < 3"), palio.parse("x > 5")
    >>> str(narrowed(widened(low, (high,)), (high,), (low,)))
    'x < 3'
    """
    gone = [each for one in lost for each in one.conjunctions]
    kept = {
        wide: None
        for wide in specification.conjunctions
        if not any(_covers(wide, each) for each in gone)
    }
    again = [
        Filter((each,))
        for one in others
        for each in one.conjunctions
        if each not in kept and not any(_covers(wide, each) for wide in kept)
    ]
    return widened(Filter(tuple(kept)), tuple(again))


def _gathered(conjunctions: list[Conjunction]) -> dict[Conjunction, None]:
    """Alternatives merged with each other, halves first: a long list grows out of long ones."""
    done: dict[Conjunction, None] = {}
    if len(conjunctions) > 2:
        middle = len(conjunctions) // 2
        done = _gathered(conjunctions[:middle])
        conjunctions = list(_gathered(conjunctions[middle:]))
    for each in conjunctions:
        if not each.is_contradiction:
            _insert(each, done)
    return done


def _insert(candidate: Conjunction, done: dict[Conjunction, None]) -> None:
    """Add an alternative, merged with another one if they make one, and that with others again."""
    while candidate not in done:
        for known in done:
            if not _may_merge(candidate, known):
                continue
            whole = merged((known, candidate))
            if len(whole) == 1:
                if whole[0] == known:
                    return
                del done[known]
                (candidate,) = whole
                break
        else:
            done[candidate] = None


def _may_merge(one: Conjunction, other: Conjunction) -> bool:
    """A quick no: two that differ in several attributes merge only if one covers the other."""
    if _clash(one, other):
        if len(one.constraints) != len(other.constraints):
            return False
        return sum(a != b for a, b in zip(one.constraints, other.constraints, strict=True)) == 1
    mine, theirs = one.domains, other.domains
    if mine.keys() != theirs.keys():
        return mine.keys() <= theirs.keys() or theirs.keys() <= mine.keys()
    if sum(domain != theirs[name] for name, domain in mine.items()) < 2:
        return True
    return one.covers(other) or other.covers(one)


def _covers(general: Conjunction, specific: Conjunction) -> bool:
    return not _clash(general, specific) and general.covers(specific)


def _clash(one: Conjunction, other: Conjunction) -> bool:
    """Whether an attribute must have one value here and another there."""
    theirs = _points(other)
    return any(theirs.get(name, value) != value for name, value in _points(one).items())


@lru_cache(_REMEMBERED)
def _points(conjunction: Conjunction) -> dict[str, Any]:
    """Attributes that must have one value, and which."""
    return {
        each.name: each.operand
        for each in conjunction.constraints
        if each.op is Op.EQ and not each.ignore_case
    }


def _key(conjunction: Conjunction) -> Any:
    return conjunction_key(conjunction.constraints, conjunction.residuals)


def includes(general: Filter, specific: Filter) -> bool:
    """Whether each alternative of one specification is covered by a single one of another.

    That is less than `covers` knows, and it is what merging leaves to ask; its cost is that of the
    alternatives which the two do not share.
    """
    shared = set(general.conjunctions)
    return all(
        any(_covers(wide, each) for wide in general.conjunctions)
        for each in specific.conjunctions
        if each not in shared
    )


def combined(demands: Iterable[Demand]) -> Demand:
    """The fewest wishes that ask for what the given ones ask for.

    Unlimited ones merge into one specification for each PRE bit. Those with a count do not merge
    with others (an event that only one of them matches must not use up the other's count); of
    equal specifications the larger count serves both. A wish covered by an unlimited one adds
    nothing.
    """
    return adjusted(_NOTHING, demands)


def adjusted(
    told: Demand,
    grown: Iterable[Demand],
    lost: tuple[Filter, ...] = (),
    everything: Sequence[Demand] = (),
) -> Demand:
    """The earlier result of `combined`, `told`, brought up to date with the wishes added since.

    With `lost`, wishes that went, it takes all that there are now: a lost one may have hidden
    others.
    """
    merged_so_far, added = unlimited(told), list(grown)
    whole: dict[bool, Filter] = {}
    for pre in (True, False):
        specification = merged_so_far.get(pre, FALSE)
        if lost:
            specification = narrowed(specification, lost, _specifications(everything, pre))
        whole[pre] = widened(specification, _specifications(added, pre))
    standing, ordinary = whole[True], _without(whole[False], whole[True])
    counted: dict[tuple[bool, Filter], int] = {}
    for demand in everything if lost else (told, *added):
        for key, count in demand.items():
            if count is not None:
                counted[key] = max(count, counted.get(key, 0))
    found: Demand = {(True, standing): None, (False, ordinary): None}
    for key, count in counted.items():
        if not includes(standing, key[1]) and (key[0] or not includes(ordinary, key[1])):
            found[key] = count
    return {key: count for key, count in found.items() if key[1] != FALSE}


def _specifications(demands: Iterable[Demand], pre: bool) -> tuple[Filter, ...]:
    return tuple(
        wish
        for demand in demands
        for (bit, wish), count in demand.items()
        if bit is pre and count is None
    )


def _without(specification: Filter, covering: Filter) -> Filter:
    """The alternatives of a specification that another one does not cover."""
    if FALSE in (specification, covering):
        return specification
    return Filter.of(
        each
        for each in specification.conjunctions
        if not any(_covers(wide, each) for wide in covering.conjunctions)
    )


def says_the_same(told: Demand, wanted: Demand) -> bool:
    """Whether a neighbour that was told the one need not be told the other.

    A count that went down is known to it, as it counts the same events; one that went up is not.
    Merging in another order may write the same specification in another way, which is no news
    either.
    """
    if len(told) != len(wanted):
        return False
    for key, count in wanted.items():
        if key in told:
            known = told[key]
            if (known is None) != (count is None) or (known or 0) < (count or 0):
                return False
        elif count is not None or not any(
            known is None and pre is key[0] and _equivalent(specification, key[1])
            for (pre, specification), known in told.items()
        ):
            return False
    return True


def _equivalent(one: Filter, other: Filter) -> bool:
    return includes(one, other) and includes(other, one)
