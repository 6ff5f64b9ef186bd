"""A filter is refused where its text would be, and is read wherever it is not."""

from __future__ import annotations

import pytest

from palio.errors import LimitExceeded, ParseError
from palio.model.constraints import Constraint
from palio.model.filters import Conjunction, Filter
from palio.model.limits import (
    MAX_CONJUNCTIONS,
    MAX_CONSTANTS,
    MAX_CONSTRAINTS,
    MAX_IN_VALUES,
    MAX_LIKE_CHARS,
    MAX_NAME_CHARS,
    MAX_STRING_CHARS,
    MAX_TEXT_CHARS,
    MAX_TEXT_TESTS,
    MAX_TOKENS,
)
from palio.model.sizes import LONG_LIST, Meter, check_size
from tests import strategies as our

QUOTES = "'" * MAX_STRING_CHARS


def of(*constraints: Constraint) -> Filter:
    """A conjunction of constraints, its size unchecked."""
    return Filter((Conjunction.of(constraints),))


def reads_back(filter: Filter) -> None:
    """Within the limits, and so is its text."""
    check_size(filter.conjunctions)
    assert our.fresh(str(filter)) == filter


def is_too_large(filter: Filter, limit: str) -> None:
    """Refused, and naming the limit."""
    with pytest.raises(LimitExceeded) as caught:
        check_size(filter.conjunctions)
    assert caught.value.limit == limit


def test_the_text_of_a_filter_is_bounded() -> None:
    """Quotes are doubled, in names too, so that half of what was given fills a text."""

    def sized(chars: int) -> Filter:
        rest = chars - len(str(of(Constraint.of("a", "=", QUOTES), Constraint.of("b", ">", ""))))
        return of(Constraint.of("a", "=", QUOTES), Constraint.of("b", ">", "'" * (rest // 2)))

    full = sized(MAX_TEXT_CHARS - 10)
    assert MAX_TEXT_CHARS - 20 < len(str(full)) <= MAX_TEXT_CHARS
    reads_back(full)
    is_too_large(sized(MAX_TEXT_CHARS + 10), "MAX_TEXT_CHARS")


def test_a_text_that_multiplies_is_refused_before_it_is_written() -> None:
    either = " OR ".join(f"b < {place}" for place in range(MAX_CONJUNCTIONS))
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS"):
        our.fresh(f"a = '{'x' * 60_000}' AND ({either})")


def test_the_number_of_listed_constants_is_bounded() -> None:
    def lists(over: int) -> Filter:
        count = MAX_CONSTANTS - MAX_IN_VALUES + over
        return of(
            Constraint.of("a", "IN", range(MAX_IN_VALUES)), Constraint.of("b", "IN", range(count))
        )

    for over in (-1, 0):
        reads_back(lists(over))
    is_too_large(lists(+1), "MAX_CONSTANTS")
    with pytest.raises(LimitExceeded, match="MAX_CONSTANTS"):
        our.fresh(str(lists(+1)))
    with pytest.raises(LimitExceeded, match="MAX_CONSTANTS"):
        our.fresh(f"a IN ({','.join('1' * (MAX_CONSTANTS + 1))})")  # though equal ones are one
    our.fresh(f"a IN ({','.join('1' * (MAX_CONSTANTS - 1))})")


def test_the_number_of_tests_of_one_text_is_bounded() -> None:
    def tests(count: int) -> Filter:
        return of(*(Constraint.of("s", "CONTAINS", f"{place}") for place in range(count)))

    for count in (MAX_TEXT_TESTS - 1, MAX_TEXT_TESTS):
        reads_back(tests(count))
    is_too_large(tests(MAX_TEXT_TESTS + 1), "MAX_TEXT_TESTS")
    reads_back(of(*tests(MAX_TEXT_TESTS).conjunctions[0].constraints, Constraint.of("t", "=", "a")))


def test_the_number_of_tokens_is_bounded() -> None:
    """A constraint has four, with AND or OR; `IGNORE CASE` is another."""

    def equalities(count: int, more: int) -> Filter:
        return of(
            *(Constraint.of(f"a{place}", "=", "x", place < more) for place in range(count)),
        )

    reads_back(equalities(MAX_CONSTRAINTS, 0))
    is_too_large(equalities(MAX_CONSTRAINTS + 1, 0), "MAX_CONSTRAINTS")
    is_too_large(equalities(MAX_CONSTRAINTS, 1), "MAX_TOKENS")
    reads_back(equalities(MAX_CONSTRAINTS - 1, 4))
    for text in (" OR ".join(["a"] * (MAX_TOKENS // 2)), "a + " * (MAX_TOKENS // 2)):
        assert len(text.split()) in (MAX_TOKENS - 1, MAX_TOKENS)
    our.fresh(" OR ".join(["a"] * (MAX_TOKENS // 2)))  # MAX_TOKENS - 1
    our.fresh("NOT " + " OR ".join(["a"] * (MAX_TOKENS // 2)))
    with pytest.raises(LimitExceeded, match="MAX_TOKENS"):
        our.fresh("NOT NOT " + " OR ".join(["a"] * (MAX_TOKENS // 2)))  # MAX_TOKENS + 1


def test_a_text_that_folding_makes_longer_is_measured_folded() -> None:
    text = "ß" * (MAX_STRING_CHARS // 2)
    for op, operand in (("=", text), ("IN", [text, "a"]), ("CONTAINS", text)):
        reads_back(of(Constraint.of("s", op, operand, ignore_case=True)))
    for op, operand in (("=", text + "s"), ("IN", [text + "s", "a"]), ("CONTAINS", text + "s")):
        with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
            Constraint.of("s", op, operand, ignore_case=True)
    with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
        our.fresh("s = :x IGNORE CASE").bind({"x": text + "s"})


def test_a_like_pattern_has_a_longest_length() -> None:
    for size in (MAX_LIKE_CHARS - 1, MAX_LIKE_CHARS):
        reads_back(of(Constraint.of("s", "LIKE", "_".ljust(size, "x"))))
    pattern = "_".ljust(MAX_LIKE_CHARS + 1, "x")
    with pytest.raises(LimitExceeded, match="MAX_LIKE_CHARS"):
        Constraint.of("s", "LIKE", pattern)
    assert our.fresh("s LIKE t").truth({"s": pattern, "t": pattern}) is None  # as any other misfit


def test_a_long_list_is_one_token_and_means_what_a_short_one_does() -> None:
    members: dict[str, list[object]] = {
        "numbers": [-1.5, -(2**63), 2**63 - 1, float("-inf"), float("inf"), 1e300, 5e-324],
        "texts": ["", "it's", ")", ",", "a -- b", "\n", "TRUE"],
        "bytes": [b"", b"\xff", b"ab"],
        "times": list(our.TIMES),
    }
    for name, some in members.items():
        filler: list[object] = [
            {"numbers": place, "texts": f"{place}", "bytes": b"%d" % place}.get(name)
            for place in range(LONG_LIST + 1)
        ]
        given = some + (filler if name != "times" else [])
        reads_back(of(Constraint.of("a", "NOT IN", given)))
    commented = ", -- as many as it takes\n".join(map(str, range(LONG_LIST * 2)))
    assert our.fresh(f"a IN ( {commented})") == of(Constraint.of("a", "IN", range(LONG_LIST * 2)))
    for wrong in ("9" * 30, "9" * 500, "'a'", "X'0'", "TIMESTAMP 'x'", "1e", "null", "b + 1 1"):
        with pytest.raises(ParseError, match="line 1"):
            our.fresh(f"a IN ({', '.join(map(str, range(LONG_LIST * 2)))}, {wrong})")


def test_names_may_be_as_long_as_they_like_within_the_text() -> None:
    def named(count: int) -> Filter:
        names = ('"' * (MAX_NAME_CHARS - 4) + f"{place:04}" for place in range(count))
        return of(*(Constraint.of(name, "=", 1) for name in names))

    reads_back(named(500))
    is_too_large(named(520), "MAX_TEXT_CHARS")


@pytest.mark.parametrize(
    ("text", "values", "limit"),
    [
        ("a IN :x OR b IN :x", {"x": list(range(MAX_IN_VALUES))}, "MAX_CONSTANTS"),
        (" OR ".join(f"a{n} = :x" for n in range(3)), {"x": "'" * 50_000}, "MAX_TEXT_CHARS"),
        ("LENGTH(s) IN :x", {"x": list(range(2_000))}, "MAX_RESIDUAL_COST"),
        (" AND ".join(f"a{n} > :x" for n in range(1_000)), {"x": float("-inf")}, "MAX_TOKENS"),
    ],
)
def test_values_that_make_a_filter_too_large_are_refused(
    text: str, values: dict[str, object], limit: str
) -> None:
    with pytest.raises(LimitExceeded) as caught:
        our.fresh(text).bind(values)  # type: ignore[arg-type]  # each is a value
    assert caught.value.limit == limit


def test_a_collection_bound_in_many_places_costs_no_more_than_the_limit() -> None:
    """Half a thousand lists of ten thousand would be five million constants."""
    filter = our.fresh(" AND ".join(f"a{place} NOT IN :x" for place in range(500)))
    seen = 0

    class Counted(list[object]):
        def __iter__(self):  # type: ignore[no-untyped-def]  # as list has it
            nonlocal seen
            seen += len(self)
            return super().__iter__()

    with pytest.raises(LimitExceeded, match="MAX_CONSTANTS"):
        filter.bind({"x": Counted(range(MAX_IN_VALUES))})  # type: ignore[dict-item]  # a list
    assert seen <= 2 * MAX_CONSTANTS


@pytest.mark.parametrize(
    "members",
    [
        ["", "'", "it's", "a'b'c'", "é" * 9],
        [0, 9, -9, 10, -(2**63), 2**63 - 1],
        [0.5, -1.5e-300, 1.7976931348623157e308],
        [b"", b"\xff" * 5],
        [True, False],
    ],
)
def test_no_text_is_longer_than_what_is_counted(members: list[object]) -> None:
    meter = Meter()
    conjunction = Conjunction.of([Constraint.of("x", "IN", members)])
    meter.add(conjunction)
    assert meter.chars >= len(str(Filter.of([conjunction])))


def test_a_long_list_is_counted_without_writing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each constant of thousands is looked at a few times, and all of it by whoever else waits."""
    monkeypatch.setattr(Meter, "_measured", lambda _: 1 // 0)
    for members in (range(10**9, 10**9 + MAX_IN_VALUES), [f"{n:012x}" for n in range(10_000)]):
        check_size([Conjunction.of([Constraint.of("x", "IN", members)])])
