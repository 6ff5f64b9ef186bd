"""At which broker a durable subscription lives: the greatest claim counts, for all the same one."""

from __future__ import annotations

from itertools import permutations

import pytest

from palio.errors import Closed
from palio.node.claims import KnownClaims
from palio.node.log import Overlay
from palio.node.operations import Claim, Open

FIRST = Claim("ann/d", 1, "b1", "ann/1", 1, since=1)


def claims(*stored: Claim) -> KnownClaims:
    found = KnownClaims("b1")
    for claim in stored:
        found.apply(claim)
    return found


def test_the_newest_is_that_under_way() -> None:
    overlay, found = Overlay(), claims(FIRST)
    second = FIRST._replace(number=2, home="b2")
    overlay.add(1, Open(second))
    assert found.newest("ann/d", overlay) == second
    assert found.stored("ann/d") == FIRST
    assert not found.is_news(second, overlay)
    assert found.is_here("ann/d", Overlay())
    assert not found.is_here("ann/d", overlay)


def test_a_claim_is_above_all_that_its_broker_and_its_owner_know() -> None:
    asked = Claim("ann/d", 0, "", "ann/1", 2)
    assert claims().next(asked, Overlay())[1:4] == (1, "b1", "ann/1")
    assert claims(FIRST).next(asked, Overlay()).number == 2
    assert claims(FIRST).next(asked._replace(number=6), Overlay()).number == 7


def test_what_was_said_in_a_session_that_is_left_claims_nothing() -> None:
    asked = Claim("ann/d", 0, "", "ann/1", 1)
    found = claims(FIRST._replace(session_epoch=2))
    with pytest.raises(Closed, match="later session"):
        found.next(asked, Overlay())
    assert found.next(asked._replace(client="ann/2"), Overlay()).number == 2


def test_one_that_is_over_begins_anew_behind_its_end() -> None:
    over = claims(FIRST).over(Claim("ann/d", 4, "", "ann/1", 1), Overlay())
    assert over is not None
    assert (over.number, over.is_over, over.filter) == (4, True, "")
    found = claims(FIRST, over)
    assert found.over(over, Overlay()) is None
    anew = found.next(Claim("ann/d", 9, "", "ann/2", 1), Overlay())
    assert (anew.number, anew.since) == (10, 5)


def test_an_end_and_what_was_said_before_it_or_after_it() -> None:
    over = FIRST._replace(number=2, home="", session_epoch=5)
    late = FIRST._replace(number=7, home="b2", session_epoch=4)
    assert claims(over).resolve(late, Overlay()) == over._replace(number=7)
    later = late._replace(session_epoch=6)
    assert claims(over).resolve(later, Overlay()) == later
    assert claims(FIRST._replace(session_epoch=6)).resolve(over, Overlay()).home == "b1"


def test_a_change_of_the_filter_is_news() -> None:
    found = claims(FIRST)
    changed = found.changed("ann/d", "a = 1", Overlay())
    assert (changed.number, changed.filter) == (1, "a = 1")
    assert found.is_news(changed, Overlay())


def test_whatever_comes_first_the_same_claim_counts() -> None:
    some = [
        FIRST,
        FIRST._replace(home="b2"),
        FIRST._replace(home="b3", session_epoch=2),
        FIRST._replace(client="ann/2"),
        FIRST._replace(home=""),
        FIRST._replace(number=2, session_epoch=0),
    ]
    counts = set()
    for order in permutations(some):
        found = claims()
        for claim in order:
            if found.is_news(claim, Overlay()):
                found.apply(claim)
        counts.add(found.stored("ann/d"))
    assert counts == {some[-1]}


def test_a_lesser_claim_outdoes_none() -> None:
    found = claims(FIRST._replace(number=2))
    with pytest.raises(AssertionError, match="D5"):
        found.apply(FIRST)
