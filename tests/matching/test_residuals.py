"""Residuals by column are the residuals row by row."""

from __future__ import annotations

import random

import numpy as np
import pytest

import palio
from palio.matching.residuals import Columns, holds_on
from palio.model import Filter, to_batches
from palio.model.values import NO_VALUES
from tests.strategies import NUMBERS, SCALARS

TEXTS = [
    *(
        f"{left} {op} {right}"
        for left, right, op in zip(SCALARS, SCALARS[3:], "<>" * 20, strict=False)
    ),
    *("n / m >= 0.5", "n * m != n", "n + m = m + n", "n % 2 = 1", "UPPER(s) = 'A'", "n < s"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_by_column_is_row_by_row(text: str, rng: random.Random) -> None:
    filter = palio.parse(text)
    assert isinstance(filter, Filter)
    residuals = [each for part in filter.conjunctions for each in part.residuals]
    small = [number for number in NUMBERS if abs(number) < 100]
    for pool in (small, NUMBERS):
        for as_float in (False, True):
            events = [_event(rng, pool, as_float) for _ in range(40)]
            for batch in to_batches(events):
                chosen = np.flatnonzero(np.arange(batch.num_rows) % 3 != 1)
                for residual in residuals:
                    rows = batch.to_pylist()
                    expected = [residual.truth(rows[row]) is True for row in chosen.tolist()]
                    assert (
                        holds_on(residual, Columns(batch), chosen, NO_VALUES).tolist() == expected
                    )


def _event(rng: random.Random, pool: object, as_float: bool) -> dict[str, object]:
    event: dict[str, object] = {"s": rng.choice("aAb")}
    for name in "nm":
        number = rng.choice([each for each in pool if isinstance(each, int)])  # type: ignore[attr-defined]  # a sequence
        if rng.random() < 0.8:
            event[name] = float(number) if as_float else number
    return event
