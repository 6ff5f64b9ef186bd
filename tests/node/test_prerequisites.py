from __future__ import annotations

from palio.node.effects import Append
from palio.node.prerequisites import Prerequisites


def test_what_needs_one_that_was_refused_is_not_due() -> None:
    known = Prerequisites()
    assert known.are_met(Append(2, (), needs=(1,), oldest=1))
    known.refused(1)
    known.refused(3)
    assert known.are_met(Append(4, (), oldest=1))
    assert known.are_met(Append(4, (), needs=(2,), oldest=1))
    assert not known.are_met(Append(4, (), needs=(2, 3), oldest=1))
    assert not known.are_met(Append(4, (), needs=(1,), oldest=1))


def test_what_nobody_can_need_any_longer_is_forgotten() -> None:
    known = Prerequisites()
    known.refused(1)
    known.refused(3)
    known.are_met(Append(4, (), oldest=3))
    assert known.are_met(Append(5, (), needs=(1,), oldest=1))
    assert not known.are_met(Append(5, (), needs=(3,), oldest=3))
