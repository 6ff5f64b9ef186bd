"""When compiled code is used here: as in `matching.kernels`, never before somebody asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palio.matching import kernels as matching_kernels

__all__ = ["Kernels", "ready", "warm"]


@dataclass(frozen=True)
class Kernels:
    """The compiled functions that the index over domains calls."""

    rows_around: Any
    rows_within: Any


_loaded: list[Kernels] = []


def ready() -> Kernels | None:
    """The kernels if they are compiled, else None."""
    return _loaded[0] if _loaded else None


def warm() -> Kernels:
    """Compile the kernels of matching and of routing, or take them from the cache on disk."""
    matching_kernels.warm()
    if not _loaded:
        import numpy as np

        from palio.routing import kernels_boxes

        pool, found = np.array([7.0, 0.0, 1.0]), np.zeros(1, np.int64)
        kernels_boxes.rows_around(pool, np.array([[0, 1, 3]]), np.array([0.0, 1.0]), found)
        kernels_boxes.rows_within(pool, 0, 1, 0.0, 1.0, found)
        _loaded.append(Kernels(kernels_boxes.rows_around, kernels_boxes.rows_within))
    return _loaded[0]
