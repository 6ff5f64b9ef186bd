"""What is on its way between an origin and a home: it goes on, is taken, or is dropped."""

from __future__ import annotations

from msgspec.structs import replace

from palio.node.sessions import Neighbour
from palio.node.streams import UNREAD
from palio.protocol.messages import (
    Carry,
    Deliver,
    EntriesStored,
    Fact,
    Facts,
    Known,
    Share,
    pack_mask,
    unpack_mask,
)
from tests.node.alone import B1_LOG, B2_LOG, Alone, carry, parcel, subscribed
from tests.node.events import parcel as rows


def between() -> Alone:
    """A broker between b2 and b3."""
    alone = Alone()
    alone.greet(3, "broker", "b3")
    alone.tell(3, Known({}))
    alone.tell(3, Facts((Fact("b3", 1, "links", ("b1",)),)))
    alone.sync()
    return alone


def to_b3(offset: int = 1) -> Carry:
    return replace(carry(parcel(1), offset, offset - 1), home="b3", home_log=9)


def sent(alone: Alone, kind: type) -> list[tuple[int, object]]:
    return [(link, each) for link, each in alone.said if isinstance(each, kind)]


def test_a_broker_between_passes_on_both_ways_and_keeps_nothing() -> None:
    alone = between()
    alone.tell(2, to_b3())
    answer = EntriesStored("b3", 9, "b2", B2_LOG, 1)
    alone.tell(3, answer)
    ((link, passed),) = sent(alone, Carry)
    assert isinstance(passed, Carry)
    assert (link, passed.home, passed.offset, passed.parcel.seqs) == (3, "b3", 1, (1,))
    assert sent(alone, EntriesStored) == [(2, answer)]
    assert not alone.open
    assert alone.node.status()["custody_entries"] == 0


def test_nothing_goes_back_to_where_it_came_from() -> None:
    alone = between()
    alone.tell(3, to_b3())
    alone.tell(2, EntriesStored("b3", 9, "b2", B2_LOG, 1))
    assert not sent(alone, Carry)
    assert not sent(alone, EntriesStored)


def test_what_waits_too_long_is_dropped_before_live_events_are() -> None:
    alone = between()
    neighbour = alone.node._core.neighbours["b3"]
    assert isinstance(neighbour, Neighbour)
    neighbour.stream.window = 1  # one message at a time
    size = to_b3().parcel.held_bytes
    for offset in range(1, 9):
        neighbour.carry(alone.node._core.out, to_b3(offset), 4 * size)
    assert neighbour.queued_bytes <= 3 * size
    assert neighbour.dropped == 0, "nothing of it is lost: its origin sends it again"


def test_a_home_looks_at_what_its_origin_cannot_read() -> None:
    alone = subscribed()
    events = rows({"x": 1}, {"x": 2}, {"x": 1})
    shares = (Share("alice/d", 1, UNREAD), Share("alice/gone", 1, UNREAD))
    alone.tell(2, replace(carry(events), shares=shares))
    alone.sync()
    (delivered,) = (each for each in alone.heard(Deliver) if isinstance(each, Deliver))
    assert unpack_mask(delivered.rows, 3).tolist() == [True, False, True]


def test_an_entry_without_events_moves_the_cursor_and_is_given_to_nobody() -> None:
    alone = subscribed()
    alone.tell(2, carry(parcel()))
    alone.sync()
    assert alone.heard(EntriesStored) == [EntriesStored("b1", B1_LOG, "b2", B2_LOG, 1)]
    assert not alone.heard(Deliver)
    assert not alone.disk.held()


def test_rows_that_are_none_of_the_entry_end_the_session() -> None:
    alone = subscribed()
    share = Share("alice/d", 1, pack_mask(unpack_mask(b"\x02", 9)))
    alone.tell(2, replace(carry(parcel(1)), shares=(share,)))
    assert 2 in alone.closed
