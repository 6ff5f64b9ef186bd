"""Text tests through anchors, through Arrow and one by one are the same, with bounded work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import warming
from palio.matching.kernels.registry import Kernels
from palio.matching.texts import (
    MANY_TEXTS,
    MAX_ANCHOR,
    MOST_STEPS,
    ColumnTests,
    _Patterns,
    has_anchor,
)
from palio.model.constraints import Constraint, domain_of
from palio.model.operators import Op, fold
from palio.model.texts import TextTest
from palio.model.values import Kind
from tests.strategies import BLOBS, PATTERNS, STRINGS, shown, some_constraint


@pytest.fixture(params=["kernel", "fallback"])
def kernels(request: pytest.FixtureRequest) -> Kernels | None:
    """The kernels, and what there is before they are loaded."""
    return warming.warm() if request.param == "kernel" else None


def passing(
    tests: Sequence[TextTest], texts: Sequence[Any], kernels: Kernels | None
) -> tuple[list[list[bool]], int]:
    """A row for each test: which texts pass; and how many pairs were tried. Rows repeat texts."""
    array = pa.array(texts, pa.binary() if isinstance(texts[0], bytes) else pa.utf8())
    rows = np.array([*range(len(texts)), -1, 0], np.int32)
    codes = np.zeros((len(tests) + 3, len(rows)), np.int32)
    tried = ColumnTests(dict(enumerate(tests, 3))).code(array, rows, codes, kernels)
    assert not codes[:3].any()
    assert not codes[:, -2].any(), "a row without a text passes nothing"
    assert (codes[:, -1] == codes[:, 0]).all()
    return (codes[3:, :-2] == 1).tolist(), tried


def check(tests: Sequence[TextTest], texts: Sequence[Any], kernels: Kernels | None) -> None:
    expected = [[test.holds(text) for text in texts] for test in tests]
    for row, wanted, test in zip(passing(tests, texts, kernels)[0], expected, tests, strict=True):
        assert row == wanted, test


def some_tests(rng: random.Random, count: int) -> list[TextTest]:
    """Distinct tests of strings, negated and ignoring case among them."""
    found: set[TextTest] = set()
    while len(found) < count:
        constraint = some_constraint(rng, ("s",), sorted(Op))
        values = domain_of(constraint).kinds.get(Kind.STRING)
        found.update(values.tests if values is not None else ())
    return sorted(found, key=str)


@pytest.mark.parametrize("count", [1, 80])
@pytest.mark.parametrize("texts", [1, 5, MANY_TEXTS, 3 * MANY_TEXTS])
def test_all_tests_on_all_strings(
    rng: random.Random, count: int, texts: int, kernels: Kernels | None
) -> None:
    listed = sorted({a + b for a in STRINGS for b in STRINGS})
    check(some_tests(rng, count), rng.sample(listed, texts), kernels)


LETTERS = ("", "a", "b", "ab", "é", "ß", "日", "A", "\n", "\N{GRINNING FACE}")


@pytest.mark.parametrize("round_", range(40))
def test_patterns_of_any_letters_and_wildcards(
    rng: random.Random, round_: int, kernels: Kernels | None
) -> None:
    """Characters of one byte to four, and any number of wildcards between them."""
    texts = sorted({"".join(rng.choices(LETTERS, k=rng.randrange(7))) for _ in range(60)})
    tests = {
        TextTest(Op.LIKE, fold(pattern) if folds else pattern, folds, rng.random() < 0.3)
        for folds in (False, True)
        for pattern in (
            "".join(rng.choices((*LETTERS, "%", "_", "%"), k=1 + round_ % 6)) for _ in range(15)
        )
    }
    check(sorted(tests), texts, kernels)


@pytest.mark.parametrize("pattern", PATTERNS, ids=shown)
def test_all_read_like_patterns_alike(pattern: str, kernels: Kernels | None) -> None:
    values = domain_of(Constraint.of("s", Op.LIKE, pattern)).kinds.get(Kind.STRING)
    tests = [] if values is None else list(values.tests)
    listed = sorted({a + b for a in STRINGS for b in STRINGS})
    check(tests or [TextTest(Op.LIKE, pattern)], listed, kernels)


def test_bytes(kernels: Kernels | None) -> None:
    tests = [
        TextTest(op, blob, negated=negated)
        for op in (Op.SUFFIX, Op.CONTAINS)
        for blob in BLOBS
        for negated in (False, True)
    ]
    check(tests, sorted({a + b for a in BLOBS for b in BLOBS}), kernels)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_long_anchors_are_cut_and_then_tested(extra: int, kernels: Kernels | None) -> None:
    literal = "abcdefghijklmnopqrstuvwxyz"[: MAX_ANCHOR + extra]
    tests = [
        *(TextTest(op, literal) for op in (Op.SUFFIX, Op.CONTAINS)),
        TextTest(Op.LIKE, f"{literal}%x"),
        TextTest(Op.LIKE, f"%{literal}_"),
        *(TextTest(Op.SUFFIX, f"-{number}") for number in range(9)),
    ]
    near = [literal, literal[1:], "0" + literal[1:], literal[:-1] + "0", literal + "x", "-3"]
    check(tests, [*near, *(f"{text}{text}" for text in near)], kernels)


def test_work_does_not_grow_with_tests_times_texts(kernels: Kernels | None) -> None:
    """Five thousand patterns on a thousand texts: a text is tried on few of them."""
    tests = [
        *(TextTest(Op.LIKE, f"order-{number}-%_.csv") for number in range(2500)),
        *(TextTest(Op.SUFFIX, f"-{number}.json") for number in range(2500)),
    ]
    texts = [f"order-{number}-x{number % 7}.csv" for number in range(0, 2000, 2)]
    rows, tried = passing(tests, texts, kernels)
    assert sum(map(sum, rows)) == len(texts)
    assert tried <= 2 * len(texts)


def test_tests_without_an_anchor_are_counted(kernels: Kernels | None) -> None:
    tests = [TextTest(Op.CIDR, "10.0.0.0/8"), TextTest(Op.LIKE, "_%_"), TextTest(Op.SUFFIX, "a")]
    assert [has_anchor(test) for test in tests] == [False, False, True]
    some = ["10.1.2.3", "", "aa", "b"]
    check([*tests, *(TextTest(Op.SUFFIX, str(at)) for at in range(9))], some, kernels)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_the_kernel_searches_no_text_for_long(extra: int, kernels: Kernels | None) -> None:
    run = "a" * 63 + "b"
    text = "a" * (MOST_STEPS // len(run) + extra)
    tests = [TextTest(Op.CONTAINS, run), TextTest(Op.LIKE, f"%{run}%_"), TextTest(Op.SUFFIX, "ab")]
    check(tests, [text, text[1:] + "b", "", run], kernels)
    array = pa.array([text])
    assert _Patterns(dict(enumerate(tests))).takes_long(array) == (extra > 0)
    assert not _Patterns({0: TextTest(Op.SUFFIX, run), 1: TextTest(Op.EQ, run)}).takes_long(array)
