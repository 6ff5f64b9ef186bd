"""What is read of the journal, and what is at hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from palio.errors import JournalDamaged
from palio.node import parcel_cache
from palio.node.effects import Entry
from palio.node.memory import MemoryStore
from palio.node.operations import Put
from palio.node.parcel_cache import ParcelCache
from tests.node.events import parcel


class Read(MemoryStore):
    """A store that notes what is read, and cannot read one entry."""

    def __init__(self, entries: int, bad: int = -1) -> None:
        super().__init__()
        self.bad = bad
        self.read: list[list[int]] = []
        self.write([Put(each, parcel({"x": each}), 0, ()) for each in range(entries)])

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        self.read.append(list(numbers))
        if self.bad in numbers:
            raise JournalDamaged(f"entry {self.bad}")
        return super().entries(numbers)


def test_what_comes_next_is_read_with_what_is_asked_for() -> None:
    store = Read(4)
    cache = ParcelCache(store)
    found = [cache.get(each, range(each + 1, 4)) for each in range(4)]
    assert [each.rows[0]["x"] for each in found if each is not None] == [0, 1, 2, 3]
    assert store.read == [[0, 1, 2, 3]]


def test_of_several_that_are_read_only_the_damaged_one_is_missing() -> None:
    store = Read(3, bad=1)
    cache = ParcelCache(store)
    assert [cache.get(each, range(each + 1, 3)) is None for each in range(3)] == [
        False,
        True,
        False,
    ]


def test_what_is_not_on_the_disk_is_kept_until_it_is() -> None:
    store = Read(0)
    cache = ParcelCache(store)
    mine = parcel({"x": 7})
    cache.hold(9, mine)
    assert cache.get(9, ()) is mine
    cache.written(9)
    assert cache.get(9, ()) is mine
    cache.drop(9)
    assert cache.get(9, ()) is None
    assert store.read == [[9]]


def test_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Read(3)
    one = parcel({"x": 0}).nbytes
    monkeypatch.setattr(parcel_cache, "CACHE_BYTES", 2 * one)
    cache = ParcelCache(store)
    for each in (0, 1, 2, 2, 1, 0):
        assert cache.get(each, ()) is not None
    assert store.read == [[0], [1], [2], [0]]


def test_an_entry_that_was_read_ahead_before_its_write_was_reported_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = parcel({"x": 0})
    monkeypatch.setattr(parcel_cache, "CACHE_BYTES", 2 * one.nbytes)
    store = Read(3)
    cache = ParcelCache(store)
    cache.hold(1, one)
    cache.get(0, [1])  # reads both
    cache.written(1)
    assert cache.get(0, ()) is not None
    assert store.read == [[0, 1]]
