from __future__ import annotations

import pytest

from palio.protocol.receipts import NO_RECEIPTS, Receipts
from tests.protocol.test_dedup_window import numbers


def test_an_entry_is_acknowledged_when_all_of_it_and_all_before_was_dealt_with() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    one = receipts.expect(1, "p", numbers(1, 2), 2)
    two = receipts.expect(2, "p", numbers(3), 1)
    receipts.make(two).give()
    first = receipts.make(one)
    first.give()
    first.give()  # again: it counts once
    assert said == []
    receipts.make(one).give()
    assert said == [2]
    assert receipts.open == 0


def test_what_nobody_wants_is_acknowledged_in_its_turn() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    receipts.expect(1, "p", numbers(1), 0)
    assert said == [1]
    waiting = receipts.expect(2, "p", numbers(2), 1)
    receipts.expect(3, "p", numbers(3), 0)
    assert said == [1]
    receipts.make(waiting).give()
    assert said == [1, 3]


def test_what_was_taken_is_given_back_together() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    entry = receipts.expect(4, "p", numbers(1, 2), 2)
    receipts.take(receipts.make(entry))
    receipts.take(receipts.make(entry))
    receipts.finish()
    receipts.finish()
    assert said == [4]


def test_after_a_loss_what_waits_is_acknowledged_under_its_new_number() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    one = receipts.expect(1, "p", numbers(1), 1)
    two = receipts.expect(2, "p", numbers(2), 1)
    receipts.renew()
    receipts.make(one).give()  # dealt with, and nobody to tell
    assert said == []
    assert receipts.came("p", numbers(1)).tolist() == [False]
    receipts.expect(7, "p", numbers(), 0)  # nothing of it is new: told again
    assert said == [7]
    assert receipts.came("p", numbers(2)).tolist() == [False]
    receipts.expect(8, "p", numbers(), 0)
    assert said == [7]
    receipts.make(two).give()
    assert said == [7, 8]


def test_what_comes_again_otherwise_divided_is_dealt_with_once() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    waiting = receipts.expect(1, "p", numbers(1, 2, 3), 3)
    receipts.renew()
    assert receipts.came("q", numbers(1)).tolist() == [True]
    assert receipts.came("p", numbers(2)).tolist() == [False]
    receipts.expect(5, "p", numbers(), 0)
    assert receipts.came("p", numbers(3, 4)).tolist() == [False, True]
    new = receipts.expect(6, "p", numbers(4), 1)
    receipts.make(waiting, 3).give()
    assert said == [5]
    receipts.make(new).give()
    assert said == [5, 6]
    assert receipts.came("p", numbers(1, 2, 3, 4, 5)).tolist() == [False] * 4 + [True]


def test_a_second_copy_in_the_same_session_is_known_while_the_first_waits() -> None:
    """Its publisher moved, and a second broker stored it, too."""
    said: list[int] = []
    receipts = Receipts(said.append)
    waiting = receipts.expect(1, "p", numbers(1, 2), 2)
    assert receipts.came("p", numbers(2, 3)).tolist() == [False, True]
    new = receipts.expect(2, "p", numbers(3), 1)
    assert receipts.came("p", numbers(3)).tolist() == [False]
    receipts.expect(3, "p", numbers(), 0)
    receipts.make(new).give()
    assert said == []
    receipts.make(waiting, 2).give()
    assert said == [3]


def test_a_second_loss_finds_what_has_waited_since_before_the_first() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    one = receipts.expect(1, "p", numbers(1), 1)
    other = receipts.expect(2, "p", numbers(2), 1)
    receipts.renew()
    receipts.came("p", numbers(1))
    receipts.expect(5, "p", numbers(), 0)
    receipts.renew()  # before the other came again
    assert receipts.came("p", numbers(1, 2)).tolist() == [False, False]
    receipts.expect(9, "p", numbers(), 0)
    receipts.make(one).give()
    assert said == []
    receipts.make(other).give()
    assert said == [9]
    assert receipts.open == 0


def test_what_is_not_durable_has_nothing_to_acknowledge() -> None:
    NO_RECEIPTS.finish()
    with pytest.raises(AssertionError, match="only a durable"):
        NO_RECEIPTS.expect(1, "p", numbers(1), 0)
