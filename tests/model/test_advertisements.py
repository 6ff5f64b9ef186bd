"""Texts announce what the definition of siena 3.3, applied to the text itself, does."""

from __future__ import annotations

import ast
import itertools
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, note

from palio.errors import InvalidBinding, InvalidInput, LimitExceeded
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.advertisements import Advertisement
from palio.model.expressions import (
    All,
    AnyOf,
    Attribute,
    Between,
    Boolean,
    Exclusive,
    Foreign,
    Not,
    Test,
    attributes_of,
    variables_of,
    walk,
)
from palio.model.filters import Filter
from palio.model.limits import MAX_CONJUNCTIONS, MAX_TEXT_TESTS
from palio.model.relations import covers_advertisement, overlaps
from tests import strategies as our
from tests.model.meaning import truth
from tests.model.offers import announced, every_event, random_offer
from tests.tables import code, table

# --- the definition, on the tree of the text ---

Choice = list[tuple[Boolean, bool]]
"""Tests of one alternative, each with whether it is negated."""


def choices(tree: Boolean, negated: bool = False) -> list[Choice]:
    """The alternatives of a condition: nothing is simplified."""
    match tree:
        case Between():
            return [[(tree, negated)]]
        case Not(part):
            return choices(part, not negated)
        case Exclusive(left, right):
            pairs = [(left, right, False, True), (left, right, True, False)]
            if negated:
                pairs = [(left, right, False, False), (left, right, True, True)]
            return [
                one + other
                for a, b, na, nb in pairs
                for one in choices(a, na)
                for other in choices(b, nb)
            ]
        case All(parts) | AnyOf(parts):
            inner = [choices(each, negated) for each in parts]
            if isinstance(tree, All) is negated:
                return [choice for each in inner for choice in each]
            return [list(itertools.chain(*each)) for each in itertools.product(*inner)]
        case _:
            return [[(tree, negated)]]


def holds(test: Boolean, negated: bool, event: our.Event) -> bool | None:
    found = test.truth(event) if isinstance(test, Foreign) else truth(test, event, {})
    return None if found is None else found is not negated


def is_of_one_name(test: Boolean) -> bool:
    """Check whether a test compares one attribute with constants, on either side: no residual."""
    tests = test.parts if isinstance(test, Between) else (test,)
    names = [each for part in tests for each in walk(part) if isinstance(each, Attribute)]
    bare = all(
        isinstance(each, Test)
        and (isinstance(each.subject, Attribute) or isinstance(each.operand, Attribute))
        and len(attributes_of(each)) == 1
        for each in tests
    )
    return bare and len(names) == len(tests)


def means(tree: Boolean, event: our.Event) -> bool:
    """Check whether a condition announces an event, by the definition."""
    return any(allows(choice, event) for choice in choices(tree))


def allows(choice: Choice, event: our.Event) -> bool:
    residuals = [each for each in choice if not is_of_one_name(each[0])]
    read = {
        name
        for test, _ in residuals
        if not isinstance(test, Foreign)
        for name in attributes_of(test)
    }
    if any(holds(test, negated, event) is False for test, negated in residuals):
        return False
    for name, value in event.items():
        if value is None or name.startswith("$"):
            continue
        about = [
            (test, negated)
            for test, negated in choice
            if (test, negated) not in residuals and name in attributes_of(test)
        ]
        if about:
            if not any(holds(test, negated, event) is True for test, negated in about):
                return False
        elif name not in read:
            return False
    return True


@our.examples(200)
@given(our.expression_texts(), our.SEEDS)
def test_a_text_announces_what_the_definition_says(text: str, seed: int) -> None:
    (tree,) = our.trees(text)
    note(text)
    try:
        advertisement = parse_advertisement(text)
    except InvalidInput:
        return
    for event in our.nearby(our.told(advertisement), seed=seed, count=15):
        assert advertisement.announces(event) == means(tree, event), event


@our.examples(200)
@given(our.expression_texts(variables=True), our.bindings())
def test_its_text_reads_back_to_an_equal_advertisement(text: str, values: dict[str, Any]) -> None:
    (tree,) = our.trees(text)
    names = variables_of(tree)
    try:
        advertisement = parse_advertisement(text, {name: values[name] for name in names})
    except InvalidInput:
        return
    note(str(advertisement))
    again = parse_advertisement(str(advertisement))
    assert again == advertisement
    assert hash(again) == hash(advertisement)
    assert str(again) == str(advertisement)
    assert pickle.loads(pickle.dumps(advertisement)) == advertisement


# --- the definition, on texts of our own ---


@pytest.mark.parametrize("seed", range(20))
def test_random_texts_announce_what_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        text, meaning = random_offer(rng)
        advertisement = parse_advertisement(text)
        for event in every_event():
            assert advertisement.announces(event) == announced(meaning, event), (text, event)


class Counts:
    """Pairs by brute force over all small events, and by a relation."""

    def __init__(self) -> None:
        self.due = self.seen = 0

    def add(self, due: bool, seen: bool) -> None:
        self.due += due
        self.seen += due and seen


@our.examples(150)
@given(our.advertisements(), our.filters(), our.SEEDS)
def test_within_a_filter_it_announces_all_that_the_filter_matches(
    offer: Advertisement, granted: Filter, seed: int
) -> None:
    try:
        within = offer.within(granted)
    except LimitExceeded:
        return
    assert parse_advertisement(str(within)) == within
    note(str(within))
    for event in our.nearby(our.told(offer), granted, seed=seed):
        if offer.announces(event) and granted.matches(event):
            assert within.announces(event)


@pytest.mark.parametrize(
    ("offer", "granted", "within"),
    [
        ("EXISTS a AND EXISTS b", "a = 1", "a = 1 AND EXISTS b"),
        ("a = 2 AND EXISTS b", "a = 1", "FALSE"),
        ("a IN (1, 2) AND EXISTS b", "a >= 0", "a IN (1, 2) AND EXISTS b"),
        ("a IN (1, 2) AND EXISTS b", "a >= 2", "a >= 2 AND EXISTS b"),
        ("EXISTS b", "a = 1", "FALSE"),
        ("EXISTS a", "a = 1 OR a = 3", "a IN (1, 3)"),
        ("EXISTS a", "a BETWEEN 1 AND 3", "a BETWEEN 1 AND 3"),
        ("EXISTS a", "a < 3 AND a >= 1", "a < 3"),
        ("EXISTS a AND EXISTS b", "a IS NULL", "EXISTS b"),
        ("EXISTS a AND EXISTS b", "a = 1 OR b = 2", "a = 1 AND EXISTS b OR EXISTS a AND b = 2"),
        ("a > b * 2 AND EXISTS c", "a = 1", "a = 1 AND a > b * 2 AND EXISTS c"),
        ("EXISTS a", 'a = 1 AND "$seq" > 3', "a = 1"),
        ("EXISTS a", "TRUE", "EXISTS a"),
        ("EXISTS a", "FALSE", "FALSE"),
    ],
)
def test_what_it_announces_within_a_filter(offer: str, granted: str, within: str) -> None:
    """An attribute with two tests in the filter goes by the first: a little more."""
    found = parse_advertisement(offer).within(parse_filter(granted))
    assert found == parse_advertisement(within)


def test_what_is_too_large_within_a_filter_is_refused() -> None:
    many = [" OR ".join(f"{name}{place} = 1" for place in range(60)) for name in "ab"]
    both = " OR ".join(f"a{at} = 1 AND b{at} = 1" for at in range(60))
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        parse_advertisement(both).within(parse_filter(f"({many[0]}) AND ({many[1]})"))


def test_what_the_relations_miss_is_counted() -> None:
    """Sound always; docs/reference/model.md has these numbers, which may only get better."""
    rng = random.Random(7)
    covered, apart = Counts(), Counts()
    events = every_event()
    for _ in range(1_500):
        (wide, wide_means), (narrow, narrow_means) = random_offer(rng), random_offer(rng)
        general, specific = parse_advertisement(wide), parse_advertisement(narrow)
        due = all(announced(wide_means, each) for each in events if announced(narrow_means, each))
        seen = covers_advertisement(general, specific)
        assert due or not seen, (wide, narrow)
        covered.add(due, seen)
        heard = parse_filter(narrow)
        due = not any(announced(wide_means, each) and heard.matches(each) for each in events)
        seen = not overlaps(general, heard)
        assert due or not seen, (wide, narrow)
        apart.add(due, seen)
    assert (covered.due, covered.seen, apart.due, apart.seen) == (431, 393, 665, 653)


# --- cases ---


@pytest.mark.parametrize(
    ("advertisement", "event", "closed", "open_"),
    [
        ("n > 0 AND s IS NOT NULL", {"n": 1}, True, True),
        ("n > 0 AND s IS NOT NULL", {"n": 1, "s": "a"}, True, True),
        ("n > 0 AND s IS NOT NULL", {"n": -1, "s": "a"}, False, False),
        ("n > 0", {"n": 1, "m": 1}, False, True),
        ("n > 0", {"n": 1, "m": None}, True, True),
        ("n > 0", {"n": 1, "$seq": 7, "$time": our.TIMES[1]}, True, True),
        ("n > 0", {}, True, True),
        ("n > 10 AND n < 5", {"n": 7}, False, False),
        ("n > 10 AND n < 5", {"n": 3}, True, True),
        ("n > 0 OR m > 0", {"n": 1, "m": 1}, False, True),
        ("n IS NULL", {"n": 1}, False, False),
        ("n < m", {"n": 1, "m": 2}, True, True),
        ("n < m", {"n": 2, "m": 1}, False, False),
        ("n < m", {"n": 2}, True, True),
        ("FALSE", {}, False, False),
        ("x = 1 OR (x = 1 AND y = 2)", {"x": 1, "y": 2}, True, True),
        ("x != 1 AND x != 2", {"x": 1}, True, True),
        ("n NOT BETWEEN 1 AND 2 AND n > 2", {"n": 0}, True, True),
        ("n NOT BETWEEN 1 AND 2 AND n > 2", {"n": 1.5}, False, False),
        ("n BETWEEN 0 AND 10", {"n": 99}, False, False),
        ("n >= 0 AND n <= 10", {"n": 99}, True, True),
        ("NOT n BETWEEN 0 AND 10", {"n": 99}, True, True),
        ("n BETWEEN 0 AND 10 AND n BETWEEN 20 AND 30", {"n": 25}, True, True),
        ("n BETWEEN 0 AND 10 AND n BETWEEN 20 AND 30", {"n": 15}, False, False),
        ("n NOT BETWEEN 1 AND m", {"n": 0, "m": 5}, True, True),
        ("n NOT BETWEEN 1 AND m", {"n": 3, "m": 5}, False, False),
        ("5 BETWEEN n AND n", {"n": 5}, True, True),
        ("5 BETWEEN n AND n", {"n": 4}, False, False),
        ("TRUE OR n = 1", {"n": 1}, True, True),
        ("n = 1 AND FALSE", {"n": 1}, False, False),
        ("NOT (n = 1 AND m = 1)", {"n": 2}, True, True),
        ("NOT (n = 1 AND m = 1)", {"n": 2, "m": 2}, False, True),
        ("n = 1 XOR m = 1", {"n": 1, "m": 2}, True, True),
    ],
)
def test_an_event_is_announced_when_each_attribute_satisfies_some_constraint(
    advertisement: str, event: our.Event, closed: bool, open_: bool
) -> None:
    parsed = parse_advertisement(advertisement)
    assert (parsed.announces(event), parsed.announces(event, open=True)) == (closed, open_)


@pytest.mark.parametrize(
    "row",
    table("Subscriptions and advertisements"),
    ids=lambda row: f"{code(row['text'])} on {code(row['event'])}",
)
def test_the_table_of_the_document(row: dict[str, str]) -> None:
    advertisement = parse_advertisement(code(row["text"]))
    event = ast.literal_eval(code(row["event"]))
    assert advertisement.announces(event) is (row["announced"] == "yes")


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        (code(row["general"]), code(row["specific"]))
        for row in table("What the relations of advertisements do not see")
    ],
)
def test_a_listed_gap_is_still_one(general: str, specific: str) -> None:
    """If this fails because the relation sees it, strike the row from docs/reference/model.md."""
    wide, narrow = parse_advertisement(general), parse_advertisement(specific)
    assert not covers_advertisement(wide, narrow)
    for seed in range(20):
        for event in our.nearby(our.told(wide), our.told(narrow), seed=seed):
            assert wide.announces(event) or not narrow.announces(event), event


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x = 1 OR (x = 1 AND y = 2)", "x = 1 OR x = 1 AND y = 2"),
        ("x != 1 AND x != 2", "x != 1 AND x != 2"),
        ("x = 1 AND x = 2", "x IN (1, 2)"),
        ("n NOT BETWEEN 1 AND 2", "n < 1 AND n > 2"),
        ("n BETWEEN 1 AND 2", "n BETWEEN 1 AND 2"),
        ("n >= 1 AND n BETWEEN 1 AND 2", "n >= 1"),
        ("n NOT BETWEEN 1 AND m", "m IS NOT NULL AND n < 1 OR n > m"),
        ("TRUE", "TRUE"),
        ("FALSE", "FALSE"),
        ("NOT TRUE OR 1 > 2", "FALSE"),
    ],
)
def test_its_text(text: str, shown: str) -> None:
    assert str(parse_advertisement(text)) == shown
    assert repr(parse_advertisement(text)) == f"palio.parse_advertisement({shown!r})"


def test_parameters_get_their_values_when_it_is_read() -> None:
    offered = parse_advertisement(
        "n BETWEEN :low AND :low + 5 AND s IN :some", {"low": 1, "some": ["b", "a"]}
    )
    assert offered == parse_advertisement("n BETWEEN 1 AND 6 AND s IN ('a', 'b')")


@pytest.mark.parametrize(
    ("text", "values", "error", "match"),
    [
        ("n < :most", {}, InvalidBinding, ":most has no value"),
        ("n < 1", {"most": 1}, InvalidBinding, "no parameter :most"),
        ("n < 10 / :by", {"by": 0}, InvalidBinding, "by"),
        ("n = 1 THEN n = 2", {}, InvalidInput, "one by one"),
        ("n =", {}, InvalidInput, "ends too soon"),
        (7, {}, InvalidInput, "is a str, not int"),
    ],
)
def test_what_is_no_advertisement(
    text: Any, values: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        parse_advertisement(text, values)


def test_the_limit_of_text_tests_of_one_attribute() -> None:
    def offered(count: int) -> Advertisement:
        return parse_advertisement(" AND ".join(f"s LIKE '%a{each}%b'" for each in range(count)))

    for count in (MAX_TEXT_TESTS - 1, MAX_TEXT_TESTS):
        assert len(offered(count).alternatives[0].tests["s"].conjunctions) == count
    with pytest.raises(LimitExceeded, match="MAX_TEXT_TESTS"):
        offered(MAX_TEXT_TESTS + 1)


def test_a_collection_in_many_places_is_refused_before_it_is_put_there() -> None:
    text = " AND ".join(["n IN :many"] * 900)
    with pytest.raises(LimitExceeded, match="MAX_CONSTANTS"):
        parse_advertisement(text, {"many": range_of(10_000)})


def range_of(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def test_the_limit_of_alternatives() -> None:
    def offered(count: int) -> Advertisement:
        return parse_advertisement(" OR ".join(f"n = {each}" for each in range(count)))

    assert len(offered(MAX_CONJUNCTIONS).alternatives) == MAX_CONJUNCTIONS
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        offered(MAX_CONJUNCTIONS + 1)
