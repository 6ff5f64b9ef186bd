"""The poset against its definition."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement
from palio.model.filters import Filter
from palio.model.relations import covers, covers_advertisement
from palio.routing.poset import ADVERTISEMENTS, SUBSCRIPTIONS, Poset, overlap
from palio.simulation import Randomness
from tests.routing.helpers import parse
from tests.routing.scenarios import random_advertisement, random_filter


@pytest.mark.parametrize("size", [12, 60, 80, 200])
def test_answers_are_those_of_the_relation(size: int) -> None:
    random = Randomness(size)
    poset = Poset()
    for _ in range(size):
        poset.add(random_filter(random))
    for each in list(poset)[::4]:
        poset.discard(each)
    members = list(poset)
    for asked in [*members, *(random_filter(random) for _ in range(20))]:
        assert list(poset.coverers(asked)) == [
            f for f in members if f != asked and covers(f, asked)
        ]
        assert list(poset.covered(asked)) == [f for f in members if f != asked and covers(asked, f)]


def test_more_members_than_are_asked_one_by_one_have_an_index() -> None:
    poset = Poset()
    for number in range(1100):
        poset.add(parse(f"a = {number} AND b < {number % 7}"))
    assert list(poset.coverers(parse("a = 5 AND b < 2"))) == [parse("a = 5 AND b < 5")]
    wide = list(poset.covered(parse("b < 1")))
    assert wide == [parse(f"a = {each} AND b < {each % 7}") for each in range(1100) if each % 7 < 2]


def test_advertisements_have_their_own_order() -> None:
    random = Randomness(5)
    poset = Poset(ADVERTISEMENTS)
    for _ in range(60):
        poset.add(random_advertisement(random))
    members = list(poset)
    for asked in members:
        expected = [f for f in members if f != asked and covers_advertisement(f, asked)]
        assert list(poset.coverers(asked)) == expected


def test_figure_of_siena_5_1() -> None:
    names = ["airline = 'UA'", "orig = 'DEN'", "orig = 'DEN' AND airline = 'UA'"]
    names += ["orig = 'DEN' AND airline = 'UA' AND price < 500", "airline = 'UA' AND dest = 'MXP'"]
    poset = Poset()
    ua, den, both, cheap, to_mxp = [parse(name) for name in names]
    for each in (cheap, both, to_mxp, ua, den):
        assert poset.add(each)
    assert list(poset.covered(ua)) == [cheap, both, to_mxp]
    assert list(poset.covered(den)) == [cheap, both]
    assert list(poset.coverers(cheap)) == [both, ua, den]
    assert list(poset.coverers(both)) == [ua, den]
    assert not list(poset.coverers(ua))


def test_filters_that_cover_each_other_are_told_of_both_ways() -> None:
    one, other = parse("a <= 5 OR a >= 3"), parse("a < 4 OR a > 2")
    assert covers(one, other)
    assert covers(other, one)
    poset = Poset()
    poset.add(one)
    poset.add(other)
    assert list(poset.coverers(one)) == list(poset.covered(one)) == [other]


def test_members() -> None:
    poset = Poset()
    assert poset.add(parse("a = 1"))
    assert not poset.add(parse("a = 1"))
    assert parse("a = 1") in poset
    assert poset.discard(parse("a = 1"))
    assert not poset.discard(parse("a = 1"))
    assert len(poset) == 0


def test_remembered_relations_agree_with_the_model() -> None:
    random = Randomness(9)
    filters: list[Filter] = [random_filter(random) for _ in range(40)]
    for one in filters:
        for other in filters:
            assert SUBSCRIPTIONS(one, other) == covers(one, other)
    assert overlap(parse_advertisement("a > 1"), parse("a > 5"))
    assert not overlap(parse_advertisement("a > 5"), parse("a < 1"))
