"""What is on its way to a disk: in order, thrown away as a whole, and what lets go is kept."""

from __future__ import annotations

import pytest

from palio.node.limits import MAX_RELEASES, RELEASE_S, RIPE_S
from palio.node.log import Log
from palio.node.operations import (
    Ack,
    Claim,
    Close,
    Cursor,
    Discard,
    Forgotten,
    Open,
    Put,
    Release,
    Renew,
    Retarget,
    Target,
)
from palio.protocol.messages import Share

CURSOR = Cursor("b2", 1, 7)


def put(entry: int, *subjects: str) -> Put:
    return Put(entry, None, 0, (Target("b2", entry, tuple(Share(s, 1, None) for s in subjects)),))


def test_what_is_under_way_is_the_newest_of_each_and_goes_as_it_is_stored() -> None:
    log = Log()
    for offset in (7, 9):
        log.append(0.0, [Cursor("b2", 1, offset), Renew("b3", offset)])
    log.append(0.0, [Open(Claim("ann/d", 3, "b2"))])
    assert log.overlay.cursor("b2") == Cursor("b2", 1, 9)
    assert log.overlay.log_of("b3") == 9
    log.stored(1)
    assert log.overlay.cursor("b2") == Cursor("b2", 1, 9)
    log.stored(2)
    log.stored(3)
    assert log.overlay.cursor("b2") is None
    assert log.overlay.claim("ann/d") is None
    assert log.barrier(None) is None


def test_shares_and_moves_are_counted_while_they_are_under_way() -> None:
    log = Log()
    log.append(0.0, [put(1, "ann/d", "bob/d"), put(2, "ann/d")])
    log.append(0.0, [Retarget("ann/d", 2, "b3", 3, 2, ()), Close("bob/d", ())])
    assert log.overlay.shares == {"ann/d": 2, "bob/d": 1}
    assert log.overlay.moving == {"ann/d": 1, "bob/d": 1}
    log.stored(1)
    log.stored(2)
    assert not log.overlay.shares
    assert not log.overlay.moving


def test_a_refusal_throws_away_all_that_is_under_way() -> None:
    log = Log()
    log.append(0.0, [CURSOR], "first")
    log.append(0.0, [Cursor("b2", 1, 8)], "second")
    assert [each.token for each in log.refused(0.0, 1)] == ["first", "second"]
    assert log.refused(0.0, 2) == []
    assert log.overlay.cursor("b2") is None
    assert log.append(0.0, [CURSOR]) is None
    log.writable()
    write = log.append(0.0, [CURSOR])
    assert write is not None
    assert (write.ticket, write.term) == (3, 1)


def test_answers_come_in_order() -> None:
    log = Log()
    log.append(0.0, [CURSOR])
    log.append(0.0, [Cursor("b2", 1, 8)])
    with pytest.raises(AssertionError, match="L1"):
        log.stored(2)
    with pytest.raises(AssertionError, match="L1"):
        log.refused(0.0, 2)


def test_what_lets_go_is_written_with_what_grows_once_it_is_ripe() -> None:
    log = Log()
    for upto in (3, 5):
        log.release(0.0, Ack("ann/d", upto, (9,)))
        log.release(0.0, Release("b2", 1, upto))
        log.release(0.0, Discard((upto,)))
    early = log.append(RIPE_S / 2, [CURSOR])
    assert early is not None
    assert not early.released
    ripe = log.append(RIPE_S, [CURSOR])
    assert ripe is not None
    assert ripe.released == (Ack("ann/d", 5, (9,)), Release("b2", 1, 5), Discard((3, 5)))


def test_what_an_owner_has_dealt_with_does_not_follow_it() -> None:
    log = Log()
    log.release(0.0, Ack("ann/d", 3))
    write = log.append(0.0, [Retarget("ann/d", 2, "b3", 3, 2, ())])
    assert write is not None
    assert write.released == (Ack("ann/d", 3),)


def test_what_lets_go_is_written_by_itself_also_while_the_disk_refuses() -> None:
    log = Log()
    log.release(0.0, Ack("ann/d", 3))
    assert log.flush(RELEASE_S / 2) is None
    log.append(RIPE_S, [CURSOR])
    log.refused(RIPE_S, 1)
    write = log.flush(RIPE_S + RELEASE_S)
    assert write is not None
    assert (write.operations, write.released) == ((), (Ack("ann/d", 3),))
    assert log.flush(1e9) is None


@pytest.mark.parametrize(("count", "is_due"), [(MAX_RELEASES - 1, False), (MAX_RELEASES, True)])
def test_many_entries_are_worth_a_write(count: int, is_due: bool) -> None:
    log = Log()
    log.release(0.0, Discard(tuple(range(count))))
    assert (log.flush(0.0) is not None) == is_due


def test_a_newer_log_of_a_home_counts_whatever_the_older_one_had() -> None:
    log = Log()
    log.release(0.0, Release("b2", 1, 50))
    log.release(0.0, Release("b2", 2, 4))
    write = log.flush(RELEASE_S)
    assert write is not None
    assert write.released == (Release("b2", 2, 4),)


def test_a_barrier_is_behind_all_that_is_under_way() -> None:
    log = Log()
    assert log.barrier("nobody waits") is None
    log.append(0.0, [CURSOR])
    write = log.barrier("last")
    assert write is not None
    assert not write.operations
    log.stored(1)
    assert log.stored(2).token == "last"


def test_publishers_that_are_forgotten_are_told_together() -> None:
    log = Log()
    log.release(0.0, Forgotten(("p1",)))
    log.release(0.0, Forgotten(("p2",)))
    write = log.flush(RELEASE_S)
    assert write is not None
    assert write.released == (Forgotten(("p1", "p2")),)
