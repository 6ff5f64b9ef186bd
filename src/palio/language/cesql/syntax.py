"""The syntax tree of an expression, and the text it prints as.

Nodes are immutable and compared by structure. `str(node)` is the canonical text: keywords and
names of functions in upper case, names of attributes in lower case, parentheses only where they
are needed. It parses back to an equal tree.

Operators of one precedence associate to the left (CESQL 3.6), and AND, OR and XOR are of one: `a
AND b OR c AND d` is `((a AND b) OR c) AND d`. Such a run is one node with any number of operands,
so that a long OR is not a deep tree. `NOT` and `-` bind tighter than all others: `NOT a = b` is
`(NOT a) = b`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

from palio.language.cesql.values import Value
from palio.model.limits import MAX_TOKENS


class Expression:
    """Any node of the tree."""

    __slots__ = ()

    def __str__(self) -> str:
        return _show(self, _LOOSEST)


Rest: TypeAlias = tuple[tuple[str, Expression], ...]
"""The operators of a run after its first operand, each with the operand to its right."""


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant."""

    value: Value


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    """The value of a context attribute; its name is in lower case, as CloudEvents has them."""

    name: str


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """`EXISTS name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """`NOT operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Negate(Expression):
    """`-operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    """A run of AND, OR and XOR."""

    first: Expression
    rest: Rest


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """A run of `= != < <= > >=` (`<>` is `!=`)."""

    first: Expression
    rest: Rest


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """A run of either `+ -` or `* / %`."""

    first: Expression
    rest: Rest


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """`operand [NOT] LIKE pattern`."""

    operand: Expression
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In(Expression):
    """`operand [NOT] IN (members)`."""

    operand: Expression
    members: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """`NAME(arguments)`, with the place of the name in the text it was read from."""

    name: str
    arguments: tuple[Expression, ...]
    place: int = field(default=0, compare=False)


def children(node: Expression) -> tuple[Expression, ...]:
    """The operands of a node, from left to right."""
    match node:
        case Logical(first, rest) | Comparison(first, rest) | Arithmetic(first, rest):
            return (first, *(operand for _, operand in rest))
        case Not(operand) | Negate(operand) | Like(operand):
            return (operand,)
        case In(operand, members):
            return (operand, *members)
        case Call(_, arguments):
            return arguments
        case _:
            return ()


def string_value(spelled: str) -> str:
    """The value of a string literal: its characters as they are, but its own quote is escaped.

    >>> string_value(r"'it\\'s'")
    "it's"
    """
    quote = spelled[0]
    return spelled[1:-1].replace("\\" + quote, quote)


@lru_cache(maxsize=4096)
def our_pattern(pattern: str) -> str:
    r"""A pattern of LIKE (CESQL 3.4.3) as our LIKE reads it.

    `%` is any text, `_` any one character; a backslash escapes them. Before anything else, another
    backslash included, it is an ordinary character, and ours escapes any character after it.

    >>> print(our_pattern(r"50\%_\d"))
    50\%_\\d
    """
    return _PLAIN_BACKSLASH.sub(r"\\\\", pattern)


_PLAIN_BACKSLASH: Final = re.compile(r"\\(?![%_])")

_LOOSEST, _COMPARED, _ADDED, _MULTIPLIED, _TESTED, _UNARY = range(6)
"""Levels of precedence: an operand gets parentheses when its own is lower than its place needs."""

_WHOLE_STRING: Final = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL)


def _show(node: Expression, needed: int) -> str:
    match node:
        case Logical(first, rest):
            text, level = _show_run(first, rest, _COMPARED), _LOOSEST
        case Comparison(first, rest):
            text, level = _show_run(first, rest, _ADDED), _COMPARED
        case Arithmetic(first, ((operator, _), *_) as rest):
            level = _ADDED if operator in "+-" else _MULTIPLIED
            text = _show_run(first, rest, level + 1)
        case Like(operand, pattern, negated):
            not_ = "NOT " if negated else ""
            text, level = f"{_show(operand, _TESTED)} {not_}LIKE {_quoted(pattern)}", _TESTED
        case In(operand, members, negated):
            not_ = "NOT " if negated else ""
            text, level = f"{_show(operand, _TESTED)} {not_}IN ({_listed(members)})", _TESTED
        case Not(operand):
            text, level = f"NOT {_show(operand, _UNARY)}", _UNARY
        case Negate(operand):
            text, level = f"-{_show_negated(operand)}", _UNARY
        case _:
            return _show_atom(node)
    return f"({text})" if level < needed else text


def _show_run(first: Expression, rest: Rest, needed: int) -> str:
    shown = [_show(first, needed)]
    shown += (f"{operator} {_show(operand, needed)}" for operator, operand in rest)
    return " ".join(shown)


def _show_negated(operand: Expression) -> str:
    """`-5` would read back as the literal, so the 5 of a negation keeps its parentheses."""
    match operand:
        case Literal(int(number)) if number >= 0 and not isinstance(number, bool):
            return f"({number})"
        case _:
            return _show(operand, _UNARY)


def _show_atom(node: Expression) -> str:
    match node:
        case Literal(bool(value)):
            return "TRUE" if value else "FALSE"
        case Literal(str(value)):
            return _quoted(value)
        case Literal(value):
            return str(value)
        case Attribute(name):
            return name
        case Exists(name):
            return f"EXISTS {name}"
        case _:
            assert isinstance(node, Call)
            return f"{node.name}({_listed(node.arguments)})"


def _listed(nodes: tuple[Expression, ...]) -> str:
    return ", ".join(_show(node, _LOOSEST) for node in nodes)


def _quoted(value: str) -> str:
    """A string literal, in double quotes where a backslash before a quote rules out single ones."""
    spelled = "'" + value.replace("'", r"\'") + "'"
    if _WHOLE_STRING.fullmatch(spelled) and string_value(spelled) == value:
        return spelled
    return '"' + value.replace('"', r"\"") + '"'


_PIECE: Final = re.compile(
    r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\w++|[^\s\w]""", re.DOTALL
)
"""What `weight` counts."""

_TOKEN_WEIGHT: Final = 2
"""A token costs twice: it is read, and printed and read again as the text of a condition."""

_TEXT_WEIGHT: Final = 4
"""The cost of beginning to read a text."""


def weight(text: str) -> int:
    """The cost of reading a text, in tokens of our language; counting stops where it is too much.

    >>> weight("hop < 5 AND id = 'a b'")
    18
    """
    return _TEXT_WEIGHT + _TOKEN_WEIGHT * sum(1 for _ in islice(_PIECE.finditer(text), MAX_TOKENS))
