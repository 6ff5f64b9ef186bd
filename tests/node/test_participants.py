import pytest

from palio.node.fact_verifier import PART
from palio.node.participants import Participants, text_of
from palio.protocol.messages import Fact


def said(text: str, incarnation: int = 5) -> Fact:
    return Fact("b2", 1, PART, filter=text, claimed_us=incarnation)


def test_the_last_two_plans_of_a_life_are_heard() -> None:
    known = Participants()
    known.learn([said(text_of(0, 0))])
    assert len(known["b2"].joined) == 0
    for plan in (7, 8, 9):
        known.learn([said(text_of(plan, 7))])
    assert list(known["b2"].joined) == [8, 9]
    known.learn([said(text_of(9, 9), incarnation=6)])
    assert list(known["b2"].joined) == [9]


@pytest.mark.parametrize("text", ["", "7", "7 8 9", "7 -8", "7 x", "7 ٣", "7 " + "9" * 30])
def test_what_is_no_participation_counts_as_none(text: str) -> None:
    known = Participants()
    known.learn([said("7 7")])
    assert known.learn([said(text)]) == ["b2"]
    assert not known


def test_other_facts_are_not_looked_at() -> None:
    assert Participants().learn([Fact("b2", 1, "links", ("b1",))]) == []
