"""Text tests through anchors and one by one are the same, with bounded work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import warming
from palio.matching.kernels.registry import Kernels
from palio.matching.texts import (
    MAX_ANCHOR,
    ColumnTests,
    TextTests,
    scans,
)
from palio.model.constraints import Constraint, domain_of
from palio.model.operators import Op, fold
from palio.model.texts import TextTest
from palio.model.values import Kind
from tests.strategies import BLOBS, PATTERNS, STRINGS, shown, some_constraint
from tests.timing import within


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
    columns = ColumnTests(dict(enumerate(tests, 3)))
    tried = columns.code(array, rows, codes, kernels)
    for place, text in enumerate(texts):
        alone = np.zeros((len(tests) + 3, 1), np.int32)
        columns.code_one(text, alone, kernels)
        assert (alone[:, 0] == codes[:, place]).all(), "a text by itself is coded alike"
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
@pytest.mark.parametrize("texts", [1, 5, 96])
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
    assert [scans(test) for test in tests] == [True, True, False]
    some = ["10.1.2.3", "", "aa", "b"]
    check([*tests, *(TextTest(Op.SUFFIX, str(at)) for at in range(9))], some, kernels)


RUNS = (63, 64, 65, 127, 128, 129, 255)
"""The kernel looks for runs with wildcards 64 at a time."""


def shaky(rng: random.Random, alphabet: str, length: int) -> str:
    """A text that repeats itself, but for a character here and there."""
    stem = "".join(rng.choices(alphabet, k=rng.randrange(1, 4)))
    text = list((stem * length)[:length])
    for _ in range(rng.randrange(3)):
        text[rng.randrange(length)] = rng.choice(alphabet)
    return "".join(text)


@pytest.mark.parametrize("alphabet", ["a", "ab", "aé", "é日"])
@pytest.mark.parametrize("round_", range(5))
def test_runs_that_texts_have_nearly_everywhere(
    rng: random.Random, alphabet: str, round_: int, kernels: Kernels | None
) -> None:
    texts = sorted({shaky(rng, alphabet, length) for length in (1, *RUNS, 300, 600, 1000)})
    tests = set()
    for length in RUNS:
        for run in (shaky(rng, alphabet, length), shaky(rng, alphabet, length) + "b"):
            tests.add(TextTest(Op.CONTAINS, run))
            wild = "".join(rng.choice((each, each, "_")) for each in run)[: 250 - round_]
            tests.add(TextTest(Op.LIKE, f"%{wild}%", negated=rng.random() < 0.3))
            tests.add(TextTest(Op.LIKE, f"{alphabet}%{wild[:60]}%{wild[-150:]}_%"))
    check(sorted(tests, key=str), texts, kernels)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_where_the_kernel_loses_patience(extra: int, kernels: Kernels | None) -> None:
    from palio.matching.kernels.texts import _PATIENCE, _SHARE

    run = "a" * (_PATIENCE + _SHARE - 1 + extra) + "b"
    tests = [
        TextTest(Op.CONTAINS, run),
        TextTest(Op.LIKE, f"%{run[:-1]}_b%"),
        TextTest(Op.LIKE, f"%_{run}%"),
    ]
    texts = ["a" * 300, "a" * 300 + "b", "a" * 300 + "bb", run, "a" + run, run[:-1], run[1:] + "a"]
    check(tests, texts, kernels)


MANY_PIECES = "%" + "a%" * 126 + "b%"


@pytest.mark.parametrize(
    "test",
    [
        TextTest(Op.CONTAINS, "a" * 65_535 + "b"),
        TextTest(Op.CONTAINS, "ab" * 32_767 + "b"),
        TextTest(Op.LIKE, "%" + "a_" * 126 + "b%"),
        TextTest(Op.LIKE, MANY_PIECES),
        TextTest(Op.LIKE, "%" + "aaaaaaaaa%" * 25 + "b%"),
    ],
    ids=lambda test: str(test.operand)[:12],
)
def test_no_run_holds_the_kernel_for_long(test: TextTest) -> None:
    """Place by place it would take seconds."""
    kernels, codes = warming.warm(), np.zeros((1, 1), np.int32)
    tests = ColumnTests({0: test})
    tests.code_one("b", codes, kernels)
    for text in ("a" * 1_000_000, "ab" * 500_000):
        expected = test.operand == MANY_PIECES and text[:2] == "ab"
        with within(PATIENCE_S, text[:2]):
            tests.code_one(text, codes, kernels)
        assert codes.tolist() == [[expected]], text[:2]


PATIENCE_S = 0.1
"""It takes a tenth of that."""


def test_an_event_by_itself_may_have_no_text(kernels: Kernels | None) -> None:
    suffix, pattern = TextTest(Op.SUFFIX, "a"), TextTest(Op.LIKE, "_b%a", negated=True)
    universe: Any = SimpleNamespace(names=("s",), tests=[("s", suffix), ("s", pattern)])
    tests = TextTests(universe)
    for value, expected in (("a", [1, 1]), ("aba", [1, 0]), (None, [0, 0]), (b"a", [0, 0])):
        codes = np.full((3, 1), 7, np.int32)
        tests.code(pa.record_batch({"s": [value]}), codes, kernels)
        assert codes[:, 0].tolist() == [7, *expected]
        tests.code_event({"s": value}, codes, kernels)
        assert codes[:, 0].tolist() == [7, *expected]


MANY = 3_000


def holding(kind: str, number: int) -> TextTest:
    """A test whose first sixteen bytes, or whose literal, a long text of `a` has."""
    if kind == "long":
        return TextTest(Op.CONTAINS, "a" * 16 + f"b{number}")
    if kind == "nested":
        return TextTest(Op.CONTAINS, "a" * (number % 1_000) + f"ab{number}")
    return TextTest(Op.LIKE, f"%{'a' * (number % 100 + 1)}_%_b{number}")


@pytest.mark.parametrize("kind", ["long", "nested", "ending"])
def test_many_tests_whose_literal_a_text_has_read_it_once(kind: str) -> None:
    """Each for itself they would take seconds."""
    kernels, codes = warming.warm(), np.zeros((MANY, 1), np.int32)
    tests = ColumnTests({number: holding(kind, number) for number in range(MANY)})
    assert not any(map(scans, tests.tests.values()))
    tests.code_one("b", codes, kernels)
    with within(PATIENCE_S):
        tests.code_one("a" * 1_000_000 + "b", codes, kernels)
    assert not codes.any()


@pytest.mark.parametrize("end", ["", "_", "b", "_b", "ab"])
def test_a_pattern_open_at_the_start_fits_where_its_literal_first_stands(
    end: str, kernels: Kernels | None
) -> None:
    literals = ("a", "ab", "aba", "b", "é")
    patterns = [f"%{each}{more}%{end}" for each in literals for more in ("", "_", "__")]
    tests = [TextTest(Op.LIKE, pattern) for pattern in patterns]
    assert not any(map(scans, tests))
    texts = sorted({"".join(each) for n in range(7) for each in product("ab", repeat=n)} | {"éb"})
    check(tests, texts, kernels)


def test_literals_that_begin_with_and_end_with_each_other_are_all_found(
    rng: random.Random, kernels: Kernels | None
) -> None:
    literals = {"".join(rng.choices("ab", k=rng.randrange(1, 30))) for _ in range(200)}
    tests = [TextTest(Op.CONTAINS, literal) for literal in sorted(literals)]
    check(tests, ["".join(rng.choices("ab", k=80)) for _ in range(40)], kernels)
