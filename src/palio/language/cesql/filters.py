"""CESQL as filters: `loads` for an expression alone, `condition` for one within our language.

A residual is evaluated for every event: a thousand filters `type = '...'` took 2.8 ms an event as
residuals, and take 9 us in an index. So tests of one attribute become constraints, by themselves
and joined by AND or OR:

- An attribute that CloudEvents defines as a string is a String or an error. Its tests are true, and
  false, of the same events as ours.
- An extension may be of any type, and CESQL compares its text. `ext = 'IBM.N'` is true of that text
  alone, `ext = 'aGk='` of those bytes as well; ours has no test of a number's text.

- AND is true where all of its operands are. An error on the left ends an OR, where SQL would look
  further: what follows the test of a string is guarded by that being one.

Everything else stays whole.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from palio.errors import LimitExceeded, ParseError
from palio.language.cesql import functions, syntax
from palio.language.cesql.evaluation import evaluate, type_of
from palio.language.cesql.parsing import parse
from palio.language.cesql.values import REQUIRED_ATTRIBUTES, STRING_ATTRIBUTES, text_of
from palio.model import expressions as model
from palio.model.expressions import All, AnyOf, Boolean, Foreign, Test
from palio.model.filters import Filter, reduce
from palio.model.functions import FUNCTIONS
from palio.model.operators import PRESENCE, Op, check_like_size, like_cost
from palio.model.printing import show_value
from palio.model.values import Value


def loads(text: str) -> Filter:
    """The filter that a CESQL expression is: tests of one attribute as constraints, the rest whole.

    An event matches when the expression's value is true and there is no error (CESQL 1.2). A
    function that does not exist is refused here rather than met as an error in every event.

    >>> print(loads("type = 'order.created' AND hop < 8"))
    type = 'order.created' AND CESQL 'hop < 8'
    >>> loads("type = 'order.created' AND hop < 8").matches({"type": "order.created", "hop": "5"})
    True
    """
    expression = _read(text)
    try:
        return reduce(All(tuple(map(_when_true, _conjuncts(expression)))))
    except LimitExceeded:  # too many alternatives, which one residual holds together
        return reduce(Condition(expression))


def condition(text: str) -> Boolean:
    """The meaning of `CESQL '...'` in our language, even after a NOT: an error is *unknown*.

    A single test keeps that meaning as a constraint. Anything larger stays whole, since AND and OR
    of our language look further than those of CESQL when their left side is unknown.

    >>> print(condition("exists subject and hop < 8").text)
    CESQL 'EXISTS subject AND hop < 8'
    """
    expression = _read(text)
    return _exactly(expression) or _whole(expression)


def _is_run(expression: syntax.Expression, operator: str) -> bool:
    return isinstance(expression, syntax.Logical) and all(
        level == operator for level, _ in expression.rest
    )


def _conjuncts(expression: syntax.Expression) -> Iterator[syntax.Expression]:
    """The expressions that are all true where an AND is."""
    if not _is_run(expression, "AND"):
        yield expression
        return
    for operand in syntax.children(expression):
        yield from _conjuncts(_as_boolean(operand))


def _as_boolean(operand: syntax.Expression) -> syntax.Expression:
    return operand if is_boolean(operand) else syntax.Call("BOOL", (operand,))


def _whole(expression: syntax.Expression) -> Boolean:
    """An expression as it is; an attribute alone may be a Boolean."""
    if isinstance(expression, syntax.Attribute) and expression.name not in STRING_ATTRIBUTES:
        return model.test(model.Attribute(expression.name), Op.EQ, model.literal(True))
    return Condition(expression)


def _when_true(expression: syntax.Expression) -> Boolean:
    """A condition that is true exactly where an expression is."""
    exact = _exactly(expression)
    if exact is not None:
        return exact
    match expression:
        case syntax.Comparison(syntax.Attribute(name), (("=", right),)):
            values = _values_seen_as(right)
            if values:
                return _any_of(name, values)
        case syntax.In(syntax.Attribute(name), members, False):
            # To a Boolean the members are cast, and the first that is none ends the list.
            seen = [_values_seen_as(member) for member in members if not _is_boolean_text(member)]
            if all(seen) and len(seen) == len(members):
                return _any_of(name, chain.from_iterable(seen))
        case syntax.Logical() if _is_run(expression, "OR"):
            *before, last = syntax.children(expression)
            tests = [test for test in map(_exactly, before) if isinstance(test, Test)]
            if len(tests) == len(before):
                return AnyOf(tuple(_alternatives([*tests, _when_true(_as_boolean(last))])))
        case _:
            pass
    return _whole(expression)


def _any_of(name: str, values: Iterable[Value]) -> Boolean:
    return AnyOf(tuple(_test(name, Op.EQ, value) for value in values))


def _alternatives(conditions: Iterable[Boolean]) -> Iterator[Boolean]:
    """Each condition of an OR where those before it are in no error."""
    guards: dict[str, Test] = {}
    for condition in conditions:
        name = _string_of(condition)
        yield All((*(guard for other, guard in guards.items() if other != name), condition))
        if name:
            guards[name] = _test(name, Op.PREFIX, "")


def _string_of(condition: Boolean) -> str:
    """The attribute that a test takes for a string, if it does."""
    if isinstance(condition, Test) and condition.op not in PRESENCE:
        assert isinstance(condition.subject, model.Attribute)
        return condition.subject.name
    return ""


def _exactly(expression: syntax.Expression) -> Boolean | None:
    """A condition that is true, and false, exactly where an expression is, if there is one."""
    match expression:
        case syntax.Literal(bool(value)):
            return All(()) if value else AnyOf(())
        case syntax.Exists(name):
            present = Test(model.Attribute(name), Op.EXISTS)
            return All(()) if name in REQUIRED_ATTRIBUTES else present
        case syntax.Not(operand):
            check = _exactly(operand)
            if isinstance(check, Test):
                return Test(check.subject, check.op.negation, check.operand, check.ignore_case)
        case syntax.Comparison(
            syntax.Attribute(name), ((("=" | "!=") as symbol, syntax.Literal(str(text))),)
        ):
            if name in STRING_ATTRIBUTES:
                return _test(name, Op.EQ if symbol == "=" else Op.NE, text)
        case syntax.Like(syntax.Attribute(name), pattern, negated):
            if name in STRING_ATTRIBUTES:
                return _test(name, Op.NOT_LIKE if negated else Op.LIKE, syntax.our_pattern(pattern))
        case syntax.In(syntax.Attribute(name), members, negated):
            texts = [
                text_of(member.value) for member in members if isinstance(member, syntax.Literal)
            ]
            if name in STRING_ATTRIBUTES and len(texts) == len(members):
                return _test(name, Op.NOT_IN if negated else Op.IN, *texts)
        case _:
            pass
    return None


def _test(name: str, op: Op, *operands: Value) -> Test:
    first, *others = map(model.literal, operands)
    is_list = op in (Op.IN, Op.NOT_IN)
    return model.test(model.Attribute(name), op, (first, *others) if is_list else first)


_MAYBE_NUMBER: Final = re.compile(r"[+-]?[0-9].*|-?(?:nan|inf)", re.DOTALL)
"""What numbers and timestamps may be seen as, or what may be cast to them."""


def _values_seen_as(constant: syntax.Expression) -> list[Value]:
    """The values whose text a string is, where they can be named: 5 and 5.0 are one to us."""
    if not isinstance(constant, syntax.Literal) or not isinstance(constant.value, str):
        return []
    text = constant.value
    if _MAYBE_NUMBER.fullmatch(text):
        return []
    values: list[Value] = [text]
    if text in ("true", "false"):
        values.append(text == "true")
    with suppress(ValueError):
        values += [value for value in (b64decode(text, validate=True),) if text_of(value) == text]
    return values


def _is_boolean_text(member: syntax.Expression) -> bool:
    return isinstance(member, syntax.Literal) and str(member.value).lower() in ("true", "false")


def _read(text: str) -> syntax.Expression:
    """The tree of a text whose functions all exist and whose constants are within limits."""
    expression = parse(text)
    for node in nodes_in(expression):
        match node:
            case syntax.Call(name, arguments, place) if (
                functions.find(name, len(arguments)) is None
            ):
                raise ParseError(
                    functions.missing(name, len(arguments)),
                    text=text,
                    line=text.count("\n", 0, place) + 1,
                    column=place - text.rfind("\n", 0, place),
                    offending=name,
                )
            case syntax.Literal(str(value)):
                model.literal(value)
            case syntax.Like(_, pattern):
                check_like_size(pattern)
            case _:
                pass
    return expression


_CALL_COST: Final = 4


class Condition(Foreign):
    """An expression kept whole, `CESQL '...'` in our language; any error means no match.

    >>> from palio.language.cesql import parse
    >>> hops = Condition(parse("hop < int(ttl)"))
    >>> print(hops.text)
    CESQL 'hop < INT(ttl)'
    >>> hops.truth({"hop": 5, "ttl": "10"}), hops.truth({"hop": 5})
    (True, None)
    """

    __slots__ = ("_text", "expression")

    def __init__(self, expression: syntax.Expression) -> None:
        self.expression = expression
        self._text = f"CESQL {show_value(str(expression))}"

    @property
    def text(self) -> str:
        """The condition as our language writes it."""
        return self._text

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes it reads."""
        return names_in(self.expression)

    @property
    def weight(self) -> int:
        """The cost of reading its text, in tokens of our language."""
        return syntax.weight(str(self.expression))

    @property
    def cost(self) -> int:
        """The cost of one evaluation: its nodes, patterns and functions by their own weight."""
        return sum(map(_cost, nodes_in(self.expression)))

    def truth(self, event: Mapping[str, Any]) -> bool | None:
        """True or false; None where CESQL has an error, or a value that is no Boolean."""
        value, error = evaluate(self.expression, event)
        return value if error is None and isinstance(value, bool) else None

    def inverted(self) -> Condition:
        """The condition that is true where this one is false, and unknown where it is unknown."""
        if not is_boolean(self.expression):
            return self  # unknown for every event, whichever way it is asked
        return Condition(_negation(self.expression))

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, (self.expression,)


def _cost(node: syntax.Expression) -> int:
    match node:
        case syntax.Like():
            return like_cost(node.pattern)
        case syntax.Call(name):
            return max(_CALL_COST, FUNCTIONS[name].cost if name in FUNCTIONS else 0)
        case _:
            return 1


def _negation(expression: syntax.Expression) -> syntax.Expression:
    """A Boolean expression's negation, in the fewest words."""
    match expression:
        case syntax.Not(operand) if is_boolean(operand):
            return operand
        case syntax.Like(operand, pattern, negated):
            return syntax.Like(operand, pattern, not negated)
        case syntax.In(operand, members, negated):
            return syntax.In(operand, members, not negated)
        case syntax.Comparison(left, ((("=" | "!=") as symbol, right),)):
            return syntax.Comparison(left, (("!=" if symbol == "=" else "=", right),))
        case _:
            return syntax.Not(expression)


def nodes_in(expression: syntax.Expression) -> Iterator[syntax.Expression]:
    """An expression and everything in it."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(syntax.children(node))


def names_in(expression: syntax.Expression) -> frozenset[str]:
    """The attributes that an expression reads."""
    return frozenset(
        node.name
        for node in nodes_in(expression)
        if isinstance(node, syntax.Attribute | syntax.Exists)
    )


def is_boolean(expression: syntax.Expression) -> bool:
    """Check whether its value, unless in error, is certainly a Boolean; an attribute's may be."""
    return type_of(expression) is bool and not isinstance(expression, syntax.Attribute)
