"""The kernel that reads a batch where Arrow keeps it and gives every value its code.

A batch arrives as the address of a struct of the Arrow C data interface: for one event that costs a
tenth of asking pyarrow for each column. `cuts.py` defines the codes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.simd import array_at, load_byte, load_half, load_word, release

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

# Offsets of the fields of `struct ArrowArray`.
_OFFSET: Final = np.uint64(16)
_BUFFERS: Final = np.uint64(40)
_CHILDREN: Final = np.uint64(48)
_RELEASE: Final = np.uint64(64)
_NULL_COUNT: Final = np.uint64(8)

_ONE: Final = np.uint64(1)
_THREE: Final = np.uint64(3)
_SEVEN: Final = np.uint64(7)
_EIGHT: Final = np.uint64(8)
_FOUR: Final = np.uint64(4)
_SIGN: Final = np.uint64(1 << 63)
_NO_SIGN: Final = np.uint64((1 << 63) - 1)
_INFINITY: Final = np.uint64(0x7FF0000000000000)

# Columns' types, as `segment.py` numbers them.
_INT, _FLOAT, _BOOL, _TIME, _STRING = 0, 1, 2, 3, 4

# Columns of `bases`: where the codes of each kind begin (palio.model.values.Kind).
_K_BOOL, _K_NUMBER, _K_STRING, _K_BYTES, _K_TIME = 0, 1, 2, 3, 4

_NAN_CODE = 1


class Cuts(NamedTuple):
    """The arrays of `cuts.Universe.arrays`."""

    bases: Integers
    number_offsets: Integers
    number_ints: Longs
    number_floats: Longs
    reachable: Integers
    table_offsets: Integers
    table_lows: Longs
    table: Integers
    bool_cuts: Integers
    time_offsets: Integers
    times: Longs
    text_offsets: Integers
    text_heads: Words
    text_starts: Longs
    text_data: Bytes


class Column(NamedTuple):
    """A column as Arrow keeps it: the addresses of its buffers, its first row and its rows.

    `validity` is 0 if no value is null.
    """

    buffers: Any
    validity: Any
    data: Any
    offset: Any
    rows: Any


@inlined
def _cuts_at(tables: Any) -> Any:
    return Cuts(
        array_at(tables, 0, np.int32).reshape(-1, 5),
        array_at(tables, 1, np.int32),
        array_at(tables, 2, np.int64),
        array_at(tables, 3, np.int64),
        array_at(tables, 4, np.int32),
        array_at(tables, 5, np.int32),
        array_at(tables, 6, np.int64),
        array_at(tables, 7, np.int32),
        array_at(tables, 8, np.int32),
        array_at(tables, 9, np.int32),
        array_at(tables, 10, np.int64),
        array_at(tables, 11, np.int32),
        array_at(tables, 12, np.uint64),
        array_at(tables, 13, np.int64),
        array_at(tables, 14, np.uint8),
    )


@inlined
def _column_of(structure: Any, number: Any, rows: Any) -> Any:
    """A child of the structure of a batch."""
    child = load_word(load_word(structure + _CHILDREN) + word(number) * _EIGHT)
    buffers = load_word(child + _BUFFERS)
    nulls = load_word(child + _NULL_COUNT)
    return Column(
        buffers,
        load_word(buffers) if nulls else word(0),
        load_word(buffers + _EIGHT),
        load_word(child + _OFFSET) + load_word(structure + _OFFSET),
        word(rows),
    )


@inlined
def _bit(address: Any, place: Any) -> Any:
    return (load_byte(address + (place >> _THREE)) >> (place & _SEVEN)) & _ONE


@inlined
def _present(column: Any, row: Any) -> Any:
    """Check whether a row has a value."""
    return column.validity == word(0) or _bit(column.validity, column.offset + row) != word(0)


@inlined
def _not_above(sorted_values: Any, first: Any, end: Any, value: Any) -> Any:
    """Count the values between two places that are not above a value."""
    low, high = word(first), word(end)
    while low < high:
        middle = (low + high) >> _ONE
        if sorted_values[middle] <= value:
            low = middle + _ONE
        else:
            high = middle
    return np.int32(low - word(first))


@compiled
def _code_ints(column: Column, slot: int, cuts: Cuts, codes: Integers) -> None:
    base = cuts.bases[slot, _K_NUMBER]
    first, reach = cuts.number_offsets[slot], cuts.reachable[slot]
    table_first = word(cuts.table_offsets[slot])
    table_size = word(cuts.table_offsets[slot + 1]) - table_first
    lowest = cuts.table_lows[slot]
    for row in range(column.rows):
        if not _present(column, row):
            continue
        value = np.int64(load_word(column.data + (column.offset + row) * _EIGHT))
        if table_size == word(0):
            rank = _not_above(cuts.number_ints, first, first + reach, value)
        elif value < lowest:
            rank = np.int32(0)
        else:
            distance = word(value) - word(lowest)  # unsigned: it may exceed int64
            rank = cuts.table[table_first + distance] if distance < table_size else reach
        codes[slot, row] = base + rank


@compiled
def _code_floats(column: Column, slot: int, cuts: Cuts, codes: Integers) -> None:
    base = cuts.bases[slot, _K_NUMBER]
    first, end = cuts.number_offsets[slot], cuts.number_offsets[slot + 1]
    for row in range(column.rows):
        if not _present(column, row):
            continue
        bits = load_word(column.data + (column.offset + row) * _EIGHT)
        if bits & _NO_SIGN > _INFINITY:
            codes[slot, row] = _NAN_CODE
            continue
        ordered = np.int64(bits)
        if bits & _SIGN:  # negative floats order backwards; -0.0 is 0.0
            ordered = -np.int64(bits & _NO_SIGN)
        codes[slot, row] = base + _not_above(cuts.number_floats, first, end, ordered)


@compiled
def _code_bools(column: Column, slot: int, cuts: Cuts, codes: Integers) -> None:
    base, cut = cuts.bases[slot, _K_BOOL], cuts.bool_cuts[slot]
    for row in range(column.rows):
        if _present(column, row):
            codes[slot, row] = base + cut * np.int32(_bit(column.data, column.offset + row))


@compiled
def _code_times(column: Column, slot: int, cuts: Cuts, codes: Integers) -> None:
    base = cuts.bases[slot, _K_TIME]
    first, end = cuts.time_offsets[slot], cuts.time_offsets[slot + 1]
    for row in range(column.rows):
        if _present(column, row):
            value = np.int64(load_word(column.data + (column.offset + row) * _EIGHT))
            codes[slot, row] = base + _not_above(cuts.times, first, end, value)


@compiled
def _code_texts(column: Column, slot: int, is_bytes: Any, cuts: Cuts, codes: Integers) -> None:
    base = cuts.bases[slot, _K_BYTES if is_bytes else _K_STRING]
    first, end = cuts.text_offsets[2 * slot + is_bytes], cuts.text_offsets[2 * slot + is_bytes + 1]
    texts = load_word(column.buffers + _EIGHT + _EIGHT)
    for row in range(column.rows):
        if not _present(column, row):
            continue
        rank = np.int32(0)
        if end > first:
            place = column.data + (column.offset + row) * _FOUR
            begin, stop = load_half(place), load_half(place + _FOUR)
            length = np.int64(stop - begin)
            rank = _text_rank(texts + begin, length, np.int64(first), np.int64(end), cuts)
        codes[slot, row] = base + rank


@compiled
def _head(address: int, length: int) -> Any:
    """The first eight bytes of a text as a number that orders like the text."""
    head = word(0)
    # Most texts differ in their heads, which are one comparison of numbers.
    for place in range(word(8)):
        head <<= _EIGHT
        if place < word(length):
            head |= load_byte(word(address) + place)
    return head


@compiled
def _text_rank(address: Any, length: Any, first: Any, end: Any, cuts: Cuts) -> Any:
    """Count the sorted texts between two places that are not above the given one."""
    head = _head(address, length)
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if cuts.text_heads[middle] != head:
            above = cuts.text_heads[middle] > head
        else:
            above = _is_above(middle, address, length, cuts)
        if above:
            high = middle
        else:
            low = middle + 1
    return np.int32(low - first)


@inlined
def _is_above(text: Any, address: Any, length: Any, cuts: Any) -> Any:
    """Check whether a sorted text is above a given one with the same first eight bytes."""
    begin = cuts.text_starts[text]
    size = cuts.text_starts[text + 1] - begin
    place = min(8, size, length)
    while (
        place < size
        and place < length
        and word(cuts.text_data[begin + place]) == load_byte(word(address) + word(place))
    ):
        place += 1
    if place in (size, length):
        return size > length
    return word(cuts.text_data[begin + place]) > load_byte(word(address) + word(place))


@compiled
def code_batch(
    structure: int, rows: int, bound: Integers, tables: Longs, codes: Integers, finish: bool
) -> None:
    """Code the columns that are bound to slots; slots without a column get code 0, absent.

    `bound` has (column, type, slot) of each, `tables` the addresses of `Cuts`. To `finish` is to
    give the batch back to Arrow as well.
    """
    cuts = _cuts_at(tables)
    codes[:] = 0  # absent: columns only write where a row has a value
    for at in range(len(bound)):
        kind, slot = bound[at, 1], bound[at, 2]
        column = _column_of(word(structure), bound[at, 0], rows)
        if kind == _INT:
            _code_ints(column, slot, cuts, codes)
        elif kind == _FLOAT:
            _code_floats(column, slot, cuts, codes)
        elif kind == _BOOL:
            _code_bools(column, slot, cuts, codes)
        elif kind == _TIME:
            _code_times(column, slot, cuts, codes)
        else:
            _code_texts(column, slot, np.int64(kind != _STRING), cuts, codes)
    if finish:
        release_batch(structure)


@compiled
def release_batch(structure: int) -> None:
    """Give an exported batch back to Arrow."""
    release(load_word(word(structure) + _RELEASE), word(structure))
