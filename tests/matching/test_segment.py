"""A segment keeps arrays for kernels. That both plans agree: `test_engines.py`."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pyarrow as pa

from palio.matching import warming
from palio.matching.index import Index
from tests.matching.test_index import pairs, parsed


def test_two_threads_may_lay_out_one_segment() -> None:
    """Arrays that a kernel got by address stay until it returns, though others are laid out."""
    kernels = warming.warm()
    index = Index()
    for key in range(40):
        index.add(key, parsed(f"x >= {key % 9} AND s = 'a'"))
    batch = pa.record_batch({"x": np.arange(12), "s": ["a"] * 12})
    expected = pairs(index, batch)
    index.merge()
    (layer,) = index._store.layers
    segment = layer.segment
    passed = [weakref.ref(array) for array in segment._single_tables.arrays]
    codes = segment.codes_of(batch)
    called: list[int] = []

    class Meanwhile:
        """The kernels of a thread, while another one lays out the same segment."""

        def match_events(self, *arguments: Any) -> Any:
            called.append(len(arguments))
            segment._build(kernels)
            segment.lay_out(kernels)
            assert all(each() is not None for each in passed), "it would read memory that is free"
            return kernels.match_events(*arguments)

    segment.kernels = Meanwhile()  # type: ignore[assignment]  # as much of it as is called
    offsets, keys = segment.match_few(codes, layer.tombstones)
    assert len(called) == 1
    found = np.repeat(np.arange(12), np.diff(offsets)).tolist()
    assert list(zip(found, keys.tolist(), strict=True)) == expected
