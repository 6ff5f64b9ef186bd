"""Masks: the rows of a batch that are meant, and their form in a message."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from palio.model.events import RowMask

ONE_ROW: Final = np.ones(1, np.bool_)
"""The mask of a single event."""
ONE_ROW.flags.writeable = False


def pack_mask(mask: RowMask) -> bytes | None:
    """A selection of rows as bits; None for all of them."""
    return None if mask.all() else np.packbits(mask, bitorder="little").tobytes()


def unpack_mask(packed: bytes | None, rows: int) -> RowMask:
    """`pack_mask` undone.

    >>> unpack_mask(pack_mask(np.array([True, False, True])), 3).tolist()
    [True, False, True]
    """
    if packed is None:
        return ONE_ROW if rows == 1 else np.ones(rows, np.bool_)
    bits: npt.NDArray[np.uint8] = np.frombuffer(packed, np.uint8)
    return np.unpackbits(bits, count=rows, bitorder="little").astype(np.bool_)
