from __future__ import annotations

import pytest

from palio.spark.failures import first_cause


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        ("one line", "one line"),
        ("x\n: y\n  at z\nCaused by: a: b\n  at c\nCaused by: d: e\n  at f", "d: e"),
        (
            "x\n  palio.errors.InvalidInput: no set\nCaused by: d",
            "palio.errors.InvalidInput: no set",
        ),
        (
            "a.B: Traceback\n b.C: palio.errors.InvalidInput: no set",
            "palio.errors.InvalidInput: no set",
        ),
        ("", ""),
    ],
)
def test_the_line_of_a_trace_that_tells(trace: str, cause: str) -> None:
    assert first_cause(trace) == cause
