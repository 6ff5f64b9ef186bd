from __future__ import annotations

import pytest

from palio.cli.quoting import hints
from tests.cli.helpers import Palio

HINT = "palio: \"IBM\" is an attribute; a text is written 'IBM'\n"


@pytest.mark.parametrize("verb", ["test", "explain"])
def test_a_text_in_double_quotes_is_told(palio: Palio, verb: str) -> None:
    outcome = palio(verb, 'symbol = "IBM"', '{"symbol": "IBM"}')
    assert outcome.err == HINT


@pytest.mark.parametrize("verb", ["test", "explain"])
def test_programs_are_given_one_document_and_no_hint(palio: Palio, verb: str) -> None:
    assert palio(verb, 'symbol = "IBM"', '{"symbol": "IBM"}', "--json").document


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"a b" = 1', []),
        ("a = b", []),
        ("none = 1 AND nil", []),
        ("a = None", ["None is an attribute; that there is no value is written IS NULL"]),
        ("a = 'x'", []),
        ('a = "it\'s"', ["\"it's\" is an attribute; a text is written 'it''s'"]),
        (
            'a = "x" OR b != "y"',
            [
                "\"x\" is an attribute; a text is written 'x'",
                "\"y\" is an attribute; a text is written 'y'",
            ],
        ),
    ],
)
def test_only_what_is_compared_with_is_hinted_at(text: str, told: list[str]) -> None:
    assert list(hints(text)) == told
