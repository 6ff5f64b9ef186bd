"""`palio explain`: what a filter means, alternative by alternative, and the verdict on an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from palio.cli.domain_words import in_words, phrase
from palio.cli.inputs import bindings, check_bindings, events
from palio.cli.quoting import show_hints
from palio.cli.reporting import show
from palio.errors import InvalidEvent
from palio.language.parsing import parse
from palio.model.domains import Domain
from palio.model.filters import Conjunction, Constraint, Filter, domain_of
from palio.model.patterns import Pattern
from palio.model.printing import show_duration, show_name
from palio.model.relations import covers

__all__ = ["explain"]


class AttributeMeaning(msgspec.Struct, frozen=True):
    """The values of one attribute that an alternative admits."""

    name: str
    admits: str
    nothing: bool = False
    """Whether no value at all is admitted."""


class ResidualMeaning(msgspec.Struct, frozen=True):
    """A condition that is no set of values of one attribute, and what it costs to evaluate."""

    text: str
    cost: int


class ConjunctionMeaning(msgspec.Struct, frozen=True):
    """One conjunction of a filter."""

    text: str
    attributes: tuple[AttributeMeaning, ...]
    residuals: tuple[ResidualMeaning, ...]
    contradiction: bool
    covered_by: int | None
    """The number (from 1) of an alternative that matches everything this one does."""


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of a filter, for people and programs."""

    filter: str
    attributes: tuple[str, ...]
    variables: tuple[str, ...]
    alternatives: tuple[ConjunctionMeaning, ...]


def explain(text: str, source: str | None, parameters: Sequence[str], *, as_json: bool) -> int:
    """Print what a filter or a pattern means, with the values of the parameters that are given."""
    what = parse(text)
    values = bindings(parameters)
    check_bindings(what, values)
    steps = what.steps if isinstance(what, Pattern) else (what,)
    event = None if source is None else _only_event(source)
    meanings = [meaning_of(step, values) for step in steps]
    # With an event every parameter must have a value; without one, those that have none stay.
    verdicts = (
        []
        if event is None
        else [step.explain(event, what_is_needed(step, values)) for step in steps]
    )
    if as_json:
        document = [msgspec.to_builtins(each) for each in meanings]
        for place, verdict in enumerate(verdicts):
            document[place]["event"] = msgspec.to_builtins(verdict)
        show(_document(what, document))
        return 0
    show_hints(text)
    if isinstance(what, Pattern):
        show(f"{what}\n  a pattern of {len(steps)} steps{_span(what)}")
    for number, each in enumerate(meanings, start=1):
        if isinstance(what, Pattern):
            show(f"\nstep {number}")
        show("\n".join(_lines(each)))
        if verdicts:
            show(f"\nthis event: {verdicts[number - 1]}")
    return 0


def what_is_needed(step: Filter, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a step has parameters for; a missing one is refused."""
    own = {name: value for name, value in values.items() if name in step.variables}
    step.bind(own)
    return own


def _document(what: Filter | Pattern, meanings: list[dict[str, Any]]) -> dict[str, Any]:
    if isinstance(what, Filter):
        return meanings[0]
    seconds = None if what.within is None else what.within.total_seconds()
    return {"pattern": str(what), "within_s": seconds, "steps": meanings}


def _span(pattern: Pattern) -> str:
    return "" if pattern.within is None else f" within {show_duration(pattern.within)}"


def _only_event(source: str) -> dict[str, Any]:
    found = [event for _, event in events(source)]
    if len(found) > 1:
        raise InvalidEvent(
            f"explain takes one event, and these are {len(found)}; `palio test` takes many"
        )
    return found[0]


def meaning_of(filter: Filter, values: Mapping[str, Any]) -> Meaning:
    """The meaning of a filter, with the values of those parameters that are known."""
    known = {name: value for name, value in values.items() if name in filter.variables}
    filter = filter.substitute(known)
    conjunctions = filter.conjunctions
    return Meaning(
        str(filter),
        tuple(sorted(filter.attributes)),
        tuple(sorted(filter.variables)),
        tuple(
            _alternative(each, _coverer(place, conjunctions))
            for place, each in enumerate(conjunctions)
        ),
    )


def _alternative(conjunction: Conjunction, covered_by: int | None) -> ConjunctionMeaning:
    attributes = tuple(_attributes(conjunction))
    return ConjunctionMeaning(
        str(conjunction),
        attributes,
        tuple(ResidualMeaning(str(each), each.cost) for each in conjunction.residuals),
        any(each.nothing for each in attributes),
        covered_by,
    )


def _attributes(conjunction: Conjunction) -> Iterator[AttributeMeaning]:
    by_name: dict[str, list[Constraint]] = {}
    for constraint in conjunction.constraints:
        by_name.setdefault(constraint.name, []).append(constraint)
    for name, constraints in by_name.items():
        fixed = [each for each in constraints if not each.variables]
        moving = [each for each in constraints if each.variables]
        domain = _intersection(fixed)
        empty = domain is not None and domain.is_empty
        words = [] if domain is None else [in_words(name, domain, fixed)]
        if moving and not empty:
            words.append(phrase(moving))
        yield AttributeMeaning(name, " and ".join(words), empty)


def _intersection(constraints: Sequence[Constraint]) -> Domain | None:
    domain: Domain | None = None
    for each in constraints:
        domain = domain_of(each) if domain is None else domain.intersect(domain_of(each))
    return domain


def _coverer(place: int, conjunctions: Sequence[Conjunction]) -> int | None:
    """The number of another alternative that makes this one superfluous.

    Of two that match the same events the later one is. What parameters move is not compared.
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


def _lines(meaning: Meaning) -> Iterator[str]:
    yield meaning.filter
    names = [show_name(name) for name in meaning.attributes]
    yield f"  attributes  {', '.join(names) or 'none'}"
    if meaning.variables:
        yield f"  parameters  {', '.join(f':{name}' for name in meaning.variables)}"
    several = len(meaning.alternatives) > 1
    if not meaning.alternatives:
        yield "  matches no event"
    for number, alternative in enumerate(meaning.alternatives, start=1):
        if several:
            yield f"\n  alternative {number} of {len(meaning.alternatives)}: {alternative.text}"
        yield from _alternative_lines(alternative)


def _alternative_lines(alternative: ConjunctionMeaning) -> Iterator[str]:
    shown = [(show_name(each.name), each.admits) for each in alternative.attributes]
    width = max((len(name) for name, _ in shown), default=0)
    for name, admits in shown:
        yield f"    {name:<{width}}  {admits}"
    for residual in alternative.residuals:
        yield f"    and then  {residual.text}  (cost {residual.cost})"
    if not shown and not alternative.residuals:
        yield "    matches every event"
    if alternative.contradiction:
        yield "    contradiction: no event matches it"
    if alternative.covered_by is not None:
        yield f"    superfluous: alternative {alternative.covered_by} matches all of it"
