"""What waits at a broker, as the operations that its disk has make it."""

from __future__ import annotations

import random

import pytest

from palio.node.operations import Ack, Close, Cursor, Put, Release, Renew, Retarget, Target
from palio.node.queues import STALE, OffsetQueue, Outgoing, Queued, Queues
from palio.protocol.messages import Share
from tests.conftest import seeds


def share(subject: str, number: int = 1) -> Share:
    return Share(subject, number, None)


def put(entry: int, *items: Target) -> Put:
    return Put(entry, None, 0, items)


def queues() -> Queues:
    """Here is d; at b2 are e and f, of which something waits under 1, 3 and 5."""
    found = Queues("b1")
    found.apply(Renew("b2", 1))
    for offset in (1, 3, 5):
        here = Target("b1", offset, (share("d"),))
        found.apply(put(offset, here, Target("b2", offset + 1, (share("e"), share("f")))))
    return found


def test_an_entry_is_kept_while_somebody_needs_it() -> None:
    found = queues()
    assert found.apply(Ack("d", 3)) == []
    assert found.apply(Release("b2", 1, 2)) == [1]
    assert found.entries == 2
    assert found.apply(Ack("d", 0, (5,))) == []
    assert found.apply(Release("b2", 1, 6)) == [3, 5]


def test_what_was_sent_stays_and_the_rest_follows_in_order() -> None:
    found = queues()
    found.apply(Retarget("e", 2, "b3", 7, 3, (("b2", 2),)))
    rest = [(4, Outgoing(3, (share("f"),))), (6, Outgoing(5, (share("f"),)))]
    sent = (2, Outgoing(1, (share("e"), share("f"))))
    assert list(found.streams["b2"].entries) == [sent, *rest]
    moved = [(7, Outgoing(3, (share("e", 2),))), (8, Outgoing(5, (share("e", 2),)))]
    assert list(found.streams["b3"].entries) == moved
    assert found.apply(Ack("d", 5)) == []
    assert found.apply(Release("b2", 1, 6)) == [1]


def test_what_comes_back_is_in_the_order_of_the_log() -> None:
    found = queues()
    found.apply(Retarget("d", 2, "b2", 7, 3, ()))
    assert "d" not in found.here
    found.apply(put(10, Target("b2", 10, (share("d", 2),))))
    found.apply(Retarget("d", 3, "b1", 11, 4, (("b2", 7),)))
    assert list(found.here["d"]) == [
        (11, Queued(3, None)),
        (12, Queued(5, None)),
        (13, Queued(10, None)),
    ]


def test_what_has_more_than_was_kept_free_is_an_error() -> None:
    found = queues()
    assert found.count("d") == 3
    with pytest.raises(AssertionError, match="Q3"):
        found.apply(Retarget("d", 2, "b2", 7, 2, ()))


def test_the_end_leaves_what_was_sent() -> None:
    found = queues()
    assert found.apply(Close("d", ())) == []
    assert found.apply(Close("e", (("b2", 4),))) == []
    assert found.apply(Close("f", (("b2", 2),))) == [5]
    assert [offset for offset, _ in found.streams["b2"].entries] == [2, 4]


def test_the_stream_to_a_home_without_its_disk_begins_anew() -> None:
    found = queues()
    found.apply(Release("b2", 1, 2))
    assert found.streams["b2"].previous(4) == 2
    found.apply(Renew("b2", 2))
    assert found.apply(Release("b2", 1, 6)) == []
    assert found.streams["b2"].previous(4) == 0
    assert len(found.streams["b2"].entries) == 2


def test_offsets_cursors_and_logs_only_grow() -> None:
    found = queues()
    found.apply(Cursor("b3", 1, 5))
    found.apply(Cursor("b3", 2, 1))
    with pytest.raises(AssertionError, match="D1"):
        found.apply(Cursor("b3", 2, 1))
    with pytest.raises(AssertionError, match="D7"):
        found.apply(Renew("b2", 1))
    with pytest.raises(AssertionError, match="Q2"):
        found.apply(put(4, Target("b1", 4, (share("d"),))))
    with pytest.raises(AssertionError, match="put twice"):
        found.apply(put(5, Target("b2", 9, (share("e"),))))


@pytest.mark.parametrize("seed", seeds(20, nightly=2_000))
def test_a_line_is_a_dictionary_in_order(seed: int) -> None:
    rng = random.Random(seed)
    line, known = OffsetQueue[Queued](), dict[int, Queued]()
    last = 0
    for _ in range(400):
        chance = rng.random()
        if chance < 0.5:
            last += rng.randint(1, 3)
            known[last] = Queued(last, None)
            line.put(last, known[last])
        elif chance < 0.8:
            offset = rng.randint(1, last + 1)
            assert line.take(offset) == known.pop(offset, None)
        elif chance < 0.82:
            offset = rng.randint(max(0, last - 300), last + 1)
            gone = [known.pop(each) for each in list(known) if each <= offset]
            assert line.take_to(offset) == gone
        offset = rng.randint(0, last + 1)
        assert line.next(offset) == next((item for item in known.items() if item[0] > offset), None)
        assert line.before(offset) == max((each for each in known if each < offset), default=0)
        assert list(line) == list(known.items())
        assert len(line) == len(known)


def test_a_stream_forgets_for_whom_its_entries_were() -> None:
    found = Queues("b1")
    found.apply(Renew("b2", 1))
    for entry in range(1, 4 * STALE):
        found.apply(put(entry, Target("b2", entry, (share(f"o/{entry}"),))))
        found.apply(Release("b2", 1, entry - 1))
    assert len(found.streams["b2"].subjects) <= STALE + 3
    assert found.count(f"o/{entry}") == 1
