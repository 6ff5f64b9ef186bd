"""Text tests over the distinct texts of a batch: what each lets through, without trying every pair.

Suffixes, LIKE patterns and the like are no intervals; each has a slot of codes 0 (fails) and 1
(passes), which is filled in for each batch. A few tests are handed to Arrow one by one. Many are
found through their *anchors*: a literal that every text which passes must have at its start, at its
end or somewhere. Anchors of one length stand in a table, so that a text is looked up a few dozen
times however many tests there are, and only tests whose anchor it has are tried on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.cuts import Universe
from palio.model.events import attribute
from palio.model.operators import AFFIX, Op, fold
from palio.model.texts import Fragment, TextTest, fragments

__all__ = ["TextTests", "has_anchor"]

Mask: TypeAlias = npt.NDArray[np.bool_]

MANY_TEXTS: Final = 32
"""From so many texts on it pays to hand a test to Arrow as a whole."""

FEW_TESTS: Final = 8
"""So many tests are each handed to Arrow; of more, the texts are looked up."""

MAX_ANCHOR: Final = 16
"""Characters of an anchor, which bounds the number of tables; what is longer is tested as well."""

_BY_COLUMN: Final = {Op.SUFFIX: "ends_with", Op.CONTAINS: "match_substring", Op.LIKE: "match_like"}
"""Functions of `pyarrow.compute`: importing it takes 60 ms, which small programs save."""


class TextTests:
    """The text tests of a universe by the attribute and kind of text that they are about."""

    def __init__(self, universe: Universe) -> None:
        self.first_slot = len(universe.names)
        of_column: dict[tuple[str, Any], list[tuple[int, TextTest]]] = {}
        for slot, (name, test) in enumerate(universe.tests, self.first_slot):
            type_ = pa.utf8() if isinstance(test.operand, str | tuple) else pa.binary()
            of_column.setdefault((name, type_), []).append((slot, test))
        self._columns = {
            column: ([slot for slot, _ in found], ColumnTests([test for _, test in found]))
            for column, found in of_column.items()
        }

    def code(self, events: pa.RecordBatch, codes: npt.NDArray[np.int32]) -> None:
        """Fill in the slots of all tests."""
        codes[self.first_slot :] = 0
        for (name, type_), (slots, tests) in self._columns.items():
            place = events.schema.get_field_index(name)
            if place < 0 or events.schema.field(place).type != type_:
                continue
            encoded = events.column(place).dictionary_encode()
            indices = encoded.indices.fill_null(len(encoded.dictionary))
            rows = indices.to_numpy(zero_copy_only=False)
            for number, mask in tests.passing(encoded.dictionary):
                codes[slots[number]] = np.append(mask, False)[rows]

    def code_event(self, event: Mapping[str, Any], codes: npt.NDArray[np.int32]) -> None:
        """The same for one event given as a mapping."""
        codes[self.first_slot :] = 0
        for (name, type_), (slots, tests) in self._columns.items():
            text = event.get(name)
            if text is None:
                continue
            text = attribute(name, text)
            if isinstance(text, str if type_ == pa.utf8() else bytes):
                for number, mask in tests.passing(pa.array([text], type_)):
                    codes[slots[number], 0] = mask[0]

    @property
    def scans(self) -> dict[int, tuple[str, TextTest]]:
        """The tests that have no anchor, so that each text of a batch is tried on them, by slot."""
        return {
            slots[number]: (name, tests.tests[number])
            for (name, _), (slots, tests) in self._columns.items()
            for number in tests.free
        }


class _Place(NamedTuple):
    """Where anchors stand: at the start, at the end, or (neither) anywhere."""

    at_start: bool
    at_end: bool
    folded: bool
    length: int


class ColumnTests:
    """Tests of one attribute and kind of text, with their anchors."""

    def __init__(self, tests: Sequence[TextTest]) -> None:
        self.tests = tests
        self.free: list[int] = []
        self._exact: set[int] = set()
        self._tables: dict[_Place, dict[Any, list[int]]] = {}
        for number, test in enumerate(tests):
            longest = _longest(test)
            if longest is None:
                self.free.append(number)
                continue
            piece = longest.text[:MAX_ANCHOR]
            if longest.at_end and not longest.at_start:
                piece = longest.text[-MAX_ANCHOR:]
            at_end = longest.at_end and not longest.at_start
            place = _Place(longest.at_start, at_end, longest.folded, len(piece))
            self._tables.setdefault(place, {}).setdefault(piece, []).append(number)
            if test.op in AFFIX and len(piece) == len(longest.text):
                self._exact.add(number)
        self._folds = any(place.folded for place in self._tables)

    def passing(self, texts: Any) -> Iterator[tuple[int, Mask]]:
        """The number of each test that any of the distinct texts passes, and which ones pass."""
        if len(self.tests) <= FEW_TESTS:
            every = np.arange(len(texts))
            for number in range(len(self.tests)):
                yield number, self._mask(number, texts, every, exact=False)
            return
        candidates: dict[int, Any] = self._candidates(texts.to_pylist())
        candidates |= dict.fromkeys(self.free, range(len(texts)))
        for number, test in enumerate(self.tests):
            if number in candidates or test.negated:
                chosen = np.asarray(candidates.get(number, ()), np.int64)
                yield number, self._mask(number, texts, chosen, exact=number in self._exact)

    def _candidates(self, texts: Sequence[Any]) -> dict[int, list[int]]:
        """For each test with an anchor that some texts have, which ones."""
        found: dict[int, list[int]] = {}
        for at, text in enumerate(texts):
            folded = fold(text) if self._folds else text
            for place, table in self._tables.items():
                for piece in _pieces(folded if place.folded else text, place, table):
                    for number in table.get(piece, ()):
                        found.setdefault(number, []).append(at)
        return found

    def _mask(self, number: int, texts: Any, chosen: npt.NDArray[np.int64], *, exact: bool) -> Mask:
        """Which texts pass a test that only the chosen ones may pass (or may fail, if negated)."""
        positive = _positive(self.tests[number])
        mask = np.zeros(len(texts), np.bool_)
        if exact:
            mask[chosen] = True
        elif len(chosen):
            taken = texts if len(chosen) == len(texts) else texts.take(pa.array(chosen))
            mask[chosen] = _passed(positive, taken)
        return ~mask if self.tests[number].negated else mask


def has_anchor(test: TextTest) -> bool:
    """Whether texts that may pass (or fail, if it is negated) are found by a literal."""
    return _longest(test) is not None


def _longest(test: TextTest) -> Fragment | None:
    """The longest literal that every text has which passes the test, negation apart."""
    found = fragments(_positive(test))
    longest = max(found, key=lambda each: len(each.text), default=None)
    return longest if longest is not None and longest.text else None


def _positive(test: TextTest) -> TextTest:
    return test.inverted() if test.negated else test


def _pieces(text: Any, place: _Place, table: dict[Any, list[int]]) -> Iterator[Any]:
    """The pieces of a text that may be in a table of anchors, each once."""
    if place.at_start:
        yield text[: place.length]
    elif place.at_end:
        yield text[-place.length :]
    elif 4 * len(table) < len(text):  # looking for each is quicker than cutting the text up
        yield from (piece for piece in table if piece in text)
    else:
        length = place.length
        yield from {text[at : at + length] for at in range(len(text) - length + 1)}


def _passed(test: TextTest, texts: Any) -> Mask:
    """Which of some texts pass a positive test, tried on each."""
    if len(texts) >= MANY_TEXTS and test.op in _BY_COLUMN and not test.ignore_case:
        import pyarrow.compute as pc

        passed = getattr(pc, _BY_COLUMN[test.op])(texts, pattern=test.operand)
        return np.asarray(passed.to_numpy(zero_copy_only=False), np.bool_)
    return np.array([test.holds(text) for text in texts.to_pylist()], np.bool_)
