"""What an origin sends to a home: within a window, again if nobody answers, and in order."""

from __future__ import annotations

from typing import Any

import pytest

from palio.node import streams
from palio.node.durable import DurableEvents
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    Action,
    CaughtUp,
    Claim,
    Damaged,
    Impossible,
    Open,
    Put,
    Renew,
    Target,
    Transmit,
)
from palio.node.streams import MAX_RETRANSMIT_S, RETRANSMIT_S
from palio.protocol.messages import Carry, EntriesStored, Share
from tests.node.durable_world import Disk
from tests.node.events import parcel

EVENTS = parcel({"n": 1})

WAY = {"b2": 1}.get


@pytest.fixture(autouse=True)
def _window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WINDOW_BYTES", 2 * EVENTS.held_bytes)


def origin(entries: int, log: int = 1) -> DurableEvents:
    """A broker that has so many entries for b2, as it starts."""
    disk = Disk()
    operations: list[Any] = [CaughtUp(1), Open(Claim("ann/d", 1, "b2"))]
    operations += [Renew("b2", log)] if log else []
    for entry in range(1, entries + 1):
        disk.parcels[entry] = EVENTS
        operations.append(Put(entry, None, 0, (Target("b2", entry, (Share("ann/d", 1, None),)),)))
    return DurableEvents("b1", 1, operations, disk)


def sent(follows: list[Action]) -> list[tuple[int, int]]:
    """The offsets that are sent, each with the one before it."""
    carried = [each.message for each in follows if isinstance(each, Transmit)]
    return [(each.offset, each.previous) for each in carried if isinstance(each, Carry)]


def stored(offset: int, *, home_log: int = 1, is_asking: bool = False) -> EntriesStored:
    return EntriesStored("b2", home_log, "b1", 1, offset, is_asking)


def test_a_window_is_on_its_way_and_opens_as_it_is_stored() -> None:
    some = origin(4).streams
    assert sent(some.paths_changed(0.0, WAY)) == [(1, 0), (2, 1)]
    assert sent(some.has_stored(0.0, stored(1))) == [(3, 2)]
    assert sent(some.has_stored(0.0, stored(3))) == [(4, 3)]
    assert sent(some.has_stored(0.0, stored(4))) == []
    assert some.wake_at > 1e9


def test_nothing_is_sent_without_a_way_or_before_the_log_of_the_home_is_known() -> None:
    assert not origin(1).streams.pump(0.0, "b2")
    assert not origin(1, log=0).streams.paths_changed(0.0, WAY)


def test_what_is_not_answered_for_goes_again_ever_more_seldom() -> None:
    some = origin(3).streams
    some.paths_changed(0.0, WAY)
    now, waits = 0.0, []
    for _ in range(8):
        waits.append(some.wake_at - now)
        assert not some.tick(some.wake_at - 0.001)
        now = some.wake_at
        assert sent(some.tick(now)) == [(1, 0), (2, 1)]
    assert waits[:3] == [RETRANSMIT_S, 2 * RETRANSMIT_S, 4 * RETRANSMIT_S]
    assert waits[-1] == MAX_RETRANSMIT_S
    some.has_stored(now, stored(1))
    assert some.wake_at == now + RETRANSMIT_S


def test_what_came_early_is_sent_again_from_where_the_home_is() -> None:
    some = origin(3).streams
    some.paths_changed(0.0, WAY)
    assert sent(some.has_stored(0.0, stored(1, is_asking=True))) == [(2, 1), (3, 2)]
    assert sent(some.has_stored(0.0, stored(0, is_asking=True))) == []


def test_what_another_log_had_lets_nothing_go() -> None:
    some = origin(3).streams
    some.paths_changed(0.0, WAY)
    assert some.has_stored(0.0, stored(2, home_log=2)) == []
    assert sent(some.has_stored(0.0, stored(0, is_asking=True))) == [(1, 0), (2, 1)]


def test_a_home_cannot_have_what_was_not_sent() -> None:
    some = origin(3).streams
    some.paths_changed(0.0, WAY)
    (told,) = some.has_stored(0.0, stored(4))
    assert isinstance(told, Impossible)


def test_an_entry_that_the_journal_cannot_give_back_is_told_as_lost() -> None:
    events = origin(1)
    reader = streams.EntryReader("b1", Disk())
    lost = streams.Streams("b1", 1, events.queues, events.log, reader)
    damaged, said = lost.paths_changed(0.0, WAY)
    assert damaged == Damaged(1, "b2")
    assert isinstance(said, Transmit)
    assert isinstance(said.message, Carry)
    assert LossMarker.of(said.message.parcel) is not None
