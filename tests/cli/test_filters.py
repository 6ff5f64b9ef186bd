"""`palio test`, `palio explain` and `palio convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import palio
from palio.cli.filters import hints
from tests.cli.helpers import Palio

# --- test ---


def test_a_match(run: Palio) -> None:
    assert run("test", "a = 1", stdin='{"a": 1}') == (0, "match\n", "")
    assert run("test", "a = 1", "-", stdin='{"a": 1}') == (0, "match\n", "")
    assert run("test", "a = 1", ' {"a": 1}') == (0, "match\n", "")


def test_no_match_comes_with_the_reason(run: Palio) -> None:
    outcome = run("test", "price < 5 AND symbol = 'IBM'", '{"price": 7}')
    assert outcome == (
        1,
        "no match (false)\n    - price < 5: price is 7\n    ? symbol = 'IBM': symbol is missing\n",
        "",
    )


def test_an_event_in_a_file_is_flattened(run: Palio, tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text('{\n  "data": {"price": {"low": 1}}\n}\n', encoding="utf-8")
    assert run("test", "data.price.low = 1", str(path)).status == 0


@pytest.mark.parametrize(
    ("values", "status"), [((1, 2, 3), 0), ((1, 1, 2), 0), ((1, 3), 1), ((2,), 0)]
)
def test_of_several_events_one_match_is_enough(
    run: Palio, values: tuple[int, ...], status: int
) -> None:
    lines = "".join(f'{{"a": {value}}}\n' for value in values)
    outcome = run("test", "a = 2", stdin=lines)
    assert outcome.status == status
    verdicts = [line for line in outcome.out.splitlines() if not line.startswith(" ")]
    assert verdicts == ["match" if value == 2 else "no match (false)" for value in values]


def test_parameters_of_events(run: Palio) -> None:
    arguments = ["test", "price < :limit AND symbol IN :names", '{"price": 7, "symbol": "IBM"}']
    assert run(*arguments, "--param", "limit=10", "-p", "names=('IBM', 'SAP')").status == 0
    assert run(*arguments, "--param", "limit=5", "--param", "names=IBM").status == 1
    assert run(*arguments, "--param", "limit=10").err.startswith("palio: parameter :names")
    assert run(*arguments, "-p", "limit=10", "-p", "names=1", "-p", "x=1").status == 2


def test_a_bad_parameter_is_told_before_any_event_is_read(run: Palio) -> None:
    outcome = run("test", "a LIKE :b", "-p", "b=1", stdin="no JSON")
    assert outcome.status == 2
    assert ":b" in outcome.err


def test_a_pattern_is_not_for_single_events(run: Palio) -> None:
    outcome = run("test", "a = 1 THEN b = 2", '{"a": 1}')
    assert outcome.status == 2
    assert "THEN" in outcome.err


def test_a_bad_line_ends_it_after_the_verdicts_before(run: Palio) -> None:
    outcome = run("test", "a = 1", stdin='{"a": 1}\n{"a": 2}\n{"a": \n')
    assert outcome.status == 2
    assert outcome.out.startswith("match\nno match")
    assert outcome.err.startswith("palio: line 3, column")


def test_json_of_verdicts(run: Palio) -> None:
    outcome = run("test", "NOT a >= 2", "--json", stdin='{"a": 1}\n\n{"b": 1}\n')
    assert outcome.status == 0
    assert outcome.document == {
        "filter": "a < 2",
        "matched": True,
        "events": [
            {
                "line": 1,
                "matched": True,
                "truth": True,
                "alternatives": [
                    {
                        "truth": True,
                        "findings": [{"text": "a < 2", "truth": True, "reason": "a is 1"}],
                    }
                ],
            },
            {
                "line": 3,
                "matched": False,
                "truth": None,
                "alternatives": [
                    {
                        "truth": None,
                        "findings": [{"text": "a < 2", "truth": None, "reason": "a is missing"}],
                    }
                ],
            },
        ],
    }


def test_json_of_no_match_and_of_an_error_is_one_document(run: Palio) -> None:
    outcome = run("test", "a = 1", '{"a": 2}', "--json")
    assert outcome.status == 1
    assert outcome.document["matched"] is False
    outcome = run("test", "a = 1", "--json", stdin='{"a": 1}\n[]')
    assert outcome.status == 2
    assert outcome.document["error"]["type"] == "InvalidEvent"
    assert outcome.document["error"]["line"] == 2


def test_a_person_at_a_terminal_is_told_what_is_waited_for(run: Palio) -> None:
    outcome = run("test", "a = 1", stdin='{"a": 1}', terminal=True)
    assert outcome == (0, "match\n", "palio: reading from the terminal; end with Ctrl-D\n")


# --- explain ---


def test_a_filter_of_one_alternative(run: Palio) -> None:
    outcome = run("explain", "NOT price >= 5 AND symbol = 'IBM' AND bid > ask * 1.01")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "price < 5 AND symbol = 'IBM' AND bid > ask * 1.01",
        "  attributes  ask, bid, price, symbol",
        "    price   a number below 5",
        "    symbol  exactly 'IBM'",
        "    and then  bid > ask * 1.01  (cost 5)",
    ]


def test_alternatives_contradictions_and_what_is_superfluous(run: Palio) -> None:
    text = "a IN (1, 2) OR a = 1 AND b > 3 OR c > 5 AND c < 3 OR d = 1"
    document = run("explain", text, "--json").document
    found = {each["text"]: each for each in document["alternatives"]}
    places = [each["text"] for each in document["alternatives"]]
    assert found["c < 3 AND c > 5"]["contradiction"]
    covered = found["a = 1 AND b > 3"]
    assert covered["covered_by"] == places.index("a IN (1, 2)") + 1
    assert [each for each in found.values() if each["covered_by"]] == [covered]
    lines = run("explain", text).out
    assert f"superfluous: alternative {covered['covered_by']} matches all of it" in lines
    assert "contradiction: no event matches it" in lines


def test_of_two_equal_alternatives_the_later_is_superfluous(run: Palio) -> None:
    document = run("explain", "x BETWEEN 1 AND 1 OR x = 1 AND EXISTS x", "--json").document
    assert [each["covered_by"] for each in document["alternatives"]] == [None, 1]


def test_parameters_stay_until_they_are_given(run: Palio) -> None:
    text = "price < :limit AND price > 1 AND size = :size"
    outcome = run("explain", text)
    assert "  parameters  :limit, :size" in outcome.out
    assert "    price  a number above 1 and below :limit\n" in outcome.out
    outcome = run("explain", text, "--param", "limit=5")
    assert "  parameters  :size" in outcome.out
    assert "    price  a number above 1 and below 5\n" in outcome.out
    assert "    size   exactly :size\n" in outcome.out
    outcome = run("explain", text, "-p", "limit=0")
    assert "contradiction" in outcome.out
    assert run("explain", text, "-p", "other=0").status == 2


def test_filters_that_match_everything_or_nothing(run: Palio) -> None:
    assert "matches every event" in run("explain", "TRUE").out
    assert "matches no event" in run("explain", "FALSE").out
    assert "attributes  none" in run("explain", "FALSE").out


def test_names_are_shown_as_they_are_written(run: Palio) -> None:
    assert '  attributes  "unit price"\n' in run("explain", '"unit price" = 1').out


def test_with_an_event(run: Palio) -> None:
    outcome = run("explain", "price < :limit", '{"price": 7}', "-p", "limit=5")
    assert outcome.status == 0
    assert outcome.out.endswith(
        "this event: no match (false)\n    - price < :limit: price is 7, :limit is 5\n"
    )
    document = run("explain", "price < 5", '{"price": 4}', "--json").document
    assert document["event"]["matched"] is True


def test_with_an_event_every_parameter_needs_a_value(run: Palio) -> None:
    outcome = run("explain", "price < :limit", '{"price": 7}')
    assert outcome.status == 2
    assert ":limit has no value" in outcome.err


def test_one_event_only(run: Palio) -> None:
    outcome = run("explain", "a = 1", "-", stdin='{"a": 1}\n{"a": 2}\n')
    assert outcome.status == 2
    assert "these are 2" in outcome.err


def test_a_pattern(run: Palio) -> None:
    text = "a = 1 THEN b > :x AND c IS NULL WITHIN 90s"
    outcome = run("explain", text, '{"a": 1}', "-p", "x=3")
    assert outcome.status == 0
    assert outcome.out.startswith(f"{text}\n  a pattern of 2 steps within 90s\n\nstep 1\na = 1\n")
    assert "\nstep 2\nb > 3 AND c IS NULL\n" in outcome.out
    assert outcome.out.count("this event: ") == 2
    document = run("explain", text, "--json").document
    assert (document["pattern"], document["within_s"]) == (text, 90)
    assert [step["filter"] for step in document["steps"]] == ["a = 1", "b > :x AND c IS NULL"]
    assert run("explain", "a = 1 THEN b = 2", "--json").document["within_s"] is None
    assert "2 steps\n" in run("explain", "a = 1 THEN b = 2").out


# --- hints ---

HINT: Final = "palio: \"IBM\" is an attribute; a text is written 'IBM'\n"


@pytest.mark.parametrize("verb", ["test", "explain"])
def test_a_text_in_double_quotes_is_told(run: Palio, verb: str) -> None:
    outcome = run(verb, 'symbol = "IBM"', '{"symbol": "IBM"}')
    assert outcome.err == HINT


@pytest.mark.parametrize("verb", ["test", "explain"])
def test_programs_are_given_one_document_and_no_hint(run: Palio, verb: str) -> None:
    assert run(verb, 'symbol = "IBM"', '{"symbol": "IBM"}', "--json").document


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


# --- convert ---

CASES: Final = [
    ("cesql", "type = 'order.created'", "type = 'order.created'"),
    ("cloudevents", '{"exact": {"type": "order.created"}}', "type = 'order.created'"),
    (
        "cloudevents",
        '[{"prefix": {"type": "a"}}, {"suffix": {"source": "b"}}]',
        "source ENDS WITH 'b' AND type STARTS WITH 'a'",
    ),
    ("eventbridge", '{"detail": {"state": ["on"]}}', "detail.state = 'on'"),
]


@pytest.mark.parametrize(("dialect", "source", "expected"), CASES)
def test_from_a_text_a_file_and_standard_input(
    run: Palio, tmp_path: Path, dialect: str, source: str, expected: str
) -> None:
    path = tmp_path / "filter"
    path.write_text(source + "\n", encoding="utf-8")
    for arguments, stdin in (([source], ""), ([str(path)], ""), (["-"], source), ([], source)):
        assert run("convert", "--dialect", dialect, *arguments, stdin=stdin) == (
            0,
            expected + "\n",
            "",
        )
    assert str(palio.parse(expected)) == expected


def test_json_of_a_conversion(run: Palio) -> None:
    dialect, source, expected = CASES[-1]
    assert run("convert", source, "--dialect", dialect, "--json").document == {
        "dialect": dialect,
        "filter": expected,
        "attributes": ["detail.state"],
    }


@pytest.mark.parametrize(
    ("dialect", "source"),
    [
        ("cesql", "type ="),
        ("cesql", "x" * 10_000 + " ="),
        ("cloudevents", '{"nosuch": {}}'),
        ("cloudevents", "{"),
        ("cloudevents", "no/such/file"),
        ("eventbridge", '{"source": "not a list"}'),
        ("eventbridge", "[" * 10_000),
        ("eventbridge", "."),
    ],
)
def test_what_cannot_be_converted(run: Palio, dialect: str, source: str) -> None:
    outcome = run("convert", "--dialect", dialect, source)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith("palio: ")
    assert run("convert", "--dialect", dialect, source, "--json").document["error"]["message"]
