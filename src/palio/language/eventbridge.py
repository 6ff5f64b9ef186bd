"""EventBridge event patterns, the language of event-ruler.

A pattern mirrors the event: nested objects lead to fields, a field has a list of which one must
hold, all fields must hold, and `$or` takes alternatives. Nested names become dotted ones, as
`palio.model.flatten` makes them of an event: `{"detail": {"state": ["on"]}}` tests `detail.state`.

What event-ruler refuses is refused here, so that a mistake does not wait for the move to it.
docs/reference/dialects.md lists where the two read a pattern differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from palio.errors import InvalidFilter
from palio.language.documents import (
    Json,
    attribute_name,
    constant,
    error_at,
    member_path,
    quoted,
    read_document,
)
from palio.language.twovalued import not_true
from palio.model.expressions import All, AnyOf, Attribute, Boolean, Literal, Test, test
from palio.model.filters import Filter, reduce
from palio.model.limits import MAX_IN_VALUES, check_limit
from palio.model.operators import Op
from palio.model.values import Kind

_OR: Final = "$or"
_RESERVED: Final = frozenset(
    {"exactly", "prefix", "suffix", "equals-ignore-case", "wildcard", "anything-but", "numeric"}
    | {"cidr", "exists", "=", "<", "<=", ">", ">=", "regex", "not-wildcard"}
    | {"not-equals-ignore-case", "date-after", "date-on-or-after", "date-before"}
    | {"date-on-or-before", "in-date-range", "ip-address-in-range", "ip-address-not-in-range"}
)
"""Names that event-ruler keeps for operators: inside `$or` they are no field names."""


def loads(document: str | Mapping[str, Any]) -> Filter:
    """The filter that an event pattern is.

    >>> print(loads('{"source": [{"prefix": "aws."}], "detail": {"state": ["on", "off"]}}'))
    detail.state IN ('off', 'on') AND source STARTS WITH 'aws.'
    >>> print(loads({"$or": [{"n": [{"numeric": [">", 0, "<=", 5]}]}, {"n": [{"exists": False}]}]}))
    n <= 5 AND n > 0 OR n IS NULL
    """
    pattern = read_document(document)
    if not isinstance(pattern, dict):
        raise error_at("$", f"an event pattern is an object, not {quoted(pattern)}")
    return reduce(_fields(pattern, "", "$", False).condition)


# Objects: fields, all of which must hold, and alternatives.


class _Part(NamedTuple):
    """A condition and the attributes that it names."""

    condition: Boolean
    names: frozenset[str]


def _fields(pattern: dict[str, Json], prefix: str, path: str, in_or: bool) -> _Part:
    """All members of an object."""
    if not pattern:
        raise error_at(path, "an empty object is no condition", "name a field, or drop it")
    conditions: list[Boolean] = []
    names: frozenset[str] = frozenset()
    for key, value in pattern.items():
        place = member_path(path, key)
        if in_or and key in _RESERVED:
            raise error_at(place, f"inside {_OR}, {key} is an operator and no field")
        part = _member(key, value, f"{prefix}.{key}" if prefix else key, place, prefix, in_or)
        twice = names & part.names
        if twice:  # event-ruler lets the last one win
            raise error_at(place, f"the field {quoted(min(twice))} is named twice", "keep one list")
        names |= part.names
        conditions.append(part.condition)
    return _Part(All(tuple(conditions)), names)


def _member(key: str, value: Json, name: str, path: str, prefix: str, in_or: bool) -> _Part:
    if key == _OR:
        return _either(value, prefix, path)
    if isinstance(value, dict):
        return _fields(value, name, path, in_or)
    if isinstance(value, list):
        attribute = attribute_name(name, path)
        return _Part(_values(value, attribute, path), frozenset((attribute,)))
    raise error_at(
        path, f"a field takes a list or nested fields, not {quoted(value)}", "write [...] round it"
    )


def _either(value: Json, prefix: str, path: str) -> _Part:
    """The alternatives of `$or`."""
    if not isinstance(value, list) or len(value) < 2:
        raise error_at(path, f"{_OR} takes a list of two or more objects, not {quoted(value)}")
    parts = []
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if not isinstance(item, dict):
            raise error_at(place, f"an alternative is an object, not {quoted(item)}")
        parts.append(_fields(item, prefix, place, True))
    names = frozenset[str]().union(*(part.names for part in parts))
    return _Part(AnyOf(tuple(part.condition for part in parts)), names)


# Fields: values and operators, one of which must hold.


def _values(values: list[Json], name: str, path: str) -> Boolean:
    """The list of a field. Plain values of one kind become one IN."""
    conditions: list[Boolean] = []
    plain: dict[Kind, list[Literal]] = {}
    for value, place in _listed(values, path):
        if isinstance(value, dict):
            conditions.append(_operator(value, name, place))
        elif isinstance(value, list):
            raise error_at(place, "a list inside a list", "one level is enough")
        elif value is None:
            conditions.append(test(Attribute(name), Op.ABSENT))
        else:
            term = constant(value, place)
            plain.setdefault(term.kind, []).append(term)
    conditions += [test(Attribute(name), Op.IN, tuple(group)) for group in plain.values()]
    return conditions[0] if len(conditions) == 1 else AnyOf(tuple(conditions))


def _listed(values: list[Json], path: str) -> list[tuple[Json, str]]:
    """The members of a list with their paths."""
    if not values:
        raise error_at(path, "an empty list matches nothing", "name a value, or drop the list")
    check_limit(f"the list at {path}", "MAX_IN_VALUES", MAX_IN_VALUES, len(values))
    return [(value, f"{path}[{index}]") for index, value in enumerate(values)]


def _operator(body: dict[str, Json], name: str, path: str) -> Boolean:
    """`{"prefix": "a"}` and the like."""
    operator, operand, place = _single(body, path)
    read = _OPERATORS.get(operator)
    if read is None:
        raise error_at(path, f"unknown operator {quoted(operator)}", _KNOWN)
    return read(name, operand, place)


def _single(body: dict[str, Json], path: str) -> tuple[str, Json, str]:
    """The one operator of an object, its operand and the operand's path."""
    if len(body) != 1:
        raise error_at(
            path, f"one operator an object, not {quoted(body)}", "list several side by side"
        )
    ((operator, operand),) = body.items()
    return operator, operand, member_path(path, operator)


def _text(operand: Json, path: str) -> Literal:
    if not isinstance(operand, str):
        raise error_at(path, f"takes a string, not {quoted(operand)}")
    return constant(operand, path)


def _exactly(name: str, operand: Json, path: str) -> Test:
    return test(Attribute(name), Op.EQ, _text(operand, path))


def _equals_ignore_case(name: str, operand: Json, path: str) -> Test:
    return test(Attribute(name), Op.EQ, _text(operand, path), ignore_case=True)


def _affix(op: Op) -> Callable[[str, Json, str], Test]:
    """`prefix` or `suffix`, of a string or of `{"equals-ignore-case": string}`."""

    def read(name: str, operand: Json, path: str) -> Test:
        ignore_case = isinstance(operand, dict)
        if isinstance(operand, dict):
            operator, operand, inner = _single(operand, path)
            if operator != "equals-ignore-case":
                raise error_at(
                    path, f"unknown operator {quoted(operator)}", "use equals-ignore-case"
                )
            path = inner
        return test(Attribute(name), op, _text(operand, path), ignore_case=ignore_case)

    return read


def _wildcard(name: str, operand: Json, path: str) -> Test:
    pattern = _text(operand, path).value
    return test(Attribute(name), Op.LIKE, constant(_like(pattern, path), path))


def _like(wildcard: str, path: str) -> str:
    """A wildcard pattern as a LIKE pattern: `*` is any text, after a backslash it is itself."""
    pieces = []
    for piece in _WILDCARD_PIECE.findall(wildcard):
        if piece == "**":
            raise error_at(path, "two * in a row", "one matches as much")
        if piece == "\\":
            raise error_at(path, "a backslash stands before * or another backslash only")
        pieces.append(_LIKE_PIECES.get(piece, piece))
    return "".join(pieces)


_WILDCARD_PIECE: Final = re.compile(r"\\[\\*]|\*\*|.", re.DOTALL)
_LIKE_PIECES: Final = {"*": "%", "\\*": "*", "\\\\": "\\\\", "%": "\\%", "_": "\\_"}


def _cidr(name: str, operand: Json, path: str) -> Test:
    block = _text(operand, path)
    if not _BLOCK.fullmatch(block.value):
        raise error_at(
            path, f"{quoted(operand)} is no address block", 'write it like "10.0.0.0/24"'
        )
    try:
        return test(Attribute(name), Op.CIDR, block)
    except InvalidFilter as error:
        raise error_at(path, str(error)) from None


_BLOCK: Final = re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}")


def _exists(name: str, operand: Json, path: str) -> Test:
    if not isinstance(operand, bool):
        raise error_at(path, f"takes true or false, not {quoted(operand)}")
    return test(Attribute(name), Op.EXISTS if operand else Op.ABSENT)


def _numeric(name: str, operand: Json, path: str) -> Boolean:
    """`[op, number]`, or `[">" or ">=", low, "<" or "<=", high]`."""
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise error_at(path, f'takes a list like [">", 0, "<=", 5], not {quoted(operand)}')
    first = _comparison(name, operand[:2], f"{path}[0]")
    if len(operand) == 2:
        return first
    second = _comparison(name, operand[2:], f"{path}[2]")
    _check_range(first, second, path)
    return All((first, second))


def _comparison(name: str, pair: list[Json], path: str) -> Test:
    symbol, number = pair
    op = _COMPARISONS.get(symbol) if isinstance(symbol, str) else None
    if op is None:
        raise error_at(path, f"{quoted(symbol)} is none of {' '.join(_COMPARISONS)}")
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise error_at(path, f"{symbol} takes a number, not {quoted(number)}")
    return test(Attribute(name), op, constant(number, path))


_COMPARISONS: Final = {"=": Op.EQ, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}


def _check_range(low: Test, high: Test, path: str) -> None:
    assert isinstance(low.operand, Literal)
    assert isinstance(high.operand, Literal)
    if low.op not in (Op.GT, Op.GE) or high.op not in (Op.LT, Op.LE):
        raise error_at(path, "a range has its lower bound (> or >=) first and then < or <=")
    closed = low.op is Op.GE and high.op is Op.LE
    a, b = low.operand.value, high.operand.value
    if a > b or (a == b and not closed):
        raise error_at(path, "the range is empty", "its lower bound must be below its upper one")


def _anything_but(name: str, operand: Json, path: str) -> Boolean:
    """Present, and with none of the values: what is of another kind has none of them."""
    if isinstance(operand, dict):
        operator, inner, path = _single(operand, path)
        read = _NEGATABLE.get(operator)
        if read is None:
            raise error_at(
                path,
                f"unknown operator {quoted(operator)} in anything-but",
                f"it takes values, or one of {', '.join(_NEGATABLE)}",
            )
        texts = _listed(inner, path) if isinstance(inner, list) else [(inner, path)]
        if operator in ("prefix", "suffix") and any(text == "" for text, _ in texts):
            raise error_at(path, f"every text has the empty {operator}")
        checks = [read(name, _text(text, place).value, place) for text, place in texts]
        return not_true(name, checks, present=True)
    constants = []
    for value, place in _listed(operand, path) if isinstance(operand, list) else [(operand, path)]:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise error_at(place, f"takes a string or a number, not {quoted(value)}")
        constants.append(constant(value, place))
    if len({constant.kind for constant in constants}) > 1:
        raise error_at(path, f"takes strings only or numbers only, not {quoted(operand)}")
    return not_true(name, [test(Attribute(name), Op.IN, tuple(constants))], present=True)


_OPERATORS: Final[dict[str, Callable[[str, Json, str], Boolean]]] = {
    "exactly": _exactly,
    "prefix": _affix(Op.PREFIX),
    "suffix": _affix(Op.SUFFIX),
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "cidr": _cidr,
    "exists": _exists,
}
_KNOWN: Final = f"the operators are {', '.join(_OPERATORS)}"
_NEGATABLE: Final[dict[str, Callable[[str, Json, str], Test]]] = {
    "prefix": _affix(Op.PREFIX),
    "suffix": _affix(Op.SUFFIX),
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
}
