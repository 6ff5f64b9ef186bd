from __future__ import annotations

from collections.abc import Sequence

import pytest

from palio.protocol.messages import Acknowledge, Nack
from palio.protocol.receipts import NO_RECEIPTS, Entry, Receipts


def numbers(*values: int) -> list[int]:
    return list(values)


def reported() -> tuple[list[int], Receipts]:
    """Receipts, and a list of what they acknowledge: up to an entry, or -entry by itself."""
    said: list[int] = []

    def report(outcome: Acknowledge | Nack) -> None:
        assert isinstance(outcome, Acknowledge)
        said.extend([outcome.entry] if outcome.entry else [-each for each in outcome.others])

    return said, Receipts(report)


def came(receipts: Receipts, number: int, publisher: str, seqs: Sequence[int], count: int) -> Entry:
    return receipts.expect(receipts.came(number, publisher, seqs), count)


def test_an_entry_is_acknowledged_with_all_before_it_or_by_itself() -> None:
    said, receipts = reported()
    one = came(receipts, 1, "p", numbers(1, 2), 2)
    two = came(receipts, 2, "p", numbers(3), 1)
    receipts.make(two).give()
    assert said == [-2]
    first = receipts.make(one)
    first.give()
    first.give()  # again: it counts once
    assert said == [-2]
    receipts.make(one).give()
    assert said == [-2, 2]
    assert receipts.open == 0


def test_what_nobody_wants_is_acknowledged_at_once() -> None:
    said, receipts = reported()
    came(receipts, 1, "p", numbers(1), 0)
    assert said == [1]
    waiting = came(receipts, 2, "p", numbers(2), 1)
    came(receipts, 3, "p", numbers(3), 0)
    assert said == [1, -3]
    receipts.make(waiting).give()
    assert said == [1, -3, 3]


def test_what_was_taken_is_given_back_together() -> None:
    said, receipts = reported()
    entry = came(receipts, 4, "p", numbers(1, 2), 2)
    receipts.take(receipts.make(entry))
    receipts.take(receipts.make(entry))
    receipts.finish()
    receipts.finish()
    assert said == [4]


def fresh(receipts: Receipts, number: int, publisher: str, seqs: Sequence[int]) -> list[bool]:
    """Which events of a delivery are to be handled; all of these are expected."""
    entry = receipts.came(number, publisher, seqs)
    receipts.expect(entry, sum(entry.fresh))
    mask: list[bool] = entry.fresh
    return mask


def test_after_a_loss_what_waits_is_acknowledged_under_its_new_number() -> None:
    said, receipts = reported()
    one = came(receipts, 1, "p", numbers(1), 1)
    two = came(receipts, 2, "p", numbers(2), 1)
    receipts.renew()
    receipts.make(one).give()  # dealt with, and nobody to tell
    assert said == []
    assert fresh(receipts, 7, "p", numbers(1)) == [False]  # nothing of it is new: told again
    assert said == [7]
    assert fresh(receipts, 8, "p", numbers(2)) == [False]
    assert said == [7]
    receipts.make(two).give()
    assert said == [7, 8]


def test_what_comes_again_otherwise_divided_is_dealt_with_once() -> None:
    said, receipts = reported()
    waiting = came(receipts, 1, "p", numbers(1, 2, 3), 3)
    receipts.renew()
    assert fresh(receipts, 5, "p", numbers(2)) == [False]
    new = receipts.came(6, "p", numbers(3, 4))
    assert new.fresh == [False, True]
    receipts.expect(new, 1)
    receipts.make(waiting, 3).give()
    assert said == [5]
    receipts.make(new).give()
    assert said == [5, 6]
    assert fresh(receipts, 7, "p", numbers(1, 2, 3, 4, 5)) == [False] * 4 + [True]


def test_a_second_copy_in_the_same_session_is_known_while_the_first_waits() -> None:
    """Its publisher moved, and a second broker stored it, too: its home has both copies."""
    said, receipts = reported()
    waiting = came(receipts, 1, "p", numbers(1, 2), 2)
    new = receipts.came(2, "p", numbers(2, 3))
    assert new.fresh == [False, True]
    receipts.expect(new, 1)
    assert fresh(receipts, 3, "p", numbers(3)) == [False]
    receipts.make(new).give()
    assert said == [-3, -2]
    receipts.make(waiting, 2).give()
    assert said == [-3, -2, 3]


def test_a_second_loss_finds_what_has_waited_since_before_the_first() -> None:
    said, receipts = reported()
    one = came(receipts, 1, "p", numbers(1), 1)
    other = came(receipts, 2, "p", numbers(2), 1)
    receipts.renew()
    assert fresh(receipts, 5, "p", numbers(1)) == [False]
    receipts.renew()  # before the other came again
    assert fresh(receipts, 9, "p", numbers(1, 2)) == [False, False]
    receipts.make(one).give()
    assert said == []
    receipts.make(other).give()
    assert said == [9]
    assert receipts.open == 0


# --- what is rejected, or late ---


def outcomes() -> tuple[list[Acknowledge | Nack], Receipts]:
    said: list[Acknowledge | Nack] = []
    return said, Receipts(said.append, 3)


def test_a_rejected_event_is_handled_again_and_acknowledged_by_itself() -> None:
    said, receipts = outcomes()
    one = came(receipts, 1, "p", numbers(1), 1)
    two = came(receipts, 2, "p", numbers(2), 1)
    rejected = receipts.make(one, seq=1)
    rejected.reject(2.0, "busy")
    rejected.give()  # too late
    assert said == [Nack(3, 1, (), 2.0, "busy")]
    receipts.make(two, seq=2).give()
    assert said[1:] == [Acknowledge(3, 2)], "what was rejected before it is on its own way"
    again = receipts.came(1, "p", numbers(1), attempt=2)
    assert again.fresh == [True]
    receipts.expect(again, 1)
    receipts.make(again, seq=1).give()
    assert said[2:] == [Acknowledge(3, 0, others=(1,))]
    assert receipts.open == 0


def test_of_several_events_each_is_rejected_and_acknowledged_by_itself() -> None:
    said, receipts = outcomes()
    first = came(receipts, 1, "p", numbers(9), 1)
    entry = came(receipts, 4, "p", numbers(1, 2, 3), 3)
    one, two, three = (receipts.make(entry, seq=seq) for seq in (1, 2, 3))
    two.reject(0.0, "")
    assert said == [Nack(3, 4, (2,))]
    again = receipts.came(4, "p", numbers(2), attempt=2, is_part=True)
    assert all(again.fresh)
    receipts.expect(again, 1)
    one.give()
    receipts.flush()
    assert said[1:] == [Acknowledge(3, 0, others=(4,), seqs=(1,))]
    receipts.flush()
    three.give()
    assert said[2:] == [Acknowledge(3, 0, others=(4,), seqs=(1, 3))], "not that with 2 again"
    receipts.make(again, seq=2).give()
    receipts.make(first).give()
    assert said[3:] == [Acknowledge(3, 0, others=(4,), seqs=(2,)), Acknowledge(3, 1)]


def test_an_entry_of_which_all_was_rejected_is_not_acknowledged() -> None:
    said, receipts = outcomes()
    entry = came(receipts, 4, "p", numbers(1, 2), 2)
    for seq in (1, 2):
        receipts.make(entry, seq=seq).reject(0.0, "")
    assert [type(each) for each in said] == [Nack, Nack]
    assert receipts.open == 0


def test_what_is_late_comes_to_the_application_once_more() -> None:
    said, receipts = outcomes()
    late = came(receipts, 1, "p", numbers(1), 1)
    again = receipts.came(1, "p", numbers(1), attempt=2)
    assert again.fresh == [True]
    receipts.expect(again, 1)
    receipts.make(late).give()
    receipts.make(again).give()
    assert said == [Acknowledge(3, 1), Acknowledge(3, 0, others=(1,))]


def test_what_was_handled_just_before_it_was_late_does_not_come_again() -> None:
    said, receipts = outcomes()
    receipts.make(came(receipts, 1, "p", numbers(1), 1)).give()
    again = receipts.came(1, "p", numbers(1), attempt=2)
    assert again.fresh == [False]
    receipts.expect(again, 0)
    assert said == [Acknowledge(3, 1), Acknowledge(3, 0, others=(1,))]


def test_what_was_only_taken_back_waits_for_its_first_copy() -> None:
    said, receipts = outcomes()
    first = came(receipts, 1, "p", numbers(1), 1)
    again = receipts.came(1, "p", numbers(1))
    assert again.fresh == [False]
    receipts.expect(again, 0)
    assert said == []
    receipts.make(first).give()
    assert said == [Acknowledge(3, 0, others=(1,)), Acknowledge(3, 1)]
    assert receipts.open == 0


def test_what_was_rejected_in_a_lost_session_is_new_in_the_next() -> None:
    said, receipts = outcomes()
    entry = came(receipts, 1, "p", numbers(1, 2), 2)
    receipts.renew()
    receipts.make(entry, seq=1).reject(0.0, "")
    assert said == [], "nobody hears it"
    again = receipts.came(7, "p", numbers(1, 2), attempt=2)
    assert again.fresh == [True, False]
    receipts.expect(again, 1)
    receipts.make(again, seq=1).give()
    receipts.make(entry, seq=2).give()
    assert said == [Acknowledge(3, 7)]


def test_what_is_not_durable_has_nothing_to_acknowledge() -> None:
    NO_RECEIPTS.finish()
    with pytest.raises(AssertionError, match="not durable"):
        came(NO_RECEIPTS, 1, "p", numbers(1), 0)


def test_what_the_consumer_deals_with_one_by_one_is_not_remembered() -> None:
    said, receipts = outcomes()
    for number in range(1, 100):
        receipt = receipts.make(came(receipts, number, "p", numbers(number), 1))
        receipts.take(receipt)
        receipt.give()
    assert len(said) == 99
    assert len(receipts._taken) == 1
