"""Filters as objects: equal by structure, hashable, the same in another process."""

from __future__ import annotations

import operator
import pickle
import subprocess
import sys

import pytest
from hypothesis import given

import palio
from palio.errors import InvalidInput
from palio.model.constraints import Constraint
from palio.model.filters import FALSE, TRUE, Conjunction, Filter
from tests import strategies as our


@our.examples(150)
@given(our.filters(variables=True))
def test_equality_hash_and_pickling_agree(filter: Filter) -> None:
    again = pickle.loads(pickle.dumps(filter))
    twin = our.fresh(str(filter))
    for other in (again, twin):
        assert other == filter
        assert hash(other) == hash(filter)
        assert str(other) == str(filter)
        assert {filter: 1}[other] == 1
    assert [pickle.loads(pickle.dumps(each)) for each in filter.conjunctions] == list(
        filter.conjunctions
    )


@our.examples(100)
@given(our.filters(variables=True), our.filters(variables=True))
def test_filters_are_equal_exactly_when_they_read_the_same(one: Filter, other: Filter) -> None:
    assert (one == other) == (str(one) == str(other))
    assert (one == other) == (one.conjunctions == other.conjunctions)


TEXTS = (
    "n < 5 AND s = 'a' OR n + 1 < m",
    "n IN (1, 2, 9007199254740993) OR at > TIMESTAMP '2026-01-31T12:00:00Z'",
    "s STARTS WITH :x AND \"odd name\" = X'00ff' OR n IN :y",
)


def test_a_filter_crosses_processes() -> None:
    """The other process hashes strings differently; nothing of a hash may travel."""
    sent = pickle.dumps([our.fresh(text) for text in TEXTS])
    program = """if True:
        import pickle, sys, palio
        received = pickle.loads(sys.stdin.buffer.read())
        own = [palio.parse(str(each)) for each in received]
        assert own == received and [hash(a) == hash(b) for a, b in zip(own, received)] == [True] * 3
        assert len({*own, *received}) == 3
        sys.stdout.buffer.write(pickle.dumps((received, [str(each) for each in received])))
    """
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", program],
            input=sent,
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
        )
        received, texts = pickle.loads(answer.stdout)
        assert received == [our.fresh(text) for text in TEXTS]
        assert texts == [str(each) for each in received]


def test_what_a_filter_names() -> None:
    filter = our.fresh("n < :x AND s = 'a' OR m + n > :y OR ok IN (:z, TRUE)")
    assert filter.attributes == {"n", "s", "m", "ok"}
    assert filter.variables == {"x", "y", "z"}
    assert TRUE.attributes == FALSE.variables == frozenset()


def test_true_and_false() -> None:
    assert (str(TRUE), str(FALSE)) == ("TRUE", "FALSE")
    assert TRUE.matches({}) is True
    assert FALSE.matches({}) is False
    assert ~TRUE == FALSE
    assert ~FALSE == TRUE
    assert our.fresh("TRUE") == TRUE
    assert our.fresh("FALSE") == FALSE
    assert repr(TRUE) == "palio.parse('TRUE')"


def test_a_filter_has_no_truth_value_of_its_own() -> None:
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(TRUE)
    assert TRUE != "TRUE"
    assert Conjunction(()) != TRUE


@pytest.mark.parametrize("operand", ["n = 1", None, True])
def test_filters_combine_with_filters_only(operand: object) -> None:
    for combine in (operator.and_, operator.or_):
        with pytest.raises(TypeError, match="unsupported operand"):
            combine(TRUE, operand)


def test_truth_is_sqls() -> None:
    filter = our.fresh("n < 5 OR s = 'a'")
    assert filter.truth({"n": 1}) is True
    assert filter.truth({"n": 9}) is None
    assert filter.truth({"n": 9, "s": "b"}) is False
    assert not filter.matches({"n": 9})


def test_a_conjunction_knows_its_domains_and_its_contradictions() -> None:
    (conjunction,) = our.fresh("n > 1 AND n < 5 AND s = 'a'").conjunctions
    assert set(conjunction.domains) == {"n", "s"}
    assert not conjunction.is_contradiction
    for text in ("n > 5 AND n < 1", "n = 1 AND n = 'a'", "n IS NULL AND n = 1", "s < ''"):
        assert our.fresh(text).conjunctions[0].is_contradiction, text
    assert repr(conjunction) == "Conjunction(n < 5 AND n > 1 AND s = 'a')"


def test_the_example_of_the_documentation() -> None:
    filter = palio.Filter.of([Conjunction.of([Constraint.of("n", "<", 5)])])
    assert filter == palio.parse("n < 5")
    with pytest.raises(InvalidInput, match="no value"):
        our.fresh("n < :x").matches({"n": 1})
