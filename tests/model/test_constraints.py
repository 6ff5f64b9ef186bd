"""Constraints and residuals: built checked, inverted exactly, compared by structure."""

from __future__ import annotations

import pytest
from hypothesis import given

from palio.errors import InvalidFilter, LimitExceeded
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Attribute, Variable, literal, test
from palio.model.filters import Conjunction, Filter
from palio.model.limits import MAX_IN_VALUES, MAX_NAME_CHARS, MAX_STRING_CHARS
from palio.model.operators import Op
from tests import strategies as our


@our.examples(200)
@given(our.constraints())
def test_an_inverted_constraint_is_true_where_it_is_false(constraint: Constraint) -> None:
    inverted = constraint.inverted()
    assert inverted.inverted() == constraint
    near = our.candidates(Filter.of([Conjunction.of([constraint])]))[constraint.name]
    for state in near:
        verdict = constraint.truth({constraint.name: state})
        assert inverted.truth({constraint.name: state}) is (
            None if verdict is None else not verdict
        )


@our.examples(200)
@given(our.constraints())
def test_a_constraint_is_a_test_and_a_text(constraint: Constraint) -> None:
    assert Constraint.from_test(constraint.as_test()) == constraint
    (conjunction,) = our.fresh(str(constraint)).conjunctions
    assert conjunction.constraints == (constraint,)
    assert constraint.variables == frozenset()
    assert constraint.substitute({"x": 1}) == constraint


@pytest.mark.parametrize(
    ("name", "op", "operand", "problem"),
    [
        ("", "=", 1, "no attribute name"),
        (5, "=", 1, "no attribute name"),
        ("\ud800", "=", 1, "lone surrogate"),
        ("n", "~", 1, "no operator"),
        ("n", "=", None, "IS NULL"),
        ("n", "<", [1], "no attribute type"),
        ("n", "IN", 5, "takes a list"),
        ("n", "IN", "abc", "takes a list"),
        ("n", "IN", [], "is empty"),
        ("n", "IN", [1, "a"], "mixes"),
        ("n", "STARTS WITH", 1, "needs a string"),
    ],
)
def test_what_is_no_constraint_is_refused(
    name: str, op: str, operand: object, problem: str
) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        Constraint.of(name, op, operand)


def test_limits_of_a_constraint() -> None:
    Constraint.of("n" * MAX_NAME_CHARS, "=", 1)
    with pytest.raises(LimitExceeded, match="MAX_NAME_CHARS"):
        Constraint.of("n" * (MAX_NAME_CHARS + 1), "=", 1)
    Constraint.of("n", "=", "s" * MAX_STRING_CHARS)
    with pytest.raises(LimitExceeded, match="MAX_STRING_CHARS"):
        Constraint.of("n", "CONTAINS", "s" * (MAX_STRING_CHARS + 1))
    Constraint.of("n", "NOT IN", range(MAX_IN_VALUES))
    with pytest.raises(LimitExceeded, match="MAX_IN_VALUES"):
        Constraint.of("n", "IN", range(MAX_IN_VALUES + 1))


def test_variables_of_a_constraint_and_their_values() -> None:
    listed = Constraint.of("n", "IN", [1, Variable("x"), Variable("y")])
    assert listed.variables == {"x", "y"}
    assert str(listed.substitute({"x": 0})) == "n IN (0, 1, :y)"
    assert str(listed.substitute({"x": 0, "y": 1})) == "n IN (0, 1)"
    whole = Constraint.of("n", "IN", Variable("x"))
    assert str(whole.substitute({"x": frozenset({3, 2})})) == "n IN (2, 3)"
    assert str(whole.substitute({"x": 3})) == "n = 3"
    assert whole.substitute({"y": 3}) == whole


def test_a_residual_is_what_it_says() -> None:
    check = test(Attribute("n"), Op.LT, Attribute("m"))
    residual = Residual(check)
    assert residual == Residual(check)
    assert residual != Residual(test(Attribute("m"), Op.GT, Attribute("n")))
    assert residual != check
    assert (str(residual), repr(residual)) == ("n < m", "Residual(n < m)")
    assert residual.attributes == {"n", "m"}
    assert residual.cost == 5
    assert str(residual.inverted()) == "n >= m"
    assert residual.substitute({"x": 1}) is residual


def test_a_residual_tells_2_from_2_0() -> None:
    """`n * 2` may leave int64 where `n * 2.0` becomes a large float."""
    whole, broken = (
        our.fresh(f"n * {two} > m").conjunctions[0].residuals[0] for two in ("2", "2.0")
    )
    assert whole != broken
    event = {"n": 2**62, "m": 0}
    assert (whole.truth(event), broken.truth(event)) == (None, True)


def test_the_parts_of_a_residual_take_values() -> None:
    (conjunction,) = our.fresh("n + :x < m AND s = :y").conjunctions
    (residual,) = conjunction.residuals
    assert residual.variables == {"x"}
    assert str(residual.substitute({"x": 2, "z": 1})) == "n + 2 < m"
    assert residual.truth({"n": 1, "m": 4}, {"x": 2}) is True
    assert Residual(test(Variable("x"), Op.LT, literal(5))).truth({}, {"x": 4}) is True
