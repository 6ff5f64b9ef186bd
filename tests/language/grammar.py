"""The language as its grammar defines it: the oracle of the parser.

`grammar.lark` is read by lark, and this module builds the same trees and the same errors from its
rules, one method a rule. Nothing of it is in the parser but the words of errors, so that what both
say is said twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from lark import Lark
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer

from palio.errors import InvalidFilter, InvalidInput, ParseError
from palio.language import hints
from palio.language.hints import SPELLED
from palio.language.lexer import Token, error_at
from palio.language.parser import Whole
from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Attribute,
    Between,
    Boolean,
    Call,
    Exclusive,
    Foreign,
    Literal,
    Not,
    Scalar,
    Slot,
    Test,
    Variable,
    literal,
    test,
)
from palio.model.functions import FUNCTIONS
from palio.model.operators import Op
from palio.model.values import Kind

Node: TypeAlias = Any

TRUE: Final = All(())
FALSE: Final = AnyOf(())

_TEXT_OPERATORS: Final = {
    "LIKE": Op.LIKE,
    "ILIKE": Op.LIKE,
    "STARTS_WITH": Op.PREFIX,
    "ENDS_WITH": Op.SUFFIX,
    "CONTAINS": Op.CONTAINS,
    "IN_CIDR": Op.CIDR,
}


class _Either(list[Boolean]):
    """Conditions joined by OR so far: a list, because a long chain is built link by link."""


class _Both(list[Boolean]):
    """Conditions joined by AND so far."""


_Chain = TypeVar("_Chain", _Either, _Both)


class Misuse(Exception):
    """Grammatical, but means nothing; `token` is where."""

    def __init__(self, problem: str, token: Token | None = None) -> None:
        self.problem = problem
        self.token = token
        super().__init__(problem)


class Builder:
    """One method a rule of grammar.lark, under the rule's alias."""

    def whole(self, children: list[Any]) -> Whole:
        (conditions,) = children
        return conditions, None

    def whole_within(self, children: list[Any]) -> Whole:
        conditions, within, duration = children
        if len(conditions) < 2:
            raise Misuse("WITHIN bounds a sequence; there is no THEN before it", within)
        if duration.value <= timedelta(0):
            raise Misuse("WITHIN takes a positive duration, such as 30s", duration)
        return conditions, duration.value

    def sequence(self, children: list[Any]) -> list[Boolean]:
        return [_condition(children[0])]

    def then(self, children: list[Any]) -> list[Boolean]:
        before, token, condition = children
        return [*before, _condition(condition, token)]

    def either(self, children: list[Any]) -> _Either:
        left, token, right = children
        return _joined(_Either, left, token, right)

    def exclusive(self, children: list[Any]) -> Boolean:
        left, token, right = children
        return Exclusive(_condition(left, token), _condition(right, token))

    def both(self, children: list[Any]) -> _Both:
        left, token, right = children
        return _joined(_Both, left, token, right)

    def negated(self, children: list[Any]) -> Boolean:
        token, part = children
        return Not(_condition(part, token))

    def compare(self, children: list[Any]) -> Boolean:
        left, token, right, *ignore = children
        return _test(left, Op(token.value), right, token, ignore)

    def between(self, children: list[Any]) -> Boolean:
        subject, token, low, _, high = children
        above, below = _test(subject, Op.GE, low, token, ()), _test(subject, Op.LE, high, token, ())
        return Between((above, below))

    def not_between(self, children: list[Any]) -> Boolean:
        subject, _, *rest = children
        return Not(self.between([subject, *rest]))

    def members(self, children: list[Any]) -> tuple[Scalar, ...]:
        opening = children[0]
        return tuple(_scalar(each, opening) for each in children[1::2])

    def listed(self, children: list[Any]) -> tuple[Scalar, ...]:
        (token,) = children
        return tuple(_literal(value, token) for value in token.value)

    def collection(self, children: list[Any]) -> Variable:
        return self.variable(children)

    def member(self, children: list[Any]) -> Boolean:
        subject, token, members, *ignore = children
        return _test(subject, Op.IN, members, token, ignore)

    def not_member(self, children: list[Any]) -> Boolean:
        subject, _, token, members, *ignore = children
        return _test(subject, Op.NOT_IN, members, token, ignore)

    def text(self, children: list[Any]) -> Boolean:
        subject, token, operand, *ignore = children
        if token.type == "ILIKE":
            ignore = [token]
        return _test(subject, _TEXT_OPERATORS[token.type], operand, token, ignore)

    def not_text(self, children: list[Any]) -> Boolean:
        subject, _, *rest = children
        return Not(self.text([subject, *rest]))

    def is_null(self, children: list[Any]) -> Boolean:
        return test(_scalar(children[0], children[1]), Op.ABSENT)

    def is_not_null(self, children: list[Any]) -> Boolean:
        return test(_scalar(children[0], children[1]), Op.EXISTS)

    def exists(self, children: list[Any]) -> Boolean:
        (name,) = (child for child in children if child.type == "NAME")
        return test(Attribute(name.value), Op.EXISTS)

    def arithmetic(self, children: list[Any]) -> Scalar:
        left, token, right = children
        return Arithmetic(str(token.value), _number(left, token), _number(right, token))

    def minus(self, children: list[Any]) -> Scalar:
        token, operand = children
        if isinstance(operand, Literal) and operand.kind is Kind.NUMBER:
            return _literal(-operand.value, token)
        return Arithmetic("-", Literal(Kind.NUMBER, 0), _number(operand, token))

    def attribute(self, children: list[Any]) -> Scalar:
        return Attribute(children[0].value)

    def variable(self, children: list[Any]) -> Variable:
        return Variable(children[0].value)

    def constant(self, children: list[Any]) -> Scalar:
        (token,) = children
        if isinstance(token.value, Slot):
            return token.value
        return _literal(token.value, token)

    def infinity(self, _: list[Any]) -> Scalar:
        return Literal(Kind.NUMBER, float("inf"))

    def true(self, _: list[Any]) -> Scalar:
        return Literal(Kind.BOOL, True)

    def false(self, _: list[Any]) -> Scalar:
        return Literal(Kind.BOOL, False)

    def cesql(self, children: list[Any]) -> Boolean:
        from palio.language import cesql

        (token,) = children
        try:
            return cesql.condition(token.value)
        except InvalidInput as error:
            raise Misuse(f"in the CESQL text: {error}", token) from None

    def call(self, children: list[Any]) -> Scalar:
        token = children[0]
        function = FUNCTIONS.get(token.value)
        if function is None:
            hint = hints.of_function(token.value) or f"there are {', '.join(sorted(FUNCTIONS))}"
            raise Misuse(f"unknown function {token.value}; {hint}", token)
        arguments = tuple(_scalar(each, token) for each in children[2:-1:2])
        try:
            function.check(len(arguments))
        except InvalidFilter as error:
            raise Misuse(str(error), token) from None
        return Call(token.value, arguments)

    def parenthesis(self, children: list[Any]) -> Node:
        _, inner, _ = children
        return inner


def _literal(value: object, token: Token) -> Literal:
    try:
        return literal(value)
    except InvalidFilter as error:
        raise Misuse(str(error), token) from None


def _test(subject: Node, op: Op, operand: Node, token: Token, ignore: Any) -> Boolean:
    """A test, its operands checked to be values."""
    given: Any = operand
    if not isinstance(operand, tuple):
        given = _scalar(operand, token)
    try:
        return test(_scalar(subject, token), op, given, bool(ignore))
    except InvalidFilter as error:
        raise Misuse(str(error), token) from None


def _joined(chain: type[_Chain], left: Node, token: Token, right: Node) -> _Chain:
    parts = left if isinstance(left, chain) else chain([_condition(left, token)])
    parts.append(_condition(right, token))
    return parts


def _scalar(node: Node, token: Token) -> Scalar:
    """A node used as a value."""
    if type(node) not in _SCALARS:
        raise Misuse(f"a condition stands where {_shown(token)} needs a value", token)
    return node  # type: ignore[no-any-return]  # as its type says


_SCALARS: Final = frozenset({Attribute, Literal, Variable, Slot, Arithmetic, Call})


def _number(node: Node, token: Token) -> Scalar:
    scalar = _scalar(node, token)
    if isinstance(scalar, Literal | Slot) and scalar.kind is not Kind.NUMBER:
        raise Misuse(f"{token.value} needs numbers, not {scalar.kind.noun}", token)
    return scalar


_CONDITIONS: Final = (Test, Not, All, AnyOf, Exclusive, Foreign)


def _condition(node: Node, token: Token | None = None) -> Boolean:
    """A node used as a condition: a bare attribute means that it is true."""
    if isinstance(node, _Either):
        return AnyOf(tuple(node))
    if isinstance(node, _Both):
        return All(tuple(node))
    if isinstance(node, _CONDITIONS):
        return node
    if isinstance(node, Attribute):
        return test(node, Op.EQ, Literal(Kind.BOOL, True))
    if isinstance(node, Literal) and node.kind is Kind.BOOL:
        return TRUE if node.value else FALSE
    if isinstance(node, Variable) and not isinstance(node, Slot):
        raise Misuse("a parameter is no condition by itself; compare it with something", token)
    raise Misuse("a value stands where a condition is needed; compare it with something", token)


def _shown(token: Token) -> str:
    return str(token.value).upper() if isinstance(token.value, str) else token.type


def read_by_grammar(text: str, found: Sequence[Token]) -> Whole:
    """The conditions that a text's tokens stand for."""
    feed = _parser().parse_interactive()
    try:
        for token in found:
            feed.feed_token(token)  # type: ignore[arg-type]  # lark reads only `type` of it
        return feed.feed_eof()  # type: ignore[no-any-return]  # the builder's result
    except UnexpectedToken as error:
        raise _unexpected(text, found, error) from None
    except Misuse as error:
        place = error.token or found[0]
        shown = text[place.start : place.end]
        raise error_at(text, place.start, error.problem, offending=shown) from None


@cache
def _parser() -> Lark:
    class Fed(Lexer):
        """Tokens are fed one by one; lark never lexes."""

        def __init__(self, conf: Any) -> None: ...

        def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:
            raise NotImplementedError

    grammar = Path(__file__).with_suffix(".lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=Fed, transformer=Builder())


def _unexpected(text: str, found: Sequence[Token], error: Any) -> ParseError:
    """The error of an unexpected word: which it was, and which could have stood there."""
    expected = tuple(sorted({SPELLED.get(name, name) for name in error.expected}))
    token = error.token
    if token.type == "$END":
        problem = "the text ends too soon" if found else "the text is empty"
        return error_at(text, len(text), problem, expected)
    shown = text[token.start : token.end]
    hint = hints.of_place(text, token.start)
    return error_at(text, token.start, f"unexpected {shown[:40]!r}", expected, shown, hint)
