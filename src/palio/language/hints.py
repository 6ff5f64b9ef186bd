"""Hints for filters that are written as in other languages: what to write here instead."""

from __future__ import annotations

import re
from typing import Final

SPELLED: Final = {
    **dict.fromkeys(("NUMBER", "STRING", "BYTES", "TIMESTAMP"), "a value"),
    **dict.fromkeys(("INFINITY", "TRUE", "FALSE"), "a value"),
    **dict.fromkeys(("PLUS", "MINUS", "STAR", "SLASH", "PERCENT"), "an operator"),
    "NAME": "an attribute",
    "VARIABLE": "a parameter",
    "FUNCTION": "a function",
    "DURATION": "a duration such as 30s",
    "CESQL": "a condition",
    "COMPARISON": "a comparison",
    "STARTS_WITH": "STARTS WITH",
    "ENDS_WITH": "ENDS WITH",
    "IN_CIDR": "IN CIDR",
    "IGNORE_CASE": "IGNORE CASE",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "LIST": "(",
    "$END": "the end",
}
"""The words by which errors name kinds of tokens, where they have no other spelling."""

_EQUALITY: Final = "NULL is compared with nothing; write IS NULL or IS NOT NULL"
_MATCHING: Final = (
    "there are no regular expressions; write LIKE 'a%_', STARTS WITH, ENDS WITH or CONTAINS"
)
_ONLY_CONDITION: Final = "a filter is what stands behind WHERE, and nothing else"
_NESTED: Final = "a nested value has a name with points, such as data.total"
_LISTS: Final = "a list is written in parentheses: a IN (1, 2); events have no arrays"
_PARAMETERS: Final = "a parameter is written :name"
_COMMENTS: Final = "a comment is written -- to the end of the line"
_TIMES: Final = "a time is written TIMESTAMP '2026-01-31T12:00:00Z'"
_CLOCK: Final = "filters have no clock; give the time as a parameter: time > :since"
_CASTS: Final = "values keep their type; nothing is cast"
_TRUTH: Final = "write x = TRUE or x = FALSE; IS is followed by NULL or NOT NULL"

_BEFORE: Final = 2
"""Characters before the place of an error that may belong to what was meant: `==` of `===`."""

_SIGNS: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"&&?", "write AND"),
        (r"\|\|?", "write OR; texts are joined by CONCAT(a, b)"),
        (r"===|:=", "equal is written ="),
        (r"!==|≠", "unequal is written !="),
        (r"=<|≤", "at most is written <="),
        (r"=>|≥", "at least is written >="),
        (r"!?=?~", _MATCHING),
        (r"!", "write NOT, or != for unequal"),
        (r"->>?|\?\.", _NESTED),
        (r"//|/\*|#", _COMMENTS),
        (r"[\[\]{}]", _LISTS),
        (r"::", _CASTS),
        (r"[?@$:]", _PARAMETERS),
        (r"\^", "write XOR"),
        (r";", "a filter is one condition; join several by AND or OR"),
        (r"[“”„‘’«»]", "a text stands in straight single quotes, 'IBM', a name in double ones"),  # noqa: RUF001
        (r"(?i:(?<=\bin )|(?<=\bin))\( *\)", "a list has one value or more"),
    )
)

_WORDS: Final = {
    "NULL": _EQUALITY,
    "NONE": "missing is written IS NULL",
    "NIL": "missing is written IS NULL",
    "MISSING": "missing is written IS NULL",
    "PRESENT": "present is written IS NOT NULL",
    "DEFINED": "present is written IS NOT NULL",
    "EXISTS": "write EXISTS a, or a IS NOT NULL",
    "TRUE": _TRUTH,
    "FALSE": _TRUTH,
    "UNKNOWN": _TRUTH,
    "EQ": "equal is written =",
    "EQUALS": "equal is written =",
    "NE": "unequal is written !=",
    "LT": "below is written <",
    "LE": "at most is written <=",
    "GT": "above is written >",
    "GE": "at least is written >=",
    "STARTSWITH": "write a STARTS WITH 'text'",
    "STARTS_WITH": "write a STARTS WITH 'text'",
    "ENDSWITH": "write a ENDS WITH 'text'",
    "ENDS_WITH": "write a ENDS WITH 'text'",
    "INCLUDES": "write a CONTAINS 'text'",
    "HAS": "write a CONTAINS 'text', or EXISTS a",
    "REGEXP": _MATCHING,
    "REGEX": _MATCHING,
    "RLIKE": _MATCHING,
    "MATCH": _MATCHING,
    "MATCHES": _MATCHING,
    "SIMILAR": _MATCHING,
    "GLOB": _MATCHING,
    "ESCAPE": "in a pattern a backslash takes the next character literally",
    "SELECT": _ONLY_CONDITION,
    "FROM": _ONLY_CONDITION,
    "WHERE": _ONLY_CONDITION,
    "ORDER": _ONLY_CONDITION,
    "GROUP": _ONLY_CONDITION,
    "LIMIT": _ONLY_CONDITION,
    "AS": _CASTS,
    "CASE": "there is no CASE; write the cases with AND and OR",
    "WHEN": "there is no CASE; write the cases with AND and OR",
    "ANY": "write a IN (1, 2)",
    "DATE": _TIMES,
    "TIME": _TIMES,
    "DATETIME": _TIMES,
    "INTERVAL": "a duration is a number and its unit, such as 30s, behind WITHIN",
    "FOLLOWED": "an event after another is written THEN",
}
"""The likely meaning of words at places where none may be."""

_BEHIND: Final = frozenset({"SELECT", "FROM", "WHERE", "CASE", "DATE", "TIME", "DATETIME"})
"""Words that are read as attributes, so that what follows them is at the wrong place."""

_FUNCTIONS: Final = {
    "STARTSWITH": _WORDS["STARTSWITH"],
    "ENDSWITH": _WORDS["ENDSWITH"],
    "CONTAINS": "write a CONTAINS 'text'",
    "INCLUDES": "write a CONTAINS 'text'",
    "HAS": "write EXISTS a",
    "ISNULL": "write a IS NULL",
    "LEN": "write LENGTH(a)",
    "SIZE": "write LENGTH(a)",
    "SUBSTR": "write SUBSTRING",
    "CEILING": "write CEIL",
    "LOWERCASE": "write LOWER",
    "TOLOWER": "write LOWER",
    "TOLOWERCASE": "write LOWER",
    "LCASE": "write LOWER",
    "UPPERCASE": "write UPPER",
    "TOUPPER": "write UPPER",
    "TOUPPERCASE": "write UPPER",
    "UCASE": "write UPPER",
    "STRIP": "write TRIM",
    "IFNULL": "write COALESCE",
    "NVL": "write COALESCE",
    "NOW": _CLOCK,
    "CURRENTTIMESTAMP": _CLOCK,
    "DATE": _TIMES,
    "TODATE": _TIMES,
    "TIMESTAMP": _TIMES,
    "TOTIMESTAMP": _TIMES,
    "CAST": _CASTS,
    "INT": _CASTS,
    "FLOAT": _CASTS,
    "STRING": _CASTS,
    "REGEXPLIKE": _MATCHING,
    "REGEXP": _MATCHING,
    "MATCH": _MATCHING,
    "MATCHES": _MATCHING,
    "LIKE": "write a LIKE 'a%_'",
    "ANY": _WORDS["ANY"],
}

_LAST_WORD: Final = re.compile(r"(\w+)\s*$")
_WORD: Final = re.compile(r"\w+")
_NEAR_CHARS: Final = 64
"""The characters before a place in which the word before it is searched for."""


def of_place(text: str, place: int) -> str:
    """A hint: the words to write instead of those at a place that cannot be read.

    >>> of_place("a && b", 2), of_place("a = 1", 0)
    ('write AND', '')
    """
    for start in range(max(0, place - _BEFORE), place + 1):
        for pattern, hint in _SIGNS:
            match = pattern.match(text, start)
            if match is not None and match.end() > place:
                return hint
    word = _WORD.match(text, place)
    if word is not None and word.group().upper() in _WORDS:
        return _WORDS[word.group().upper()]
    before = _LAST_WORD.search(text[max(0, place - _NEAR_CHARS) : place])
    if before is not None and before.group(1).upper() in _BEHIND:
        return _WORDS[before.group(1).upper()]
    return ""


def of_function(name: str) -> str:
    """A hint: the words to write instead of a function or a method that does not exist.

    >>> of_function("NAME.STARTSWITH")
    "write a STARTS WITH 'text'"
    """
    return _FUNCTIONS.get(name.upper().rpartition(".")[2].replace("_", ""), "")
