"""The ledger: requests in, requests out, and siena's rules within one identity."""

from __future__ import annotations

from typing import Final

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_advertisement
from palio.matching import admission
from palio.matching.index import Index
from palio.model.filters import UnreadFilter
from palio.routing import peer_requests
from palio.routing.messages import (
    Advertise,
    Cancel,
    Request,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.routing.parameters import changes
from palio.routing.peer_requests import COMPARISON_OVERHEAD, Ledger
from palio.routing.protocol import IllegalMessage, Matching, Peer
from tests.routing.helpers import ALICE, BOB, ONE, TWO, parse


def ledger_with(*peers: Peer, parametric: bool = True, covering: bool = True) -> Ledger:
    ledger = Ledger(parametric=parametric, covering=covering)
    for peer in peers:
        ledger.add_peer(peer)
        if not peer.is_client:
            ledger.add_neighbour(peer)
    return ledger


def enter(ledger: Ledger, peer: Peer, *requests: Request) -> dict[Peer, list[Request]]:
    ledger.apply(peer, ledger.plan(peer, requests))
    return ledger.outgoing()


def standing(ledger: Ledger, peer: Peer) -> list[str]:
    return [str(each.filter) for each in ledger.standing_of(peer) if isinstance(each, Subscribe)]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Update(9, {"0": 1}, 1), "key 9, which is not subscribed"),
        (Update(0, {"7": 1}, 1), "has no :7"),
        (Cancel(parse("a = 1")), "for clients"),
        (Subscribe(5, parse("a > :x"), {}), "x"),
    ],
)
def test_a_plan_that_fails_changes_nothing(request_: Request, reason: str) -> None:
    ledger = ledger_with(ONE, TWO)
    enter(ledger, ONE, Subscribe(0, parse("a > 1")))
    with pytest.raises(IllegalMessage, match=reason):
        ledger.plan(ONE, [Unsubscribe(0), Subscribe(0, parse("a > 2")), request_])
    assert standing(ledger, ONE) == ["a > 1"]
    assert ledger.outgoing() == {}


def test_advertisements_are_read_and_told_by_their_own_requests() -> None:
    ledger = Ledger(advertising=True)
    for peer in (ALICE, ONE):
        ledger.add_peer(peer)
    ledger.add_neighbour(ONE)
    offer = Advertise(3, parse_advertisement("a > 1"))
    assert ledger.handles(offer)
    assert not ledger.handles(Subscribe(0, parse("a > 1")))
    assert enter(ledger, ALICE, offer) == {ONE: [Advertise(0, parse_advertisement("a > 1"))]}
    assert enter(ledger, ALICE, Unadvertise(3)) == {ONE: [Unadvertise(0)]}


@pytest.mark.parametrize(("looks", "found"), [(2, True), (3, False), (4, False)])
def test_what_takes_long_to_find_out_may_be_offered(
    looks: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertisement_cost = COMPARISON_OVERHEAD + 3
    monkeypatch.setattr(peer_requests, "MOST_OVERLAPS", looks * advertisement_cost)
    ledger = Ledger(advertising=True)
    ledger.add_peer(ALICE)
    offers = [Advertise(key, parse_advertisement(f"x = {key}")) for key in range(3)]
    ledger.apply_requests(ALICE, offers, fresh=False)
    assert ledger.offers(parse("x = 7")) is found
    assert ledger.offers(parse("x = 0"))


UNREAD: Final = UnreadFilter("a RESEMBLES 5")


def test_what_could_not_be_read_is_everything_until_it_is_replaced() -> None:
    ledger = ledger_with(ONE, TWO)
    everything = [Subscribe(0, parse("TRUE"))]
    assert enter(ledger, ONE, Subscribe(7, UNREAD, {"x": 1}))[TWO] == everything
    assert enter(ledger, ONE, Subscribe(8, parse("a > 1"))) == {}, "it covers that"
    assert enter(ledger, ONE, Update(7, {"3": 9}, 1)) == {}
    assert standing(ledger, ONE) == ["TRUE", "a > 1"]
    replaced = enter(ledger, ONE, Subscribe(7, parse("a > 5")))
    assert replaced[TWO] == [Subscribe(1, parse("a > 1")), Unsubscribe(0)]
    assert enter(ledger, ONE, Subscribe(7, UNREAD), Update(7, {"3": 9}, 1))[TWO] == [
        Subscribe(2, parse("TRUE")),
        Unsubscribe(1),
    ]
    assert enter(ledger, ONE, Unsubscribe(7))[TWO] == [
        Subscribe(3, parse("a > 1")),
        Unsubscribe(2),
    ]


def test_what_the_selector_refuses_is_not_there_and_all_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "MAX_SCANS", 1)
    ledger = Ledger(Matching(Index()))
    ledger.add_peer(peer := Peer.session("c"))
    first, second, third = (parse(text) for text in ("s LIKE '_'", "s LIKE '__'", "x = 1"))
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        ledger.apply_requests(peer, [Subscribe(0, first), Subscribe(1, second)], fresh=False)
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        ledger.apply_requests(
            peer, [Subscribe(0, second)], fresh=False
        )  # in the place of the first
    ledger.apply_requests(peer, [Subscribe(2, third)], fresh=False)
    assert {key: entry.bound for key, entry in ledger.entries[peer].items()} == {0: first, 2: third}
    ledger.outgoing()
    assert set(ledger.table.nodes) == {first, third}
    ledger.remove_peer(peer)
    ledger.outgoing()
    assert not ledger.table.nodes


def test_of_a_client_an_update_of_everything_is_illegal_as_ever() -> None:
    ledger = ledger_with(BOB)
    enter(ledger, BOB, Subscribe(0, parse("TRUE")))
    with pytest.raises(IllegalMessage, match="has no :x"):
        ledger.plan(BOB, [Update(0, {"x": 1}, 1)])


@pytest.mark.parametrize("how", ["at first", "by an update"])
def test_what_the_selector_has_no_room_for_is_everything_there(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are told what it is. A client is told that there is no room."""
    monkeypatch.setattr(admission, "MAX_SCANS", 1)
    ledger = Ledger(selector := Matching(Index()))
    for peer in (BOB, ONE, TWO):
        ledger.add_peer(peer)
    ledger.add_neighbour(TWO)
    enter(ledger, ONE, Subscribe(0, parse("s LIKE '_%_' AND a = 1")))
    second = Subscribe(1, parse("s LIKE '__%_' AND a = 2"))
    if how == "at first":
        assert enter(ledger, ONE, second)[TWO] == [Subscribe(1, second.filter)]
    else:
        enter(ledger, ONE, Subscribe(1, parse("s LIKE '_%_' AND a = 2")))
        changed = changes(parse("s LIKE '_%_' AND a = 2"), second.filter)
        assert changed is not None
        assert enter(ledger, ONE, Update(1, changed, 1))[TWO] == [Update(1, changed, 1)]
    assert list(ledger.routes(selector.match_event({"a": 7}))) == [ONE]
    enter(ledger, ONE, Update(1, {"0": 3}, 2))
    assert list(ledger.routes(selector.match_event({"a": 7}))) == [ONE]
    enter(ledger, ONE, Unsubscribe(1))
    assert list(ledger.routes(selector.match_event({"a": 7}))) == []
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        enter(ledger, BOB, second)
