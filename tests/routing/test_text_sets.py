"""Sets of texts that pass tests: what is decided at a glance is what comparing would say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given

from palio.language.parsing import parse_filter
from palio.model.domains import Domain, KindSet
from palio.model.values import Kind
from palio.routing.domain_index import DomainIndex, pieces_of
from palio.routing.text_sets import MOST_TRIED, TextSets, takes_long
from tests.strategies import SEEDS

WORDS = ("a", "b", "ab", "ba", "aB", "Ab", "abc", "cab", "c", "ß", "SS", "s")


def drawn(rng: random.Random) -> Domain:
    """A domain of texts by some tests, of words that have much in common."""
    while True:
        tests = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            word, other = rng.choice(WORDS), rng.choice(WORDS)
            case = rng.choice(("", "", " IGNORE CASE"))
            like = rng.choice((f"%{word}%", f"{word}%{other}%", f"%{word}_{other}", f"_{word}%"))
            tests.append(
                rng.choice(
                    (
                        f"x CONTAINS '{word}'{case}",
                        f"x NOT CONTAINS '{word}'{case}",
                        f"x STARTS WITH '{word}'{case}",
                        f"x ENDS WITH '{word}'{case}",
                        f"x NOT ENDS WITH '{word}'{case}",
                        f"x LIKE '{like}'{case}",
                        f"x NOT LIKE '{like}'{case}",
                        f"x = '{word}{other}'{case}",
                        f"x != '{word}'{case}",
                        f"x >= '{word}'",
                        f"x < '{word}'",
                        f"x IN ('{word}', '{other}', '{word}{other}')",
                        f"x NOT IN ('{word}', '{other}')",
                    )
                )
            )
        (conjunction,) = parse_filter(" AND ".join(tests)).conjunctions or (None,)
        if conjunction is not None and not conjunction.is_contradiction:
            found = conjunction.domains["x"].without_absent()
            if not found.is_empty:
                return found


@given(SEEDS)
def test_what_is_decided_is_what_comparing_says(seed: int) -> None:
    rng = random.Random(seed)
    index: DomainIndex[Domain] = DomainIndex(needing=True)
    known: dict[int, Domain] = {}
    for _ in range(12):
        new = drawn(rng)
        found = index.meeting([{"x": pieces_of([new])}]).tolist()
        expected = [n for n, each in sorted(known.items()) if not each.disjoint(new)]
        assert found == expected, str(new)
        if known and rng.random() < 0.3:
            gone = rng.choice(list(known))
            index.remove(gone, [{"x": pieces_of([known.pop(gone)])}])
        number = index.add(new, [{"x": pieces_of([new])}])
        assert number is not None
        known[number] = new


def texts(condition: str) -> KindSet:
    return parse_filter(condition).conjunctions[0].domains["x"].kinds[Kind.STRING]


def compared(known: str, asked: str, count: int = 200) -> tuple[int, int]:
    """Of so many sets, each with a word of its own (`*`), how many meet another one for sure, and
    how many have to be compared with it.
    """
    sets = TextSets()
    for place in range(count):
        sets.add(place, texts(known.replace("*", f"w{place}")))
    values = texts(asked)
    inside = np.array([each.spans != values.spans for each in [texts(known)] * count])
    meets, unsure = sets.decide(values, np.arange(count), inside)
    return int(meets.sum()), int(unsure.sum())


@pytest.mark.parametrize(
    ("known", "asked", "meet", "left"),
    [
        ("x CONTAINS '*'", "x CONTAINS 'news'", 200, 0),
        ("x CONTAINS '*'", "x CONTAINS 'news' AND x ENDS WITH '!'", 200, 0),
        ("x CONTAINS '*'", "x NOT CONTAINS 'w19'", 189, 11),
        ("x CONTAINS '*'", "x = 'the w19'", 0, 2),
        ("x CONTAINS '*' IGNORE CASE", "x = 'the W19'", 0, 2),
        ("x LIKE '%*%q%'", "x IN ('some', 'other q')", 0, 0),
        ("x NOT CONTAINS '*'", "x = 'the w19'", 198, 2),
        ("x NOT CONTAINS '*'", "x LIKE '%w19%'", 198, 2),
        ("x ENDS WITH '*'", "x ENDS WITH 'w19'", 1, 0),
        ("x ENDS WITH '*' IGNORE CASE", "x ENDS WITH 'W19'", 1, 0),
        ("x STARTS WITH '*' IGNORE CASE", "x STARTS WITH 'W19' IGNORE CASE", 12, 0),
        ("x LIKE 'p%*%'", "x STARTS WITH 'P' IGNORE CASE", 200, 0),
        ("x LIKE 'p%*%'", "x STARTS WITH 'Q' IGNORE CASE", 0, 0),
        ("x = 'w1' IGNORE CASE", "x CONTAINS 'w1'", 0, 200),  # of no form that is known
    ],
)
def test_few_are_left_to_compare(known: str, asked: str, meet: int, left: int) -> None:
    assert compared(known, asked) == (meet, left)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_what_takes_long_is_said_by_tests_and_lists(over: int) -> None:
    intervals = MOST_TRIED - 1 + over
    assert takes_long(1, intervals) is (over > 0)
    listed = ", ".join(f"'a{n}'" for n in range(intervals - 1))
    assert compared("x CONTAINS '*'", f"x IN ({listed})") == ((200, 0) if over > 0 else (0, 0))


def test_what_was_removed_is_found_no_more() -> None:
    sets, asked = TextSets(), texts("x = 'a news b'")
    for place in range(3):
        sets.add(place, texts("x CONTAINS 'news' AND x NOT CONTAINS 'old'"))
    sets.remove(1)
    sets.remove(1)  # it has gone already
    sets.add(1, texts("x CONTAINS 'sport'"))
    nowhere = np.zeros(3, np.bool_)
    meets, unsure = sets.decide(asked, np.arange(3), nowhere)
    assert (meets.tolist(), unsure.tolist()) == ([False] * 3, [True, False, True])
