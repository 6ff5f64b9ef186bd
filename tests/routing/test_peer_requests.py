"""The ledger: requests in, requests out, and siena's rules within one identity."""

from __future__ import annotations

import pytest

from palio.errors import LimitExceeded
from palio.language.parsing import parse_advertisement
from palio.matching import admission
from palio.matching.index import Index
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
from palio.routing.peer_requests import LOOK, Ledger
from palio.routing.protocol import IllegalMessage, Matching, Peer
from tests.routing.helpers import ALICE, BOB, ONE, TWO, parse


def ledger_with(*peers: Peer, parametric: bool = True, covering: bool = True) -> Ledger:
    ledger = Ledger(parametric=parametric, covering=covering)
    for peer in peers:
        ledger.enrol(peer)
        if not peer.is_client:
            ledger.tell(peer)
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
        ledger.enrol(peer)
    ledger.tell(ONE)
    offer = Advertise(3, parse_advertisement("a > 1"))
    assert ledger.handles(offer)
    assert not ledger.handles(Subscribe(0, parse("a > 1")))
    assert enter(ledger, ALICE, offer) == {ONE: [Advertise(0, parse_advertisement("a > 1"))]}
    assert enter(ledger, ALICE, Unadvertise(3)) == {ONE: [Unadvertise(0)]}


@pytest.mark.parametrize(("looks", "found"), [(2, True), (3, False), (4, False)])
def test_what_takes_long_to_find_out_may_be_offered(
    looks: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_costs = LOOK + 3
    monkeypatch.setattr(peer_requests, "MOST_OVERLAPS", looks * each_costs)
    ledger = Ledger(advertising=True)
    ledger.enrol(ALICE)
    offers = [Advertise(key, parse_advertisement(f"x = {key}")) for key in range(3)]
    ledger.follow(ALICE, offers, fresh=False)
    assert ledger.offers(parse("x = 7")) is found
    assert ledger.offers(parse("x = 0"))


def test_what_a_neighbour_could_not_read_gives_its_key_to_its_own_update_only() -> None:
    carol = Peer.session("carol")
    ledger = ledger_with(carol, BOB, ONE)
    unread = Subscribe(0, parse("a > 5"))
    assert enter(ledger, carol, unread, Subscribe(1, parse("b < 9")))[ONE] == [
        Subscribe(0, unread.filter),
        Subscribe(1, parse("b < 9")),
    ]
    assert BOB not in enter(ledger, BOB, Subscribe(0, parse("b < 5")))
    ledger.refuse(ONE, [unread])
    assert (ledger.refusing(carol), ledger.refusing(BOB)) == ([ONE], [])
    assert enter(ledger, carol, Update(0, {"0": 7}, 1))[ONE] == [Update(0, {"0": 7}, 1)]
    assert ledger.refusing(carol) == [], "until the neighbour is found to lack it as well"
    ledger.refuse(ONE, [Update(0, {"0": 7}, 1)])
    assert ledger.refusing(carol) == [ONE]
    assert enter(ledger, carol, Unsubscribe(0), Subscribe(2, parse("a > 1")))[ONE] == [
        Unsubscribe(0),
        Subscribe(2, parse("a > 1")),
    ]


def test_an_advertisement_that_a_neighbour_could_not_read_concerns_everybody() -> None:
    ledger = Ledger(advertising=True)
    for each in (ALICE, BOB, ONE):
        ledger.enrol(each)
    ledger.tell(ONE)
    wide, narrow = (
        Advertise(key, parse_advertisement(text)) for key, text in ((0, "a > 1"), (1, "a > 5"))
    )
    assert enter(ledger, ALICE, wide)[ONE] == [wide]
    assert enter(ledger, BOB, narrow) == {}
    ledger.refuse(ONE, [wide, Subscribe(1, parse("a > 1"))])
    assert ledger.outgoing()[ONE] == [narrow]
    assert ledger.refusing(BOB) == [ONE]
    assert enter(ledger, ALICE, Unadvertise(0))[ONE] == [Unadvertise(0)]
    assert ledger.refusing(BOB) == []


@pytest.mark.parametrize("peer", [Peer.session("c"), Peer.broker("n")])
def test_what_the_selector_refuses_is_not_there_and_all_else_is(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_SCANS", 1)
    ledger = Ledger(Matching(Index()))
    ledger.enrol(peer)
    first, second, third = (parse(text) for text in ("s LIKE '_'", "s LIKE '__'", "x = 1"))
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        ledger.follow(peer, [Subscribe(0, first), Subscribe(1, second)], fresh=False)
    with pytest.raises(LimitExceeded, match="MAX_SCANS"):
        ledger.follow(peer, [Subscribe(0, second)], fresh=False)  # in the place of the first
    ledger.follow(peer, [Subscribe(2, third)], fresh=False)
    assert {key: entry.bound for key, entry in ledger.entries[peer].items()} == {0: first, 2: third}
    ledger.outgoing()
    assert set(ledger.table.nodes) == {first, third}
    ledger.dismiss(peer)
    ledger.outgoing()
    assert not ledger.table.nodes
