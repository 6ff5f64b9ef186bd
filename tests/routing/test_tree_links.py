"""Two ends of a link join and leave it; whole trees are in `test_general` and `test_plans`."""

from __future__ import annotations

import pytest

from palio.routing.messages import Join, Leave, Reached
from palio.routing.plans import TreeLink


def said(link: TreeLink, *, calm: bool = False) -> list[Join | Leave]:
    return list(link.updates(calm=calm))


def joined(upward: bool | None = None) -> TreeLink:
    """An end that said Join, and heard it."""
    link = TreeLink()
    link.wanted, link.upward = True, upward
    said(link)
    link.their_join = Join(upward=None if upward is None else not upward)
    return link


def test_a_link_is_joined_once_and_left_once() -> None:
    link = TreeLink()
    assert said(link) == []
    link.wanted = True
    assert said(link, calm=True) == [Join(calm=True)]
    assert said(link) == []
    link.wanted = False
    assert said(link, calm=True) == [Leave(calm=True)]
    assert said(link) == []


@pytest.mark.parametrize(
    ("mine", "theirs", "is_joined"),
    [(None, None, True), (True, False, True), (False, True, True), (True, True, False)],
)
def test_both_ends_join_and_agree_on_which_is_above(
    mine: bool | None, theirs: bool | None, is_joined: bool
) -> None:
    link = TreeLink()
    link.wanted, link.upward = True, mine
    said(link)
    assert not link.is_joined
    link.their_join = Join(upward=theirs)
    assert link.is_joined is is_joined


def test_a_link_is_not_joined_again_before_its_leave_is_answered() -> None:
    link = joined()
    link.wanted = False
    said(link)
    link.wanted = True
    assert said(link) == []
    link.closing = False
    assert said(link) == [Join()]


def test_a_link_that_turns_is_left() -> None:
    link = joined(upward=True)
    link.upward = False
    assert said(link) == [Leave()]
    assert not link.is_joined
    link.closing = False
    assert said(link) == [Join(upward=False)]


def test_what_was_said_of_plans_is_of_one_use() -> None:
    link = joined()
    link.last_reached, link.answered = Reached("b1", 3, 1), ("b1", 3)
    link.reset()
    fresh = TreeLink()
    assert (link.last_reached, link.answered) == (fresh.last_reached, fresh.answered)
