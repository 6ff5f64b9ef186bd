"""Kernels that bring recent comparisons with numbers up to date: from a log of changes to rows.

Compiling afresh at each match after a change takes dozens of small steps, between any two of which
another thread may hold the interpreter's lock. `advance` is one call without the lock: it copies
the rows that stay, takes in the records of the log, and gives both a common set of cuts. `cuts.py`
defines a cut, `matching/recent.py` a record of the log.
"""

# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled
from palio.matching.kernels.records import FIRST_NUMBER, OPEN, NumberCuts, NumberTables, RecentRows

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

HEAD = 4
"""Words of a record before the uses and the numbers."""

TABLE_SHARE = 16
"""Integer cuts get a table of codes if it is no more than so many times as long as their list."""

NO_END = -1

_EQ, _LT, _LE, _GT, _GE = 0, 1, 2, 3, 4
_NO_SIGN = (1 << 63) - 1
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_TWO_63 = 2.0**63


class _Ends(NamedTuple):
    """The ends of new intervals, two for each: slots, the parts of their cuts, and the places of
    these; `NO_END` for an end that is open.
    """

    slots: Integers
    ints: Longs
    floats: Longs
    beyond: npt.NDArray[np.bool_]
    places: Longs


@compiled
def _ordered(bits: int) -> int:
    """The bits of a float as an integer in the same order; -0.0 is 0.0."""
    return -(bits & _NO_SIGN) if bits < 0 else bits


@compiled
def _whole(value: float) -> int:
    """A float as int64, clipped to what fits."""
    if value >= _TWO_63:
        return _MOST
    return _LEAST if value < -_TWO_63 else int(value)


@compiled
def _cut(
    words: Longs, at: int, is_float: bool, past: bool, box: npt.NDArray[np.float64]
) -> tuple[int, int, bool]:
    """The cut before or behind a number: `cuts.number_cuts`, `cuts.past_numbers`."""
    number = words[at]
    if is_float:
        value = words.view(np.float64)[at]
        bits = _ordered(number)
        # The next float is the next integer in this order of bits, so `bits + 1` is past it.
        if not past:
            return _whole(np.ceil(value)), bits, bool(value >= _TWO_63)
        first = _whole(np.floor(value))
        if -_TWO_63 <= value < _TWO_63:
            first += 1
        return first, bits + 1, bool(value >= _TWO_63)
    box[0] = number
    bits = _ordered(box.view(np.int64)[0])
    whole = _whole(box[0])
    if not past:
        return number, bits + int(whole < number), False
    if whole <= number and box[0] < _TWO_63:
        bits += 1
    if number == _MOST:
        return number, bits, True
    return number + 1, bits, False


@compiled
def _place_of(
    cuts: NumberCuts, first: int, end: int, whole: int, bits: int, beyond: bool
) -> tuple[int, bool]:
    """The first place of some whose cut is not below the given one, and whether it is that cut."""
    ints, floats, far = cuts.ints, cuts.floats, cuts.beyond
    low, high = np.uint64(first), np.uint64(end)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        below = ints[middle] < whole
        if ints[middle] == whole:
            below = floats[middle] < bits or (floats[middle] == bits and far[middle] < beyond)
        if below:
            low = middle + np.uint64(1)
        else:
            high = middle
    is_equal = low < np.uint64(end) and ints[low] == whole and floats[low] == bits
    return int(low), bool(is_equal and far[low] == beyond)


@compiled
def _latest(words: Longs) -> tuple[Longs, Longs, int]:
    """The keys that some records name, ascending, the place of the last record of each, and how
    many comparisons these have.
    """
    count, at = 0, 0
    while at < len(words):
        count += 1
        at += HEAD + 2 * max(0, words[at + 2])
    keys, places = np.empty(count, np.int64), np.empty(count, np.int64)
    at = 0
    for record in range(count):
        keys[record], places[record] = words[at], at
        at += HEAD + 2 * max(0, words[at + 2])
    order = np.argsort(keys, kind="mergesort")  # stable: the last of equal keys is the latest
    kept, uses = 0, 0
    for near in range(count):
        record = order[near]
        if near + 1 < count and keys[order[near + 1]] == keys[record]:
            continue
        order[kept] = record
        uses += max(0, words[places[record] + 2])
        kept += 1
    return keys[order[:kept]], places[order[:kept]], uses


@compiled
def _ends_of(words: Longs, places: Longs, uses: int) -> _Ends:
    """The ends of all intervals on some records; equalities, the most selective, come first."""
    ends = _Ends(
        np.empty(2 * uses, np.int32),
        np.empty(2 * uses, np.int64),
        np.empty(2 * uses, np.int64),
        np.empty(2 * uses, np.bool_),
        np.empty(2 * uses, np.int64),
    )
    box = np.empty(1, np.float64)
    made = 0
    for at in places:
        count, floats = words[at + 2], words[at + 3]
        for equalities in range(1, -1, -1):
            for use in range(max(0, count)):
                slot, op = words[at + HEAD + use] >> 3, words[at + HEAD + use] & 7
                if (op == _EQ) != (equalities == 1):
                    continue
                number, is_float = at + HEAD + count + use, (floats >> use) & 1 == 1
                has_low, has_high = op in (_EQ, _GT, _GE), op in (_EQ, _LT, _LE)
                for side in range(2):
                    ends.slots[made] = slot
                    ends.places[made] = NO_END
                    if has_high if side else has_low:
                        past = op in (_EQ, _LE) if side else op == _GT
                        whole, bits, beyond = _cut(words, number, is_float, past, box)
                        ends.ints[made], ends.floats[made] = whole, bits
                        ends.beyond[made], ends.places[made] = beyond, 0
                    made += 1
    return ends


@compiled
def _look_up(ends: _Ends, cuts: NumberCuts) -> Longs:
    """Set the place of each end among all cuts, and return the ends whose cuts are not there, in
    the order of slots and cuts.
    """
    slot_count, every = len(cuts.offsets) - 1, len(cuts.ints)
    missing = np.empty(len(ends.slots), np.int64)
    count, any_beyond = 0, False
    for end in range(len(ends.slots)):
        if ends.places[end] == NO_END:
            continue
        slot, whole, bits, beyond = (
            ends.slots[end],
            ends.ints[end],
            ends.floats[end],
            ends.beyond[end],
        )
        ends.places[end] = every
        if slot < slot_count:
            first, last = cuts.offsets[slot], cuts.offsets[slot + 1]
            ends.places[end], is_equal = _place_of(cuts, first, last, whole, bits, beyond)
            if is_equal:
                continue
        missing[count] = end
        any_beyond |= beyond
        count += 1
    found_not = missing[:count]
    # Stable sorts by the least part of the key first; hardly any cut is beyond int64.
    if any_beyond:
        found_not = found_not[np.argsort(ends.beyond[found_not], kind="mergesort")]
    found_not = found_not[np.argsort(ends.floats[found_not], kind="mergesort")]
    found_not = found_not[np.argsort(ends.ints[found_not], kind="mergesort")]
    return found_not[np.argsort(ends.slots[found_not], kind="mergesort")]


@compiled
def _with_more(
    cuts: NumberCuts, ends: _Ends, missing: Longs, slots: int
) -> tuple[NumberCuts, Longs]:
    """The cuts with those of some ends among them, and the new place of each old cut; the ends that
    had a place get their new one.
    """
    old = len(cuts.ints)
    ints, floats = np.empty(old + len(missing), np.int64), np.empty(old + len(missing), np.int64)
    beyond = np.empty(old + len(missing), np.bool_)
    moved = np.arange(old)
    more = np.zeros(slots + 1, np.int32)
    made, copied, last = 0, 0, -1
    for end in missing:
        if (
            last >= 0
            and ends.slots[last] == ends.slots[end]
            and ends.ints[last] == ends.ints[end]
            and ends.floats[last] == ends.floats[end]
            and ends.beyond[last] == ends.beyond[end]
        ):
            ends.places[end] = made - 1  # equal ends are one cut
            continue
        place = ends.places[end]
        _copy(cuts, copied, place, ints, floats, beyond, moved, made)
        made, copied = made + place - copied, place
        ints[made], floats[made], beyond[made] = ends.ints[end], ends.floats[end], ends.beyond[end]
        ends.places[end] = made
        more[ends.slots[end] + 1] += 1
        made, last = made + 1, end
    _copy(cuts, copied, old, ints, floats, beyond, moved, made)
    made += old - copied
    offsets = np.empty(slots + 1, np.int32)
    for slot in range(slots + 1):
        if slot:
            more[slot] += more[slot - 1]
        offsets[slot] = cuts.offsets[min(slot, len(cuts.offsets) - 1)] + more[slot]
    return NumberCuts(offsets, ints[:made], floats[:made], beyond[:made]), moved


@compiled
def _copy(
    cuts: NumberCuts,
    first: int,
    end: int,
    ints: Longs,
    floats: Longs,
    beyond: npt.NDArray[np.bool_],
    moved: Longs,
    made: int,
) -> None:
    """Copy some cuts to another place."""
    shift = made - first
    ints[made : end + shift] = cuts.ints[first:end]
    floats[made : end + shift] = cuts.floats[first:end]
    beyond[made : end + shift] = cuts.beyond[first:end]
    for at in range(first, end):
        moved[at] = at + shift


@compiled
def advance(
    rows: RecentRows, cuts: NumberCuts, words: Longs, slots: int
) -> tuple[RecentRows, NumberCuts, NumberTables, Longs]:
    """Rows and cuts after some changes, given as records, and the keys that these name, ascending.

    Rows stay in the order of their keys. Nothing given is changed: other readers may use it.
    """
    changed, records, uses = _latest(words)
    ends = _ends_of(words, records, uses)
    missing = _look_up(ends, cuts)
    if len(missing) or slots > len(cuts.offsets) - 1:
        offsets, is_new = cuts.offsets, np.zeros(len(ends.slots), np.bool_)
        for number in missing:
            is_new[number] = True
        cuts, moved = _with_more(cuts, ends, missing, slots)
        for each in range(len(ends.slots)):
            if ends.places[each] != NO_END and not is_new[each]:
                ends.places[each] = moved[ends.places[each]]
        rows = _renumbered(rows, offsets, cuts.offsets, moved)
    # Places among all cuts become places in the slot, which other slots do not move.
    for end in range(len(ends.slots)):
        if ends.places[end] != NO_END:
            ends.places[end] -= cuts.offsets[ends.slots[end]]
    rows = _with_changes(rows, words, changed, records, ends)
    return rows, cuts, _tables_of(cuts), changed


@compiled
def _renumbered(rows: RecentRows, before: Integers, after: Integers, moved: Longs) -> RecentRows:
    """Rows whose cuts have other places, in slots that begin at others."""
    slots, old_lows, old_highs = rows.slots, rows.lows, rows.highs
    lows, highs = np.empty_like(old_lows), np.empty_like(old_highs)
    for at in range(np.uint64(len(slots))):
        slot, low, high = slots[at], old_lows[at], old_highs[at]
        lows[at] = moved[before[slot] + low - 1] + 1 - after[slot] if low else 0
        highs[at] = moved[before[slot] + high - 1] + 1 - after[slot] if high != OPEN else OPEN
    return RecentRows(rows.keys, rows.destinations, rows.offsets, slots, lows, highs)


@compiled
def _with_changes(
    rows: RecentRows, words: Longs, changed: Longs, records: Longs, ends: _Ends
) -> RecentRows:
    """The rows that stay and the new ones, by key."""
    old_keys, old_destinations, old_offsets = rows.keys, rows.destinations, rows.offsets
    most, size = len(old_keys) + len(changed), len(rows.slots) + len(ends.slots) // 2
    keys, destinations = np.empty(most, np.int64), np.empty(most, np.int64)
    offsets, slots = np.zeros(most + 1, np.int32), np.empty(size, np.int32)
    lows, highs = np.empty(size, np.int32), np.empty(size, np.int32)
    made, filled, row, interval = 0, 0, 0, 0
    for change in range(len(changed) + 1):
        until = row
        while until < len(old_keys) and (
            change == len(changed) or old_keys[until] < changed[change]
        ):
            until += 1
        first, last = old_offsets[row], old_offsets[until]
        keys[made : made + until - row] = old_keys[row:until]
        destinations[made : made + until - row] = old_destinations[row:until]
        slots[filled : filled + last - first] = rows.slots[first:last]
        lows[filled : filled + last - first] = rows.lows[first:last]
        highs[filled : filled + last - first] = rows.highs[first:last]
        for at in range(row, until):
            made += 1
            offsets[made] = filled + old_offsets[at + 1] - first
        filled, row = filled + last - first, until
        if change == len(changed):
            break
        if row < len(old_keys) and old_keys[row] == changed[change]:
            row += 1  # replaced, or gone
        count = words[records[change] + 2]
        if count < 0:
            continue
        keys[made], destinations[made] = changed[change], words[records[change] + 1]
        for _ in range(count):
            low, high = ends.places[2 * interval], ends.places[2 * interval + 1]
            slots[filled] = ends.slots[2 * interval]
            lows[filled] = low + 1  # 0 without a lower end
            highs[filled] = OPEN if high == NO_END else high + 1
            filled, interval = filled + 1, interval + 1
        made += 1
        offsets[made] = filled
    return RecentRows(
        keys[:made],
        destinations[:made],
        offsets[: made + 1],
        slots[:filled],
        lows[:filled],
        highs[:filled],
    )


@compiled
def _tables_of(cuts: NumberCuts) -> NumberTables:
    """Make what `kernels.arrow.code_batch` needs beside the cuts, as `cuts.Universe` does: bases of
    the codes, the number of cuts that integers reach, and the codes of all integers between cuts
    that are close together.
    """
    slots = len(cuts.offsets) - 1
    bases = np.empty((slots, 5), np.int32)
    reachable = np.zeros(slots, np.int32)
    lows, offsets = np.zeros(slots, np.int64), np.zeros(slots + 1, np.int32)
    for slot in range(slots):
        first, last = cuts.offsets[slot], cuts.offsets[slot + 1]
        bases[slot, 0], bases[slot, 1] = 2, FIRST_NUMBER
        for kind in range(2, 5):
            bases[slot, kind] = FIRST_NUMBER + last - first + kind - 1
        while first + reachable[slot] < last and not cuts.beyond[first + reachable[slot]]:
            reachable[slot] += 1
        size = 0
        if reachable[slot]:
            lows[slot] = cuts.ints[first]
            span = cuts.ints[first + reachable[slot] - 1] - lows[slot]  # negative: it overflows
            size = span + 1 if 0 <= span < TABLE_SHARE * reachable[slot] else 0
        offsets[slot + 1] = offsets[slot] + size
    table = np.empty(offsets[slots], np.int32)
    for slot in range(slots):
        rank, first = 0, cuts.offsets[slot]
        for at in range(offsets[slot], offsets[slot + 1]):
            value = lows[slot] + at - offsets[slot]
            while rank < reachable[slot] and cuts.ints[first + rank] <= value:
                rank += 1
            table[at] = rank
    return NumberTables(bases, reachable, offsets, lows, table)


@compiled
def code_numbers(
    cuts: NumberCuts, kinds: npt.NDArray[np.int8], ints: Longs, floats: Longs
) -> Integers:
    """The codes of one event: a slot has an integer (kind 1), a float (its bits; kind 2), or no
    number.
    """
    codes = np.zeros((len(kinds), 1), np.int32)
    for slot in range(len(kinds)):
        first, last = cuts.offsets[slot], cuts.offsets[slot + 1]
        if kinds[slot] == 1:
            while last > first and cuts.beyond[last - 1]:
                last -= 1
            rank = np.searchsorted(cuts.ints[first:last], ints[slot], "right")
        else:
            rank = np.searchsorted(cuts.floats[first:last], _ordered(floats[slot]), "right")
        codes[slot, 0] = FIRST_NUMBER + rank if kinds[slot] else 0
    return codes


@compiled
def common_ranks(keys: Longs, others: Longs) -> tuple[Longs, Integers, Integers]:
    """All keys of two ascending lists, and the rank among them of those of the first (none if
    these stay as they are) and of the second.
    """
    size = len(keys)
    other_ranks, inserted = np.empty(len(others), np.int32), np.empty(len(others), np.int64)
    at, count = 0, 0
    for place in range(len(others)):
        at = _reach(keys, at, others[place])
        other_ranks[place] = at + count
        if at == size or keys[at] != others[place]:
            inserted[count] = place
            count += 1
    no_ranks = np.empty(0, np.int32)
    if not count:
        return keys, no_ranks, other_ranks
    whole = np.empty(size + count, np.int64)
    # Keys that are all behind the first list leave its ranks as they are, as new keys mostly do.
    moves = other_ranks[inserted[0]] < size
    ranks = np.empty(size, np.int32) if moves else no_ranks
    first = 0
    for more in range(count + 1):
        end = size if more == count else other_ranks[inserted[more]] - more
        whole[first + more : end + more] = keys[first:end]
        if moves:
            for near in range(first, end):
                ranks[near] = near + more
        if more < count:
            whole[end + more] = others[inserted[more]]
        first = end
    return whole, ranks, other_ranks


@compiled
def _reach(keys: Longs, first: int, key: int) -> int:
    """The first place from `first` on whose key is not less: near ones are found soonest."""
    step, low = 1, first
    while low + step < len(keys) and keys[low + step] < key:
        low += step
        step *= 2
    high = min(low + step, len(keys))
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low
