"""What patterns are yet to read."""

from __future__ import annotations

import numpy as np
import pytest

from palio.model.row_parcels import RowParcel
from palio.routing.patterns import unread as room
from palio.routing.patterns.unread import Unread
from palio.routing.protocol import Peer

ANN, BOB = Peer.client("ann"), Peer.client("bob")
OF = {1: ANN, 2: ANN, 3: BOB}


def events(*values: int) -> RowParcel:
    return RowParcel("p", [{"n": value} for value in values])


def every(count: int) -> np.ndarray:
    return np.ones(count, np.bool_)


def read(unread: Unread, most: int) -> list[tuple[int, list[int]]]:
    return [(number, [row["n"] for row in some.rows]) for number, some in unread.read(most)]


def test_patterns_read_in_turn_each_in_the_order_in_which_it_came() -> None:
    unread = Unread()
    assert unread.note(events(1, 2, 3), {1: every(3), 3: np.array([True, False, True])}, OF) == []
    unread.note(events(4), {1: every(1)}, OF)
    assert len(unread) == 6
    assert read(unread, 4) == [(1, [1, 2, 3]), (3, [1])]
    assert len(unread) == 2
    assert read(unread, 9) == [(1, [4]), (3, [3])]
    assert (len(unread), read(unread, 9)) == (0, [])


@pytest.mark.parametrize("most", range(1, 9))
def test_no_more_is_read_at_once_than_is_asked_for(most: int) -> None:
    unread = Unread()
    unread.note(events(*range(5)), {1: every(5), 2: every(5)}, OF)
    found: dict[int, list[int]] = {1: [], 2: []}
    while unread:
        part = read(unread, most)
        assert sum(len(values) for _, values in part) == min(
            most, 10 - sum(map(len, found.values()))
        )
        for number, values in part:
            found[number] += values
    assert found == {1: list(range(5)), 2: list(range(5))}


def test_what_one_pattern_has_is_taken_as_a_whole() -> None:
    unread = Unread()
    unread.note(events(1, 2), {1: every(2), 2: every(2)}, OF)
    taken = unread.take(1)
    assert [parcel.select(mask).seqs for parcel, mask in taken] == [(0, 1)]
    assert unread.take(1) == []
    assert read(unread, 9) == [(2, [1, 2])]


def test_one_subscriber_has_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_UNREAD", 5)
    unread = Unread()
    assert unread.note(events(1, 2, 3), {1: every(3), 3: every(3)}, OF) == []
    assert unread.note(events(4, 5, 6), {2: every(3), 3: np.array([True, False, True])}, OF) == [2]
    assert unread.note(events(7, 8), {2: every(2)}, OF) == []
    assert unread.note(events(9), {1: every(1), 3: every(1)}, OF) == [1, 3]
    read(unread, 1)
    assert unread.note(events(9), {1: every(1), 3: every(1)}, OF) == [3]


def test_all_have_room_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    size = events(1).held_bytes
    monkeypatch.setattr(room, "MAX_UNREAD_BYTES", 2 * size)
    unread = Unread()
    for _ in range(2):
        assert unread.note(events(1), {1: every(1), 3: every(1)}, OF) == []
    assert unread.note(events(1), {1: every(1), 3: every(1)}, OF) == [1, 3]
    read(unread, 1)
    assert unread.note(events(1), {1: every(1)}, OF) == [1], "the other still has to read it"
    unread.take(3)
    assert unread.note(events(1), {1: every(1)}, OF) == []
