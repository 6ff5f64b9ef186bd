from __future__ import annotations

import pytest

from palio.protocol.receipts import NO_RECEIPTS, Receipts
from tests.protocol.test_seen_numbers import numbers


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


def test_after_a_loss_what_waits_takes_on_its_new_number() -> None:
    said: list[int] = []
    receipts = Receipts(said.append)
    one = receipts.expect(1, "p", numbers(1), 1)
    two = receipts.expect(2, "p", numbers(2), 1)
    receipts.renew()
    receipts.make(one).give()  # dealt with, and nobody to tell
    assert said == []
    assert not receipts.again(7, "p", numbers(1))
    assert receipts.fresh("p", numbers(1, 2)).tolist() == [False, True]
    receipts.expect(7, "p", numbers(), 0)  # nothing of it is new: told again
    assert said == [7]
    assert receipts.again(8, "p", numbers(2))
    receipts.make(two).give()
    assert said == [7, 8]


def test_what_is_not_durable_has_nothing_to_acknowledge() -> None:
    NO_RECEIPTS.finish()
    with pytest.raises(AssertionError, match="not durable"):
        NO_RECEIPTS.expect(1, "p", numbers(1), 0)
