"""Route events: for each destination find those that any of its filters matches.

Destinations with many filters have a program of their own, which is left when every event of a
block is decided; where they have few, matching all filters and putting the pairs together is
cheaper. Only destinations that are hit come into the answer: there may be a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.compile.rows import CompiledRows
from palio.matching.kernels.records import EVENTS
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Codes, Found, Longs, Routed, Words
from palio.matching.segment import Segment

Masks: TypeAlias = npt.NDArray[np.bool_]

LEAST_ROWS: Final = 16
"""With fewer rows a destination, on average, programs take longer than matching does."""

MASK_BYTES: Final = 1 << 24
"""The masks of all destinations for the blocks that are routed at a time take no more than this (or
those of one block, if that is more)."""


class _Programs(NamedTuple):
    """The programs of all destinations, one after the other; none if they would not pay."""

    kernels: Kernels | None
    """The kernels that they were made with."""
    words: npt.NDArray[np.uint32] | None = None
    offsets: Longs = np.zeros(1, np.int64)


class Destinations:
    """The destination of each filter of a layer, by rank. What routing needs is made when asked."""

    def __init__(self, keys: Longs, by_rank: Longs) -> None:
        self.keys, self.by_rank = keys, by_rank
        self._programs: _Programs | None = None

    @cached_property
    def _numbered(self) -> tuple[Longs, Longs]:
        """All destinations, ascending, and the number of each rank's."""
        names, numbers = np.unique(self.by_rank, return_inverse=True)
        return names, numbers

    def of_keys(self, keys: Longs) -> Longs:
        """The destinations of some keys."""
        return self.by_rank.take(np.searchsorted(self.keys, keys))

    def of_found(self, matches: Found) -> Routed:
        """The same for what a batch matches, put together by destination."""
        names, numbers_of = self._numbered
        offsets, keys = matches
        events = len(offsets) - 1
        numbers = numbers_of[np.searchsorted(self.keys, keys)]
        hit = np.zeros(len(names), np.bool_)
        hit[numbers] = True
        places = np.cumsum(hit) - 1
        masks = np.zeros((int(hit.sum()), events), np.bool_)
        masks[places[numbers], np.repeat(np.arange(events), np.diff(offsets))] = True
        return masks, names[hit]

    def route(self, segment: Segment, codes: Codes, tombstones: Words) -> Routed:
        """Route a batch by the segment that these destinations are of, which keys are its own."""
        programs = self._programs
        if programs is None or programs.kernels is not segment.kernels:
            programs = self._programs = self._programs_of(segment)
        kernels, words, offsets = programs
        if kernels is None or words is None:
            return self.of_found(segment.match(codes, tombstones))
        scratch = segment.take_scratch()

        def fill(first: int, masks: Words) -> None:
            kernels.route_blocks(
                codes, first, segment.predicates, words, offsets, tombstones, scratch, masks
            )

        answer = in_pieces(self._numbered[0], codes.shape[1], fill)
        segment.give_back(scratch)
        return answer

    def _programs_of(self, segment: Segment) -> _Programs:
        names, numbers = self._numbered
        rows, kernels = segment.compiled, segment.kernels
        if kernels is None or len(names) * LEAST_ROWS > rows.rows:
            return _Programs(kernels)
        owners = numbers[segment.row_ranks]
        order = np.lexsort((-_log_share(rows), owners))
        ends = np.searchsorted(owners[order], np.arange(len(names)), "right")
        programs, first = [], 0
        for end in ends.tolist():
            programs.append(_program(segment, kernels, order[first:end]))
            first = end
        sizes = [len(program) for program in programs]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return _Programs(kernels, np.concatenate(programs), offsets)

    def memory(self, shared: Longs) -> dict[str, int]:
        """Bytes by part, without arrays that are `known`."""
        own = [array for array in (self.keys, self.by_rank) if array is not shared]
        routes = [*self.__dict__.get("_numbered", ())]
        if self._programs is not None and self._programs.words is not None:
            routes += [self._programs.words, self._programs.offsets]
        return {
            "destinations": sum(array.nbytes for array in own),
            "routes": sum(route.nbytes for route in routes),
        }


def in_pieces(names: Longs, events: int, fill: Callable[[int, Words], None]) -> Routed:
    """The masks and names of the destinations that are hit, where `fill` writes the bits of some
    blocks from an event on.
    """
    step = max(1, MASK_BYTES // (EVENTS // 8 * max(1, len(names)))) * EVENTS
    pieces = []
    for first in range(0, events, step):
        blocks = (min(step, events - first) + EVENTS - 1) // EVENTS
        words = np.zeros((len(names), blocks, 8), np.uint64)
        fill(first, words)
        hit = np.flatnonzero(words.any(axis=(1, 2)))
        pieces.append((first, hit, words[hit]))
    if len(pieces) == 1:
        _, only, words = pieces[0]
        return _bits_of(words, events), names[only]
    every = np.unique(np.concatenate([np.zeros(0, np.int64), *(hit for _, hit, _ in pieces)]))
    masks = np.zeros((len(every), events), np.bool_)
    for first, hit, words in pieces:
        bits = _bits_of(words, min(step, events - first))
        masks[np.searchsorted(every, hit), first : first + bits.shape[1]] = bits
    return masks, names[every]


def _bits_of(words: npt.NDArray[np.uint64], events: int) -> Masks:
    """The masks of some destinations, from the words of their blocks."""
    packed = words.view(np.uint8).reshape(len(words), words.shape[1] * (EVENTS // 8))
    return np.unpackbits(packed, axis=1, count=events, bitorder="little").view(np.bool_)


def _log_share(compiled: CompiledRows) -> npt.NDArray[np.float64]:
    """For each row the logarithm of the share of events it would admit if codes were drawn evenly
    and independently: those that admit most decide most events.
    """
    if not len(compiled.predicate_slots):
        return np.zeros(compiled.rows)
    spans = (compiled.highs - compiled.lows).astype(np.float64)
    widths = np.add.reduceat(spans, compiled.span_offsets[:-1])
    share = widths / compiled.universe.code_counts[compiled.predicate_slots]
    logs = np.concatenate([[0.0], np.cumsum(np.log(share[compiled.row_predicates]))])
    return np.asarray(logs[compiled.row_offsets[1:]] - logs[compiled.row_offsets[:-1]])


def _program(segment: Segment, kernels: Kernels, rows: npt.NDArray[Any]) -> Any:
    """The program of some rows, in this order and without shared prefixes."""
    compiled = segment.compiled
    lengths = np.diff(compiled.row_offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    starts = compiled.row_offsets[:-1][rows] - offsets[:-1]
    taken = np.repeat(starts, lengths) + np.arange(int(lengths.sum()))
    return kernels.program_of(
        np.zeros((len(rows), 0), np.int32), np.zeros(len(rows) + 1, np.int32),
        offsets, compiled.row_predicates[taken], segment.row_ranks[rows],
        segment.predicate_count,
    )  # fmt: skip
