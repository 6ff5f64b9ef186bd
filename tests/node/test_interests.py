"""For whom events are, by the newest claim of each durable subscription."""

from __future__ import annotations

from palio.matching.index import Index
from palio.node.interests import Interests
from palio.node.loss_markers import LossMarker
from palio.node.operations import Claim
from tests.node.events import parcel

EVENTS = parcel({"x": 1}, {"x": 5})


def wanted(interests: Interests) -> dict[str, list[bool]]:
    return {subject: mask.tolist() for subject, mask in interests.wanted(EVENTS).items()}


def claim(subject: str, filter: str, home: str = "b1") -> Claim:
    return Claim(subject, 1, home, filter=filter)


def test_events_are_for_the_filters_that_they_meet() -> None:
    interests = Interests("b1", Index())
    interests.learn(claim("ann/d", "x > 3"))
    interests.learn(claim("bob/d", "x > 0", home="b2"))
    interests.learn(claim("carol/d", "x > 9"))
    assert wanted(interests) == {"ann/d": [False, True], "bob/d": [True, True]}
    assert list(interests.wanted(parcel({"x": 2}))) == ["bob/d"]


def test_the_newest_claim_counts() -> None:
    interests = Interests("b1", Index())
    for filter in ("x > 3", "x < 3"):
        interests.learn(claim("ann/d", filter))
    assert wanted(interests) == {"ann/d": [True, False]}
    for _ in range(2):
        interests.learn(claim("ann/d", "", home=""))
        assert not wanted(interests)
    interests.learn(claim("ann/d", "x > 3"))
    assert wanted(interests) == {"ann/d": [False, True]}


def test_what_cannot_be_read_is_for_everything_and_what_is_not_known_for_nothing() -> None:
    interests = Interests("b1", Index())
    interests.learn(claim("ann/d", "x >>> 3"))
    interests.learn(claim("bob/d", "x > :low"))
    interests.learn(claim("carol/d", ""))
    assert wanted(interests) == {"ann/d": [True, True], "bob/d": [True, True]}


def test_a_notice_is_for_everybody() -> None:
    interests = Interests("b1", Index())
    interests.learn(claim("ann/d", "x > 3"))
    interests.learn(claim("bob/d", "", home=""))
    notice = LossMarker("b1 1", 3, "*", 0, 0, 0).parcel
    assert list(interests.wanted(notice)) == ["ann/d"]
