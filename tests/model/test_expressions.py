"""The syntax tree: nodes compared by structure, constants checked, nesting bounded."""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Callable

import pytest

from palio.errors import InvalidFilter, LimitExceeded
from palio.model.expressions import (
    All,
    AnyOf,
    Arithmetic,
    Attribute,
    Boolean,
    Call,
    Exclusive,
    Literal,
    Not,
    Scalar,
    Slot,
    Test,
    Variable,
    attributes_of,
    check_depth,
    cost_of,
    literal,
    test,
    variables_of,
    walk,
)
from palio.model.functions import CASE_COST
from palio.model.limits import (
    MAX_DEPTH,
    MAX_IN_VALUES,
    MAX_LIKE_CHARS,
    MAX_RESIDUAL_COST,
    MAX_STRING_CHARS,
)
from palio.model.operators import Op
from palio.model.values import Kind
from tests import strategies as our

N, S = Attribute("n"), Attribute("s")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (literal(1), literal(True)),
        (literal("a"), literal(b"a")),
        (literal(0), literal(False)),
        (Variable("a"), Attribute("a")),
        (Variable("0"), Slot("0", Kind.NUMBER)),
        (literal(2**53), literal(2**53 + 1)),
        (literal("é"), literal("e\u0301")),
    ],
    ids=str,
)
def test_nodes_that_differ_are_unequal(one: Scalar, other: Scalar) -> None:
    assert one != other


@pytest.mark.parametrize(
    "value", [None, math.nan, [], {}, object(), 2**63, "\ud800"], ids=our.shown
)
def test_what_cannot_be_a_constant(value: object) -> None:
    with pytest.raises(InvalidFilter, match=r"\w"):
        literal(value)


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (test(N, Op.EQ, literal(2.0)), test(N, Op.EQ, literal(2))),
        (test(N, Op.LT, literal(-0.0)), test(N, Op.LT, literal(0))),
        (test(N, Op.IN, (literal(1),)), test(N, Op.EQ, literal(1))),
        (test(N, Op.NOT_IN, (literal(1), literal(1.0))), test(N, Op.NE, literal(1))),
        (test(N, Op.IN, (literal(2), literal(1))), test(N, Op.IN, (literal(1), literal(2.0)))),
        (test(S, Op.LIKE, literal("a%")), test(S, Op.PREFIX, literal("a"))),
        (test(S, Op.NOT_LIKE, literal("%a")), test(S, Op.NOT_SUFFIX, literal("a"))),
        (test(S, Op.EQ, literal("A"), True), test(S, Op.EQ, literal("a"), True)),
        (test(S, Op.IN, (literal("A"), literal("a")), True), test(S, Op.EQ, literal("a"), True)),
        (test(S, Op.LIKE, literal("%"), True), test(S, Op.PREFIX, literal(""))),
        (test(S, Op.CONTAINS, literal("")), test(S, Op.PREFIX, literal(""))),
        (test(S, Op.CIDR, literal("10.1.1.1/8")), test(S, Op.CIDR, literal("10.0.0.0/8"), True)),
        (test(S, Op.EXISTS, literal(1)), test(S, Op.EXISTS)),
    ],
    ids=str,
)
def test_one_meaning_has_one_spelling(made: Test, same: Test) -> None:
    assert made == same
    assert hash(made) == hash(same)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: test(N, Op.PREFIX, literal(1)), "needs a string or bytes, not a number"),
        (lambda: test(N, Op.LIKE, literal(b"a")), "needs a string, not bytes"),
        (lambda: test(N, Op.CIDR, literal(1)), "needs a string, not a number"),
        (lambda: test(N, Op.CIDR, literal("x")), "not an address block"),
        (lambda: test(N, Op.LIKE, literal("\\")), "lone backslash"),
        (lambda: test(N, Op.EQ, literal(True), True), "IGNORE CASE needs a string, not a boolean"),
        (lambda: test(N, Op.IN, (literal(1),), True), "IGNORE CASE needs a string"),
        (lambda: test(N, Op.IN, (literal(1), literal("a"))), "mixes a number and a string"),
        (lambda: test(N, Op.IN, (literal(0), literal(False))), "mixes a boolean and a number"),
        (lambda: test(N, Op.IN, ()), "is empty"),
        (lambda: test(N, Op.EQ, (literal(1),)), "takes one operand, not a list"),
    ],
)
def test_tests_that_mean_nothing_are_refused(make: Callable[[], Test], problem: str) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        make()


def test_an_in_list_has_a_longest_length() -> None:
    def members(count: int) -> tuple[Literal, ...]:
        return tuple(literal(each) for each in range(count))

    for count in (MAX_IN_VALUES - 1, MAX_IN_VALUES):
        made = test(N, Op.IN, members(count)).operand
        assert isinstance(made, tuple)
        assert len(made) == count
    test(N, Op.NOT_IN, members(MAX_IN_VALUES) * 2)  # the same ones twice are not more
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES") as caught:
        test(N, Op.IN, members(MAX_IN_VALUES + 1))
    assert caught.value.actual == MAX_IN_VALUES + 1


def test_a_constant_has_a_longest_length() -> None:
    for text in ("s", b"s"):
        assert literal(text * MAX_STRING_CHARS).value
        with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
            literal(text * (MAX_STRING_CHARS + 1))


def nested_not(levels: int) -> Boolean:
    condition: Boolean = test(N, Op.EQ, literal(1))
    for _ in range(levels):
        condition = Not(condition)
    return condition


def nested_and(levels: int) -> Boolean:
    condition: Boolean = test(N, Op.EQ, literal(1))
    for level in range(levels):
        condition = (All if level % 2 else AnyOf)((condition, test(S, Op.EXISTS)))
    return condition


def nested_xor(levels: int) -> Boolean:
    condition: Boolean = test(N, Op.EQ, literal(1))
    for _ in range(levels):
        condition = Exclusive(condition, test(S, Op.EXISTS))
    return condition


def nested_sum(levels: int) -> Scalar:
    scalar: Scalar = N
    for _ in range(levels):
        scalar = Arithmetic("+", scalar, N)
    return scalar


def nested_call(levels: int) -> Scalar:
    scalar: Scalar = N
    for _ in range(levels):
        scalar = Call("ABS", (scalar,))
    return scalar


@pytest.mark.parametrize("make", [nested_not, nested_and, nested_xor, nested_sum, nested_call])
def test_nesting_is_bounded_and_measured_without_recursion(
    make: Callable[[int], Boolean | Scalar],
) -> None:
    check_depth(make(MAX_DEPTH - 1))
    check_depth(make(MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            check_depth(make(levels))


@pytest.mark.parametrize("make", [nested_sum, nested_call])
def test_a_test_measures_its_values_before_it_touches_them(make: Callable[[int], Scalar]) -> None:
    test(make(MAX_DEPTH), Op.LT, literal(5))
    deep = make(20_000)
    for operands in ((deep, literal(5)), (N, deep), (N, (deep, literal(5)))):
        with pytest.raises(LimitExceeded, match="MAX_DEPTH"):
            test(operands[0], Op.IN if isinstance(operands[1], tuple) else Op.EQ, operands[1])


def test_walking_finds_everything_parents_first() -> None:
    sum_ = Arithmetic("+", N, Variable("x"))
    check = test(Call("ABS", (sum_,)), Op.IN, (Attribute("m"), Variable("y"), literal(1)))
    condition = All((Not(check), Exclusive(test(S, Op.EXISTS), AnyOf(()))))
    nodes = list(walk(condition))
    assert nodes[0] is condition
    assert nodes.index(check) < nodes.index(sum_)
    assert attributes_of(condition) == {"n", "m", "s"}
    assert variables_of(condition) == {"x", "y"}


def test_costs_add_up() -> None:
    assert cost_of(test(N, Op.EQ, literal(1))) == 3
    assert cost_of(test(nested_sum(10), Op.EQ, literal(1))) == 23
    assert cost_of(test(N, Op.LT, Attribute("m"))) == cost_of(test(N, Op.EQ, Attribute("m"))) + 2
    upper = Call("UPPER", (S,))
    assert cost_of(test(upper, Op.LIKE, literal("a%b"))) == CASE_COST + 3 + 8
    assert cost_of(test(upper, Op.LIKE, literal("a_%"))) == CASE_COST + 3 + 8 + 10


def test_what_is_tried_at_each_place_of_a_text_costs_by_its_length() -> None:
    for op, most in ((Op.LIKE, MAX_LIKE_CHARS), (Op.CONTAINS, 1_000)):
        costs = [cost_of(test(S, op, literal("a_" * (chars // 2)))) for chars in (10, 100, most)]
        assert costs == sorted(set(costs))
        assert cost_of(test(S, op, Variable("x"))) == costs[-1]
    assert cost_of(test(S, Op.LIKE, literal("a%" * (MAX_LIKE_CHARS // 2)))) == 11


def test_each_text_that_is_folded_costs_by_its_length() -> None:
    once = cost_of(test(S, Op.EQ, literal("a"), ignore_case=True))
    assert once == 3 + CASE_COST
    assert cost_of(test(S, Op.EQ, Attribute("t"), ignore_case=True)) == once + CASE_COST
    members = tuple(map(Attribute, "abc"))
    assert cost_of(test(S, Op.IN, members, ignore_case=True)) == once + 2 + 3 * CASE_COST
    long = literal("a" * MAX_STRING_CHARS)
    assert cost_of(test(S, Op.EQ, long, ignore_case=True)) > MAX_RESIDUAL_COST


@our.examples(100)
@our.given_texts()
def test_trees_survive_pickling(text: str) -> None:
    for condition in our.trees(text):
        again = pickle.loads(pickle.dumps(condition))
        assert again == condition
        assert type(again) is type(condition)


@pytest.mark.parametrize("value", [1, 1.5, "a", b"a", True])
def test_the_garbage_collector_visits_no_constants(value: object) -> None:
    """A filter may have 10,000 of them."""
    assert not gc.is_tracked(literal(value))
