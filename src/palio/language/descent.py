"""One pass over the tokens of a filter, by the precedence of its operators.

It understands exactly what `grammar.lark` does, at least twice as fast, and builds it with the same
`Builder`. It explains nothing: where it cannot go on, lark reads the text again and says why. So
the grammar stays the definition, and the tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from palio.language.builder import Builder, Whole
from palio.language.lexer import LITERALS, Token

__all__ = ["NotUnderstood", "understood"]

Node: TypeAlias = Any

MAX_PARENTHESES: Final = 32
"""Parentheses within one another; lark, which does not recurse, reads what is nested deeper."""

_THEN, _OR, _XOR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT = range(8)
"""How tightly operators bind, loosest first."""

_BINARY: Final = {
    "OR": _OR,
    "XOR": _XOR,
    "AND": _AND,
    "PLUS": _SUM,
    "MINUS": _SUM,
    "STAR": _PRODUCT,
    "SLASH": _PRODUCT,
    "PERCENT": _PRODUCT,
}
_TEXT: Final = frozenset({"LIKE", "ILIKE", "STARTS_WITH", "ENDS_WITH", "CONTAINS", "IN_CIDR"})
_COMPARING: Final = _TEXT | {"COMPARISON", "BETWEEN", "IN", "IS", "NOT"}
_PLAIN: Final = LITERALS | {"NAME"}
_END: Final = Token("$END", "", 0, 0)


class NotUnderstood(Exception):
    """The tokens are no filter, or one that lark is left to read."""


def understood(found: Sequence[Token], builder: Builder) -> Whole:
    """The conditions of a text and its WITHIN; `NotUnderstood` or `Misuse` if there are none.

    >>> from palio.language.lexer import tokens
    >>> conditions, within = understood(tokens("a = 1 THEN b = 2 WITHIN 5s"), Builder())
    >>> len(conditions), within.total_seconds()
    (2, 5.0)
    """
    return _Pass(found, builder).whole()


class _Pass:
    """One reading. Methods take what they read off the front."""

    def __init__(self, found: Sequence[Token], builder: Builder) -> None:
        self._builder = builder
        self._rest = iter(found)
        self._next = next(self._rest, _END)
        self._depth = 0

    def _take(self, kind: str = "") -> Token:
        """The next token, which must be of a kind if one is named."""
        token = self._next
        if kind and token.type != kind:
            raise NotUnderstood
        self._next = next(self._rest, _END)
        return token

    def whole(self) -> Whole:
        builder = self._builder
        conditions = builder.sequence([self._expression(_OR)])
        while self._next.type == "THEN":
            conditions = builder.then([conditions, self._take(), self._expression(_OR)])
        if self._next.type == "WITHIN":
            whole = builder.whole_within([conditions, self._take(), self._take("DURATION")])
        else:
            whole = builder.whole([conditions])
        if self._next is not _END:
            raise NotUnderstood
        return whole

    def _expression(self, least: int) -> Node:
        """All that binds at least so tightly."""
        left, most = self._first(least)
        while True:
            kind = self._next.type
            level = _BINARY.get(kind, -1)
            if level < 0:
                if kind not in _COMPARING or not least <= _COMPARISON <= most:
                    return left
                left, most = self._comparison(left), _NOT
            elif level < least or level > most:
                return left
            else:
                token = self._take()
                left = self._joined(kind, [left, token, self._expression(level + 1)])
                most = level

    def _joined(self, kind: str, children: list[Node]) -> Node:
        builder = self._builder
        if kind == "AND":
            return builder.both(children)
        if kind == "OR":
            return builder.either(children)
        return builder.exclusive(children) if kind == "XOR" else builder.arithmetic(children)

    def _first(self, least: int) -> tuple[Node, int]:
        """What stands before the first operator, and the tightest that may follow it."""
        kind = self._next.type
        if kind in _PLAIN:
            return self._atom(), _PRODUCT
        if kind == "NOT" and least <= _NOT:
            signs = []
            while self._next.type == "NOT":
                signs.append(self._take())
            node = self._expression(_COMPARISON)
            for sign in reversed(signs):
                node = self._builder.negated([sign, node])
            return node, _AND
        if kind == "EXISTS" and least <= _COMPARISON:
            return self._exists(), _NOT
        return self._unary(), _PRODUCT

    def _exists(self) -> Node:
        children = [self._take()]
        is_enclosed = self._next.type == "LPAR"
        if is_enclosed:
            children.append(self._take())
        children.append(self._take("NAME"))
        if is_enclosed:
            children.append(self._take("RPAR"))
        return self._builder.exists(children)

    def _comparison(self, left: Node) -> Node:
        """What a value is compared with, by one operator."""
        builder, token = self._builder, self._take()
        kind, negation = token.type, None
        if kind == "NOT":
            negation, token = token, self._take()
            kind = token.type
        if kind == "COMPARISON" and negation is None:
            return builder.compare([left, token, self._expression(_SUM), *self._ignore_case()])
        if kind == "IS" and negation is None:
            if self._next.type == "NOT":
                return builder.is_not_null([left, token, self._take(), self._take("NULL")])
            return builder.is_null([left, token, self._take("NULL")])
        before = [left] if negation is None else [left, negation]
        if kind == "BETWEEN":
            low, conjunction = self._expression(_SUM), self._take("AND")
            children = [*before, token, low, conjunction, self._expression(_SUM)]
            return builder.between(children) if negation is None else builder.not_between(children)
        if kind == "IN":
            children = [*before, token, self._members(), *self._ignore_case()]
            return builder.member(children) if negation is None else builder.not_member(children)
        if kind in _TEXT:
            children = [*before, token, self._expression(_SUM), *self._ignore_case()]
            return builder.text(children) if negation is None else builder.not_text(children)
        raise NotUnderstood

    def _ignore_case(self) -> list[Token]:
        return [self._take()] if self._next.type == "IGNORE_CASE" else []

    def _members(self) -> Node:
        if self._next.type == "LIST":
            return self._builder.listed([self._take()])
        if self._next.type == "VARIABLE":
            return self._builder.collection([self._take()])
        return self._builder.members(self._enclosed([self._take("LPAR")]))

    def _enclosed(self, children: list[Node]) -> list[Node]:
        """Values between commas up to the closing parenthesis, all added to what came before."""
        self._enter()
        children.append(self._expression(_SUM))
        while self._next.type == "COMMA":
            children += [self._take(), self._expression(_SUM)]
        children.append(self._take("RPAR"))
        self._depth -= 1
        return children

    def _unary(self) -> Node:
        signs = []
        while self._next.type == "MINUS":
            signs.append(self._take())
        node = self._atom()
        for sign in reversed(signs):
            node = self._builder.minus([sign, node])
        return node

    def _atom(self) -> Node:
        builder, token = self._builder, self._take()
        kind = token.type
        if kind == "NAME":
            return builder.attribute([token])
        if kind in LITERALS:
            return builder.constant([token])
        if kind == "VARIABLE":
            return builder.variable([token])
        if kind == "LPAR":
            self._enter()
            inner = self._expression(_OR)
            self._depth -= 1
            return builder.parenthesis([token, inner, self._take("RPAR")])
        if kind == "FUNCTION":
            children = [token, self._take("LPAR")]
            if self._next.type == "RPAR":
                return builder.call([*children, self._take()])
            return builder.call(self._enclosed(children))
        if kind in ("TRUE", "FALSE"):
            return builder.true([token]) if kind == "TRUE" else builder.false([token])
        if kind == "INFINITY":
            return builder.infinity([token])
        if kind == "CESQL":
            return builder.cesql([token])
        raise NotUnderstood

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_PARENTHESES:
            raise NotUnderstood
