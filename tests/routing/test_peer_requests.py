"""The ledger: requests in, requests out, and siena's rules within one identity."""

from __future__ import annotations

import pytest

from palio.language.parsing import parse_advertisement
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
from palio.routing.protocol import IllegalMessage, Peer
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


def test_a_wider_subscription_replaces_narrower_ones_of_its_client() -> None:
    ledger = ledger_with(ALICE, BOB)
    enter(ledger, ALICE, Subscribe(0, parse("a > 5")), Subscribe(1, parse("b = 1")))
    enter(ledger, BOB, Subscribe(0, parse("a > 7")))
    enter(ledger, ALICE, Subscribe(2, parse("a > 1")), Subscribe(3, parse("a > 3")))
    assert standing(ledger, ALICE) == ["b = 1", "a > 1"]
    assert standing(ledger, BOB) == ["a > 7"]
    enter(ledger, ALICE, Unsubscribe(2))
    assert standing(ledger, ALICE) == ["b = 1"]


def test_parametric_subscriptions_stand_side_by_side() -> None:
    ledger = ledger_with(ALICE)
    wide, narrow = Subscribe(0, parse("a > :x"), {"x": 1}), Subscribe(1, parse("a > :x"), {"x": 5})
    enter(ledger, ALICE, wide, narrow, Subscribe(2, parse("a > 7")))
    assert standing(ledger, ALICE) == ["a > 1", "a > 5", "a > 7"]


def test_cancelling_ends_what_is_covered_now() -> None:
    ledger = ledger_with(ALICE)
    enter(ledger, ALICE, Subscribe(0, parse("a > :x"), {"x": 1}), Subscribe(1, parse("b = 1")))
    enter(ledger, ALICE, Cancel(parse("a > 3")))
    assert standing(ledger, ALICE) == ["a > 1", "b = 1"]
    enter(ledger, ALICE, Update(0, {"x": 5}, 1), Cancel(parse("a > 3")))
    assert standing(ledger, ALICE) == ["b = 1"]


def test_siena_rules_apply_to_what_a_changed_constant_becomes() -> None:
    ledger = ledger_with(ALICE)
    enter(ledger, ALICE, Subscribe(0, parse("a > 1")), Subscribe(1, parse("b = 1")))
    enter(ledger, ALICE, Update(1, {"0": 2}, 1))
    assert standing(ledger, ALICE) == ["a > 1", "b = 2"]


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


def test_a_fresh_plan_does_not_know_what_was_before() -> None:
    ledger = ledger_with(ONE)
    enter(ledger, ONE, Subscribe(0, parse("a > 1")))
    with pytest.raises(IllegalMessage, match="not subscribed"):
        ledger.plan(ONE, [Update(0, {"0": 2}, 1)], fresh=True)


def test_changes_are_told_as_updates_on_the_key_that_is_known() -> None:
    ledger = ledger_with(ALICE, ONE)
    told = enter(ledger, ALICE, Subscribe(4, parse("a > 1")), Subscribe(5, parse("b = 1")))
    assert told == {ONE: [Subscribe(0, parse("a > 1")), Subscribe(1, parse("b = 1"))]}
    told = enter(ledger, ALICE, Subscribe(5, parse("b = 3")), Subscribe(4, parse("c < 9")))
    assert told == {
        ONE: [Update(1, {"0": 3}, 1), Subscribe(2, parse("c < 9")), Unsubscribe(0)],
    }
    assert ledger.standing(ONE) == [Subscribe(1, parse("b = 3")), Subscribe(2, parse("c < 9"))]


def test_the_plain_ledger_knows_no_update() -> None:
    ledger = ledger_with(ALICE, ONE, parametric=False)
    enter(ledger, ALICE, Subscribe(0, parse("a > 1")))
    with pytest.raises(IllegalMessage, match="knows no Update"):
        ledger.plan(ALICE, [Update(0, {"0": 2}, 1)])
    told = enter(ledger, ALICE, Subscribe(1, parse("a > 2")), Unsubscribe(0))
    assert told == {ONE: [Unsubscribe(0)]}  # alice's wider one had replaced the new one
    told = enter(ledger, ALICE, Subscribe(2, parse("a > 5")))
    told = enter(ledger, ALICE, Unsubscribe(2), Subscribe(3, parse("a > 3")))
    assert told == {ONE: [Subscribe(2, parse("a > 3")), Unsubscribe(1)]}


def test_without_covering_everything_is_told() -> None:
    ledger = ledger_with(ALICE, BOB, ONE, covering=False)
    enter(ledger, ALICE, Subscribe(0, parse("a > 1")))
    assert enter(ledger, BOB, Subscribe(0, parse("a > 5"))) == {
        ONE: [Subscribe(1, parse("a > 5"))],
    }


def test_a_peer_that_is_dismissed_leaves_nothing() -> None:
    ledger = ledger_with(ALICE, ONE, TWO)
    enter(ledger, ONE, Subscribe(0, parse("a > 1")))
    ledger.dismiss(ONE)
    assert ledger.outgoing() == {TWO: [Unsubscribe(0)]}
    assert not ledger.table.nodes
    ledger.enrol(ONE)
    ledger.tell(ONE)
    assert enter(ledger, ALICE, Subscribe(0, parse("b = 1")))[ONE] == [Subscribe(0, parse("b = 1"))]


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
