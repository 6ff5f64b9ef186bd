"""Conditions mean what Kleene's tables do, and some tests have no answer."""

from __future__ import annotations

import math
import tracemalloc
from datetime import datetime
from itertools import product
from typing import Any

import pytest

from palio.errors import InvalidBinding, InvalidEvent, LimitExceeded
from palio.language.parsing import parse_filter
from palio.model import evaluation
from palio.model.evaluation import compare, evaluate
from palio.model.events import rows, to_batches
from palio.model.expressions import All, AnyOf, Attribute, Boolean, Exclusive, Not, literal, test
from palio.model.filters import reduce
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.operators import Op
from tests import strategies as our
from tests.model.meaning import truth
from tests.tables import code, table

STATES: dict[bool | None, Boolean] = {
    True: test(Attribute("yes"), Op.EQ, literal(True)),
    False: test(Attribute("no"), Op.EQ, literal(True)),
    None: test(Attribute("missing"), Op.EQ, literal(True)),
}
EVENT = {"yes": True, "no": False}


@pytest.mark.parametrize(("a", "b"), [*product(STATES, repeat=2)])
def test_connectives_follow_kleene(a: bool | None, b: bool | None) -> None:
    left, right = STATES[a], STATES[b]
    known = {True: 2, None: 1, False: 0}
    back = {2: True, 1: None, 0: False}
    assert reduce(All((left, right))).truth(EVENT) is back[min(known[a], known[b])]
    assert reduce(AnyOf((left, right))).truth(EVENT) is back[max(known[a], known[b])]
    assert reduce(Not(left)).truth(EVENT) is back[2 - known[a]]
    either = None if a is None or b is None else a != b
    assert reduce(Exclusive(left, right)).truth(EVENT) is either


def test_empty_connectives() -> None:
    assert reduce(All(())).truth({}) is True
    assert reduce(AnyOf(())).truth({}) is False


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("n < 5", {}, None),
        ("n < 5", {"n": None}, None),
        ("n < 5", {"n": "4"}, None),
        ("n < 5", {"n": True}, None),
        ("ok = TRUE", {"ok": 1}, None),
        ("n < 5", {"n": math.nan}, None),
        ("n != 5", {"n": math.nan}, None),
        ("n IS NOT NULL", {"n": math.nan}, True),
        ("n IS NULL", {"n": None}, True),
        ("n IN (1, 2)", {"n": "1"}, None),
        ("n NOT IN (1, 2)", {}, None),
        ("n IN (1, m)", {"n": 1}, True),
        ("n IN (1, m)", {"n": 2}, None),
        ("n NOT IN (1, m)", {"n": 2}, None),
        ("n NOT IN (1, m)", {"n": 1}, False),
        ("n = m", {"n": 2**53, "m": float(2**53)}, True),
        ("n = m", {"n": 2**53 + 1, "m": float(2**53)}, False),
        ("n > m", {"n": 2**53 + 1, "m": float(2**53)}, True),
        ("n / 0 > 1", {"n": 1}, None),
        ("n + 1 > 0", {"n": 2**63 - 1}, None),
        ("n + 1.0 > 0", {"n": 2**63 - 1}, True),
        ("SQRT(n) > 0", {"n": -1}, None),
        ("LENGTH(s) = 1", {"s": "😀"}, True),
        ("LENGTH(s) = 1", {"s": 5}, None),
        ("s STARTS WITH data.t", {"s": "ab", "data.t": "a"}, True),
        ("s STARTS WITH data.t", {"s": "ab", "data.t": 5}, None),
        ("s STARTS WITH data.t", {"s": b"ab", "data.t": b"a"}, True),
        ("s LIKE data.t", {"s": "ab", "data.t": "a_"}, True),
        ("s LIKE data.t", {"s": "ab", "data.t": "\\"}, None),
        ("s NOT LIKE data.t", {"s": "ab", "data.t": "\\"}, None),
        ("s IN CIDR data.t", {"s": "10.0.0.1", "data.t": "10.0.0.9/8"}, True),
        ("s IN CIDR data.t", {"s": "10.0.0.1", "data.t": "no block"}, None),
        ("s = data.t IGNORE CASE", {"s": "STRASSE", "data.t": "straße"}, True),
        ("s = data.t IGNORE CASE", {"s": b"a", "data.t": b"a"}, None),
        ("5 < 6", {}, True),
    ],
)
def test_where_a_test_has_an_answer(text: str, event: our.Event, expected: bool | None) -> None:
    (condition,) = our.trees(text)
    assert truth(condition, event) is expected
    assert our.fresh(text).truth(event) is expected
    assert truth(Not(condition), event) is (None if expected is None else not expected)


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        ("n < :x", {}, ":x has no value"),
        ("n < :x", {"x": None}, ":x is null"),
        ("n < :x", {"x": math.nan}, ":x is NaN"),
        ("n < :x", {"x": [1]}, ":x is a collection"),
        ("n < :x", {"x": object()}, "no attribute type"),
        ("n < :x", {"x": 2**63}, "does not fit int64"),
        ("n < :x", {"x": "\ud800"}, "lone surrogate"),
        ("n IN :x", {"x": []}, ":x is empty"),
        ("n IN :x", {"x": [1, "a"]}, "mixes a number and a string"),
        ("n IN (1, :x)", {"x": "a"}, "mixes a number and a string"),
        ("n IN (:w, :x)", {"x": "a", "w": 1}, "mixes a number and a string"),
        ("s STARTS WITH :x", {"x": 5}, "needs a string or bytes"),
        ("s LIKE :x", {"x": b"a"}, "needs a string"),
        ("s LIKE :x", {"x": "a\\"}, "lone backslash"),
        ("s IN CIDR :x", {"x": "a"}, "not an address block"),
        ("s = :x IGNORE CASE", {"x": 5}, "IGNORE CASE needs a string"),
        ("s IN :x IGNORE CASE", {"x": [5]}, "IGNORE CASE needs a string"),
        ("s IN (:x, 'a') IGNORE CASE", {"x": 5}, "needs a string"),
        ("s IN (:x, :y) IGNORE CASE", {"x": 5, "y": 6}, "IGNORE CASE needs a string"),
        ("n + :x < 5", {"x": [1]}, ":x is a collection"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    text: str, values: dict[str, Any], problem: str
) -> None:
    """By matching and by binding alike."""
    (condition,) = our.trees(text)
    parsed = our.fresh(text)
    event = {"n": 1, "s": "a"}
    for attempt in (
        lambda: truth(condition, event, values),
        lambda: parsed.truth(event, values),
        lambda: parsed.bind(values),
    ):
        with pytest.raises(InvalidBinding, match=problem) as caught:
            attempt()
        assert caught.value.name == "x"


def test_a_parameter_may_be_of_another_kind_where_any_will_do() -> None:
    assert our.fresh("n < :x").truth({"n": 1}, {"x": "a"}) is None
    assert our.fresh("n < :x").bind({"x": "a"}).truth({"n": 1}) is None
    assert our.fresh("n IN :x").truth({"n": 1}, {"x": 1}) is True


@pytest.mark.parametrize("value", [object(), [], "\ud800", 2**63, 1j])
def test_an_event_outside_the_model_is_refused(value: object) -> None:
    with pytest.raises(InvalidEvent, match=r"\w"):
        our.fresh("n < 5").matches({"n": value})


def test_compare_knows_no_order_between_kinds() -> None:
    several: list[Any] = [True, 1, "a", b"a", our.TIMES[0]]
    for a, b in product(several, repeat=2):
        if type(a) is not type(b):
            assert all(compare(a, op, b) is None for op in (Op.EQ, Op.NE, Op.LT, Op.GE))
    assert compare(our.TIMES[1], Op.LT, our.TIMES[3]) is True


def test_the_value_of_an_attribute_is_plain() -> None:
    assert evaluate(Attribute("n"), {"n": None}) is None
    assert evaluate(Attribute("at"), {"at": our.TIMES[2]}) == our.TIMES[1]


# --- the table of edge values ---

SPOKEN = {"matches": True, "no": False, "unknown": None}
NAMES = {"nan": math.nan, "inf": math.inf, "at": datetime.fromisoformat, "float": float}


@pytest.mark.parametrize(
    "row", table("Edge values"), ids=lambda row: f"{code(row['filter'])} on {code(row['event'])}"
)
def test_the_table_of_edge_values(row: dict[str, str]) -> None:
    """Every row of docs/reference/model.md, as written, as a reduced filter and as its domains."""
    text, event = code(row["filter"]), eval(code(row["event"]), {"__builtins__": {}}, NAMES)
    expected = SPOKEN[row["verdict"]]
    (condition,) = our.trees(text)
    filter = our.fresh(text)
    assert truth(condition, event) is expected
    assert filter.truth(event) is expected
    assert (~filter).truth(event) is (None if expected is None else not expected)
    assert filter.explain(event).truth is expected
    (batch,) = to_batches([event])
    assert [filter.truth(each) for each in rows(batch)] == [expected]


COMPUTING = (
    "UPPER(s) != 'a'",
    "LOWER(s) NOT IN ('a', t)",
    "TRIM(s) NOT LIKE '_'",
    "SUBSTRING(s, 1, 1) != 'b'",
    "COALESCE(s, 'a') != 'a'",
    "UPPER(s) IS NOT NULL",
    "s != t",
    "t < s",
    "s CONTAINS t",
    "s != t IGNORE CASE",
    "t NOT IN ('b', s)",
    "CONCAT(s, '') != t",
    "CESQL 'UPPER(s) != t'",
    "CESQL 'LEFT(s, 1) = t OR TRUE'",
)
"""Conditions that read `s`, and are true of any long text of the letter a beside `t = 'a'`."""


@pytest.mark.parametrize("letter", ["a", "\xe4", "\U0001d4b3"])
@pytest.mark.parametrize("text", COMPUTING)
def test_a_text_that_is_too_long_to_compute_with_makes_it_unknown(text: str, letter: str) -> None:
    filter = parse_filter(text)
    for length in (MAX_COMPUTED_CHARS - 1, MAX_COMPUTED_CHARS, MAX_COMPUTED_CHARS + 1):
        event = {"s": letter * (length - 1) + "a", "t": "a"}
        known = None if length > MAX_COMPUTED_CHARS else True
        assert filter.truth(event) is known
        assert filter.truth({"s": 5, "t": "a"}) is not True or "COALESCE" in text or "CESQL" in text
        if "CESQL" not in text:
            assert (~filter).truth(event) is (None if known is None else False)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("CONCAT(s, t) != 'a'", MAX_COMPUTED_CHARS - 1),
        ("CONCAT(s, s) != 'a'", MAX_COMPUTED_CHARS // 2),
        ("LENGTH(CONCAT(CONCAT(s, s), 'b')) > 1", (MAX_COMPUTED_CHARS - 1) // 2),
        ("CESQL 'LENGTH(CONCAT_WS(''b'', s, s)) > 1'", (MAX_COMPUTED_CHARS - 1) // 2),
        ("UPPER(CONCAT(s, s)) != 'a'", MAX_COMPUTED_CHARS // 2),
        ("CESQL 'CONCAT(s, s) != t'", MAX_COMPUTED_CHARS // 2),
    ],
)
def test_a_text_that_is_made_may_be_as_long(text: str, most: int) -> None:
    filter = parse_filter(text)
    for length in (most - 1, most, most + 1):
        assert filter.truth({"s": "a" * length, "t": "a"}) is (True if length <= most else None)


@pytest.mark.parametrize("quote", ["{}", "CESQL '{}'"])
def test_a_text_that_would_be_too_long_is_not_made(quote: str) -> None:
    filter = parse_filter(quote.format(f"CONCAT({', '.join(['s'] * 64)}) != t"))
    event = {"s": "\U0001d4b3" * MAX_COMPUTED_CHARS, "t": "a"}
    filter.truth(event)
    tracemalloc.start()
    try:
        assert filter.truth(event) is None
        assert tracemalloc.get_traced_memory()[1] < 64 * MAX_COMPUTED_CHARS
    finally:
        tracemalloc.stop()


def test_a_text_is_folded_once_for_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    folded: list[str] = []

    def fold(text: str) -> str:
        folded.append(text)
        return text.casefold()

    monkeypatch.setattr(evaluation, "fold", fold)
    filter = parse_filter("TRIM(s) IN ('a', 'STRASSE', t) IGNORE CASE")
    folded.clear()
    assert filter.truth({"s": "stra\xdfe", "t": 5}) is True
    assert folded.count("stra\xdfe") == 1
    assert filter.truth({"s": "b", "t": 5}) is None
    assert filter.truth({"s": 5, "t": "b"}) is None
    assert filter.truth({"s": "b", "t": "c"}) is False


@pytest.mark.parametrize(
    "text",
    [
        "LENGTH(s) > 5000",
        "CESQL 'LENGTH(s) > 5000'",
        "s != 'a'",
        "s LIKE '%b_b'",
        "s IS NOT NULL",
        "s = 'A' IGNORE CASE OR s ENDS WITH 'ab'",
        "CONCAT(s) IS NOT NULL",
        "s + 0 IS NULL",
        "CONCAT(b) IS NULL",
        "LENGTH(b) > 5000",
        "UPPER(b) IS NULL",
    ],
)
def test_what_computes_nothing_takes_texts_of_any_length(text: str) -> None:
    filter = parse_filter(text)
    event = {"s": "a" * 100_000 + "bab", "b": b"a" * 100_000}
    assert filter.truth(event) is True
    assert (~filter).truth(event) is False


def test_a_constant_that_is_computed_has_the_limit_of_any_text() -> None:
    half = "a" * (MAX_COMPUTED_CHARS // 2)
    assert str(parse_filter(f"s = CONCAT('{half}', '{half}')")) == f"s = '{half}{half}'"
    for text in (f"s = CONCAT('{half}', '{half}', 'a')", f"s = UPPER('{half}{half}a')"):
        with pytest.raises(LimitExceeded, match="MAX_COMPUTED_CHARS"):
            parse_filter(text)


def test_why_it_is_unknown_is_explained() -> None:
    filter = parse_filter("UPPER(s) != 'A'")
    long = str(filter.explain({"s": "a" * (MAX_COMPUTED_CHARS + 1)}))
    assert "s has more than 4096 characters" in long
    assert "more than" not in str(filter.explain({"s": "a" * MAX_COMPUTED_CHARS}))
