"""Split a text into tokens by one regular expression, with the value of every literal computed.

Several tokens are two words (`STARTS WITH`, `IN CIDR`, `IGNORE CASE`), so that their words remain
free as attribute names; `TIMESTAMP '...'` is one token for the same reason. A minus sign belongs to
the number after it unless an operand is before it, so that `-9223372036854775808` is a literal.
A long list of constants after IN is one token: its members need no grammar.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn

from palio.errors import InvalidFilter, LimitExceeded, ParseError
from palio.language import hints
from palio.model.limits import (
    MAX_CONSTANTS,
    MAX_DEPTH,
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOKENS,
    check_limit,
)
from palio.model.sizes import LONG_LIST
from palio.model.values import RESERVED, check_name


class Token(NamedTuple):
    """A token: its terminal in the grammar, its value, and where it starts in the text."""

    type: str
    value: Any
    start: int
    end: int


LITERALS: Final = frozenset({"NUMBER", "STRING", "BYTES", "TIMESTAMP"})
"""Terminals whose value is a constant of its own (TRUE and FALSE are words)."""

_TOKEN: Final = re.compile(
    r"""
      (?P<space>(?:\s+|--[^\n]*)++)
    | (?P<BYTES>[xX]'(?P<hex>[^']*)')
    | (?P<TIMESTAMP>[tT][iI][mM][eE][sS][tT][aA][mM][pP]\s*'(?P<instant>[^']*)')
    | (?P<CESQL>[cC][eE][sS][qQ][lL]\s*'(?P<foreign>[^']*+(?:''[^']*+)*+)')
    | (?P<pair>(?:starts\s+with|ends\s+with|in\s+cidr|ignore\s+case)\b)
    | (?P<word>[^\W\d][\w$]*+(?:\.\w[\w$]*+)*+|\$\w+)
    | (?P<NUMBER>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?P<unit>[^\W\d]\w*)?)
    | (?P<STRING>'(?P<string>[^']*+(?:''[^']*+)*+)')
    | (?P<quoted>"(?P<name>(?:[^"]++|"")++)"|`(?P<ticked>(?:[^`]++|``)++)`)
    | (?P<VARIABLE>:(?P<variable>[^\W\d]\w*))
    | (?P<operator><=|>=|<>|!=|==|[=<>])
    | (?P<symbol>[()+\-*/%,])
    """,
    re.VERBOSE | re.IGNORECASE,
)

_SPACE: Final = r"(?:\s++|--[^\n]*+)*+"
_CONSTANT: Final = r"""
      (?P<number>-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)(?![\w.])
    | '(?P<string>[^']*+(?:''[^']*+)*+)'
    | (?P<other>[xX]'[^']*+'|timestamp\s*+'[^']*+'|(?:true|false)\b)
    | (?P<infinity>-?infinity)\b
"""
_MEMBER: Final = re.compile(_CONSTANT, re.VERBOSE | re.IGNORECASE)
_LIST: Final = re.compile(
    rf"{_SPACE}\({_SPACE}(?:{_CONSTANT}){_SPACE}"
    rf"(?:,{_SPACE}(?:{re.sub(r'[?]P<[a-z]+>', '?:', _CONSTANT)}){_SPACE})*+\)",
    re.VERBOSE | re.IGNORECASE,
)
"""A list of constants alone, from its opening parenthesis to its closing one."""

_SYMBOLS: Final = {
    "(": "LPAR",
    ")": "RPAR",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "PERCENT",
    ",": "COMMA",
}
_OPERATORS: Final = {"==": "=", "<>": "!="}
_OPERAND_ENDS: Final = LITERALS | {"NAME", "VARIABLE", "RPAR", "TRUE", "FALSE", "INFINITY"}
_UNITS: Final = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def tokens(text: str) -> list[Token]:
    """The tokens of a text, or `ParseError` at the first place that is none.

    >>> [(token.type, token.value) for token in tokens("price < -5")]
    [('NAME', 'price'), ('COMPARISON', '<'), ('NUMBER', -5)]
    """
    check_limit("a filter's text", "MAX_TEXT_CHARS", MAX_TEXT_CHARS, len(text))
    result: list[Token] = []
    place, depth, constants, foreign = 0, 0, 0, 0
    is_listing = False  # whether IN was the last token
    while place < len(text):
        if text[place] == " ":
            place += 1
            continue
        listed = _listed(text, place, constants) if is_listing else None
        is_listing = False
        if listed is not None:
            result.append(listed)
            place = listed.end
            constants += len(listed.value)
            continue
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unreadable(text, place)
        group = match.lastgroup
        start, place = place, match.end()
        if group == "space":
            continue
        kind, value = _meaning(text, match, start)
        token = Token(kind, value, start, place)
        if token.type == "NUMBER" and result and result[-1].type == "MINUS":
            token = _signed(result, token)
        elif group == "symbol":
            depth += _NESTS.get(token.type, 0)
            if depth > MAX_DEPTH:
                raise LimitExceeded("a filter's nesting", limit="MAX_DEPTH", maximum=MAX_DEPTH)
        elif group == "CESQL":
            foreign += _weight(token.value)
        is_listing = token.type == "IN"
        result.append(token)
        if len(result) + foreign > MAX_TOKENS:
            raise LimitExceeded(
                "a filter's number of words and signs", limit="MAX_TOKENS", maximum=MAX_TOKENS
            )
    return result


_NESTS: Final = {"LPAR": 1, "RPAR": -1}


def _weight(text: str) -> int:
    """The cost of reading a text of CESQL, whose reader is loaded when one is first met."""
    from palio.language.cesql.syntax import weight

    return weight(text)


def _listed(text: str, place: int, constants: int) -> Token | None:
    """A long list of constants that begins here, read at once; None for anything else."""
    match = _LIST.match(text, place)
    if match is None or text.count(",", place, match.end()) < LONG_LIST:
        return None
    members: list[Any] = []
    for member in _MEMBER.finditer(text, match.start() + 1, match.end()):
        if len(members) + constants >= MAX_CONSTANTS:
            raise LimitExceeded(
                "a filter's number of constants", limit="MAX_CONSTANTS", maximum=MAX_CONSTANTS
            )
        members.append(_constant(text, member))
    if len(members) <= LONG_LIST:  # there are commas within strings
        return None
    return Token("LIST", tuple(members), place, match.end())


def _constant(text: str, match: re.Match[str]) -> Any:
    kind = match.lastgroup
    if kind == "string":
        return match["string"].replace("''", "'")
    if kind == "number":
        digits = match["number"]
        if not digits.removeprefix("-").isdecimal():
            return float(digits)
        return int(digits) if len(digits) <= _MAX_DIGITS else _too_long(text, match.start(), digits)
    if kind == "infinity":
        return float(match["infinity"])
    word = match["other"].upper()
    if word in ("TRUE", "FALSE"):
        return word == "TRUE"
    token = _TOKEN.match(text, match.start())
    assert token is not None
    _, value = _meaning(text, token, match.start())
    return value


def _too_long(text: str, place: int, digits: str) -> NoReturn:
    raise error_at(text, place, f"the integer {digits[:20]}... does not fit int64")


def _signed(lexed: list[Token], number: Token) -> Token:
    """A number with the minus before it, unless that minus subtracts."""
    if len(lexed) > 1 and lexed[-2].type in _OPERAND_ENDS:
        return number
    minus = lexed.pop()
    return Token("NUMBER", -number.value, minus.start, number.end)


def _meaning(text: str, match: re.Match[str], start: int) -> tuple[str, Any]:
    """The terminal and the value of a token."""
    group = match.lastgroup
    if group == "word":
        return _word(text, match)
    if group == "operator":
        operator = match.group()
        return "COMPARISON", _OPERATORS.get(operator, operator)
    if group == "STRING":
        return group, match["string"].replace("''", "'")
    if group == "NUMBER":
        return _number(text, match, start)
    if group == "symbol":
        return _SYMBOLS[match.group()], match.group()
    if group == "VARIABLE":
        return group, _sized(match["variable"])
    if group == "pair":
        return "_".join(match.group().upper().split()), match.group()
    if group == "quoted":
        name, ticked = match["name"], match["ticked"]
        return "NAME", _sized(name.replace('""', '"') if name else ticked.replace("``", "`"))
    if group == "CESQL":
        return group, match["foreign"].replace("''", "'")
    if group == "BYTES":
        return group, _bytes(text, match, start)
    return "TIMESTAMP", _instant(text, match, start)


def _word(text: str, match: re.Match[str]) -> tuple[str, str]:
    word = match.group()
    upper = word.upper()
    if upper in RESERVED:
        return upper, word
    if text.startswith("(", match.end()):
        return "FUNCTION", upper
    return "NAME", _sized(word)


def _sized(name: str) -> str:
    if len(name) > MAX_NAME_CHARS or not name.isascii():
        check_name(name, InvalidFilter)
    return name


def _number(text: str, match: re.Match[str], start: int) -> tuple[str, Any]:
    unit = match["unit"]
    digits = match.group() if unit is None else match.group()[: -len(unit)]
    if unit is not None:
        return "DURATION", _duration(text, digits, unit, start)
    if not digits.isdecimal():
        return "NUMBER", float(digits)
    if len(digits) > _MAX_DIGITS:
        _too_long(text, start, digits)
    return "NUMBER", int(digits)


_MAX_DIGITS: Final = 400  # leading zeros are allowed; int() of a huge text would be slow


def _duration(text: str, digits: str, unit: str, start: int) -> timedelta:
    size = _UNITS.get(unit.lower())
    if size is None:
        raise error_at(text, start, f"{digits}{unit} is no number and no duration", tuple(_UNITS))
    try:
        return size * float(digits) if "." in digits else size * int(digits)
    except (OverflowError, ValueError):
        raise error_at(text, start, f"the duration {digits[:20]}{unit} is too long") from None


def _bytes(text: str, match: re.Match[str], start: int) -> bytes:
    try:
        return bytes.fromhex(match["hex"])
    except ValueError:
        raise error_at(
            text, start, f"{match.group()[:40]} is no bytes literal", ("pairs of hex digits",)
        ) from None


def _instant(text: str, match: re.Match[str], start: int) -> datetime:
    problem = f"'{match['instant'][:40]}' is no timestamp"
    expected = ("an ISO 8601 date and time with a zone, such as '2026-01-31T12:00:00Z'",)
    try:
        instant = datetime.fromisoformat(match["instant"])
        if instant.tzinfo is not None:
            return instant.astimezone(UTC)
        problem += ": it has no zone"
    except (ValueError, OverflowError):
        pass
    raise error_at(text, start, problem, expected)


def _unreadable(text: str, place: int) -> ParseError:
    character = text[place]
    if character in "'\"`":
        return error_at(text, place, f"the quote {character} is never closed", (character,))
    hint = hints.of_place(text, place)
    return error_at(text, place, f"unexpected character {character!r}", hint=hint)


def error_at(
    text: str,
    place: int,
    problem: str,
    expected: tuple[str, ...] = (),
    offending: str = "",
    hint: str = "",
) -> ParseError:
    """A `ParseError` at an offset of the text."""
    line, column = position(text, place)
    return ParseError(
        problem,
        text=text,
        line=line,
        column=column,
        offending=offending or text[place : place + 1],
        expected=expected,
        hint=hint,
    )


def position(text: str, place: int) -> tuple[int, int]:
    """Line and column, both from 1, of an offset.

    >>> position("a = 1 AND\\n b <", 15)
    (2, 6)
    """
    line = text.count("\n", 0, place) + 1
    return line, place - text.rfind("\n", 0, place)
