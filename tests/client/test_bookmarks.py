"""A durable pattern finds what one that never stopped finds, wherever it is stopped."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.client import bookmarks
from palio.client.bookmarks import HELD_BYTES, Bookmark, PatternReceipts, digest
from palio.client.events import Event
from palio.client.sequences import Sequences
from palio.errors import InvalidInput
from palio.language.parsing import parse_pattern
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.protocol.limits import MAX_BOOKMARK_BYTES
from tests import strategies as our
from tests.client.helpers import NOON
from tests.model.test_patterns import SHAPES

TWO: Final = parse_pattern("n = 1 THEN n = 2")
WINDOW_S: Final = 2.0

Parts = list[tuple[str, int]]


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def row(second: float, n: int, seq: int, **more: Any) -> dict[str, Any]:
    return {"n": n, "$seq": seq, "$time": at(second), **more}


@dataclass
class Line:
    """What a broker keeps for one durable subscription: as its custody does."""

    entries: list[tuple[int, str, list[dict[str, Any]]]] = field(default_factory=list)
    bookmark: bytes = b""
    said: list[tuple[int, int, bytes]] = field(default_factory=list)

    def say(self, entry: int, held: int, bookmark: bytes) -> None:
        self.said.append((entry, held, bookmark))

    def write(self, count: int) -> None:
        """So many acknowledgements come to the disk; the rest is lost."""
        for entry, _, bookmark in self.said[:count]:
            self.entries = [each for each in self.entries if each[0] > entry]
            self.bookmark = bookmark or self.bookmark
        self.said.clear()


class Reader:
    """A client that hears a durable pattern, in one incarnation of it."""

    def __init__(self, line: Line, pattern: Pattern, window_s: float = WINDOW_S) -> None:
        self.line = line
        self.sequences = self._begun(pattern, window_s)
        self.receipts = PatternReceipts(self.sequences, 99, line.say)
        if line.bookmark:
            self.sequences = self._begun(pattern, window_s)
            assert self.receipts.resume(Bookmark.read(line.bookmark), self.sequences)
        self.waiting: deque[Event] = deque()

    @staticmethod
    def _begun(pattern: Pattern, window_s: float) -> Sequences:
        return Sequences(pattern, {}, window_s, is_durable=True)

    def take_in(self, entry: int, publisher: str, rows: list[dict[str, Any]], now: float) -> None:
        fresh = self.receipts.receive(rows, publisher, entry, 100)
        found, late = self.sequences.push(fresh, publisher, now)
        assert late is None, "nothing is late merely because it came again"
        self._note(found)

    def advance(self, now: float) -> None:
        while self.sequences.wake is not None and self.sequences.wake <= now:
            self._note(self.sequences.advance(self.sequences.wake))

    def _note(self, found: list[Event]) -> None:
        self.receipts.expect(found)
        self.waiting += found
        self.receipts.report()

    def deal(self) -> Parts:
        """Deal with the next occurrence, and say so."""
        event = self.waiting.popleft()
        assert event.receipt is not None
        event.receipt.give()
        return parts(event)


def parts(event: Event) -> Parts:
    return [(each.publisher, each.seq) for each in event.parts]


def published(rng: random.Random, values: Sequence[int]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Publications of several publishers, some of more events than one, in order."""
    seqs = dict.fromkeys("pqr", 0)
    found = []
    for second, n in enumerate(values):
        publisher = rng.choice("pqr")
        rows: list[dict[str, Any]] = []
        for _ in range(rng.choice((1, 1, 3))):
            seqs[publisher] += 1
            rows.append(row(second, (n + len(rows)) % 4, seqs[publisher]))
        found.append((publisher, rows))
    return found


def expected(pattern: Pattern, whole: list[tuple[str, list[dict[str, Any]]]]) -> list[Parts]:
    """What one monitor finds that never stops."""
    monitor = Monitor(pattern)
    return [
        [(part.publisher, part.seq) for part in one]
        for publisher, rows in whole
        for each in rows
        for one in monitor.push([Occurrence(each["$time"], publisher, each["$seq"], each)])
    ]


@our.examples(300)
@given(SHAPES, st.lists(st.integers(0, 3), min_size=10, max_size=40), our.SEEDS)
def test_it_finds_what_one_that_never_stopped_finds(
    shape: Pattern, values: list[int], seed: int
) -> None:
    """Client and broker are stopped at any moment, and acknowledgements get lost on their way."""
    rng = random.Random(seed)
    whole = published(rng, values)
    arrivals = sorted((at / 2 + rng.uniform(0, WINDOW_S), at) for at in range(len(whole)))
    line, now, heard = Line(), 0.0, list[Parts]()
    reader = Reader(line, shape)
    for entry, (now, which) in enumerate(arrivals, start=1):
        reader.advance(now)
        publisher, rows = whole[which]
        line.entries.append((entry, publisher, rows))
        reader.take_in(entry, publisher, rows, now)
        while reader.waiting and rng.random() < 0.6:
            heard.append(reader.deal())
        chance = rng.random()
        if chance < 0.15:  # the client is killed, with some of what it said under way
            lost = rng.random() < 0.5
            line.write(rng.randint(0, len(line.said)) if lost else len(line.said))
            reader = Reader(line, shape)
        elif chance < 0.3:  # the broker is killed, and the client goes on
            line.write(rng.randint(0, len(line.said)))
            reader.receipts.renew()
        if chance < 0.3:
            for again in list(line.entries):
                reader.take_in(*again, now)
    reader.advance(now + 10 * WINDOW_S)
    while reader.waiting:
        heard.append(reader.deal())
    due = expected(shape, whole)
    assert [each for each in due if each not in heard] == [], "each is heard"
    assert [each for each in heard if each not in due] == [], "and nothing else"
    assert list(dict.fromkeys(map(tuple, heard))) == list(map(tuple, due)), "in order"
    line.write(len(line.said))
    assert Reader(line, shape).sequences.after == reader.sequences.after or not due


@our.examples(100)
@given(SHAPES, st.lists(st.integers(0, 3), max_size=25), our.SEEDS)
def test_what_was_acknowledged_on_the_disk_is_never_heard_again(
    shape: Pattern, values: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    line, heard = Line(), list[Parts]()
    whole = published(rng, values)
    for entry, (publisher, rows) in enumerate(whole, start=1):
        line.entries.append((entry, publisher, rows))
        if rng.random() < 0.5:
            reader = Reader(line, shape)
            for each in list(line.entries):
                reader.take_in(*each, 0.0)
            reader.advance(10 * WINDOW_S)
            while reader.waiting and rng.random() < 0.8:
                heard.append(reader.deal())
            line.write(len(line.said))
    assert heard == expected(shape, whole)[: len(heard)]


def test_an_event_held_back_keeps_its_entry_and_those_after_it() -> None:
    line = Line()
    reader = Reader(line, TWO)
    reader.take_in(1, "p", [row(9, 1, 1)], 0.0)  # of a broker whose clock is ahead
    reader.take_in(2, "q", [row(1, 1, 1)], 0.0)
    reader.take_in(3, "q", [row(2, 2, 2)], 0.0)
    reader.receipts.report(was_handled=True)
    assert line.said == [(0, 3, b"")]
    reader.advance(WINDOW_S)
    reader.deal()
    assert line.said[-1][0] == 3


def test_what_no_step_wants_is_acknowledged_at_once() -> None:
    line = Line()
    reader = Reader(line, TWO)
    reader.take_in(1, "p", [], 0.0)
    assert line.said == [(1, 1, b"")]


@pytest.mark.parametrize("is_full", [False, True])
def test_the_broker_is_told_what_is_held_unless_too_much_waits(*, is_full: bool) -> None:
    line = Line()
    sequences = Sequences(TWO, {}, WINDOW_S, is_durable=True)
    receipts = PatternReceipts(sequences, 2, line.say)
    receipts.expect([Event({}, "p", 0, at(0)) for _ in range(1 + is_full)])
    for entry, size in ((1, HELD_BYTES - 1), (2, 1)):
        sequences.push(receipts.receive([row(entry, 1, entry)], "p", entry, size), "p", 0.0)
        receipts.report()
        assert line.said == ([(0, 2, b"")] if entry == 2 and not is_full else [])
    receipts.report(was_handled=True)
    assert line.said[-1] == (0, 0 if is_full else 2, b"")


@pytest.mark.parametrize("over", [0, 1])
def test_a_bookmark_that_would_be_too_long_stays_where_it_was(
    monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    line = Line()
    reader = Reader(line, TWO, 0.0)
    first = row(1, 1, 1, text="x" * 100)
    taken = (Occurrence(at(1), "p", 1, first),)
    length = len(Bookmark(digest(TWO), (at(1), "p", 1), taken, 0.0).packed())
    monkeypatch.setattr(bookmarks, "MAX_BOOKMARK_BYTES", length - over)
    assert length < MAX_BOOKMARK_BYTES
    reader.take_in(1, "p", [first], 0.0)
    assert [entry for entry, _, _ in line.said] == ([] if over else [1])
    reader.take_in(2, "p", [row(2, 2, 2)], 0.0)
    reader.deal()
    assert line.said[-1][0] == 2


def test_another_pattern_under_the_name_starts_over_after_what_took_part() -> None:
    line = Line(bookmark=Bookmark(digest(TWO), (at(5), "p", 5), (), 0.0).packed())
    taken = (Occurrence(at(5), "p", 5, row(5, 1, 5)),)
    line.bookmark = Bookmark(digest(TWO), (at(5), "p", 5), taken, 0.0).packed()
    other = parse_pattern("n = 1 THEN n = 2 WITHIN 1h")
    for pattern, found in ((TWO, 1), (other, 0)):
        reader = Reader(line, pattern, 0.0)
        reader.take_in(7, "p", [row(4, 1, 4)], 0.0)
        reader.take_in(8, "p", [row(6, 2, 6)], 0.0)
        assert len(reader.waiting) == found


def test_a_bookmark_that_is_behind_is_left_alone_and_one_ahead_is_gone_on_from() -> None:
    """Whoever has left one that is ahead of all that was said here has heard what waits here."""
    reader = Reader(Line(), TWO, 0.0)
    reader.take_in(1, "p", [row(5, 1, 5)], 0.0)
    reader.take_in(2, "p", [row(7, 2, 7)], 0.0)
    assert len(reader.waiting) == 1
    for second, is_ahead in ((4, False), (5, False), (6, True)):
        mark = Bookmark(digest(TWO), (at(second), "p", second), (), 0.0)
        assert reader.receipts.resume(mark, Sequences(TWO, {}, 0.0)) == is_ahead


def test_what_was_held_here_comes_again_after_somebody_else_had_the_subscription() -> None:
    line = Line()
    reader = Reader(line, TWO)
    reader.take_in(1, "p", [row(1, 3, 1)], 0.0)
    reader.advance(WINDOW_S)
    reader.take_in(2, "p", [row(5, 1, 2)], WINDOW_S)
    reader.receipts.renew()
    sequences = Sequences(TWO, {}, WINDOW_S, is_durable=True)
    assert reader.receipts.resume(Bookmark(digest(TWO), (at(3), "q", 1), (), 1.0), sequences)
    reader.sequences = sequences
    reader.take_in(2, "p", [row(5, 1, 2)], WINDOW_S)
    reader.take_in(3, "p", [row(6, 2, 3)], WINDOW_S)
    reader.advance(10 * WINDOW_S)
    assert [parts(each) for each in reader.waiting] == [[("p", 2), ("p", 3)]]


def test_the_window_that_was_found_out_is_in_force_again() -> None:
    mark = Bookmark(digest(TWO), (at(5), "p", 5), (), 7.5)
    for given_s, found_s in ((None, 7.5), (3.0, 3.0)):
        sequences = Sequences(TWO, {}, given_s, is_durable=True)
        PatternReceipts(Sequences(TWO, {}, given_s), 99, Line().say).resume(mark, sequences)
        assert sequences.reorder_s == found_s


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x90", b"\xff" * 9, b"\x94\xc4\x00\x93"])
def test_what_is_no_bookmark_is_told(packed: bytes) -> None:
    with pytest.raises(InvalidInput, match="no bookmark"):
        Bookmark.read(packed)


def test_values_of_all_kinds_are_kept() -> None:
    event = {"b": True, "i": -(2**63), "f": 0.5, "s": "é", "y": b"\0", "t": at(3)}
    taken = (Occurrence(at(1), "p", 1, {"$seq": 1, "$time": at(1), **event}),)
    mark = Bookmark(digest(palio.parse("b = true THEN n = 1")), (at(2), "q", 1), taken, 1.0)  # type: ignore[arg-type]  # a pattern
    assert Bookmark.read(mark.packed()) == mark
