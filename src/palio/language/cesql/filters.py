"""CESQL as filters: `loads` for an expression alone, `condition` for one within our language."""

from __future__ import annotations

from palio.errors import LimitExceeded, ParseError
from palio.language.cesql import functions
from palio.language.cesql.conditions import Condition, is_boolean, nodes_in
from palio.language.cesql.parsing import parse
from palio.language.cesql.reduction import FALSE, TRUE, inverse, reduced
from palio.language.cesql.syntax import Attribute, Call, Expression, Like, Literal
from palio.language.cesql.values import STRING_ATTRIBUTES
from palio.model import expressions as model
from palio.model.expressions import Boolean, Test
from palio.model.filters import Filter, reduce
from palio.model.operators import Op, check_like_size

__all__ = ["condition", "loads"]


def loads(text: str) -> Filter:
    """The filter that a CESQL expression is: what reduces exactly as constraints, the rest whole.

    An event matches when the expression's value is true and there is no error (CESQL 1.2). A
    function that does not exist is refused here rather than met as an error in every event.

    >>> print(loads("type = 'order.created' AND hop < 8"))
    type = 'order.created' AND CESQL 'hop < 8'
    >>> loads("type = 'order.created' AND hop < 8").matches({"type": "order.created", "hop": "5"})
    True
    """
    expression = _read(text)
    if not is_boolean(expression):
        return reduce(_unlikely(expression))
    found = reduced(expression)
    try:
        return reduce(found.true.condition)
    except LimitExceeded:  # too many alternatives, which one residual says together
        return reduce(Condition(expression))


def condition(text: str) -> Boolean:
    """The meaning of `CESQL '...'` in our language, even after a NOT: an error is *unknown*.

    A single test keeps that meaning as a constraint. Anything larger stays whole, since AND and OR
    of our language look further than those of CESQL when their left side is unknown.

    >>> print(condition("exists subject and hop < 8").text)
    CESQL 'EXISTS subject AND hop < 8'
    """
    expression = _read(text)
    if not is_boolean(expression):
        return _unlikely(expression)
    found = reduced(expression)
    true, false = found.true.condition, found.false.condition
    if isinstance(true, Test) and false == inverse(true):
        return true
    if (true, false) in ((TRUE, FALSE), (FALSE, TRUE)):
        return true
    return Condition(expression)


def _unlikely(expression: Expression) -> Boolean:
    """An expression that is seldom or never a Boolean: an attribute that may be one, `1 + 1`."""
    if isinstance(expression, Attribute) and expression.name not in STRING_ATTRIBUTES:
        return model.test(model.Attribute(expression.name), Op.EQ, model.literal(True))
    return Condition(expression)


def _read(text: str) -> Expression:
    """The tree of a text whose functions all exist and whose constants are within limits."""
    expression = parse(text)
    for node in nodes_in(expression):
        match node:
            case Call(name, arguments, place) if functions.find(name, len(arguments)) is None:
                raise ParseError(
                    functions.missing(name, len(arguments)),
                    text=text,
                    line=text.count("\n", 0, place) + 1,
                    column=place - text.rfind("\n", 0, place),
                    offending=name,
                )
            case Literal(str(value)):
                model.literal(value)
            case Like(_, pattern):
                check_like_size(pattern)
            case _:
                pass
    return expression
