"""What a shortcut is worth, what comes by it, and whom it serves."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement
from palio.model.row_parcels import RowParcel
from palio.routing.messages import Advertise, Batch
from palio.routing.protocol import IllegalMessage, Peer
from palio.routing.reference_selector import ReferenceSelector
from palio_studies.simulator import shortcuts
from palio_studies.simulator.shortcuts import Copies, Rates, Served, ways_between

Q = Peer.broker("q")


def copy(first: int, count: int = 1, *, epoch: int = 0, publisher: str = "p") -> RowParcel:
    return RowParcel(publisher, [{"a": 1}] * count, first_seq=first, epoch=epoch)


def test_copies_are_refused_until_the_tree_has_brought_all_that_were_refused() -> None:
    copies = Copies()
    assert not copies.accepts(copy(5), (0, 3))
    assert not copies.accepts(copy(6, 2), (0, 4))  # the last refused is 7 now
    assert not copies.accepts(copy(8), (0, 6))
    assert copies.accepts(copy(9), (0, 8))
    assert copies.accepts(copy(30), (0, 9))


def test_a_publisher_that_begins_anew_is_another() -> None:
    copies = Copies()
    assert not copies.accepts(copy(5), (0, 5))
    assert copies.accepts(copy(6), (0, 5))
    assert not copies.accepts(copy(0, epoch=1), (0, 6))
    assert not copies.accepts(
        copy(1, epoch=1), (0, 6)
    )  # the tree has brought none of this incarnation
    assert copies.accepts(copy(2, epoch=1), (1, 1))
    assert not copies.accepts(copy(7), (1, 2))  # late, of the incarnation before


def test_one_of_whom_nothing_was_heard_is_not_trusted() -> None:
    copies = Copies()
    for number in range(3):
        assert not copies.accepts(copy(number), (-1, -1))


def test_so_many_publishers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "MOST_WATCHED", 2)
    copies = Copies()
    for name in "xy":
        assert not copies.accepts(copy(0, publisher=name), (0, 0))
    for name in "xy":
        assert copies.accepts(copy(1, publisher=name), (0, 0))
    assert not copies.accepts(copy(0, publisher="z"), (0, 0))
    assert copies.accepts(copy(2, publisher="y"), (0, 1))
    assert not copies.accepts(copy(2, publisher="x"), (0, 1))  # forgotten: it begins again
    assert copies.accepts(copy(3, publisher="x"), (0, 2))


# --- who is served ---


def served() -> Served:
    found = Served(ReferenceSelector())
    found.begin(Q)
    return found


def test_what_is_offered_is_not_told_by_a_shortcut() -> None:
    offer = Advertise(0, parse_advertisement("a = 1"))
    with pytest.raises(IllegalMessage, match="only subscriptions"):
        served().hear(Q, Batch((offer,), fresh=True))


# --- what it is worth ---


def test_rates_are_of_a_window() -> None:
    rates = Rates()
    rates.note("b1", 5)  # nobody knows since when
    assert rates.take(10.0, 2.0) is None
    rates.note("b1", 3)
    rates.note(None, 9)
    rates.note("", 9)
    assert rates.take(11.9, 2.0) is None
    assert rates.take(12.0, 2.0) == {"b1": 1.5}
    assert rates.take(14.0, 2.0) == {}
    assert rates.take(14.0, 0.0) is None  # no time has passed


PARENTS = {"b": "a", "c": "a", "d": "b", "e": "c", "f": "e"}


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("d", ["d", "b", "a", "c", "e"]),
        ("b", ["b", "a", "c", "e"]),
        ("a", []),  # above
        ("c", []),
        ("f", []),  # below
        ("e", []),
        ("nobody", []),
    ],
)
def test_ways_lead_over_the_first_broker_above_both(source: str, way: list[str]) -> None:
    found = [each for _, _, each in ways_between("e", {source: 1.0}, PARENTS)]
    assert found == ([way] if way else [])


def test_parents_in_a_circle_are_no_way() -> None:
    assert list(ways_between("a", {"b": 1.0}, {"b": "c", "c": "b"})) == []
