"""Text tests through anchors, through Arrow and one by one are the same, with bounded work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import texts as texts_module
from palio.matching.texts import FEW_TESTS, MANY_TEXTS, MAX_ANCHOR, ColumnTests
from palio.model.constraints import Constraint, domain_of
from palio.model.operators import STRING_ONLY, Op
from palio.model.texts import TextTest
from palio.model.values import Kind
from tests.strategies import BLOBS, PATTERNS, STRINGS, shown, some_constraint


def passing(tests: Sequence[TextTest], texts: Sequence[Any]) -> list[list[bool]]:
    """A row for each test: which texts pass."""
    array = pa.array(texts, pa.binary() if isinstance(texts[0], bytes) else pa.utf8())
    found = {number: mask.tolist() for number, mask in ColumnTests(tests).passing(array)}
    return [found.get(number, [False] * len(texts)) for number in range(len(tests))]


def check(tests: Sequence[TextTest], texts: Sequence[Any]) -> None:
    expected = [[test.holds(text) for text in texts] for test in tests]
    for row, wanted, test in zip(passing(tests, texts), expected, tests, strict=True):
        assert row == wanted, test


def some_tests(rng: random.Random, count: int) -> list[TextTest]:
    """Distinct tests of strings, negated and ignoring case among them."""
    found: set[TextTest] = set()
    while len(found) < count:
        constraint = some_constraint(rng, ("s",), (*sorted(STRING_ONLY), Op.SUFFIX, Op.CONTAINS))
        values = domain_of(constraint).kinds.get(Kind.STRING)
        found.update(values.tests if values is not None else ())
    return sorted(found, key=str)


@pytest.mark.parametrize("count", [FEW_TESTS, FEW_TESTS + 1, 80])
@pytest.mark.parametrize("texts", [5, 3 * MANY_TEXTS])
def test_all_tests_on_all_strings(rng: random.Random, count: int, texts: int) -> None:
    listed = sorted({a + b for a in STRINGS for b in STRINGS})
    check(some_tests(rng, count), rng.sample(listed, texts))


@pytest.mark.parametrize("pattern", PATTERNS, ids=shown)
def test_arrow_reads_like_patterns_as_we_do(pattern: str) -> None:
    values = domain_of(Constraint.of("s", Op.LIKE, pattern)).kinds.get(Kind.STRING)
    tests = [] if values is None else list(values.tests)
    check(tests or [TextTest(Op.LIKE, pattern)], sorted({a + b for a in STRINGS for b in STRINGS}))


def test_bytes() -> None:
    tests = [
        TextTest(op, blob, negated=negated)
        for op in (Op.SUFFIX, Op.CONTAINS)
        for blob in BLOBS
        for negated in (False, True)
    ]
    check(tests, sorted({a + b for a in BLOBS for b in BLOBS}))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_long_anchors_are_cut_and_then_tested(extra: int) -> None:
    literal = "abcdefghijklmnopqrstuvwxyz"[: MAX_ANCHOR + extra]
    tests = [
        *(TextTest(op, literal) for op in (Op.SUFFIX, Op.CONTAINS)),
        TextTest(Op.LIKE, f"{literal}%x"),
        TextTest(Op.LIKE, f"%{literal}_"),
        *(TextTest(Op.SUFFIX, f"-{number}") for number in range(FEW_TESTS)),
    ]
    near = [literal, literal[1:], "0" + literal[1:], literal[:-1] + "0", literal + "x", "-3"]
    check(tests, [*near, *(f"{text}{text}" for text in near)])


def test_work_does_not_grow_with_tests_times_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand patterns on a thousand texts: a text is tried on few of them."""
    tests = [
        *(TextTest(Op.LIKE, f"order-{number}-%_.csv") for number in range(2500)),
        *(TextTest(Op.SUFFIX, f"-{number}.json") for number in range(2500)),
    ]
    tried = 0
    original = texts_module._passed

    def counted(test: TextTest, texts: Any) -> Any:
        nonlocal tried
        tried += len(texts)
        return original(test, texts)

    monkeypatch.setattr(texts_module, "_passed", counted)
    texts = [f"order-{number}-x{number % 7}.csv" for number in range(0, 2000, 2)]
    rows = passing(tests, texts)
    assert sum(map(sum, rows)) == len(texts)
    assert tried <= 2 * len(texts)


def test_tests_without_an_anchor_are_counted() -> None:
    tests = [TextTest(Op.CIDR, "10.0.0.0/8"), TextTest(Op.LIKE, "_%_"), TextTest(Op.SUFFIX, "a")]
    assert ColumnTests(tests).free == [0, 1]
    some = np.array(["10.1.2.3", "", "aa", "b"])
    check([*tests, *(TextTest(Op.SUFFIX, str(at)) for at in range(FEW_TESTS))], some.tolist())
