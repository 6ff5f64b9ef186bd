from __future__ import annotations

from math import inf

from palio.node.effects import DropEntries, Forget
from palio.node.limits import RELEASE_S
from palio.node.releases import Releases


def test_the_last_acknowledgement_of_a_subscription_stands_for_those_before() -> None:
    releases = Releases()
    releases.add(0.0, [Forget("a", 1), DropEntries((1,))])
    releases.add(0.0, [Forget("b", 2)])
    releases.add(0.0, [Forget("a", 3), DropEntries((2, 3))])
    assert releases.take() == [Forget("a", 3), Forget("b", 2), DropEntries((1, 2, 3))]
    assert releases.take() == []
    releases.add(0.0, [Forget("a", 4, b"here"), Forget("a", 0, b"further"), Forget("a", 3)])
    assert releases.take() == [Forget("a", 4, b"further")]


def test_nothing_is_written_of_a_subscription_that_has_ended() -> None:
    releases = Releases()
    releases.add(0.0, [Forget("a", 1, b"here"), Forget("b", 2)])
    releases.end("a")
    releases.end("c")
    assert releases.take() == [Forget("b", 2)]


def test_they_are_due_once_some_time_after_the_first() -> None:
    releases = Releases()
    releases.add(1.0, [])
    assert releases.due_at == inf
    releases.add(1.0, [Forget("a", 1)])
    releases.add(1.0 + RELEASE_S / 2, [Forget("a", 2)])
    assert not releases.are_due(1.0 + RELEASE_S * 0.99)
    assert releases.are_due(1.0 + RELEASE_S)
    assert not releases.are_due(1.0 + RELEASE_S)
