"""`parse`: the text of an expression to its tree (CESQL 1.0, section 2), within limits.

Where the specification leaves a choice, this is ours:

- Which token a sign begins depends on its place: `4 -1` is a subtraction, `4 * -1` a signed
  literal.
- Keywords are no attribute names. Attribute names may be written in any case, as keywords may,
  since CloudEvents has only lower-case ones. A name of digits alone is a number.
- In a string only the quote that delimits it is escaped, by a backslash; any other backslash
  is an ordinary character, and two quotes in a row are two strings and so an error.
- An integer literal beyond 32 bits is an error, also behind a unary minus: `- 2147483648`.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from palio.errors import LimitExceeded
from palio.language.cesql import syntax
from palio.language.cesql.values import INTEGER_MAX, INTEGER_MIN
from palio.language.lexer import error_at
from palio.model.limits import MAX_DEPTH, MAX_TEXT_CHARS, MAX_TOKENS, check_limit

_ENDS: Final = "(?![A-Za-z0-9_])"
_KEYWORD: Final = f"(?ai:AND|OR|XOR|NOT|LIKE|EXISTS|IN|TRUE|FALSE){_ENDS}"
"""Case is ignored within ASCII only: in Unicode the long s of `EXI\u017fTS` is an S, too."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NAME: Final = re.compile(rf"(?!{_KEYWORD})[0-9]*[A-Za-z][A-Za-z0-9]*")
_STRING: Final = re.compile(
    r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+\"""", re.DOTALL
)
_TOKEN: Final = rf"""
      (?P<keyword>{_KEYWORD})
    | (?P<function>(?!{_KEYWORD})[A-Za-z][A-Za-z_]*(?=[ \t\r\n]*\())
    | (?P<name>{_NAME.pattern})
    | (?P<string>{_STRING.pattern})
    | (?P<sign>!=|<>|<=|>=|[-+*/%=<>(),])
"""
_OPERAND: Final = re.compile(
    rf"(?P<integer>[+-]?[0-9]+(?![A-Za-z0-9])){_TOKEN.replace('(?P<keyword>', '|(?P<keyword>', 1)}",
    re.VERBOSE | re.DOTALL,
)
"""A token where a value is due: a sign before digits is theirs."""
_OPERATOR: Final = re.compile(
    rf"{_TOKEN}|(?P<integer>[0-9]+(?![A-Za-z0-9]))", re.VERBOSE | re.DOTALL
)
"""A token after a value."""

_BRACKET, _LOGICAL, _COMPARED, _ADDED, _MULTIPLIED, _UNARY = range(6)
"""How tightly operators bind, loosest first; nothing reaches out of a bracket."""

_LEVELS: Final = {
    **dict.fromkeys(("AND", "OR", "XOR"), _LOGICAL),
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">="), _COMPARED),
    **dict.fromkeys("+-", _ADDED),
    **dict.fromkeys("*/%", _MULTIPLIED),
}
_RUNS: Final = {
    _LOGICAL: syntax.Logical,
    _COMPARED: syntax.Comparison,
    _ADDED: syntax.Arithmetic,
    _MULTIPLIED: syntax.Arithmetic,
}
_INTEGER_DIGITS: Final = len(str(INTEGER_MAX))

_VALUE: Final = ("an expression",)


def parse(text: str) -> syntax.Expression:
    """The tree of an expression.

    Raises `ParseError` with line and column, or `LimitExceeded` for a text that is too long or
    nests deeper than `MAX_DEPTH` (a run of operators of one precedence is one level).

    >>> str(parse("not exists subject or id in ('a', 'b')"))
    "NOT EXISTS subject OR id IN ('a', 'b')"
    """
    check_limit("the text of a CESQL expression", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, len(text))
    if syntax.weight(text) > MAX_TOKENS:
        raise LimitExceeded(
            "the words and signs of a CESQL expression, each counted twice",
            limit="MAX_TOKENS",
            maximum=MAX_TOKENS,
        )
    expression = _Pass(text).whole()
    _check_depth(expression)
    return expression


def _check_depth(expression: syntax.Expression) -> None:
    level = [expression]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in syntax.children(node)]
        if not level:
            return
    raise LimitExceeded("the nesting of a CESQL expression", limit="MAX_DEPTH", maximum=MAX_DEPTH)


class _Open:
    """A run of operators, a prefix or a bracket whose right side is still being read."""

    __slots__ = ("kind", "level", "negated", "operands", "operators", "place")

    def __init__(
        self, level: int, kind: str, place: int, *before: syntax.Expression, negated: bool = False
    ) -> None:
        self.level = level
        self.kind = kind
        """The operator of a prefix, the name of a function, `IN`, or `(`."""
        self.place = place
        self.negated = negated
        self.operands = list(before)
        self.operators: list[str] = []

    def is_empty_call(self) -> bool:
        """Check whether it is a call that has no arguments so far."""
        return self.level == _BRACKET and self.kind not in ("(", "IN") and not self.operands

    def closed(self) -> syntax.Expression:
        """The node that it is with all of its operands."""
        if self.level != _BRACKET:
            first, *others = self.operands
            if self.level == _UNARY:
                return syntax.Not(first) if self.kind == "NOT" else syntax.Negate(first)
            return _RUNS[self.level](first, tuple(zip(self.operators, others, strict=True)))
        if self.kind == "(":
            return self.operands[0]
        if self.kind == "IN":
            value, *members = self.operands
            return syntax.In(value, tuple(members), self.negated)
        return syntax.Call(self.kind, tuple(self.operands), self.place)


class _Pass:
    """One reading of a text: values and what follows them by turns, without recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0  # of the next token, or of the space before it
        self._start = 0  # of the last token that was read
        self._open: list[_Open] = []

    def whole(self) -> syntax.Expression:
        while True:
            value: syntax.Expression | None = self._operand()
            while value is not None:
                if self._at_end():
                    return self._ended(value)
                value = self._continued(value)

    # --- tokens ---

    def _at_end(self) -> bool:
        space = _SPACE.match(self._text, self._place)
        assert space is not None
        self._place = self._start = space.end()
        return self._place == len(self._text)

    def _match(
        self, pattern: re.Pattern[str], expected: tuple[str, ...], further: tuple[str, ...] = ()
    ) -> re.Match[str]:
        """The token that comes next, one of those expected or not; an error if there is none."""
        if self._at_end():
            raise error_at(
                self._text, self._place, "unexpected end of the expression", (*expected, *further)
            )
        match = pattern.match(self._text, self._place) or _OPERAND.match(self._text, self._place)
        if match is None:
            character = self._text[self._place]
            problem = f"unexpected {character!r}"
            if character in "'\"":
                problem = "a string without its closing quote"
            raise error_at(self._text, self._place, problem, expected)
        self._place = match.end()
        return match

    def _unexpected(self, *expected: str) -> NoReturn:
        """Refuse the token that was read last."""
        shown = self._text[self._start : self._place]
        raise error_at(self._text, self._start, f"unexpected {shown!r}", expected, shown)

    def _sign(self, sign: str) -> None:
        expected = (f"'{sign}'",)
        if self._match(_OPERAND, expected)[0] != sign:
            self._unexpected(*expected)

    # --- values ---

    def _operand(self) -> syntax.Expression:
        """The first value from here; prefixes and brackets before it wait for their right side."""
        while True:
            inner = self._open[-1] if self._open else None
            is_call = inner is not None and inner.is_empty_call()
            closer = ("')'",) if is_call else ()
            match = self._match(_OPERAND, _VALUE, closer)
            kind, shown, start = match.lastgroup, match[0], self._start
            word = shown.upper() if kind == "keyword" else shown
            if kind == "name":
                return syntax.Attribute(shown.lower())
            if kind == "string":
                return syntax.Literal(syntax.string_value(shown))
            if kind == "integer":
                return syntax.Literal(self._integer(shown))
            if word in ("TRUE", "FALSE"):
                return syntax.Literal(word == "TRUE")
            if word == "EXISTS":
                return self._exists()
            if kind == "function":
                self._sign("(")
                self._open.append(_Open(_BRACKET, shown.upper(), start))
            elif word in ("NOT", "-"):
                self._open.append(_Open(_UNARY, word, start))
            elif word == "(":
                self._open.append(_Open(_BRACKET, word, start))
            elif word == ")" and is_call:
                return self._open.pop().closed()
            else:
                self._unexpected(*_VALUE, *closer)

    def _integer(self, digits: str) -> int:
        significant = digits.lstrip("+-").lstrip("0")
        if len(significant) <= _INTEGER_DIGITS:
            number = int(digits)
            if INTEGER_MIN <= number <= INTEGER_MAX:
                return number
        problem = f"the integer does not fit 32 bits ({INTEGER_MIN} to {INTEGER_MAX})"
        raise error_at(self._text, self._start, problem, offending=digits)

    def _exists(self) -> syntax.Expression:
        expected = "an attribute name"
        match = self._match(_NAME, (expected,))
        if match.re is not _NAME:
            self._unexpected(expected)
        return syntax.Exists(match[0].lower())

    # --- what follows a value ---

    def _continued(self, value: syntax.Expression) -> syntax.Expression | None:
        """Take what follows a value; the value that ends with it, or None if another is due."""
        match = self._match(_OPERATOR, ("an operator",))
        word = match[0].upper() if match.lastgroup == "keyword" else match[0]
        level = _LEVELS.get(word, 0)
        if level:
            self._operator(level, _SPELLED.get(word, word), value)
            return None
        value = self._reduced(value, _UNARY)
        if word in ("NOT", "LIKE", "IN"):
            return self._tested(word, value)
        closers = self._closers()
        if word not in (")", ","):
            self._unexpected("an operator", *closers)
        value = self._reduced(value, _LOGICAL)
        if f"'{word}'" not in closers:
            self._unexpected(*closers)
        inner = self._open[-1]
        inner.operands.append(value)
        return None if word == "," else self._open.pop().closed()

    def _operator(self, level: int, word: str, value: syntax.Expression) -> None:
        """Continue a run of this precedence, or begin one."""
        value = self._reduced(value, level + 1)
        if not self._open or self._open[-1].level != level:
            self._open.append(_Open(level, "", self._start))
        self._open[-1].operands.append(value)
        self._open[-1].operators.append(word)

    def _reduced(self, value: syntax.Expression, least: int) -> syntax.Expression:
        """The value with everything around it that binds at least so tightly."""
        while self._open and self._open[-1].level >= least:
            run = self._open.pop()
            run.operands.append(value)
            value = run.closed()
        return value

    def _tested(self, word: str, value: syntax.Expression) -> syntax.Expression | None:
        """`[NOT] LIKE` with its pattern, or the beginning of `[NOT] IN`."""
        negated = word == "NOT"
        if negated:
            word = self._match(_OPERAND, ("LIKE", "IN"))[0].upper()
            if word not in ("LIKE", "IN"):
                self._unexpected("LIKE", "IN")
        if word == "IN":
            self._sign("(")
            self._open.append(_Open(_BRACKET, word, self._start, value, negated=negated))
            return None
        expected = "a string in quotes"
        match = self._match(_STRING, (expected,))
        if match.re is not _STRING:
            self._unexpected(expected)
        return syntax.Like(value, syntax.string_value(match[0]), negated)

    def _ended(self, value: syntax.Expression) -> syntax.Expression:
        value = self._reduced(value, _LOGICAL)
        if self._open:
            raise error_at(
                self._text, self._place, "unexpected end of the expression", self._closers()
            )
        return value

    def _closers(self) -> tuple[str, ...]:
        """The tokens that may follow a value besides an operator."""
        for opened in reversed(self._open):
            if opened.level == _BRACKET:
                return ("')'",) if opened.kind == "(" else ("')'", "','")
        return ("the end",)


_SPELLED: Final = {"<>": "!="}
