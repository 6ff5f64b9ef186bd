"""Implications between text tests are sound: a small universe would refute others."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import pytest
from hypothesis import given, note

from palio.model.operators import Op, fold, simplest
from palio.model.texts import TextTest, excludes, fragments_of_prefix, implies, proves
from tests import strategies as our

UNIVERSE = (
    *("".join(letters) for size in range(6) for letters in product("abc", repeat=size)),
    *("".join(letters) for size in range(1, 4) for letters in product("aBßſK\u212a", repeat=size)),
    *our.STRINGS,
    *("10.0.0.1", "10.1.0.1", "11.0.0.1", "::1", "fe80::1", "ﬀ02::1", "ff02::1"),
)
OPERATORS = (Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.LIKE)
PIECES = ("a", "b", "ab", "ba", "abc", "aa", "B", "ß", "ss", "s", "K", "k", "\u212a", "A")
PATTERNS = ("a%b", "%a%b%", "_", "a_", "%a_", "a%a", "_b%", "%ß_", "a%ſ", "%ab%ba", "k%a")


def some_test(rng: random.Random) -> TextTest:
    """A test as domains make them: canonical, folded where case is ignored."""
    ignore_case = rng.random() < 0.4
    negated = rng.random() < 0.3
    choice = rng.random()
    if choice < 0.1:
        op, operand = simplest(Op.CIDR, rng.choice(our.BLOCKS))
        return TextTest(op, operand, False, negated)  # type: ignore[arg-type]  # a text
    if ignore_case and choice < 0.3:
        return TextTest(Op.EQ, fold(rng.choice(PIECES)), True, negated)
    if ignore_case and choice < 0.5:
        members = tuple(sorted({fold(each) for each in rng.sample(PIECES, 2)}))
        return TextTest(Op.IN, members, True, negated)
    op = rng.choice(OPERATORS)
    text = rng.choice(PATTERNS if op is Op.LIKE else PIECES)
    return TextTest(op, fold(text) if ignore_case else text, ignore_case, negated)


@cache
def passing(test: TextTest) -> frozenset[str]:
    return frozenset(text for text in UNIVERSE if test.holds(text))


@our.examples(150)
@given(our.SEEDS)
def test_implication_and_exclusion_are_sound(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        one, other = some_test(rng), some_test(rng)
        note(f"{one} {other}")
        if implies(one, other):
            assert passing(one) <= passing(other)
        if not one.negated and not other.negated and excludes(one, other):
            assert not passing(one) & passing(other)


@our.examples(60)
@given(our.SEEDS)
def test_an_interval_with_a_prefix_proves_only_what_holds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        prefix, wanted = rng.choice(PIECES), some_test(rng)
        if not wanted.negated and proves(fragments_of_prefix(prefix), wanted):
            assert all(wanted.holds(text) for text in UNIVERSE if text.startswith(prefix))


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (TextTest(Op.SUFFIX, "/orders.csv"), TextTest(Op.CONTAINS, "orders")),
        (TextTest(Op.PREFIX, "ß"), TextTest(Op.PREFIX, "ss", True)),
        (TextTest(Op.LIKE, "a%b"), TextTest(Op.PREFIX, "a")),
        (TextTest(Op.LIKE, "a%b%c"), TextTest(Op.CONTAINS, "b")),
        (TextTest(Op.EQ, "ab", True), TextTest(Op.IN, ("ab", "b"), True)),
        (TextTest(Op.EQ, "ab", True), TextTest(Op.LIKE, "_b", True)),
        (TextTest(Op.CONTAINS, "ab", negated=True), TextTest(Op.PREFIX, "ab", negated=True)),
        (TextTest(Op.SUFFIX, "a"), TextTest(Op.SUFFIX, "b", negated=True)),
        (TextTest(Op.CIDR, "10.1.0.0/16"), TextTest(Op.CIDR, "10.0.0.0/8")),
        (TextTest(Op.SUFFIX, b"ab"), TextTest(Op.SUFFIX, b"b")),
        (TextTest(Op.EQ, "b", True), TextTest(Op.CONTAINS, "a", negated=True)),
    ],
)
def test_what_is_seen(known: TextTest, wanted: TextTest) -> None:
    assert implies(known, wanted)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TextTest(Op.SUFFIX, "a"), TextTest(Op.SUFFIX, "b")),
        (TextTest(Op.SUFFIX, "ß"), TextTest(Op.SUFFIX, "a", True)),
        (TextTest(Op.CIDR, "10.0.0.0/8"), TextTest(Op.CIDR, "::/0")),
        (TextTest(Op.IN, ("a", "b"), True), TextTest(Op.PREFIX, "c", True)),
        (TextTest(Op.IN, ("aa", "b"), True), TextTest(Op.CONTAINS, "ba")),
    ],
)
def test_what_is_known_to_clash(one: TextTest, other: TextTest) -> None:
    assert excludes(one, other)
    assert excludes(other, one)


def test_a_test_and_its_inverse_share_no_text() -> None:
    test = TextTest(Op.LIKE, "a%b")
    assert test.inverted().inverted() == test
    assert passing(test) ^ passing(test.inverted()) == frozenset(UNIVERSE)
