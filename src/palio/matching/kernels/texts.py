"""Kernels of text tests: find the patterns that each text fits, without trying every pair.

A pattern is *runs* of bytes with anything between them, as `LIKE` has it: `a%b_c` is the runs `a`
and `b_c`. The longest literal of a pattern is its *anchor*: it is at the start of every text
that fits, at its end or somewhere. The first 16 bytes at one end, or the last at the other, are
looked up in a hash table, once for each length; those that may be anywhere are searched for all at
once, in one pass over the text. A text is tried only on patterns whose anchor it has.
"""

# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64 as word
from numba.np.numpy_support import carray

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import (
    ANY_CHARACTER,
    AT_START,
    HASH_FACTOR,
    OPEN_END,
    OPEN_START,
    Automaton,
    TextPatterns,
)
from palio.matching.kernels.simd import array_at, pointer_to

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_FACTOR = np.uint64(HASH_FACTOR)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_TOP = np.uint64(63)
_CONTINUES, _TOP_BITS = 0x80, 0xC0

_PATIENCE = 64
"""A run is tried place by place until it has cost so many bytes more..."""

_SHARE = 4
"""...than so many for each place: most texts need little more than one."""


@inlined
def _patterns_at(tables: Any) -> Any:
    return TextPatterns(
        array_at(tables, 0, np.int32),
        array_at(tables, 1, np.int32),
        array_at(tables, 2, np.int32),
        array_at(tables, 3, np.int32),
        array_at(tables, 4, np.int32).reshape(-1, 2),
        array_at(tables, 5, np.uint64),
        array_at(tables, 6, np.int32),
        array_at(tables, 7, np.int32),
        array_at(tables, 8, np.int32),
        array_at(tables, 9, np.int32),
        array_at(tables, 10, np.int32),
        array_at(tables, 11, np.int32),
        array_at(tables, 12, np.bool_),
        Automaton(
            array_at(tables, 13, np.int32),
            array_at(tables, 14, np.uint8),
            array_at(tables, 15, np.bool_),
            array_at(tables, 16, np.uint64),
            array_at(tables, 17, np.int32),
            array_at(tables, 18, np.int32),
            array_at(tables, 19, np.int32),
            array_at(tables, 20, np.int32),
            array_at(tables, 21, np.int32),
        ),
    )


@inlined
def _fits_from(programs: Any, first: Any, beyond: Any, data: Any, at: Any, limit: Any) -> Any:
    """Find the end of a run that begins at a place; if it is not there, return the number of its
    bytes that were compared, negated.
    """
    for place in range(first, beyond):
        if at >= limit:
            return first - place - 1
        wanted = programs[place]
        if wanted != ANY_CHARACTER:
            if data[at] != wanted:
                return first - place - 1
            at += 1
        else:
            if data[at] & _TOP_BITS == _CONTINUES:
                return first - place - 1
            at += 1
            while at < limit and data[at] & _TOP_BITS == _CONTINUES:
                at += 1
    return at


@inlined
def _fits_until(programs: Any, first: Any, beyond: Any, data: Any, start: Any, at: Any) -> Any:
    """Find the begin of a run that ends at a place; -1 if it is not there."""
    for place in range(beyond - 1, first - 1, -1):
        if at <= start:
            return -1
        at -= 1
        wanted = programs[place]
        if wanted != ANY_CHARACTER:
            if data[at] != wanted:
                return -1
        else:
            while at > start and data[at] & _TOP_BITS == _CONTINUES:
                at -= 1
    return at


@inlined
def _first_end(programs: Any, first: Any, beyond: Any, data: Any, at: Any, limit: Any) -> Any:
    """Find the end of a run at the first place that has it; negative if none has."""
    end, left = -1, _PATIENCE
    while end < 0 <= left and at + beyond - first <= limit:
        end = _fits_from(programs, first, beyond, data, at, limit)
        left += _SHARE + min(end, 0)
        at += 1
    return _end_in_time(programs[first:beyond], data, at, limit) if end < 0 and left < 0 else end


@compiled
def _end_in_time(run: Integers, data: Bytes, at: int, limit: int) -> int:
    """`_first_end` in a time that any text and run keep to."""
    if (run == ANY_CHARACTER).any():
        return _end_of_characters(run, data, at, limit)
    return _end_of_bytes(run, data, at, limit)


@compiled
def _end_of_bytes(wanted: Integers, data: Bytes, low: int, high: int) -> int:
    """`_first_end` of a run without wildcards, in a time linear in run and text: what a text has of
    the run so far is never compared again (Knuth, Morris and Pratt).
    """
    length = word(len(wanted))  # indices that are words need no test of their sign: half the time
    borders = np.zeros(len(wanted) + 1, np.uint32)  # how much of n bytes they begin and end with
    border = _ZERO
    for place in range(_ONE, length):
        while border and wanted[place] != wanted[border]:
            border = word(borders[border])
        if wanted[place] == wanted[border]:
            border += _ONE
        borders[place + _ONE] = border
    matched = _ZERO
    for at in range(word(low), word(high)):
        byte = data[at]
        while matched and byte != wanted[matched]:
            matched = word(borders[matched])
        if byte == wanted[matched]:
            matched += _ONE
            if matched == length:
                return int(np.int64(at + _ONE))
    return -1


@compiled
def _end_of_characters(wanted: Integers, data: Bytes, low: int, high: int) -> int:
    """`_first_end` of a run with wildcards. There is a bit for each prefix of the run: set if the
    text so far ends with it. So a byte costs one step for 64 characters of the run.
    """
    words = (len(wanted) + 63) // 64
    admits, skips = np.zeros((256, words), np.uint64), np.zeros(words, np.uint64)
    for place in range(len(wanted)):
        bit = _ONE << word(place & 63)
        if wanted[place] == ANY_CHARACTER:
            skips[place >> 6] |= bit
        else:
            admits[wanted[place], place >> 6] |= bit
    ended, last = np.zeros(words, np.uint64), word(len(wanted) - 1 & 63)
    for at in range(word(low), word(high)):
        byte, carry = word(data[at]), _ONE
        continues = byte & word(_TOP_BITS) == word(_CONTINUES)
        for place in range(word(words)):
            before = ended[place]
            moved = before << _ONE | carry
            carry = before >> _TOP
            ended[place] = moved & admits[byte, place]
            ended[place] |= (before if continues else moved) & skips[place]
        if ended[words - 1] >> last & _ONE:
            end = np.int64(at + _ONE)
            if wanted[len(wanted) - 1] == ANY_CHARACTER:
                while end < high and data[end] & _TOP_BITS == _CONTINUES:
                    end += 1
            return int(end)
    return -1


@inlined
def _fits(programs: Any, at: Any, end: Any, data: Any, low: Any, high: Any) -> Any:
    """Check whether the text between two places fits the pattern whose program is `at` to `end`:
    the ends of the text first, which mostly decide.
    """
    opens = programs[at]
    at += 1
    if not opens & OPEN_END:
        beyond = at + 1 + programs[at]
        high = _fits_until(programs, at + 1, beyond, data, low, high)
        at = beyond
        if high < 0 or (at == end and not opens & OPEN_START):
            return high == low
    if not opens & OPEN_START:
        beyond = at + 1 + programs[at]
        low = _fits_from(programs, at + 1, beyond, data, low, high)
        at = beyond
    while low >= 0 and at < end:
        beyond = at + 1 + programs[at]
        low = _first_end(programs, at + 1, beyond, data, low, high)
        at = beyond
    return low >= 0


@inlined
def _entry_of(keys: Any, entries: Any, key: Any) -> Any:
    """The entry of an anchor by its key; -1 if there is none."""
    key |= _ONE
    mask = word(len(keys) - 1)
    slot = (key >> _HALF) & mask
    while keys[slot]:
        if keys[slot] == key:
            return entries[slot]
        slot = (slot + _ONE) & mask
    return -1


@inlined
def _try(
    some: Any, programs: Any, starts: Any, data: Any, low: Any, high: Any, ends: Any, total: Any
) -> Any:
    """Add those of some patterns that a text fits; returns how many there are then."""
    for pattern in some:
        ends[total] = pattern
        total += _fits(programs, starts[pattern], starts[pattern + 1], data, low, high)
    return total


@compiled
def _found_in(
    patterns: TextPatterns, data: Bytes, offsets: Integers
) -> tuple[Longs, Integers, int]:
    """The patterns that text t fits, as `found[ends[t] : ends[t + 1]]`, and how many pairs were
    tried.
    """
    programs, starts, count = patterns.programs, patterns.starts, len(patterns.slots)
    keys, entries, free = patterns.keys, patterns.entries, patterns.free
    members, member_offsets = patterns.members, patterns.member_offsets
    ends = np.zeros(len(offsets), np.int64)
    hits = np.empty(2 * count + 16, np.int32)
    seen = np.zeros(len(member_offsets), np.int64)  # the last text that tried an entry
    has_literals = patterns.first_literal[0] < len(member_offsets) - 1
    total, tried = 0, 0
    for text in range(len(offsets) - 1):  # at most each pattern once, so room is made before
        low, high = int(offsets[text]), int(offsets[text + 1])
        if total + count > len(hits):
            larger = np.empty(2 * (total + count), np.int32)
            larger[:total] = hits[:total]
            hits = larger
        total = _try(free, programs, starts, data, low, high, hits, total)
        tried += len(free)
        for place in range(len(patterns.places)):
            where, length = patterns.places[place, 0], patterns.places[place, 1]
            if length > high - low:
                continue
            first = low if where == AT_START else high - length
            key = word(place + 1)
            for at in range(first, first + length):
                key = (key + word(data[at])) * _FACTOR
            entry = _entry_of(keys, entries, key)
            if entry >= 0:
                some = members[member_offsets[entry] : member_offsets[entry + 1]]
                total = _try(some, programs, starts, data, low, high, hits, total)
                tried += len(some)
        if has_literals:
            total, more = _try_literals(patterns, data, low, high, seen, text, hits, total)
            tried += more
        ends[text + 1] = total
    return ends, hits, tried


@compiled
def _try_literals(
    patterns: TextPatterns,
    data: Bytes,
    low: int,
    high: int,
    seen: Longs,
    text: int,
    hits: Integers,
    total: int,
) -> tuple[int, int]:
    """`_try` for those patterns whose literal is anywhere in a text, read once for all: return the
    numbers of all found then, and of all tried.

    Each literal counts once. Where one was seen, so were all that it ends with.
    """
    programs, starts, fits_first = patterns.programs, patterns.starts, patterns.fits_first
    members, member_offsets = patterns.members, patterns.member_offsets
    parents, owns, forks, keys, targets, roots, fails, links, literals = patterns.automaton
    first_literal, sizes = patterns.first_literal[0], patterns.sizes
    node, tried = _ZERO, 0
    for at in range(word(low), word(high)):
        byte = data[at]
        child = _child(parents, owns, forks, keys, targets, roots, node, byte)
        while child < 0 and node:
            node = word(fails[node])
            child = _child(parents, owns, forks, keys, targets, roots, node, byte)
        node = word(max(child, 0))
        last = word(links[node])
        while last:
            literal = literals[last]
            entry, stands = first_literal + literal, np.int64(at) + 1 - sizes[literal]
            if seen[entry] > text:  # and so have been all that it ends with
                break
            seen[entry] = text + 1
            for pattern in members[member_offsets[entry] : member_offsets[entry + 1]]:
                begin = stands if fits_first[pattern] else low
                hits[total] = pattern
                total += _fits(programs, starts[pattern], starts[pattern + 1], data, begin, high)
                tried += 1
            last = word(links[word(fails[last])])
    return total, tried


@inlined
def _child(
    parents: Any, owns: Any, forks: Any, keys: Any, targets: Any, roots: Any, node: Any, byte: Any
) -> Any:
    """The child of a node of `Automaton` for a byte; -1 if it has none."""
    child = np.int32(-1)
    if not node:
        child = roots[byte]
    elif word(parents[node + _ONE]) == node and owns[node + _ONE] == byte:
        child = np.int32(node + _ONE)
    elif forks[node]:
        child = np.int32(_entry_of(keys, targets, _key_of(node, byte)))
    return child


@inlined
def _key_of(node: Any, byte: Any) -> Any:
    return ((word(node) << word(8)) + word(byte)) * _FACTOR


@compiled
def automaton_of(data: Bytes, offsets: Longs) -> Automaton:
    """Make the automaton that finds literals, given one behind the other, none empty."""
    most, count = len(data) + 2, 1  # one more than there are: every node has one behind it
    size = 4
    while size < 2 * len(offsets):  # each literal leaves those before it at one fork
        size *= 2
    automaton = Automaton(
        np.full(most, -1, np.int32), np.zeros(most, np.uint8), np.zeros(most, np.bool_),
        np.zeros(size, np.uint64), np.zeros(size, np.int32), np.full(256, -1, np.int32),
        np.zeros(most, np.int32), np.zeros(most, np.int32), np.full(most, -1, np.int32),
    )  # fmt: skip
    parents, owns, forks, keys, targets, roots = automaton[:6]
    depths = np.zeros(most, np.int32)
    for literal in range(len(offsets) - 1):
        node = 0
        for at in range(offsets[literal], offsets[literal + 1]):
            child = _child(parents, owns, forks, keys, targets, roots, word(node), data[at])
            if child < 0:
                child = count
                _add_child(automaton, node, data[at], child)
                depths[child] = depths[node] + 1
                count += 1
            node = int(child)
        automaton.literals[node] = literal
    _link(automaton, np.argsort(depths[:count], kind="mergesort"))
    return automaton


@compiled
def _add_child(automaton: Automaton, node: int, byte: int, child: int) -> None:
    """Give a node a child; to be the next one is all that most of them need."""
    automaton.parents[child], automaton.owns[child] = node, byte
    if not node:
        automaton.roots[byte] = child
    elif child != node + 1:
        automaton.forks[node] = True
        key, mask = _key_of(node, byte) | _ONE, word(len(automaton.keys) - 1)
        slot = (key >> _HALF) & mask
        while automaton.keys[slot]:
            slot = (slot + _ONE) & mask
        automaton.keys[slot], automaton.targets[slot] = key, child


@compiled
def _link(automaton: Automaton, order: Longs) -> None:
    """Link each node to what it ends with, by the links of its parent, the shortest first."""
    parents, owns, forks, keys, targets, roots, fails, links, literals = automaton
    for node in order[1:]:
        byte, back = owns[node], word(parents[node])
        while back:
            back = word(fails[back])
            child = _child(parents, owns, forks, keys, targets, roots, back, byte)
            if child >= 0:  # 0 if none has: the empty beginning
                fails[node] = child
                break
        links[node] = node if literals[node] >= 0 else links[fails[node]]


@compiled
def _code(
    patterns: TextPatterns, data: Bytes, offsets: Integers, rows: Integers, codes: Integers
) -> int:
    """Set the codes of texts given as arrays (`code_texts`)."""
    slots, negated = patterns.slots, patterns.negated
    ends, matches, tried = _found_in(patterns, data, offsets)
    # A negated test passes every text until one is found to fit.
    for pattern in range(len(slots)):
        if negated[pattern]:
            for row in range(len(rows)):
                codes[slots[pattern], row] = rows[row] >= 0
    for row in range(len(rows)):
        if rows[row] >= 0:
            for at in range(ends[rows[row]], ends[rows[row] + 1]):
                codes[slots[matches[at]], row] = not negated[matches[at]]
    return tried


@compiled
def code_texts(tables: Longs, texts: Longs, rows: Integers, codes: Integers) -> int:
    """Set the codes of the slots that patterns decide: 1 where the text of a row (-1 if it has
    none) fits, or does not if the pattern is negated. Returns how many pairs were tried.

    `tables` are the addresses of `TextPatterns`, `texts` those of Arrow's offsets and bytes.
    """
    offsets, data = array_at(texts, 0, np.int32), array_at(texts, 1, np.uint8)
    return _code(_patterns_at(tables), data, offsets, rows, codes)


@compiled
def code_text(tables: Longs, address: int, size: int, codes: Integers) -> int:
    """`code_texts` for one event, whose text is at an address."""
    data = carray(pointer_to(word(address)), (size,), np.uint8)
    offsets = np.array([0, size], np.int32)
    return _code(_patterns_at(tables), data, offsets, np.zeros(1, np.int32), codes)
