"""Constants, and arrays with names, that kernels and their callers share. Imports neither."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int32]
Words: TypeAlias = npt.NDArray[np.uint64]


def addresses_of(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Address and size of each array, as one array: what kernels for single events are given.

    To hand over an array costs a third of a microsecond, and these take two dozen. The caller keeps
    the arrays alive.
    """
    listed = list(arrays)
    assert all(array.flags.c_contiguous for array in listed)
    return np.array([[array.ctypes.data, array.size] for array in listed], np.int64)


class Predicates(NamedTuple):
    """The predicates of each slot and their intervals of codes: what a batch is evaluated by."""

    code_counts: Integers
    slot_offsets: Integers
    slot_predicates: Integers
    span_offsets: Integers
    lows: Integers
    highs: Integers


class Pivots(NamedTuple):
    """Rows by the slots of their pivots (`kernels.count`): a group for each such slot."""

    slots: Integers
    """The slot of each group."""
    code_counts: Integers
    """The number of codes of that slot."""
    row_offsets: Integers
    """Group g has the rows `row_offsets[g] : row_offsets[g + 1]`..."""
    column_offsets: Integers
    """...and the columns `column_offsets[g] : column_offsets[g + 1]`."""
    columns: Integers
    """The slot of each column: its group's rows test it, too."""
    ranks: Integers
    """The rank of each row's filter."""
    lows: Integers
    """The first code that a row's pivot admits..."""
    highs: Integers
    """...and the code after the last."""
    test_offsets: Integers
    """Row r has the tests `test_offsets[r] : test_offsets[r + 1]`."""
    test_columns: Integers
    """The column of each test, from its group's first on."""
    test_lows: Integers
    """The first code that a test admits."""
    test_widths: Integers
    """The number of codes that a test admits, less one."""


class Scratch(NamedTuple):
    """Working arrays of the plan of vectors in one thread, for one block of events at a time."""

    vectors: Words
    places: npt.NDArray[np.uint32]
    inherited: Words
    results: Words
    notes: Words
    spare: Words

    @classmethod
    def of(cls, predicates: int, rows: int, depth: int) -> Scratch:
        """Room for a segment of that size; `depth` is that of its longest shared prefix."""
        return cls(
            np.empty((predicates + 3, 8), np.uint64),
            np.empty(predicates + 1, np.uint32),
            np.zeros((depth + 2, 8), np.uint64),
            np.empty((rows + 16, 8), np.uint64),
            np.empty(rows + 1, np.uint64),
            np.empty(rows + 1, np.uint64),
        )


ARROW_WORDS: Final = 10
"""The size of `struct ArrowArray` in words."""

OPEN: Final = (1 << 31) - 1
"""The end of an interval that has none."""

EVENTS: Final = 512
"""Events of a block: a vector has a bit for each."""

BITMAP_ROWS: Final = 512
"""Rows of a block: a bitmap has a bit for each (`single.py`)."""

CHUNK: Final = 8_192
"""Events that the counting kernel sorts at once; fewer are not worth a plan."""

FIRST_NUMBER: Final = 3
"""The code of a number below all cuts, where booleans have none (`cuts.py`)."""


class RecentRows(NamedTuple):
    """Rows of comparisons with numbers, one a key, ascending by key.

    An interval holds the numbers that are not below `low` cuts of its slot (0: any number) and not
    above `high` of them (`OPEN`: any number).
    """

    keys: npt.NDArray[np.int64]
    destinations: npt.NDArray[np.int64]
    offsets: Integers
    slots: Integers
    lows: Integers
    highs: Integers


class NumberCuts(NamedTuple):
    """The cuts of such rows: those of slot s are `offsets[s] : offsets[s + 1]` (`cuts.Numbers`)."""

    offsets: Integers
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.int64]
    beyond: npt.NDArray[np.bool_]


class NumberTables(NamedTuple):
    """The arrays that code numbers, beside their cuts, as in `cuts.Universe`."""

    bases: Integers
    reachable: Integers
    offsets: Integers
    lows: npt.NDArray[np.int64]
    table: Integers


class RecentBatch(NamedTuple):
    """Recent rows for one batch: its codes in their slots, and the rank of each row's key."""

    codes: Integers
    rows: RecentRows
    ranks: Integers
    cut_offsets: Integers


ANY_CHARACTER: Final = -1
"""Among the bytes of a run: one character, of however many bytes."""

OPEN_START: Final = 1
OPEN_END: Final = 2
"""Anything may stand before the first run of a pattern; behind its last one."""

AT_START: Final = 0
AT_END: Final = 1
"""Where the anchors of a table stand."""

HASH_FACTOR: Final = 0x9E3779B97F4A7C15
"""What hashes of anchors are multiplied by, byte for byte."""


class Automaton(NamedTuple):
    """Literals to look for all at once (Aho and Corasick): a node for each beginning of one, the
    empty one first.

    A node leads to the next one by that one's byte if it is its parent. Its other children, if it
    is a fork, are in a hash table by node and byte; those of the first node have a table.
    """

    parents: Integers
    owns: npt.NDArray[np.uint8]
    """The byte of each node, by which its parent leads to it."""
    forks: npt.NDArray[np.bool_]
    keys: Words
    targets: Integers
    roots: Integers
    """The child of the first node for each byte; -1 if it has none."""
    fails: Integers
    """The longest beginning of a literal that a node ends with, itself apart..."""
    links: Integers
    """...and the longest that is a literal, itself included; 0 if there is none."""
    literals: Integers
    """The literal that a node is; -1 if it is none."""


class TextPatterns(NamedTuple):
    """Patterns, each with the slot that it decides, and what finds their anchors.

    Pattern p has the program `programs[starts[p] : starts[p + 1]]`: where it is open, and each of
    its runs with its length before it; the last run comes first if the text ends with it. A key of
    the hash table (0 if there is none) has an entry e, which has the patterns
    `members[member_offsets[e] : member_offsets[e + 1]]`; so has a literal, from `first_literal` on.
    """

    programs: Integers
    starts: Integers
    slots: Integers
    negated: Integers
    places: Integers
    keys: Words
    entries: Integers
    member_offsets: Integers
    members: Integers
    free: Integers
    first_literal: Integers
    """One number: the entry of the first literal."""
    sizes: Integers
    """The bytes of each literal."""
    fits_first: npt.NDArray[np.bool_]
    """Whether a pattern whose literal a text has fits where that first stands, or nowhere."""
    automaton: Automaton
