from __future__ import annotations

import errno
import logging
import os
import random
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from palio.errors import PalioError, UnsafeFile
from palio.server.journal.journal import Journal
from palio.server.journal.watermark import FILE, Note, Span, Watermark
from palio.server.limits import MAX_MARKED_NAMES, WATERMARK_BYTES
from tests.server.helpers import flip


def note(commits: int, *publishers: str) -> Note:
    spans = [Span(each, commits, commits, 10 * commits, 10 * commits + 9) for each in publishers]
    return Note("b1", 1, commits, commits, time_us=7_000 + commits, spans=spans)


def noted(path: Path, *notes: Note) -> None:
    mark = Watermark(path)
    for each in notes:
        mark.note(each)
    mark.close()


def test_the_newest_note_is_what_the_journal_was(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    assert Watermark(path).newest is None
    first, second = note(1), note(2)
    first.began, second.began, second.ended = ["a", "b"], ["c"], ["a"]
    noted(path, first, second)
    mark = Watermark(path)
    assert mark.newest == second
    assert list(mark.names) == ["b", "c"]
    mark.close()
    mark.close()


def test_spans_of_a_publisher_are_joined(tmp_path: Path) -> None:
    noted(tmp_path / "mark", *(note(each, "p", "q") for each in range(1, 5)), note(5, "q"))
    mark = Watermark(tmp_path / "mark")
    assert mark.spans_after(2) == [Span("p", 3, 4, 30, 49), Span("q", 3, 5, 30, 59)]
    assert mark.spans_after(5) == []
    mark.close()


@pytest.mark.parametrize("torn", range(1, 40, 7))
def test_a_torn_note_costs_itself_alone(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "mark"
    noted(path, note(1), note(2))
    path.write_bytes(path.read_bytes()[:-torn])
    noted(path, note(3, "p"))
    mark = Watermark(path)
    assert mark.newest == note(3, "p")
    assert mark.spans_after(0) == [Span("p", 3, 3, 30, 39)]
    mark.close()


def test_notes_count_in_their_own_order(tmp_path: Path) -> None:
    """What was not synced may be on the disk in part, with holes."""
    path = tmp_path / "mark"
    noted(path, note(1), note(3))
    path.write_bytes(path.read_bytes() + bytes(100) + b"\n")
    mark = Watermark(path)
    assert mark.newest == note(3)
    mark.close()


def test_a_flipped_bit_never_makes_it_say_more(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    noted(path, note(1), note(2))
    size = path.stat().st_size
    sound = path.read_bytes()
    for place in range(size):
        path.write_bytes(sound)
        flip(path, place)
        mark = Watermark(path)
        assert mark.newest in (note(1), note(2))
        mark.close()


def test_a_mark_that_cannot_be_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mark").write_bytes(b"nothing of ours\n")
    mark = Watermark(tmp_path / "mark")
    assert mark.newest is None
    mark.close()
    (told,) = caplog.records
    assert told.levelno == logging.ERROR
    assert told.getMessage() == "watermark_unreadable"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mark").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFile):
        Watermark(tmp_path / "mark")


def test_a_mark_stays_small_and_keeps_the_names(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    mark = Watermark(path)
    begun = note(1)
    begun.began = ["alice/all"]
    mark.note(begun)
    publishers = [f"publisher {each:03}" for each in range(300)]
    largest, last = 0, 400
    for commits in range(2, last + 1):
        mark.note(note(commits, *publishers))
        largest = max(largest, path.stat().st_size)
    mark.close()
    assert WATERMARK_BYTES < largest < 2 * WATERMARK_BYTES
    mark = Watermark(path)
    assert mark.newest == note(last, *publishers)
    assert list(mark.names) == ["alice/all"]
    assert mark.spans_after(last - 10)[0] == Span("publisher 000", 391, 400, 3_910, 4_009)
    mark.close()


@pytest.mark.parametrize("names", [MAX_MARKED_NAMES - 1, MAX_MARKED_NAMES, MAX_MARKED_NAMES + 1])
def test_names_are_bounded(tmp_path: Path, names: int) -> None:
    begun = note(1)
    begun.began = [f"s{each}" for each in range(names)]
    noted(tmp_path / "mark", begun)
    mark = Watermark(tmp_path / "mark")
    assert len(mark.names) == min(names, MAX_MARKED_NAMES)
    mark.close()


def test_a_mark_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    mark = Watermark(path)
    mark.note(note(1))
    path.unlink()
    mark.sync()
    mark.note(note(2))
    mark.close()
    mark = Watermark(path)
    assert mark.newest == note(2)
    mark.close()


def test_a_full_disk_is_told_once_and_the_mark_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mark"
    mark = Watermark(path)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("palio.server.journal.watermark.os.write", full)
        mark.note(note(1))
        mark.note(note(2))
    mark.note(note(3))
    mark.close()
    (told,) = caplog.records
    assert told.getMessage() == "watermark_write_failed"
    mark = Watermark(path)
    assert mark.newest == note(3)
    mark.close()


def test_a_busy_mark_is_synced_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    synced: list[int] = []
    monkeypatch.setattr("palio.server.journal.watermark.time.monotonic", lambda: now[0])
    monkeypatch.setattr("palio.server.journal.watermark.os.fsync", synced.append)
    mark = Watermark(tmp_path / "mark")
    for commits in range(1, 101):
        now[0] += 0.05
        mark.note(note(commits))
    assert 4 <= len(synced) <= 5
    mark.close()


# --- a mark that says something else, under a checksum that is right ---

NASTY: Final[tuple[Any, ...]] = (
    *(0, -1, 2**31, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64, 2**70, -(2**70), None, True, 1.5),
    *("x", "", "\0", "x" * 300, "a/b", "../x", [], {}),
)


def twisted(draw: random.Random, value: Any) -> Any:
    """Something in a note, exchanged for what does not belong there."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(list(value))
        return value | {name: twisted(draw, value[name])}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        return [*value[:place], twisted(draw, value[place]), *value[place + 1 :]]
    return draw.choice(NASTY)


def written(path: Path, notes: list[Any]) -> None:
    """Notes with the checksums that they would have."""
    texts = [msgspec.json.encode(each) for each in notes]
    path.write_bytes(b"".join(b"\n%08x %b\n" % (zlib.crc32(text), text) for text in texts))


@pytest.mark.parametrize("name", ["epochs", "commits", "last_offset", "time_us"])
@pytest.mark.parametrize("value", [-1, 2**62 + 1, 2**63, 2**70])
def test_a_note_beyond_all_counting_is_none(tmp_path: Path, name: str, value: int) -> None:
    sound = {"name": "b1", "epochs": 1, "commits": 1, "last_offset": 1}
    written(tmp_path / FILE, [sound, sound | {"commits": 2} | {name: value}])
    mark = Watermark(tmp_path / FILE)
    assert mark.newest == Note("b1", 1, 1, 1)
    mark.close()


def test_whatever_the_mark_says_the_broker_starts_or_says_why_not(tmp_path: Path) -> None:
    kept = 0
    for seed in range(60):
        draw = random.Random(seed)
        home = tmp_path / str(seed)
        home.mkdir()
        notes: list[Any] = [
            {
                "name": "b1",
                "epochs": 2,
                "commits": 10 + each,
                "last_offset": 5 + each,
                "time_us": 1_700_000_000_000_000,
                "spans": [["p", 5 + each, 5 + each, 1, 3]],
                "began": ["ann/d"],
                "ended": [],
            }
            for each in range(3)
        ]
        written(home / FILE, [twisted(draw, each) for each in notes])
        try:
            journal = Journal(home, "b1")
        except PalioError:
            continue
        list(journal.load().operations)
        journal.start(lambda _: None, lambda *_: None, lambda: None)
        journal.close()
        kept += 1
    assert kept > 30
