"""Parse tokens to conditions, in one pass by the precedence of operators.

Loosest to tightest: THEN, OR, XOR, AND, NOT, comparisons, `+ -`, `* / %`, unary minus. Operators
and brackets whose right side is still to come wait on a stack, so that no text recurses. Whether a
part is a value or a condition is checked where it is used: parentheses need no guessing, and a bare
attribute may be either.

After each part the next token is checked before the part is built. So an unexpected word is
reported before a part that means nothing, and the error names all that were expected there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeAlias

from palio.errors import InvalidFilter, InvalidInput
from palio.language import hints
from palio.language.lexer import LITERALS, Token, error_at
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
"""A value, a condition, or a chain of conditions that may still grow."""

Whole: TypeAlias = tuple[list[Boolean], timedelta | None]
"""The conditions of a sequence (one: a plain filter) and its WITHIN."""

TRUE: Final = All(())
FALSE: Final = AnyOf(())

_BRACKET, _OR, _XOR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(9)
"""How tightly operators bind, loosest first; nothing reaches out of a bracket."""

_CONNECTIVES: Final = {"OR": _OR, "XOR": _XOR, "AND": _AND}
_ARITHMETIC: Final = {
    "PLUS": _SUM,
    "MINUS": _SUM,
    "STAR": _PRODUCT,
    "SLASH": _PRODUCT,
    "PERCENT": _PRODUCT,
}
_TEXT: Final = {
    "LIKE": Op.LIKE,
    "ILIKE": Op.LIKE,
    "STARTS_WITH": Op.PREFIX,
    "ENDS_WITH": Op.SUFFIX,
    "CONTAINS": Op.CONTAINS,
    "IN_CIDR": Op.CIDR,
}
_END: Final = Token("$END", "", 0, 0)

# The tokens that may stand at each place of a text. Errors name them all.
_ATOMS: Final = LITERALS | {"NAME", "VARIABLE", "TRUE", "FALSE", "INFINITY", "CESQL"}
_VALUE_STARTS: Final = _ATOMS | {"FUNCTION", "LPAR", "MINUS"}
_CONDITION_STARTS: Final = _VALUE_STARTS | {"NOT", "EXISTS"}
_NEGATED: Final = frozenset({"BETWEEN", "IN", *_TEXT})
_COMPARING: Final = _NEGATED | {"COMPARISON", "IS", "NOT"}
_AFTER_CONDITION: Final = frozenset({"AND", "OR", "XOR", "THEN", "WITHIN", "RPAR", "$END"})
_AFTER_VALUE: Final = _AFTER_CONDITION | _COMPARING | set(_ARITHMETIC) | {"COMMA", "IGNORE_CASE"}
_SUMS: Final = frozenset({"PLUS", "MINUS"})
_AFTER_SUBJECT: Final = _AFTER_CONDITION | _COMPARING | _SUMS
_AFTER_HIGH: Final = _AFTER_CONDITION | _SUMS
_AFTER_LOW: Final = _SUMS | {"AND"}
_AFTER_OPERAND: Final = _AFTER_HIGH | {"IGNORE_CASE"}
_AFTER_MEMBERS: Final = _AFTER_CONDITION | {"IGNORE_CASE"}
_AFTER_LISTED: Final = _SUMS | {"COMMA", "RPAR"}


class _Either(list[Boolean]):
    """Conditions joined by OR so far: a list, because a long chain is built link by link."""


class _Both(list[Boolean]):
    """Conditions joined by AND so far."""


class _Misuse(Exception):
    """Grammatical, but means nothing; `token` is where."""

    def __init__(self, problem: str, token: Token | None = None) -> None:
        self.problem = problem
        self.token = token
        super().__init__(problem)


class _Open:
    """An operator or a bracket whose right side is still being read."""

    __slots__ = ("kind", "left", "level", "negated", "parts", "token")

    def __init__(self, level: int, token: Token, left: Node = None, negated: bool = False) -> None:
        self.level = level
        self.kind = token.type
        self.token = token
        self.left = left
        self.negated = negated
        if level == _BRACKET or self.kind == "BETWEEN":
            self.parts: list[Node] = []
            """Members of a list, arguments of a call, or the lower end of BETWEEN."""


def syntax_tree(text: str, lexed: Sequence[Token]) -> Whole:
    """The conditions of a text as written, before any reduction.

    >>> from palio.language.lexer import tokens
    >>> text = "a = 1 THEN b = 2 WITHIN 5s"
    >>> conditions, within = syntax_tree(text, tokens(text))
    >>> len(conditions), within.total_seconds()
    (2, 5.0)
    """
    try:
        return _Pass(text, lexed).whole()
    except _Misuse as misuse:
        token = misuse.token or lexed[0]
        shown = text[token.start : token.end]
        raise error_at(text, token.start, misuse.problem, offending=shown) from None


class _Pass:
    """One reading of a text's tokens."""

    def __init__(self, text: str, lexed: Sequence[Token]) -> None:
        self._text = text
        self._found = lexed
        self._rest = iter(lexed)
        self._next = next(self._rest, _END)
        self._open: list[_Open] = []
        self._steps: list[Boolean] = []
        self._then: Token | None = None

    def whole(self) -> Whole:
        """Read values and what follows them, until a condition ends that no THEN follows."""
        while True:
            node = self._operand()
            while node is not None:
                node = self._value_ended(node)
            if self._steps and self._then is None:
                return self._steps, None if self._next is _END else self._within()

    def _take(self, follow: Collection[str] = ()) -> Token:
        """The next token, and the check of the one after it."""
        token = self._next
        self._next = after = next(self._rest, _END)
        if follow and after.type not in follow:
            self._unexpected(follow)
        return token

    def _expect(self, kinds: Collection[str]) -> None:
        if self._next.type not in kinds:
            self._unexpected(kinds)

    def _unexpected(self, kinds: Collection[str]) -> NoReturn:
        """Refuse the next word, and name those that were expected."""
        token, text = self._next, self._text
        expected = tuple(sorted({hints.SPELLED.get(kind, kind) for kind in kinds}))
        if token is _END:
            problem = "the text ends too soon" if self._found else "the text is empty"
            raise error_at(text, len(text), problem, expected)
        shown = text[token.start : token.end]
        hint = hints.of_place(text, token.start)
        raise error_at(text, token.start, f"unexpected {shown[:40]!r}", expected, shown, hint)

    # --- values ---

    def _operand(self) -> Node | None:
        """The first value from here; signs and brackets before it wait for their right side."""
        waiting = self._open
        while True:
            kind = self._next.type
            if kind in _ATOMS:
                return _atom(self._take(_AFTER_VALUE))
            inner = waiting[-1] if waiting else None
            is_condition = inner is None or inner.kind in _CONDITIONAL
            if kind == "LPAR":
                waiting.append(_Open(_BRACKET, self._take()))
            elif kind == "MINUS":
                waiting.append(_Open(_SIGN, self._take()))
            elif kind == "FUNCTION":
                token = self._take(("LPAR",))
                self._take()
                if self._next.type == "RPAR":
                    self._take(_AFTER_VALUE)
                    return _call(token, ())
                waiting.append(_Open(_BRACKET, token))
            elif kind == "NOT" and is_condition:
                waiting.append(_Open(_NOT, self._take()))
            elif kind == "EXISTS" and is_condition:
                return self._condition_ended(self._exists())
            elif inner is not None and inner.kind == "FUNCTION" and not inner.parts:
                self._unexpected(_VALUE_STARTS | {"RPAR"})
            else:
                self._unexpected(_CONDITION_STARTS if is_condition else _VALUE_STARTS)

    def _value_ended(self, value: Node) -> Node | None:
        """Close what a value ends; return the value that ends with it, None if another is due."""
        waiting, kind = self._open, self._next.type
        level = _ARITHMETIC.get(kind, 0)
        while waiting and waiting[-1].level >= (level or _SUM):
            value = _arithmetic(waiting.pop(), value)
        if level:
            waiting.append(_Open(level, self._take(), value))
            return None
        if not waiting or waiting[-1].kind in _CONDITIONAL:
            if kind == "COMPARISON":
                waiting.append(_Open(_COMPARISON, self._take(), value))
                return None
            if kind in _COMPARING:
                return self._compare(value)
            self._expect(_AFTER_SUBJECT)
            return self._condition_ended(value)
        inner = waiting[-1]
        if inner.level == _BRACKET:
            return self._listed(inner, value)
        if inner.kind == "BETWEEN":
            return self._between(inner, value)
        self._expect(_AFTER_OPERAND)
        ignore = kind == "IGNORE_CASE" and self._ignore_case()
        return self._condition_ended(_tested(waiting.pop(), value, ignore))

    def _listed(self, inner: _Open, value: Node) -> Node | None:
        """One of the values between commas; the last one ends a call or an IN."""
        self._expect(_AFTER_LISTED)
        inner.parts.append(value)
        if self._next.type == "COMMA":
            self._take()
            return None
        self._open.pop()
        if inner.kind == "FUNCTION":
            self._take(_AFTER_VALUE)
            return _call(inner.token, inner.parts)
        opening, members = inner.left, inner.parts
        self._take(_AFTER_MEMBERS)
        return self._member(self._open.pop(), tuple(_scalar(member, opening) for member in members))

    # --- conditions ---

    def _exists(self) -> Boolean:
        self._take(("NAME", "LPAR"))
        is_enclosed = self._next.type == "LPAR"
        if is_enclosed:
            self._take(("NAME",))
        name = self._take(("RPAR",) if is_enclosed else _AFTER_CONDITION)
        if is_enclosed:
            self._take(_AFTER_CONDITION)
        return test(Attribute(name.value), Op.EXISTS)

    def _compare(self, subject: Node) -> Node | None:
        """The operator after a value, and what it compares with if that is no value itself."""
        token = self._take()
        negated = token.type == "NOT"
        if negated:
            self._expect(_NEGATED)
            token = self._take()
        if token.type == "IS":
            self._expect(("NULL", "NOT"))
            is_there = self._next.type == "NOT"
            if is_there:
                self._take(("NULL",))
            self._take(_AFTER_CONDITION)
            op = Op.EXISTS if is_there else Op.ABSENT
            return self._condition_ended(test(_scalar(subject, token), op))
        operator = _Open(_COMPARISON, token, subject, negated)
        if token.type != "IN":
            self._open.append(operator)
            return None
        self._expect(("LPAR", "LIST", "VARIABLE"))
        if self._next.type == "LPAR":
            # The list keeps its own parenthesis, to show where a member is no value.
            self._open += (operator, _Open(_BRACKET, token, self._take()))
            return None
        given = self._take(_AFTER_MEMBERS)
        if given.type == "VARIABLE":
            return self._member(operator, Variable(given.value))
        return self._member(operator, tuple(_literal(value, given) for value in given.value))

    def _member(self, operator: _Open, members: Node) -> Node | None:
        op = Op.NOT_IN if operator.negated else Op.IN
        ignore = self._ignore_case()
        return self._condition_ended(_test(operator.left, op, members, operator.token, ignore))

    def _between(self, inner: _Open, value: Node) -> Node | None:
        if not inner.parts:
            self._expect(_AFTER_LOW)
            inner.parts.append(value)
            self._take()
            return None
        self._expect(_AFTER_HIGH)
        self._open.pop()
        token, subject, (low,) = inner.token, inner.left, inner.parts
        above = _test(subject, Op.GE, low, token, ignore=False)
        test = Between((above, _test(subject, Op.LE, value, token, ignore=False)))
        return self._condition_ended(Not(test) if inner.negated else test)

    def _ignore_case(self) -> bool:
        if self._next.type != "IGNORE_CASE":
            return False
        self._take(_AFTER_CONDITION)
        return True

    def _condition_ended(self, node: Node) -> Node | None:
        """Close what a condition ends; return a value in parentheses that ends with it, or None."""
        waiting, kind = self._open, self._next.type
        level = _CONNECTIVES.get(kind, 0)
        while waiting and waiting[-1].level >= (level or _OR):
            node = _connected(waiting.pop(), node)
        if level:
            waiting.append(_Open(level, self._take(), node))
            return None
        if waiting:
            self._expect(("OR", "RPAR"))
            waiting.pop()
            self._take(_AFTER_VALUE)
            return node
        self._expect(("OR", "THEN", "WITHIN", "$END"))
        self._steps.append(_condition(node, self._then))
        self._then = self._take() if kind == "THEN" else None
        return None

    def _within(self) -> timedelta:
        within = self._take(("DURATION",))
        duration = self._take(("$END",))
        if len(self._steps) < 2:
            raise _Misuse("WITHIN bounds a sequence; there is no THEN before it", within)
        if duration.value <= timedelta(0):
            raise _Misuse("WITHIN takes a positive duration, such as 30s", duration)
        return duration.value  # type: ignore[no-any-return]  # by its token's type


_CONDITIONAL: Final = frozenset({"LPAR", "NOT", *_CONNECTIVES})
"""Operators and brackets on whose right side a condition may stand."""


def _atom(token: Token) -> Node:
    kind = token.type
    if kind == "NAME":
        return Attribute(token.value)
    if kind in LITERALS:
        return token.value if isinstance(token.value, Slot) else _literal(token.value, token)
    if kind == "VARIABLE":
        return Variable(token.value)
    if kind == "CESQL":
        return _foreign(token)
    if kind == "INFINITY":
        return Literal(Kind.NUMBER, float("inf"))
    return Literal(Kind.BOOL, kind == "TRUE")


def _foreign(token: Token) -> Boolean:
    from palio.language import cesql

    try:
        return cesql.condition(token.value)
    except InvalidInput as error:
        raise _Misuse(f"in the CESQL text: {error}", token) from None


def _call(token: Token, given: Sequence[Node]) -> Scalar:
    function = FUNCTIONS.get(token.value)
    if function is None:
        hint = hints.of_function(token.value) or f"there are {', '.join(sorted(FUNCTIONS))}"
        raise _Misuse(f"unknown function {token.value}; {hint}", token)
    arguments = tuple(_scalar(argument, token) for argument in given)
    try:
        function.check(len(arguments))
    except InvalidFilter as error:
        raise _Misuse(str(error), token) from None
    return Call(token.value, arguments)


def _arithmetic(operator: _Open, right: Node) -> Scalar:
    token = operator.token
    if operator.level == _SIGN:
        if isinstance(right, Literal) and right.kind is Kind.NUMBER:
            return _literal(-right.value, token)
        return Arithmetic("-", Literal(Kind.NUMBER, 0), _number(right, token))
    return Arithmetic(str(token.value), _number(operator.left, token), _number(right, token))


def _tested(operator: _Open, operand: Node, ignore: bool) -> Boolean:
    token = operator.token
    if token.type == "COMPARISON":
        return _test(operator.left, Op(token.value), operand, token, ignore=ignore)
    ignore = ignore or token.type == "ILIKE"
    test = _test(operator.left, _TEXT[token.type], operand, token, ignore=ignore)
    return Not(test) if operator.negated else test


def _connected(operator: _Open, right: Node) -> Node:
    token = operator.token
    if operator.kind == "AND":
        return _joined(_Both, operator.left, token, right)
    if operator.kind == "OR":
        return _joined(_Either, operator.left, token, right)
    if operator.kind == "NOT":
        return Not(_condition(right, token))
    return Exclusive(_condition(operator.left, token), _condition(right, token))


def _joined(chain: type[_Either | _Both], left: Node, token: Token, right: Node) -> _Either | _Both:
    parts = left if isinstance(left, chain) else chain([_condition(left, token)])
    parts.append(_condition(right, token))
    return parts


def _literal(value: object, token: Token) -> Literal:
    try:
        return literal(value)
    except InvalidFilter as error:
        raise _Misuse(str(error), token) from None


def _test(subject: Node, op: Op, operand: Node, token: Token, ignore: bool) -> Boolean:
    """A test, its operands checked to be values."""
    given: Any = operand
    if not isinstance(operand, tuple):
        given = _scalar(operand, token)
    try:
        return test(_scalar(subject, token), op, given, ignore)
    except InvalidFilter as error:
        raise _Misuse(str(error), token) from None


def _scalar(node: Node, token: Token) -> Scalar:
    """A node used as a value."""
    if type(node) not in _SCALARS:
        shown = str(token.value).upper() if isinstance(token.value, str) else token.type
        raise _Misuse(f"a condition stands where {shown} needs a value", token)
    return node  # type: ignore[no-any-return]  # by its type


_SCALARS: Final = frozenset({Attribute, Literal, Variable, Slot, Arithmetic, Call})


def _number(node: Node, token: Token) -> Scalar:
    scalar = _scalar(node, token)
    if isinstance(scalar, Literal | Slot) and scalar.kind is not Kind.NUMBER:
        raise _Misuse(f"{token.value} needs numbers, not {scalar.kind.noun}", token)
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
        raise _Misuse("a parameter is no condition by itself; compare it with something", token)
    raise _Misuse("a value stands where a condition is needed; compare it with something", token)
