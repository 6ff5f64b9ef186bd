"""Texts put together from known conditions mean what they mean read as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given

from palio.errors import InvalidInput, LimitExceeded
from palio.language import joining, templates
from palio.language.joining import MOST_LEARNED, joined
from palio.language.parsing import conditions_of, parse
from palio.language.templates import split
from palio.model.filters import Filter
from tests import strategies as our
from tests.language.test_templates import others


def put_together(text: str, *, times: int = 1) -> Filter | None:
    """What is found at the last of some times, which may learn."""
    parts = split(text)
    assert parts is not None
    found = None
    for _ in range(times):
        found = joined(parts, conditions_of)
    return found


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_known", {})
    monkeypatch.setattr(templates, "_seen", set())


@our.examples(150)
@given(our.expression_texts(variables=True), our.expression_texts(variables=True), our.SEEDS)
def test_what_is_put_together_is_the_parsed_text(one: str, other: str, seed: int) -> None:
    for text in (f"{one} AND {other}", f"{other} AND NOT {one} AND {other}"):
        for again in (text, text, others(text, seed), others(text, seed + 1)):
            try:
                found = put_together(again)
                expected = our.fresh(again)
            except InvalidInput:
                continue
            assert found is None or (found == expected and str(found) == str(expected)), again


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND b > 2.5",
        "a BETWEEN 1 AND 5 AND b = 'x'",
        "a = :one AND NOT b LIKE 'a%b_c' AND c IN (1, 2) AND flag",
        "s = 'this AND that' AND t LIKE 'x%' AND a != 1 AND a != 2",
        "a = 1 and b = 2 AND c = 3",
        "x = 1 AND x = 1",
        "a.b = -1 AND `c AND` >= 007 AND 1 = 1",
    ],
)
def test_conditions_are_known_the_third_time(text: str) -> None:
    assert put_together(text, times=2) is None
    found = put_together(text)
    assert found == our.fresh(text)
    assert str(found) == str(our.fresh(text))
    other = text.replace("1", "3").replace("'x", "'y")
    assert put_together(other) == our.fresh(other)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "a = 1 OR b = 2 AND c = 3",
        "a = 1 AND b = 2 xor c = 3",
        "a = 1 AND b = 2 THEN c = 3 AND d = 4",
        "a = 1 AND b = 2 THEN c = 3 WITHIN 5s",
        "a = 1 -- AND b = 2",
        "(a = 1 AND b = 2)",
        "a BETWEEN :low AND :high AND b = 2",
        "s = 'a'' AND t = ''b'",
        "s = 'a''b AND c' AND t = 1",
        "a = 1 AND upper(s) = 'A'",
        "a = 1 AND lower(:p) = s",
        "a = 1 AND (b = 2 OR c = 3)",
    ],
)
def test_other_texts_are_left_to_the_parser(text: str) -> None:
    assert put_together(text, times=5) is None
    assert [parse(text) for _ in range(3)] == [parse(text)] * 3


def test_what_does_not_fit_is_told_by_the_parser() -> None:
    texts = [f"a = 1 AND s LIKE '{piece}'" for piece in ("a%b_c", "a%b_c", "a%b_c\\")]
    assert put_together(texts[0], times=3) == our.fresh(texts[0])
    with pytest.raises(InvalidInput, match="lone backslash"):
        parse(texts[2].replace("a = 1", "a = 1 AND a = 1"))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_one_text_has_few_conditions_read(extra: int) -> None:
    names = [f"one_of_{MOST_LEARNED + extra}_{place}" for place in range(MOST_LEARNED + extra)]
    text = " AND ".join(f"{name} = 1" for name in names)
    put_together(text, times=2)
    assert (put_together(text) is None) is (extra > 0)
    put_together(text)
    assert put_together(text) == our.fresh(text)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_the_conditions_that_are_kept_are_bounded(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MAX_TEMPLATES", 4)
    for number in range(count):
        put_together(f"few_{number} = 1 AND few_{number} = 1", times=3)
    assert len(joining._known) == (count if count <= 4 else 1)


def test_a_text_that_grows_too_large_is_refused() -> None:
    text = " AND ".join(f"x LIKE '{place}%b_c'" for place in range(33))
    assert len(text) < 2_048
    with pytest.raises(LimitExceeded, match="MAX_TEXT_TESTS"):
        put_together(text, times=3)
