"""CESQL as a grammar defines it, read by lark: the oracle of the parser."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from palio.errors import ParseError
from palio.language.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Exists,
    Expression,
    In,
    Like,
    Literal,
    Logical,
    Negate,
    Not,
    string_value,
)
from palio.language.cesql.values import INTEGER_MAX, INTEGER_MIN

_KEYWORDS: Final = ("AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE")
_ENDS: Final = "(?![A-Za-z0-9_])"
_NO_KEYWORD: Final = f"(?!(?ai:{'|'.join(_KEYWORDS)}){_ENDS})"
"""Case is ignored within ASCII only: in Unicode the long s of `EXI\u017fTS` is an S, too."""

_GRAMMAR: Final = rf"""
?start: expression
?expression: comparison
           | comparison ((AND | OR | XOR) comparison)+            -> logical
?comparison: sum
           | sum ((EQUAL | UNEQUAL | ORDER) sum)+                 -> comparison
?sum: product
    | product ((PLUS | MINUS) product)+                           -> arithmetic
?product: tested
        | tested (TIMES tested)+                                  -> arithmetic
?tested: unary
       | tested [NOT] LIKE STRING                                 -> like
       | tested [NOT] IN "(" expression ("," expression)* ")"     -> in_
?unary: atom
      | NOT unary                                                 -> not_
      | MINUS unary                                               -> negate
      | EXISTS NAME                                               -> exists
?atom: NAME                                                       -> attribute
     | INTEGER                                                    -> integer
     | STRING                                                     -> string
     | (TRUE | FALSE)                                             -> boolean
     | FUNCTION "(" [expression ("," expression)*] ")"            -> call
     | "(" expression ")"

{chr(10).join(f"{word}: /(?ai:{word}){_ENDS}/" for word in _KEYWORDS)}
FUNCTION.3: /{_NO_KEYWORD}[A-Za-z][A-Za-z_]*(?=[ \t\r\n]*\()/
NAME.2: /{_NO_KEYWORD}[0-9]*[A-Za-z][A-Za-z0-9]*/
INTEGER.2: /[+-]?[0-9]+(?![A-Za-z0-9])/
STRING: /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/s
EQUAL: "="
UNEQUAL.2: "!=" | "<>"
ORDER: "<=" | ">=" | "<" | ">"
PLUS: "+"
MINUS: "-"
TIMES: "*" | "/" | "%"
%ignore /[ \t\r\n]+/
"""


def read(text: str) -> Expression:
    """The tree of a text of any length, or `ParseError`."""
    try:
        return _parser().parse(text)  # type: ignore[return-value]  # the transformer makes nodes
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    except _Refused as refused:
        raise ParseError(
            refused.problem,
            text=text,
            line=refused.token.line or 1,
            column=refused.token.column or 1,
            offending=str(refused.token),
        ) from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", transformer=_Builder())


class _Refused(Exception):
    """A token that fits the grammar and yet is no CESQL."""

    def __init__(self, problem: str, token: Token) -> None:
        super().__init__(problem)
        self.problem = problem
        self.token = token


class _Builder(Transformer[Token, Expression]):
    """Makes a node of each rule while the text is being parsed."""

    def logical(self, parts: list[Any]) -> Expression:
        return Logical(parts[0], _rest(parts))

    def comparison(self, parts: list[Any]) -> Expression:
        return Comparison(parts[0], _rest(parts))

    def arithmetic(self, parts: list[Any]) -> Expression:
        return Arithmetic(parts[0], _rest(parts))

    def like(self, parts: list[Any]) -> Expression:
        operand, negation, _, pattern = parts
        return Like(operand, string_value(pattern), negation is not None)

    def in_(self, parts: list[Any]) -> Expression:
        operand, negation, _, *members = parts
        return In(operand, tuple(members), negation is not None)

    def not_(self, parts: list[Any]) -> Expression:
        return Not(parts[1])

    def negate(self, parts: list[Any]) -> Expression:
        return Negate(parts[1])

    def exists(self, parts: list[Any]) -> Expression:
        return Exists(parts[1].lower())

    def attribute(self, parts: list[Any]) -> Expression:
        return Attribute(parts[0].lower())

    def integer(self, parts: list[Any]) -> Expression:
        token = parts[0]
        digits = token.lstrip("+-").lstrip("0")
        if len(digits) > _INTEGER_DIGITS or not INTEGER_MIN <= int(token) <= INTEGER_MAX:
            raise _Refused(
                f"the integer does not fit 32 bits ({INTEGER_MIN} to {INTEGER_MAX})", token
            )
        return Literal(int(token))

    def string(self, parts: list[Any]) -> Expression:
        return Literal(string_value(parts[0]))

    def boolean(self, parts: list[Any]) -> Expression:
        return Literal(parts[0].upper() == "TRUE")

    def call(self, parts: list[Any]) -> Expression:
        name, *arguments = parts
        given = tuple(argument for argument in arguments if argument is not None)
        return Call(name.upper(), given, name.start_pos)


_INTEGER_DIGITS: Final = len(str(INTEGER_MAX))


def _rest(parts: list[Any]) -> tuple[tuple[str, Expression], ...]:
    operators = (_SPELLED.get(token, token.upper()) for token in parts[1::2])
    return tuple(zip(operators, parts[2::2], strict=True))


_SPELLED: Final = {"<>": "!="}


def _explained(text: str, error: UnexpectedInput) -> ParseError:
    """The error of a text that cannot be read, in the words of its author."""
    line, column, offending = error.line, error.column, ""
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        offending = str(error.token)
        problem = f"unexpected {offending!r}"
    elif isinstance(error, UnexpectedCharacters):
        offending = error.char
        problem = f"unexpected {offending!r}"
        if offending in _QUOTES:
            problem = "a string without its closing quote"
    else:
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        problem = "unexpected end of the expression"
    return ParseError(
        problem,
        text=text,
        line=line,
        column=column,
        offending=offending,
        expected=_expected(error),
    )


_QUOTES: Final = frozenset("'\"")


def _expected(error: UnexpectedInput) -> tuple[str, ...]:
    """The words that could have stood there, named as in section 2 rather than in this grammar."""
    if isinstance(error, UnexpectedToken):
        terminals = error.accepts or error.expected
    else:  # known to the lexer only, which does not count the parentheses around the place
        terminals = (getattr(error, "allowed", None) or set()) - {"RPAR", "COMMA"}
    return tuple(
        words
        for terminal, wider, words in _SAID
        if terminal in terminals and wider not in terminals
    )


_SAID: Final = (
    ("INTEGER", "", "an expression"),
    ("NAME", "INTEGER", "an attribute name"),
    ("STRING", "INTEGER", "a string in quotes"),
    ("PLUS", "", "an operator"),
    ("LIKE", "PLUS", "LIKE"),
    ("IN", "PLUS", "IN"),
    ("LPAR", "INTEGER", "'('"),
    ("RPAR", "", "')'"),
    ("COMMA", "", "','"),
    ("$END", "", "the end"),
)
"""A terminal that stands for a group of alternatives, the one whose presence makes it a part of a
wider group, and the words for the group."""
