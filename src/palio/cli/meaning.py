"""The meaning of a filter: its alternatives, what each lets through, and that in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from palio.model.domains import ABSENT, ANYTHING, PRESENT, Domain
from palio.model.expressions import Literal
from palio.model.filters import Conjunction, Constraint, Filter, domain_of
from palio.model.merging import constraints_of
from palio.model.operators import Op
from palio.model.printing import show_name, show_scalar
from palio.model.relations import covers
from palio.model.values import coordinate, lowest

Document = dict[str, Any]
"""A meaning, as JSON has it."""


def meaning_of(filter: Filter, values: Mapping[str, Any]) -> Document:
    """The meaning of a filter, with the values of those parameters that are known."""
    known = {name: value for name, value in values.items() if name in filter.variables}
    filter = filter.substitute(known)
    return {
        "filter": str(filter),
        "attributes": sorted(filter.attributes),
        "variables": sorted(filter.variables),
        "alternatives": [
            _alternative(place, filter.conjunctions) for place in range(len(filter.conjunctions))
        ],
    }


def _alternative(place: int, conjunctions: Sequence[Conjunction]) -> Document:
    conjunction = conjunctions[place]
    attributes = list(_attributes(conjunction))
    return {
        "text": str(conjunction),
        "attributes": attributes,
        "residuals": [{"text": str(each), "cost": each.cost} for each in conjunction.residuals],
        "contradiction": any(attribute["nothing"] for attribute in attributes),
        "covered_by": _covered_by(place, conjunctions),
    }


def _attributes(conjunction: Conjunction) -> Iterator[Document]:
    """The values of each attribute that an alternative admits, and whether there are none."""
    by_name: dict[str, list[Constraint]] = {}
    for constraint in conjunction.constraints:
        by_name.setdefault(constraint.name, []).append(constraint)
    for name, constraints in by_name.items():
        without_parameters = [each for each in constraints if not each.variables]
        with_parameters = [each for each in constraints if each.variables]
        domain = _intersection(without_parameters)
        empty = domain is not None and domain.is_empty
        words = [] if domain is None else [in_words(name, domain, without_parameters)]
        if with_parameters and not empty:
            words.append(phrase(with_parameters))
        yield {"name": name, "admits": " and ".join(words), "nothing": empty}


def _intersection(constraints: Sequence[Constraint]) -> Domain | None:
    domain: Domain | None = None
    for each in constraints:
        domain = domain_of(each) if domain is None else domain.intersect(domain_of(each))
    return domain


def _covered_by(place: int, conjunctions: Sequence[Conjunction]) -> int | None:
    """Return the number of another alternative that matches everything this one matches.

    Of two equal ones the later is covered. Alternatives with parameters are not compared.
    """
    own = conjunctions[place]
    if own.variables or own.is_contradiction:
        return None
    for other, wide in enumerate(conjunctions):
        if other == place or wide.variables or not covers(Filter((wide,)), Filter((own,))):
            continue
        if other < place or not covers(Filter((own,)), Filter((wide,))):
            return other + 1
    return None


def lines(meaning: Document) -> Iterator[str]:
    """A meaning for people."""
    yield meaning["filter"]
    names = [show_name(name) for name in meaning["attributes"]]
    yield f"  attributes  {', '.join(names) or 'none'}"
    if meaning["variables"]:
        yield f"  parameters  {', '.join(f':{name}' for name in meaning['variables'])}"
    alternatives = meaning["alternatives"]
    if not alternatives:
        yield "  matches no event"
    for number, alternative in enumerate(alternatives, start=1):
        if len(alternatives) > 1:
            yield f"\n  alternative {number} of {len(alternatives)}: {alternative['text']}"
        yield from _alternative_lines(alternative)


def _alternative_lines(alternative: Document) -> Iterator[str]:
    shown = [(show_name(each["name"]), each["admits"]) for each in alternative["attributes"]]
    width = max((len(name) for name, _ in shown), default=0)
    for name, admits in shown:
        yield f"    {name:<{width}}  {admits}"
    for residual in alternative["residuals"]:
        yield f"    and then  {residual['text']}  (cost {residual['cost']})"
    if not shown and not alternative["residuals"]:
        yield "    matches every event"
    if alternative["contradiction"]:
        yield "    contradiction: no event matches it"
    if alternative["covered_by"] is not None:
        yield f"    superfluous: alternative {alternative['covered_by']} matches all of it"


# --- domains in words ---

_SHOWN_MEMBERS: Final = 12
"""Members of a list that are shown; the rest is counted."""

_PHRASES: Final[dict[Op, str]] = {
    Op.EXISTS: "any value",
    Op.ABSENT: "missing",
    Op.EQ: "exactly {}",
    Op.IN: "one of {}",
    Op.GT: "above {}",
    Op.GE: "at least {}",
    Op.LT: "below {}",
    Op.LE: "at most {}",
    Op.PREFIX: "starting with {}",
    Op.NOT_PREFIX: "not starting with {}",
    Op.SUFFIX: "ending with {}",
    Op.NOT_SUFFIX: "not ending with {}",
    Op.CONTAINS: "containing {}",
    Op.NOT_CONTAINS: "not containing {}",
    Op.LIKE: "like {}",
    Op.NOT_LIKE: "not like {}",
    Op.CIDR: "an address in {}",
    Op.NOT_CIDR: "no address in {}",
    Op.NE: "other than {}",
    Op.NOT_IN: "other than {}",
}
"""The words for each operator, in the order in which several are joined."""

_ORDER: Final = {op: place for place, op in enumerate(_PHRASES)}


def in_words(name: str, domain: Domain, constraints: Sequence[Constraint]) -> str:
    """The values that a domain admits in words, given the constraints that it comes from.

    Uses the constraints as written, or a shorter equivalent list if there is one.

    >>> import palio
    >>> (one,) = palio.parse("price >= 1 AND price < 5").conjunctions
    >>> in_words("price", one.domains["price"], one.constraints)
    'a number at least 1 and below 5'
    """
    if domain.is_empty:
        return "nothing: no value can be all of this"
    for known, words in _WHOLE:
        if domain == known:
            return words
    exact = constraints_of(name, domain)
    return phrase(constraints if exact is None or len(exact) >= len(constraints) else exact)


_WHOLE: Final = ((ANYTHING, "anything, or missing"), (PRESENT, "any value"), (ABSENT, "missing"))


def phrase(constraints: Sequence[Constraint]) -> str:
    """Several constraints on one attribute as one phrase."""
    informative = [each for each in constraints if not _only_fixes_kind(each)]
    informative.sort(key=lambda each: _ORDER[each.op])
    words = " and ".join(map(_phrase, informative))
    noun = "" if any(each.op in _SELF_TELLING for each in informative) else _noun(constraints)
    return f"{noun} {words}".strip()


_SELF_TELLING: Final = frozenset({Op.EQ, Op.IN, Op.CIDR, Op.EXISTS, Op.ABSENT})
"""Operators that imply the kind of value."""


def _only_fixes_kind(constraint: Constraint) -> bool:
    """Return whether a constraint only fixes the kind of value: `name STARTS WITH ''`."""
    operand = constraint.operand
    return (
        constraint.op in (Op.GE, Op.PREFIX)
        and isinstance(operand, Literal)
        and coordinate(operand.value) == lowest(operand.kind)
    )


def _phrase(constraint: Constraint) -> str:
    operand = constraint.operand
    if operand is None:
        return _PHRASES[constraint.op]
    if isinstance(operand, tuple):
        shown = ", ".join(map(show_scalar, operand[:_SHOWN_MEMBERS]))
        if len(operand) > _SHOWN_MEMBERS:
            shown += f" and {len(operand) - _SHOWN_MEMBERS} more"
    else:
        shown = show_scalar(operand)
    return _PHRASES[constraint.op].format(shown) + " in any case" * constraint.ignore_case


def _noun(constraints: Sequence[Constraint]) -> str:
    """The kind of value that the constraints are about, if a constant shows it."""
    for each in constraints:
        first = each.operand[0] if isinstance(each.operand, tuple) else each.operand
        if isinstance(first, Literal):
            return first.kind.noun
    return ""
