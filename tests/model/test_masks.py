"""Masks travel as bits, and all rows as nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.model.masks import ONE_ROW, pack_mask, unpack_mask


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_a_packed_mask_is_read_back(rows: list[bool]) -> None:
    packed = pack_mask(np.array(rows))
    assert (packed is None) == all(rows)
    assert unpack_mask(packed, len(rows)).tolist() == rows


def test_the_mask_of_one_row_is_shared() -> None:
    assert unpack_mask(None, 1) is ONE_ROW
    with pytest.raises(ValueError, match="read-only"):
        ONE_ROW[0] = False
