"""Try text tests on the distinct texts of a batch, without trying every pair.

Suffixes, LIKE patterns and the like are no intervals; each has a slot of codes 0 (fails) and 1
(passes), which is filled in for each batch. Most are patterns, which one kernel finds by their
*anchors* (`kernels/texts.py`); those that ignore case are patterns of the folded texts. Address
blocks and `<` that ignores case are tried on each text. As long as there are no kernels, anchors
are found here, by Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.cuts import Universe
from palio.matching.kernels.records import (
    ANY_CHARACTER,
    AT_END,
    AT_START,
    HASH_FACTOR,
    OPEN_END,
    OPEN_START,
    addresses_of,
)
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Codes
from palio.model.events import attribute
from palio.model.operators import AFFIX, Op, fold, like_parts
from palio.model.texts import Fragment, TextTest, fragments

Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_ANCHOR: Final = 16
"""Bytes of an anchor at an end, which bounds the number of tables; what is longer is tested as
well. One that may be anywhere is searched for as a whole."""

FEW_ANCHORS: Final = 256
"""So many of one length are searched for in turn; of more, every piece of a text is looked up."""

_PATTERNS: Final = AFFIX | {Op.LIKE, Op.EQ, Op.IN}
"""Operators that make patterns of texts."""


class TextTests:
    """The text tests of a universe by the attribute and kind of text that they are about."""

    def __init__(self, universe: Universe) -> None:
        self.first_slot = len(universe.names)
        of_column: dict[tuple[str, Any], dict[int, TextTest]] = {}
        for slot, (name, test) in enumerate(universe.tests, self.first_slot):
            type_ = pa.utf8() if isinstance(test.operand, str | tuple) else pa.binary()
            of_column.setdefault((name, type_), {})[slot] = test
        self._columns = {column: ColumnTests(tests) for column, tests in of_column.items()}

    def code(self, events: pa.RecordBatch, codes: Codes, kernels: Kernels | None) -> None:
        """Fill in the slots of all tests."""
        codes[self.first_slot :] = 0
        for (name, type_), tests in self._columns.items():
            place = events.schema.get_field_index(name)
            if place < 0 or events.schema.field(place).type != type_:
                continue
            column = events.column(place)
            if len(column) == 1:
                text = column[0].as_py()
                if text is not None:
                    tests.code_one(text, codes, kernels)
                continue
            encoded = column.dictionary_encode()
            rows = np.array(encoded.indices.fill_null(-1), np.int32)
            tests.code(encoded.dictionary, rows, codes, kernels)

    def code_event(self, event: Mapping[str, Any], codes: Codes, kernels: Kernels | None) -> None:
        """The same for one event given as a mapping."""
        codes[self.first_slot :] = 0
        for (name, type_), tests in self._columns.items():
            text = event.get(name)
            if text is None:
                continue
            text = attribute(name, text)
            if isinstance(text, str if type_ == pa.utf8() else bytes):
                tests.code_one(text, codes, kernels)

    @property
    def scans(self) -> dict[int, tuple[str, TextTest]]:
        """The tests that may read each text of a batch for themselves, by slot."""
        return {
            slot: (name, test)
            for (name, _), tests in self._columns.items()
            for slot, test in tests.tests.items()
            if scans(test)
        }


class ColumnTests:
    """Tests of one attribute and kind of text, by slot."""

    def __init__(self, tests: Mapping[int, TextTest]) -> None:
        self.tests = tests
        self._others = {slot: test for slot, test in tests.items() if test.op not in _PATTERNS}
        self._made: tuple[_Patterns, _Patterns] | None = None

    def _patterns(self, kernels: Kernels) -> tuple[_Patterns, _Patterns]:
        """The patterns of texts as they are, and of texts folded."""
        if self._made is None:
            sorts: tuple[dict[int, TextTest], dict[int, TextTest]] = ({}, {})
            for slot, test in self.tests.items():
                if slot not in self._others:
                    sorts[test.ignore_case][slot] = test
            self._made = _Patterns(sorts[False], kernels), _Patterns(sorts[True], kernels)
        return self._made

    @cached_property
    def _by_anchor(self) -> tuple[dict[int, dict[Any, list[int]]], list[int], list[int]]:
        """The tests by the length of their anchors and these, those without one, and those that are
        negated.
        """
        anchored: dict[int, dict[Any, list[int]]] = {}
        free = []
        for slot, test in self.tests.items():
            longest = _longest(test)
            if longest is None:
                free.append(slot)
            else:
                anchor = longest.text[:MAX_ANCHOR]
                anchored.setdefault(len(anchor), {}).setdefault(anchor, []).append(slot)
        return anchored, free, [slot for slot, test in self.tests.items() if test.negated]

    def _in_question(self, listed: Sequence[Any]) -> dict[int, Sequence[int]]:
        """For each test that a text may pass, or fail if it is negated, which texts."""
        anchored, free, _ = self._by_anchor
        slots_of: dict[int, dict[int, None]] = {}
        for place, text in enumerate(listed):
            spellings = {text, fold(text)} if isinstance(text, str) else {text}
            for spelling in spellings:
                for length, anchors in anchored.items():
                    for piece in _pieces(spelling, length, anchors):
                        for slot in anchors[piece]:
                            slots_of.setdefault(slot, {})[place] = None
        every: dict[int, Sequence[int]] = dict.fromkeys(free, range(len(listed)))
        return every | {slot: list(places) for slot, places in slots_of.items()}

    def code(
        self, texts: Any, rows: npt.NDArray[np.int32], codes: Codes, kernels: Kernels | None
    ) -> int:
        """Fill in their slots: row r has the text at `rows[r]`, none if that is -1. Returns how
        many pairs of a text and a test were tried.
        """
        if kernels is None:
            return self._code_by_lookup(texts, rows, codes)
        plain, folded = self._patterns(kernels)
        tried = 0
        if plain.count:
            tried += plain.code(kernels, texts, rows, codes)
        if folded.count:
            changed = pa.array(map(fold, texts.to_pylist()), pa.utf8())
            tried += folded.code(kernels, changed, rows, codes)
        for slot, test in self._others.items():
            codes[slot] = np.append(_passed(test, texts), False)[rows]
        return tried + len(self._others) * len(texts)

    def code_one(self, text: Any, codes: Codes, kernels: Kernels | None) -> None:
        """The same for the text of one event."""
        if kernels is None:
            self._code_by_lookup(pa.array([text]), np.zeros(1, np.int32), codes)
            return
        plain, folded = self._patterns(kernels)
        if plain.count:
            plain.code_one(kernels, text, codes)
        if folded.count:
            folded.code_one(kernels, fold(text), codes)
        for slot, test in self._others.items():
            codes[slot] = test.holds(text)

    def _code_by_lookup(self, texts: Any, rows: npt.NDArray[np.int32], codes: Codes) -> int:
        """The same without the kernel."""
        tried = 0
        codes[self._by_anchor[2]] = rows >= 0
        for slot, places in self._in_question(texts.to_pylist()).items():
            test = self.tests[slot]
            mask = np.full(len(texts) + 1, test.negated)
            mask[places] = _passed(test, texts.take(pa.array(places, pa.int64())))
            mask[-1] = False
            codes[slot] = mask[rows]
            tried += len(places)
        return tried


class _Patterns:
    """Tests as the kernel takes them."""

    def __init__(self, tests: Mapping[int, TextTest], kernels: Kernels) -> None:
        programs: list[int] = []
        starts = [0]
        slots: list[int] = []
        negated: list[bool] = []
        places: dict[tuple[int, int], int] = {}
        anchored: dict[int, list[int]] = {}
        somewhere: dict[bytes, list[int]] = {}
        fits_first: list[bool] = []
        free = []
        for slot, test in tests.items():
            positive = _positive(test)
            for fragment, parts in _spellings(positive):
                number = len(slots)
                slots.append(slot)
                negated.append(test.negated)
                programs += _program(parts)
                starts.append(len(programs))
                fits_first.append(_fits_first(parts))
                if fragment is None:
                    free.append(number)
                elif fragment.at_start or fragment.at_end:
                    where, text = _anchor(fragment)
                    place = places.setdefault((where, len(text)), len(places))
                    anchored.setdefault(_key(place, text), []).append(number)
                else:
                    somewhere.setdefault(_bytes(fragment.text), []).append(number)
        self.count = len(slots)
        keys, entries = _hashed(anchored)
        members = [*anchored.values(), *somewhere.values()]
        ends = np.cumsum([0, *map(len, somewhere)])
        automaton = kernels.automaton_of(np.frombuffer(b"".join(somewhere), np.uint8), ends)
        self._arrays: tuple[npt.NDArray[Any], ...] = (
            *(np.array(listed, np.int32) for listed in (programs, starts, slots, negated)),
            np.array(list(places), np.int32).reshape(-1, 2),
            keys,
            entries,
            np.cumsum([0, *map(len, members)]).astype(np.int32),
            np.array([number for member in members for number in member], np.int32),
            np.array(free, np.int32),
            np.array([len(anchored)], np.int32),
            np.array([*map(len, somewhere)], np.int32),
            np.array(fits_first, np.bool_),
            *automaton,
        )
        self._addresses = addresses_of(self._arrays)

    def code(self, kernels: Kernels, texts: Any, rows: npt.NDArray[np.int32], codes: Codes) -> int:
        """`ColumnTests.code` for these patterns."""
        if not len(texts):
            return 0
        _, offsets, data = texts.buffers()
        addresses = (
            (offsets.address + 4 * texts.offset, len(texts) + 1),
            (0, 0) if data is None else (data.address, data.size),
        )
        return kernels.code_texts(self._addresses, np.array(addresses, np.int64), rows, codes)

    def code_one(self, kernels: Kernels, text: str | bytes, codes: Codes) -> None:
        """`ColumnTests.code_one` for these patterns."""
        data = pa.py_buffer(text.encode() if isinstance(text, str) else text)
        kernels.code_text(self._addresses, data.address, data.size, codes)


def _program(parts: Sequence[Any]) -> list[int]:
    """A pattern given as `like_parts` gives it, as `TextPatterns` has it."""
    runs: list[list[int]] = [[]]
    for part in parts:
        if part is None:
            runs[-1].append(ANY_CHARACTER)
        elif part:
            runs[-1] += _bytes(part)
        else:
            runs.append([])
    opens = OPEN_START * (len(runs) > 1 and not runs[0])
    opens |= OPEN_END * (len(runs) > 1 and not runs[-1])
    kept = [run for run in runs if run] or ([[]] if not opens else [])
    if not opens & OPEN_END:
        kept.insert(0, kept.pop())
    return [opens, *(number for run in kept for number in (len(run), *run))]


def _pieces(text: Any, length: int, anchors: Mapping[Any, object]) -> Iterable[Any]:
    """The anchors of one length that a text has."""
    if len(anchors) <= FEW_ANCHORS:
        return [anchor for anchor in anchors if anchor in text]
    pieces = (text[at : at + length] for at in range(len(text) - length + 1))
    return {piece for piece in pieces if piece in anchors}


def _spellings(test: TextTest) -> Iterator[tuple[Fragment | None, Sequence[Any]]]:
    """The patterns one of which a text must fit to pass a positive test, as `like_parts` gives
    them, each with its anchor if it has one.
    """
    operand: Any = test.operand
    if test.op is Op.IN:
        for item in operand:
            yield (Fragment(item, True, True), [item]) if item else (None, [])
    else:
        affixed = {
            Op.PREFIX: (operand, ""),
            Op.SUFFIX: ("", operand),
            Op.CONTAINS: ("", operand, ""),
        }
        parts = (
            like_parts(operand)
            if test.op is Op.LIKE
            else affixed.get(test.op, (operand,) if operand else ())
        )
        literal = _between(parts)[0] if _fits_first(parts) else None
        yield _longest(test) if literal is None else Fragment(literal), parts


def _anchor(fragment: Fragment) -> tuple[int, bytes]:
    """The end at which the anchor of a pattern is, and its bytes."""
    text = _bytes(fragment.text)
    return (AT_START, text[:MAX_ANCHOR]) if fragment.at_start else (AT_END, text[-MAX_ANCHOR:])


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _key(place: int, text: bytes) -> int:
    """The key of an anchor by the number of its place, as the kernel works it out."""
    key = place + 1
    for byte in text:
        key = (key + byte) * HASH_FACTOR & _WORD
    return key | 1


def _hashed(anchors: Iterable[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """The hash table of the keys of anchors: the keys, and which one each is."""
    listed = list(anchors)
    size = 1 << (2 * len(listed)).bit_length()
    keys, entries = np.zeros(size, np.uint64), np.zeros(size, np.int32)
    for entry, key in enumerate(listed):
        slot = (key >> 32) & (size - 1)
        while keys[slot]:
            slot = (slot + 1) & (size - 1)
        keys[slot], entries[slot] = key, entry
    return keys, entries


_WORD: Final = (1 << 64) - 1


def scans(test: TextTest) -> bool:
    """Check whether a test may read any text to its end for itself alone: no literal finds texts
    that may pass (or fail, if it is negated), or there is more to find beside the literal.

    >>> [scans(TextTest(Op.LIKE, each)) for each in ("%_%", "a%b", "%a_%", "%a%b%", "%a_b%")]
    [True, False, False, True, True]
    """
    if _longest(test) is None:
        return True
    if test.op is not Op.LIKE:
        return False
    parts = like_parts(str(test.operand))
    return any(_between(parts)) and not _fits_first(parts)


def _between(parts: Sequence[Any]) -> Sequence[Any]:
    """The parts of a pattern, as `like_parts` gives it, that are at neither end of a text."""
    ends = [place for place, part in enumerate(parts) if part == ""]  # None is "_"
    return parts[ends[0] + 1 : ends[-1]] if ends else ()


def _fits_first(parts: Sequence[Any]) -> bool:
    """Check whether a pattern fits at the first place of its one literal that may be anywhere, or
    nowhere: nothing is before it, and only a number of characters and an end are behind it.
    """
    between = _between(parts)
    return bool(between) and parts[0] == "" and bool(between[0]) and not any(between[1:])


def _longest(test: TextTest) -> Fragment | None:
    """The longest literal that every text has which passes the test, negation apart."""
    literals = fragments(_positive(test))
    longest = max(literals, key=lambda literal: len(literal.text), default=None)
    return longest if longest is not None and longest.text else None


def _positive(test: TextTest) -> TextTest:
    return test.inverted() if test.negated else test


def _passed(test: TextTest, texts: Any) -> Mask:
    """Try a test on each of some texts."""
    return np.array([test.holds(text) for text in texts.to_pylist()], np.bool_)
