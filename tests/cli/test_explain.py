from __future__ import annotations

from tests.cli.helpers import Palio


def test_a_filter_of_one_alternative(palio: Palio) -> None:
    outcome = palio("explain", "NOT price >= 5 AND symbol = 'IBM' AND bid > ask * 1.01")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "price < 5 AND symbol = 'IBM' AND bid > ask * 1.01",
        "  attributes  ask, bid, price, symbol",
        "    price   a number below 5",
        "    symbol  exactly 'IBM'",
        "    and then  bid > ask * 1.01  (cost 5)",
    ]


def test_alternatives_contradictions_and_what_is_superfluous(palio: Palio) -> None:
    text = "a IN (1, 2) OR a = 1 AND b > 3 OR c > 5 AND c < 3 OR d = 1"
    document = palio("explain", text, "--json").document
    found = {each["text"]: each for each in document["alternatives"]}
    places = [each["text"] for each in document["alternatives"]]
    assert found["c < 3 AND c > 5"]["contradiction"]
    covered = found["a = 1 AND b > 3"]
    assert covered["covered_by"] == places.index("a IN (1, 2)") + 1
    assert [each for each in found.values() if each["covered_by"]] == [covered]
    lines = palio("explain", text).out
    assert f"superfluous: alternative {covered['covered_by']} matches all of it" in lines
    assert "contradiction: no event matches it" in lines


def test_of_two_equal_alternatives_the_later_is_superfluous(palio: Palio) -> None:
    document = palio("explain", "x BETWEEN 1 AND 1 OR x = 1 AND EXISTS x", "--json").document
    assert [each["covered_by"] for each in document["alternatives"]] == [None, 1]


def test_parameters_stay_until_they_are_given(palio: Palio) -> None:
    text = "price < :limit AND price > 1 AND size = :size"
    outcome = palio("explain", text)
    assert "  parameters  :limit, :size" in outcome.out
    assert "    price  a number above 1 and below :limit\n" in outcome.out
    outcome = palio("explain", text, "--param", "limit=5")
    assert "  parameters  :size" in outcome.out
    assert "    price  a number above 1 and below 5\n" in outcome.out
    assert "    size   exactly :size\n" in outcome.out
    outcome = palio("explain", text, "-p", "limit=0")
    assert "contradiction" in outcome.out
    assert palio("explain", text, "-p", "other=0").status == 2


def test_filters_that_match_everything_or_nothing(palio: Palio) -> None:
    assert "matches every event" in palio("explain", "TRUE").out
    assert "matches no event" in palio("explain", "FALSE").out
    assert "attributes  none" in palio("explain", "FALSE").out


def test_names_are_shown_as_they_are_written(palio: Palio) -> None:
    assert '  attributes  "unit price"\n' in palio("explain", '"unit price" = 1').out


def test_with_an_event(palio: Palio) -> None:
    outcome = palio("explain", "price < :limit", '{"price": 7}', "-p", "limit=5")
    assert outcome.status == 0
    assert outcome.out.endswith(
        "this event: no match (false)\n    - price < :limit: price is 7, :limit is 5\n"
    )
    document = palio("explain", "price < 5", '{"price": 4}', "--json").document
    assert document["event"]["matched"] is True


def test_with_an_event_every_parameter_needs_a_value(palio: Palio) -> None:
    outcome = palio("explain", "price < :limit", '{"price": 7}')
    assert outcome.status == 2
    assert ":limit has no value" in outcome.err


def test_one_event_only(palio: Palio) -> None:
    outcome = palio("explain", "a = 1", "-", stdin='{"a": 1}\n{"a": 2}\n')
    assert outcome.status == 2
    assert "these are 2" in outcome.err


def test_a_pattern(palio: Palio) -> None:
    text = "a = 1 THEN b > :x AND c IS NULL WITHIN 90s"
    outcome = palio("explain", text, '{"a": 1}', "-p", "x=3")
    assert outcome.status == 0
    assert outcome.out.startswith(f"{text}\n  a pattern of 2 steps within 90s\n\nstep 1\na = 1\n")
    assert "\nstep 2\nb > 3 AND c IS NULL\n" in outcome.out
    assert outcome.out.count("this event: ") == 2
    document = palio("explain", text, "--json").document
    assert (document["pattern"], document["within_s"]) == (text, 90)
    assert [step["filter"] for step in document["steps"]] == ["a = 1", "b > :x AND c IS NULL"]
    assert palio("explain", "a = 1 THEN b = 2", "--json").document["within_s"] is None
    assert "2 steps\n" in palio("explain", "a = 1 THEN b = 2").out
