from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Palio


def test_a_match(palio: Palio) -> None:
    assert palio("test", "a = 1", stdin='{"a": 1}') == (0, "match\n", "")
    assert palio("test", "a = 1", "-", stdin='{"a": 1}') == (0, "match\n", "")
    assert palio("test", "a = 1", ' {"a": 1}') == (0, "match\n", "")


def test_no_match_comes_with_the_reason(palio: Palio) -> None:
    outcome = palio("test", "price < 5 AND symbol = 'IBM'", '{"price": 7}')
    assert outcome == (
        1,
        "no match (false)\n    - price < 5: price is 7\n    ? symbol = 'IBM': symbol is missing\n",
        "",
    )


def test_an_event_in_a_file_is_flattened(palio: Palio, tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text('{\n  "data": {"price": {"low": 1}}\n}\n', encoding="utf-8")
    assert palio("test", "data.price.low = 1", str(path)).status == 0


@pytest.mark.parametrize(
    ("values", "status"), [((1, 2, 3), 0), ((1, 1, 2), 0), ((1, 3), 1), ((2,), 0)]
)
def test_of_several_events_one_match_is_enough(
    palio: Palio, values: tuple[int, ...], status: int
) -> None:
    lines = "".join(f'{{"a": {value}}}\n' for value in values)
    outcome = palio("test", "a = 2", stdin=lines)
    assert outcome.status == status
    verdicts = [line for line in outcome.out.splitlines() if not line.startswith(" ")]
    assert verdicts == ["match" if value == 2 else "no match (false)" for value in values]


def test_parameters(palio: Palio) -> None:
    arguments = ["test", "price < :limit AND symbol IN :names", '{"price": 7, "symbol": "IBM"}']
    assert palio(*arguments, "--param", "limit=10", "-p", "names=('IBM', 'SAP')").status == 0
    assert palio(*arguments, "--param", "limit=5", "--param", "names=IBM").status == 1
    assert palio(*arguments, "--param", "limit=10").err.startswith("palio: parameter :names")
    assert palio(*arguments, "-p", "limit=10", "-p", "names=1", "-p", "x=1").status == 2


def test_a_bad_parameter_is_told_before_any_event_is_read(palio: Palio) -> None:
    outcome = palio("test", "a LIKE :b", "-p", "b=1", stdin="no JSON")
    assert outcome.status == 2
    assert ":b" in outcome.err


def test_a_pattern_is_not_for_single_events(palio: Palio) -> None:
    outcome = palio("test", "a = 1 THEN b = 2", '{"a": 1}')
    assert outcome.status == 2
    assert "THEN" in outcome.err


def test_a_bad_line_ends_it_after_the_verdicts_before(palio: Palio) -> None:
    outcome = palio("test", "a = 1", stdin='{"a": 1}\n{"a": 2}\n{"a": \n')
    assert outcome.status == 2
    assert outcome.out.startswith("match\nno match")
    assert outcome.err.startswith("palio: line 3, column")


def test_json(palio: Palio) -> None:
    outcome = palio("test", "NOT a >= 2", "--json", stdin='{"a": 1}\n\n{"b": 1}\n')
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


def test_json_of_no_match_and_of_an_error_is_one_document(palio: Palio) -> None:
    outcome = palio("test", "a = 1", '{"a": 2}', "--json")
    assert outcome.status == 1
    assert outcome.document["matched"] is False
    outcome = palio("test", "a = 1", "--json", stdin='{"a": 1}\n[]')
    assert outcome.status == 2
    assert outcome.document["error"]["type"] == "InvalidEvent"
    assert outcome.document["error"]["line"] == 2


def test_a_person_at_a_terminal_is_told_what_is_waited_for(palio: Palio) -> None:
    outcome = palio("test", "a = 1", stdin='{"a": 1}', terminal=True)
    assert outcome == (0, "match\n", "palio: reading from the terminal; end with Ctrl-D\n")
