"""Texts that are known conditions joined by AND.

Shapes of texts are many where their conditions are few: `price < 5 AND symbol = 'IBM'` is put
together from `price < 5` and `symbol = 'IBM'`, if texts with these two conditions, whatever their
constants, were read before.

A condition is known by what is left of it without its plain literals (`templates.split`). It is
read by itself, the second time that it is met, and has a template only if nothing in it can reach
beyond an AND: no operator that binds more loosely, and no comment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from palio.errors import InvalidInput
from palio.language.lexer import tokens
from palio.language.templates import (
    MAX_TEMPLATES,
    ConditionsOf,
    Key,
    SplitText,
    is_seen,
    lift,
    make_template,
)
from palio.model.constraints import Constraint
from palio.model.filters import Filter, all_of, reduce
from palio.model.values import Value

__all__ = ["joined"]

_LOOSER: Final = frozenset({"OR", "XOR", "THEN", "WITHIN"})
"""Tokens of operators that an AND beside them would take apart."""

MOST_LEARNED: Final = 8
"""Conditions of one text that are read by themselves: a millisecond each at the worst."""

_known: dict[Key, _Condition | None] = {}
"""Conditions by what they are without their plain literals; None for what is none by itself."""


class _Condition(NamedTuple):
    """Constraints whose constants are slots; None if each text is read, as a LIKE pattern is."""

    constraints: tuple[Constraint, ...] | None

    def fill(self, piece: SplitText, conditions_of: ConditionsOf) -> tuple[Constraint, ...] | None:
        """The constraints that a text is; None if it is more than a conjunction of some."""
        if self.constraints is None:
            (condition,) = conditions_of(tokens(_text(piece)))
            return _constraints(reduce(condition))
        values = {str(place): value for place, value in enumerate(piece.values)}
        return tuple([each.substitute(values) for each in self.constraints])


def joined(parts: SplitText, conditions_of: ConditionsOf) -> Filter | None:
    """The filter of a text whose conditions are known; None for any other text.

    What is not known may be the next time, with the reader of tokens that is handed over.
    """
    pieces = _pieces(parts)
    if len(pieces) < 2 or not _are_known(pieces, conditions_of):
        return None
    leaves: list[Constraint] = []
    for piece in pieces:
        condition = _known.get(piece.key)
        found = None if condition is None else condition.fill(piece, conditions_of)
        if found is None:
            return None
        leaves += found
    return all_of(leaves)


def _are_known(pieces: Sequence[SplitText], conditions_of: ConditionsOf) -> bool:
    """Whether all are; those that are not are learned the second time that they are met."""
    missing = {piece.key: piece for piece in pieces if piece.key not in _known}
    for piece in islice(missing.values(), MOST_LEARNED):
        if not is_seen(piece):
            continue
        if len(_known) >= MAX_TEMPLATES:
            _known.clear()
        _known[piece.key] = None
        with suppress(InvalidInput):
            _known[piece.key] = _learned(_text(piece), piece.values, conditions_of)
    return not missing


def _learned(text: str, values: Sequence[Value], conditions_of: ConditionsOf) -> _Condition | None:
    """What the text of a condition is; None if it could reach beyond an AND."""
    if "--" in text or text.count("(") != text.count(")"):
        return None
    found = tokens(text)
    if any(each.type in _LOOSER for each in found):
        return None
    (condition,) = conditions_of(found)
    lifted = lift(found)
    if lifted is not None and lifted.values == values:
        template = make_template(lifted, reduce(condition), conditions_of)
        if template is not None:
            constraints = _constraints(template.skeleton)
            return None if constraints is None else _Condition(constraints)
    return _Condition(None)


def _constraints(filter: Filter) -> tuple[Constraint, ...] | None:
    """The constraints that a filter is a conjunction of; None if it is anything else."""
    if len(filter.conjunctions) != 1 or filter.conjunctions[0].residuals:
        return None
    return filter.conjunctions[0].constraints


def _text(piece: SplitText) -> str:
    """A text that is split so."""
    values = iter(piece.values)
    return "".join(
        part
        if isinstance(part, str)
        else repr(next(values))
        if part == 1
        else f"'{next(values)!s}'"
        for part in piece.key
    )


def _pieces(parts: SplitText) -> list[SplitText]:
    """What stands between one AND and the next; that of a BETWEEN does not count."""
    pieces: list[SplitText] = []
    key: list[int | str] = []
    first = last = 0
    is_between = False
    for part in parts.key:
        if isinstance(part, int):
            key.append(part)
            last += 1
            continue
        head, *rest = part.split(" AND ")
        key.append(head)
        is_between |= head.endswith(" BETWEEN ")
        for each in rest:
            if is_between:
                key[-1] = f"{key[-1]} AND {each}"
            else:
                pieces.append(SplitText(tuple(key), parts.values[first:last]))
                key, first = [each], last
            is_between = each.endswith(" BETWEEN ")
    pieces.append(SplitText(tuple(key), parts.values[first:last]))
    return pieces
