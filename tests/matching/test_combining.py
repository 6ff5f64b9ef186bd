"""Several parts answer as one, whichever keys they hold and however many events there are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from palio.matching import combining, snapshots, warming
from palio.matching.index import Index
from palio.matching.reference import Reference
from palio.matching.segment import Costs
from tests.matching.test_index import pairs, parsed

TEXTS = ("x < {}", "x > {}", "x = {} OR y = {}", "y >= {} AND x + y > 3", "x IN ({}, 3)")


def filled(rng: np.random.Generator, *, known: bool) -> tuple[Index, Reference]:
    """A large layer, and changes in small ones and a recent one: of keys it has, or of others."""
    index, reference = Index(), Reference()
    warm = pa.record_batch({"x": [1], "y": [1]})
    for key in range(0, 200, 2):
        text = TEXTS[key % len(TEXTS)].format(key % 17, key % 5)
        for engine in (index, reference):
            engine.add(key, parsed(text))
    index.merge()
    for round_ in range(3):
        for _ in range(9):
            key = 2 * int(rng.integers(100)) + (not known)
            text = TEXTS[int(rng.integers(len(TEXTS)))].format(round_ + 5, 3)
            for engine in (index, reference):
                engine.add(key, parsed(text))
        index.match(warm)
    return index, reference


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("events", [0, 1, 513, 1100])
@pytest.mark.parametrize("together", [True, False])
def test_layers_answer_together(
    seed: int, monkeypatch: pytest.MonkeyPatch, known: bool, events: int, together: bool
) -> None:
    warming.warm()
    monkeypatch.setattr(Costs, "of", lambda *_: {"few": 1.0, "many": 0.5})
    if not together:
        monkeypatch.setattr(snapshots, "FEW_CHANGES", 0)
        monkeypatch.setattr(snapshots, "RECENT_SHARE", 1 << 30)
    monkeypatch.setattr(combining, "MAX_JOINT_ROWS", combining.MAX_JOINT_ROWS if together else 0)
    rng = np.random.default_rng(seed)
    index, reference = filled(rng, known=known)
    assert len(index.explain_plan(1).layers) > 2
    batch = pa.record_batch({"x": rng.integers(0, 20, events), "y": rng.integers(0, 6, events)})
    expected = pairs(reference, batch)
    for _ in range(2):  # the second time in the working arrays of the first
        assert pairs(index, batch) == expected
    assert (index._combiner.memory() > 0) is together
