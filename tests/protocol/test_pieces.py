"""Pieces come in any order and become one datagram; what lacks some does not stay."""

from __future__ import annotations

import random

import pytest

from palio.protocol.limits import (
    MAX_DATAGRAM_BYTES,
    PIECES_BYTES,
    PIECES_OF_ONE_BYTES,
    PIECES_S,
)
from palio.protocol.pieces import Pieces

ROOM = 1_000
"""Bytes of a piece."""

BEGUN = ROOM + 200
"""About what a datagram takes of which one such piece has come."""


def begin(pieces: Pieces, sender: str, first: int, now: float = 0.0) -> None:
    """The first of two pieces."""
    assert pieces.add(sender, first, 0, 2, bytes(ROOM), now=now) is None


def is_held(pieces: Pieces, sender: str, first: int, now: float = 0.0) -> bool:
    """Whether the second makes it whole."""
    return pieces.add(sender, first, 1, 2, b"", now=now) is not None


def test_pieces_of_several_datagrams_in_any_order(rng: random.Random) -> None:
    pieces = Pieces()
    every = [(sender, first, place) for sender in "ab" for first in (1, 9) for place in range(8)]
    rng.shuffle(every)
    whole = {}
    for sender, first, place in every:
        text = f"{sender}{first}.{place} ".encode()
        found = pieces.add(sender, first, place, 8, text, now=0.0)
        if found is not None:
            whole[sender, first] = found
    assert whole == {
        (sender, first): "".join(f"{sender}{first}.{place} " for place in range(8)).encode()
        for sender in "ab"
        for first in (1, 9)
    }
    assert (len(pieces), pieces.nbytes, pieces.given_up) == (0, 0, 0)


@pytest.mark.parametrize(("place", "of"), [(0, 2), (1, 3), (2, 2)])
def test_pieces_that_contradict_each_other_are_no_datagram(place: int, of: int) -> None:
    pieces = Pieces()
    begin(pieces, "a", 1)
    with pytest.raises(ValueError, match="contradicts"):
        pieces.add("a", 1, place, of, b"", now=0.0)
    assert (len(pieces), pieces.nbytes) == (0, 0)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_datagram_has_so_many_bytes(extra: int) -> None:
    pieces = Pieces()
    size = MAX_DATAGRAM_BYTES + extra
    assert pieces.add("a", 1, 0, 2, bytes(size - 1), now=0.0) is None
    if extra > 0:
        with pytest.raises(ValueError, match="MAX_DATAGRAM_BYTES"):
            pieces.add("a", 1, 1, 2, b"x", now=0.0)
    else:
        assert len(pieces.add("a", 1, 1, 2, b"x", now=0.0) or b"") == size
    assert (len(pieces), pieces.nbytes) == (0, 0)


@pytest.mark.parametrize("late", [-0.001, 0.0, 0.001])
def test_what_lacks_a_piece_for_too_long_is_given_up(late: float) -> None:
    pieces = Pieces()
    begin(pieces, "a", 1)
    assert is_held(pieces, "a", 1, now=PIECES_S + late) == (late < 0)
    assert pieces.given_up == (late >= 0)


@pytest.mark.parametrize("extra", [0, 1])
def test_one_sender_has_so_much_room_and_its_oldest_goes_first(extra: int) -> None:
    pieces = Pieces()
    begin(pieces, "other", 1)
    most = PIECES_OF_ONE_BYTES // BEGUN
    for first in range(most + extra):
        begin(pieces, "a", first)
    assert pieces.given_up == extra
    assert is_held(pieces, "a", 0) == (extra == 0)
    assert is_held(pieces, "a", 1)
    assert is_held(pieces, "other", 1)


@pytest.mark.parametrize("extra", [0, 1])
def test_all_senders_have_so_much_room_and_the_oldest_goes_first(extra: int) -> None:
    pieces = Pieces()
    most = PIECES_BYTES // BEGUN
    for first in range(most + extra):
        begin(pieces, f"sender {first % 100}", first)
    assert pieces.given_up == extra
    assert pieces.nbytes <= PIECES_BYTES
    assert is_held(pieces, "sender 1", 1)
    assert is_held(pieces, "sender 0", 0) == (extra == 0)


def test_who_starts_anew_has_begun_nothing() -> None:
    pieces = Pieces()
    begin(pieces, "a", 1)
    begin(pieces, "b", 1)
    pieces.give_up("a")
    pieces.give_up("unheard of")
    assert pieces.given_up == 1
    begin(pieces, "a", 1)
    assert is_held(pieces, "a", 1)
    assert is_held(pieces, "b", 1)
    assert (len(pieces), pieces.nbytes) == (0, 0)
