from __future__ import annotations

import subprocess
import sys

import pytest

from palio.errors import LimitExceeded
from palio.language.cesql import parse
from palio.language.cesql.syntax import Literal
from palio.model.limits import MAX_DEPTH, MAX_TEXT_CHARS, MAX_TOKENS


@pytest.mark.parametrize("length", [MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS])
def test_a_text_up_to_the_limit_is_read(length: int) -> None:
    assert parse("TRUE".ljust(length)) == Literal(True)


def test_a_longer_text_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS") as refused:
        parse("TRUE".ljust(MAX_TEXT_CHARS + 1))
    assert refused.value.limit == "MAX_TEXT_CHARS"
    assert refused.value.actual == MAX_TEXT_CHARS + 1


NESTINGS = {
    "not": ("NOT ", ""),
    "minus": ("- ", ""),
    "call": ("INT(", ")"),
    "run": ("(1 + ", ")"),
    "in": ("1 IN (", ")"),
    "like": ("", " LIKE 'x'"),
}


@pytest.mark.parametrize(("before", "after"), NESTINGS.values(), ids=NESTINGS)
def test_nesting_has_a_limit(before: str, after: str) -> None:
    def nested(levels: int) -> str:
        return before * (levels - 1) + "1" + after * (levels - 1)

    for levels in (MAX_DEPTH - 1, MAX_DEPTH):
        expression = parse(nested(levels))
        assert parse(str(expression)) == expression
    for levels in (MAX_DEPTH + 1, 300):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            parse(nested(levels))


def test_runs_and_parentheses_do_not_nest() -> None:
    parse(" AND ".join(["a = 1"] * 500))
    assert parse("(" * 900 + "1" + ")" * 900) == Literal(1)


def test_the_number_of_tokens_has_a_limit() -> None:
    """Each counts twice, and beginning to read four times."""
    most = (MAX_TOKENS - 4) // 2 - 1
    for count in (most - 1, most):
        parse("(" * (count // 2) + "NOT " * (count % 2) + "a" + ")" * (count // 2))
    for text in ("(" * (most + 2), "(" * (MAX_TEXT_CHARS - 1)):
        with pytest.raises(LimitExceeded, match="MAX_TOKENS"):
            parse(text)


def test_the_grammar_is_loaded_when_the_first_text_is_parsed() -> None:
    program = (
        "import sys; from palio.language import cesql; name = 'palio.language.cesql.grammar';"
        "before = name in sys.modules; cesql.parse('id'); print(before, name in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert shown.split() == ["False", "True"]
