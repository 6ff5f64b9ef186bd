"""CloudEvents Subscriptions API filters: exact, prefix, suffix, all, any, not and sql.

A CloudEvents filter is either true or false of an event; ours may also be unknown. So `not` is
pushed to the leaves while reading, where twovalued.py negates it.
docs/reference/dialects.md has the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from palio.errors import InvalidInput, LimitExceeded
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
from palio.model.expressions import All, AnyOf, Attribute, Boolean, Literal, Test, literal, test
from palio.model.filters import Filter, reduce
from palio.model.limits import MAX_TOKENS, check_limit
from palio.model.operators import Op
from palio.model.values import INT64_MAX, INT64_MIN


def loads(document: str | list[Any] | Mapping[str, Any]) -> Filter:
    """The filter that a CloudEvents filter is, or a list of them, which must all be true.

    >>> str(loads('{"exact": {"type": "order.created", "source": "/shop"}}'))
    "source = '/shop' AND type = 'order.created'"
    >>> loads([{"not": {"prefix": {"subject": "test-"}}}]).matches({"type": "order.created"})
    True
    >>> str(loads([]))
    'TRUE'
    """
    filters = read_document(document)
    if isinstance(filters, list):
        return _together({f"$[{i}]": filter for i, filter in enumerate(filters)})
    return _together({"$": filters})


def load_parts(parts: Mapping[str, Any]) -> Filter:
    """The filter of parts of a larger document, which must all be true, each under its path there.

    >>> str(load_parts({"$.filters[1]": {"prefix": {"type": "order."}}}))
    "type STARTS WITH 'order.'"
    """
    read = read_document(list(parts.values()))
    assert isinstance(read, list)
    return _together(dict(zip(parts, read, strict=True)))


def _together(parts: Mapping[str, Json]) -> Filter:
    _check_weight(list(parts.values()))
    factors = [one for path, member in parts.items() for one in _filter(member, path, False)]
    return reduce(_product(factors))


def _check_weight(filters: Json) -> None:
    """Refuse CESQL texts that are together more than one may be."""
    waiting, total = [filters], 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            text = part.get("sql")
            waiting += part.values()
            if isinstance(text, str):
                from palio.language.cesql.syntax import weight

                total += weight(text)
    check_limit(
        "the words and signs of the CESQL expressions, each counted twice",
        "MAX_TOKENS",
        MAX_TOKENS,
        total,
    )


# What a filter means. Every reader takes a part of the document, its path, and whether the negation
# of it is wanted. It returns factors, all of which must hold.


class _Unmet(NamedTuple):
    """A negated leaf: none of these tests of one attribute is true."""

    name: str
    checks: list[Test]


_Factor: TypeAlias = Boolean | _Unmet


def _product(factors: Iterable[_Factor]) -> Boolean:
    """All factors as one condition, with one part for all negated leaves of an attribute.

    A long list of exclusions thus is one alternative and not a product of thousands.
    """
    conditions: list[Boolean] = []
    unmet: dict[str, list[Test]] = {}
    for factor in factors:
        if isinstance(factor, _Unmet):
            unmet.setdefault(factor.name, []).extend(factor.checks)
        else:
            conditions.append(factor)
    conditions += [not_true(name, checks) for name, checks in unmet.items()]
    return conditions[0] if len(conditions) == 1 else All(tuple(conditions))


def _filter(part: Json, path: str, negated: bool) -> list[_Factor]:
    """One filter expression: an object whose only key is its dialect."""
    if not isinstance(part, dict) or len(part) != 1:
        raise error_at(
            path, f"a filter is an object with one dialect as its key, not {quoted(part)}", _HINT
        )
    ((dialect, body),) = part.items()
    place = member_path(path, dialect)
    read = _DIALECTS.get(dialect)
    if read is None:
        raise error_at(place, f"the dialect {quoted(dialect)} is not supported", _HINT)
    return read(body, place, negated)


def _exact(body: Json, path: str, negated: bool) -> list[_Factor]:
    return _of_attributes(body, path, negated, _spellings)


def _prefix(body: Json, path: str, negated: bool) -> list[_Factor]:
    return _of_attributes(
        body, path, negated, lambda name, text: [test(Attribute(name), Op.PREFIX, text)]
    )


def _suffix(body: Json, path: str, negated: bool) -> list[_Factor]:
    return _of_attributes(
        body, path, negated, lambda name, text: [test(Attribute(name), Op.SUFFIX, text)]
    )


def _of_attributes(
    body: Json, path: str, negated: bool, tests: Callable[[str, Literal], list[Test]]
) -> list[_Factor]:
    """`{attribute: text, ...}`, where all must hold; each holds when one of its tests does."""
    if not isinstance(body, dict) or not body:
        raise error_at(path, f"takes an object of attributes and their text, not {quoted(body)}")
    leaves: list[tuple[str, list[Test]]] = []
    for key, text in body.items():
        place = member_path(path, key)
        name = attribute_name(key, place)
        if not isinstance(text, str) or not text:
            raise error_at(place, f"takes a text that is not empty, not {quoted(text)}")
        leaves.append((name, tests(name, constant(text, place))))
    if negated:
        return _one_of([[_Unmet(name, checks)] for name, checks in leaves])
    return [AnyOf(tuple(checks)) for _, checks in leaves]


def _spellings(name: str, text: Literal) -> list[Test]:
    """Equality with each value that CloudEvents writes as this text.

    An extension attribute may be an Integer or a Boolean: `"5"` is then the number 5 as well.
    """
    subject = Attribute(name)
    checks = [test(subject, Op.EQ, text)]
    other: bool | int | None = _BOOLEANS.get(text.value)
    if _INTEGER.fullmatch(text.value) and INT64_MIN <= int(text.value) <= INT64_MAX:
        other = int(text.value)
    if other is not None and not _is_string_attribute(name):
        checks.append(test(subject, Op.EQ, literal(other)))
    return checks


_BOOLEANS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


def _is_string_attribute(name: str) -> bool:
    from palio.language.cesql.values import STRING_ATTRIBUTES

    return name in STRING_ATTRIBUTES


def _all(body: Json, path: str, negated: bool) -> list[_Factor]:
    parts = _nested(body, path, negated)
    return _one_of(parts) if negated else [factor for part in parts for factor in part]


def _any(body: Json, path: str, negated: bool) -> list[_Factor]:
    parts = _nested(body, path, negated)
    return [factor for part in parts for factor in part] if negated else _one_of(parts)


def _nested(body: Json, path: str, negated: bool) -> list[list[_Factor]]:
    if not isinstance(body, list) or not body:
        raise error_at(path, f"takes a list of at least one filter, not {quoted(body)}")
    return [_filter(member, f"{path}[{i}]", negated) for i, member in enumerate(body)]


def _one_of(parts: list[list[_Factor]]) -> list[_Factor]:
    return parts[0] if len(parts) == 1 else [AnyOf(tuple(_product(part) for part in parts))]


def _not(body: Json, path: str, negated: bool) -> list[_Factor]:
    return _filter(body, path, not negated)


def _sql(body: Json, path: str, negated: bool) -> list[_Factor]:
    """A CESQL expression. An error makes the filter false, hence its `not` true."""
    from palio.language import cesql

    if not isinstance(body, str):
        raise error_at(path, f"takes the text of an expression, not {quoted(body)}")
    try:
        inner = cesql.loads(body)
    except LimitExceeded:
        raise
    except InvalidInput as error:
        raise error_at(path, str(error)) from error
    if not negated:
        parts: list[list[_Factor]] = [
            [
                *(constraint.as_test() for constraint in one.constraints),
                *(r.condition for r in one.residuals),
            ]
            for one in inner.conjunctions
        ]
        return _one_of(parts)
    if any(one.residuals for one in inner.conjunctions):
        raise error_at(
            path,
            "`not` negates only expressions that compare single attributes with constants",
            "write NOT inside this one (an error then makes the filter false either way)",
        )
    leaves = [
        [_Unmet(c.name, [c.as_test()]) for c in one.constraints] for one in inner.conjunctions
    ]
    return [factor for part in leaves for factor in _one_of([[leaf] for leaf in part])]


_DIALECTS: Final[dict[str, Callable[[Json, str, bool], list[_Factor]]]] = {
    "exact": _exact,
    "prefix": _prefix,
    "suffix": _suffix,
    "all": _all,
    "any": _any,
    "not": _not,
    "sql": _sql,
}
DIALECTS: Final = tuple(_DIALECTS)
"""The keys that a filter may have."""

_HINT: Final = f"the dialects are {', '.join(DIALECTS)}"
