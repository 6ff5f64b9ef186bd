"""When compiled code is used here: as in `matching.kernels`, never before somebody asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palio.matching import warming
from palio.matching.kernels import registry
from palio.matching.kernels.cache import KernelCache

__all__ = ["Kernels", "are_on_disk", "ready", "warm"]


@dataclass(frozen=True)
class Kernels:
    """The compiled functions that the index over domains calls."""

    rows_around: Any
    rows_within: Any


_loaded: list[Kernels] = []


def ready() -> Kernels | None:
    """The kernels if they are compiled, else None."""
    return _loaded[0] if _loaded else None


def warm(tell: registry.Tell | None = None) -> Kernels:
    """Compile the kernels of matching and of routing, or take them from the cache on disk."""
    warming.warm(tell)
    if not _loaded:
        _cache().load(_try_all)
    return _loaded[0]


def are_on_disk() -> bool:
    """Whether all of them are compiled, so that `warm` takes a second."""
    return registry.are_on_disk() and (bool(_loaded) or _cache().is_whole())


def _cache() -> KernelCache:
    from palio.routing.kernels import boxes

    return KernelCache.of("routing", [boxes], boxes.rows_within)


def _try_all() -> None:
    import numpy as np

    from palio.routing.kernels import boxes

    pool, found = np.array([7.0, 0.0, 1.0]), np.zeros(1, np.int64)
    boxes.rows_around(pool, np.array([[0, 1, 3]]), np.array([0.0, 1.0]), found)
    boxes.rows_within(pool, 0, 1, 0.0, 1.0, found)
    _loaded.append(Kernels(boxes.rows_around, boxes.rows_within))
