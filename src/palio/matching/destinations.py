"""Where events go: for each destination the events that any of its filters matches.

Destinations with many filters have a program of their own, which is left when every event of a
block is decided; where they have few, matching all filters and putting the pairs together is
cheaper. Only destinations that are hit come into the answer: there may be a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.rows import Compiled
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Part
from palio.matching.recent import Overlay
from palio.matching.segment import Codes, Found, Segment

__all__ = ["Routes", "routed", "routed_lately"]

Longs: TypeAlias = npt.NDArray[np.int64]
Masks: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

LEAST_ROWS: Final = 16
"""With fewer rows a destination, on average, programs take longer than matching does."""

MASK_BYTES: Final = 1 << 24
"""The masks of all destinations for the blocks that are routed at a time take no more than this (or
those of one block, if that is more)."""

BLOCK: Final = 512
"""Events in a block."""


class Routes(NamedTuple):
    """The destinations of a segment, ascending, and the number of that of each rank.

    `programs` are laid out one after the other in the order of destinations; there are none if they
    would not pay.
    """

    destinations: Longs
    names: Longs
    numbers: Longs
    programs: npt.NDArray[np.uint32] | None
    program_offsets: Longs

    @property
    def nbytes(self) -> int:
        """What it takes beyond the destinations themselves."""
        listed = [self.names, self.numbers, self.program_offsets]
        return sum(each.nbytes for each in listed) + (
            0 if self.programs is None else self.programs.nbytes
        )


def routed(part: Part, codes: Codes, events: pa.RecordBatch) -> tuple[Masks, Longs]:
    """A mask of events for each destination of a part that is hit, and their names, ascending."""
    segment = part.segment
    routes = segment.routes
    if routes is None or routes.destinations is not part.destinations:
        routes = segment.routes = _routes_of(segment, part.destinations)
    if routes.programs is None or part.guards is not None:
        return _by_pairs(routes, part.owners, part.match(codes, events))
    return _by_programs(routes, segment, part.dead, codes)


def _by_pairs(routes: Routes, owners: Longs, found: Found) -> tuple[Masks, Longs]:
    offsets, keys = found
    events = len(offsets) - 1
    numbers = routes.numbers[np.searchsorted(owners, keys)]
    hit = np.zeros(len(routes.names), np.bool_)
    hit[numbers] = True
    places = np.cumsum(hit) - 1
    masks = np.zeros((int(hit.sum()), events), np.bool_)
    masks[places[numbers], np.repeat(np.arange(events), np.diff(offsets))] = True
    return masks, routes.names[hit]


def _by_programs(
    routes: Routes, segment: Segment, dead: npt.NDArray[np.uint64], codes: Codes
) -> tuple[Masks, Longs]:
    assert segment.kernels is not None
    assert routes.programs is not None
    programs, program_offsets = routes.programs, routes.program_offsets
    route_blocks = segment.kernels.route_blocks
    scratch = segment.take_scratch()

    def fill(first: int, words: Words) -> None:
        route_blocks(
            codes, first, segment.predicates, programs, program_offsets, dead,
            scratch, words,
        )  # fmt: skip

    answer = _piece_by_piece(routes.names, codes.shape[1], fill)
    segment.give_back(scratch)
    return answer


def routed_lately(overlay: Overlay, codes: Codes) -> tuple[Masks, Longs]:
    """The same for an overlay."""
    rows, cuts = overlay.rows, overlay.cuts
    names, numbers = np.unique(rows.destinations, return_inverse=True)

    def fill(first: int, words: Words) -> None:
        overlay.kernels.route_recent(codes, first, rows, cuts.offsets, numbers, words)

    return _piece_by_piece(names, codes.shape[1], fill)


def _piece_by_piece(
    names: Longs, events: int, fill: Callable[[int, Words], None]
) -> tuple[Masks, Longs]:
    """The masks and names of the destinations that are hit, where `fill` writes the bits of some
    blocks from an event on.
    """
    step = max(1, MASK_BYTES // (BLOCK // 8 * max(1, len(names)))) * BLOCK
    pieces = []
    for first in range(0, events, step):
        blocks = (min(step, events - first) + BLOCK - 1) // BLOCK
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
    packed = words.view(np.uint8).reshape(len(words), words.shape[1] * (BLOCK // 8))
    return np.unpackbits(packed, axis=1, count=events, bitorder="little").view(np.bool_)


def _routes_of(segment: Segment, destinations: Longs) -> Routes:
    names, numbers = np.unique(destinations, return_inverse=True)
    compiled, kernels = segment.compiled, segment.kernels
    no_offsets = np.zeros(1, np.int64)
    if kernels is None or len(names) * LEAST_ROWS > compiled.rows:
        return Routes(destinations, names, numbers, None, no_offsets)
    owners = numbers[segment.row_ranks]
    order = np.lexsort((-_log_share(compiled), owners))
    ends = np.searchsorted(owners[order], np.arange(len(names)), "right")
    programs, first = [], 0
    for end in ends.tolist():
        programs.append(_program(segment, kernels, order[first:end]))
        first = end
    sizes = [len(program) for program in programs]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Routes(destinations, names, numbers, np.concatenate(programs), offsets)


def _log_share(compiled: Compiled) -> npt.NDArray[np.float64]:
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
