"""What is not on the disk is not told, and what could not be written keeps nothing else back."""

from __future__ import annotations

from palio.node.untold import Untold
from palio.protocol.messages import Fact


def fact(version: int, subject: str = "ann/d") -> Fact:
    return Fact("b1", version, subject)


def test_what_is_being_written_is_told_once_it_is_on_the_disk() -> None:
    untold = Untold(newest_told=1)
    first, second = fact(2), fact(3, "bob/d")
    untold.add(first)
    untold.add(second)
    assert untold
    assert untold.holds(first)
    assert untold.newest(said=3) == 3
    assert untold.write(2) == [first]
    assert (untold.holds(first), untold.holds(second)) == (False, True)
    assert untold.write(9) == [second]
    assert not untold


def test_what_could_not_be_written_is_not_waited_for_until_it_is() -> None:
    untold = Untold(newest_told=1)
    lost, links, other = fact(2), fact(3, "links"), fact(4, "bob/d")
    for each in (lost, links):
        untold.add(each)
    assert untold.refuse(3, told_all_the_same=("links",)) == ([links], ["ann/d"])
    assert untold.newest(said=3) == 3, "the links"
    untold.add(other)
    assert untold.newest(said=4) == 4, "which may be written"
    assert untold.write(4) == [other]
    again = fact(5)
    untold.add(again)
    assert untold.newest(said=5) == 4
    assert untold.holds(lost)
    assert untold.write(5) == [again]
    assert untold.newest(said=5) == 5
    assert not untold
