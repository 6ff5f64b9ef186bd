"""The kernels, once they are loaded; engines run in plain Python until then.

To load them is to import numba and to compile every kernel, or to take it from the cache on disk.
`palio.matching.warming` does that. One process at a time compiles (`cache.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeAlias

from palio.matching.kernels.cache import KernelCache

Progress: TypeAlias = Callable[[int, int], None]
"""Receives the number of kernels that are compiled or loaded, and the number of all."""


class Kernels:
    """The compiled functions that engines call, by name. To make one imports numba."""

    def __init__(self) -> None:
        # The only imports of kernels: numba takes half a second, which small programs never spend.
        from palio.matching.kernels import (
            advance,
            arrow,
            bits,
            boxes,
            build,
            combine,
            count,
            emit,
            recent,
            simd,
            single,
            texts,
        )

        self.cache = KernelCache.of(
            "matching",
            [
                *(advance, arrow, bits, boxes, build, combine),
                *(count, emit, recent, simd, single, texts),
            ],
            arrow.code_batch,
        )
        self.code_batch = arrow.code_batch
        self.release_batch = arrow.release_batch
        self.program_of = build.program_of
        self.blocks_of = build.blocks_of
        self.level_of = build.level_of
        self.match_blocks = bits.match_blocks
        self.count_blocks = bits.count_blocks
        self.route_blocks = bits.route_blocks
        self.match_events = single.match_events
        self.count_ranges = count.count_ranges
        self.note_blocks = combine.note_blocks
        self.match_with_notes = combine.match_with_notes
        self.automaton_of = texts.automaton_of
        self.code_text = texts.code_text
        self.code_texts = texts.code_texts
        self.merge_found = emit.merge_found
        self.advance = advance.advance
        self.common_ranks = advance.common_ranks
        self.match_recent = recent.match_recent
        self.route_recent = recent.route_recent
        self.scan_recent = recent.scan_recent
        self.match_recent_event = recent.match_recent_event
        self.compare_boxes = boxes.compare_boxes

    def reporting(self, progress: Progress) -> Kernels:
        """The same functions; `progress` is called when one returns that never did before."""
        functions = {name: member for name, member in vars(self).items() if callable(member)}
        returned: set[str] = set()

        def counted(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                result = kernel(*arguments)
                if name not in returned:
                    returned.add(name)
                    progress(len(returned), len(functions))
                return result

            return call

        reporter = copy(self)
        for name, kernel in functions.items():
            setattr(reporter, name, counted(name, kernel))
        return reporter


_loaded: list[Kernels] = []


def ready() -> Kernels | None:
    """The kernels if they are loaded, else None."""
    return _loaded[0] if _loaded else None


_missed: list[int] = [0]
"""Pairs of event and filter that were matched without kernels since they were last asked for."""


PATIENCE: Final = 100
"""Who was asked to load them is asked again after so many times as many pairs: it takes time."""


def is_due(pairs: int, maximum: int) -> bool:
    """Check whether so many more pairs, matched without kernels, are reason to load them."""
    _missed[0] += pairs
    if _missed[0] <= maximum:
        return False
    _missed[0] = -PATIENCE * maximum
    return True


def are_on_disk() -> bool:
    """Check whether all kernels are compiled, so that loading them takes a second."""
    return bool(_loaded) or Kernels().cache.is_whole()


def load(
    try_all: Callable[[Kernels], None], *, wait: bool, progress: Progress | None = None
) -> Kernels | None:
    """All kernels, each of them called once by `try_all`, so that no other caller compiles one.

    None if another process compiles them and this one shall not wait for it.
    """
    if _loaded:
        return _loaded[0]
    kernels = Kernels()

    def everything() -> Kernels:
        if not _loaded:  # another thread may have been here
            try_all(kernels if progress is None else kernels.reporting(progress))
            _loaded.append(kernels)
        return _loaded[0]

    return kernels.cache.load(everything, wait=wait)
