"""A test becomes a constraint, a verdict or a residual, and means the same afterwards."""

from __future__ import annotations

import pytest

from palio.errors import InvalidBinding, InvalidFilter, LimitExceeded
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Arithmetic, Attribute, Scalar, Test, Variable, literal, test
from palio.model.leaves import leaf_of, settled, simplify
from palio.model.limits import MAX_RESIDUAL_COST
from palio.model.operators import Op

N, M, X = Attribute("n"), Attribute("m"), Variable("x")


def plus(left: Scalar, right: Scalar) -> Arithmetic:
    return Arithmetic("+", left, right)


def test_simplify_turns_a_test_round_once() -> None:
    five = plus(literal(2), literal(3))
    assert simplify(Test(five, Op.LE, N)) == test(N, Op.GE, literal(5))
    both = Test(N, Op.LT, M)
    assert simplify(both) == both


@pytest.mark.parametrize(
    ("subject", "op", "operand", "leaf"),
    [
        (N, Op.LT, literal(5), Constraint.of("n", "<", 5)),
        (literal(5), Op.LT, N, Constraint.of("n", ">", 5)),
        (X, Op.GE, N, Constraint.of("n", "<=", Variable("x"))),
        (plus(literal(1), literal(2)), Op.EQ, N, Constraint.of("n", "=", 3)),
        (N, Op.LT, M, Residual(test(N, Op.LT, M))),
        (
            plus(N, literal(1)),
            Op.LT,
            literal(5),
            Residual(test(plus(N, literal(1)), Op.LT, literal(5))),
        ),
        (literal(1), Op.LT, literal(2), True),
        (literal(2), Op.LT, literal(1), False),
    ],
)
def test_a_test_is_a_constraint_a_residual_or_a_verdict(
    subject: Scalar, op: Op, operand: Scalar, leaf: Constraint | Residual | bool
) -> None:
    assert leaf_of(Test(subject, op, operand)) == leaf


def test_constants_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InvalidFilter, match="constants that cannot be compared"):
        leaf_of(Test(literal(1), Op.LT, literal("a")))


def test_constants_without_a_value_are_refused_by_their_text() -> None:
    with pytest.raises(InvalidFilter, match="1 / 0 has no value"):
        leaf_of(Test(Arithmetic("/", literal(1), literal(0)), Op.LT, N))


def test_the_list_that_a_computed_value_is_looked_for_in_is_bounded() -> None:
    def listed(count: int) -> Test:
        return test(plus(N, M), Op.IN, tuple(literal(each) for each in range(count)))

    for count in (MAX_RESIDUAL_COST - 1, MAX_RESIDUAL_COST):
        assert isinstance(leaf_of(listed(count)), Residual)
    with pytest.raises(LimitExceeded) as caught:
        leaf_of(listed(MAX_RESIDUAL_COST + 1))
    assert caught.value.limit == "MAX_RESIDUAL_COST"


def test_a_residual_settles_to_a_constraint_a_verdict_or_another_residual() -> None:
    shifted = Residual(test(plus(X, literal(1)), Op.LT, N))
    assert settled(shifted, {"x": 4}) == Constraint.of("n", ">", 5)
    decided = Residual(test(X, Op.LT, Variable("y")))
    assert settled(decided, {"x": 1, "y": 2}) is True
    assert settled(decided, {"x": 2, "y": 1}) is False
    open_still = Residual(test(plus(N, X), Op.LT, M))
    assert str(settled(open_still, {"x": 1})) == "n + 1 < m"


def test_values_that_leave_constants_without_a_meaning_are_refused() -> None:
    with pytest.raises(InvalidBinding, match="x"):
        settled(Residual(test(Arithmetic("/", literal(1), X), Op.LT, N)), {"x": 0})
