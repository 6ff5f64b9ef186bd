"""What the pattern layer sees of the router of single events."""

from __future__ import annotations

from functools import partial

import pytest

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.messages import Advertise, Batch, Join, LinkState, Settled, Subscribe
from palio.routing.patterns.underlay import Underlay
from tests.routing.helpers import ALICE, BOB, ONE, parse

A, B = parse("a IS NOT NULL"), parse("b IS NOT NULL")
OFFER = parse_advertisement("a IS NOT NULL")


def test_it_needs_advertisements() -> None:
    with pytest.raises(InvalidInput, match="General over it"):
        Underlay("s0", partial(General, inner=Acyclic))


def test_the_monitors_are_nobodys_business() -> None:
    underlay = Underlay("s0", Advertised)
    sends = underlay.router.attach(ONE)
    sends += underlay.router.receive(ONE, Batch((Advertise(0, OFFER),), fresh=True))
    assert {to for to, _ in sends} == {ONE, underlay.monitors}
    assert {to for to, _ in underlay.outward(sends)} == {ONE}
    assert underlay.offers(ONE) == {ONE: {OFFER: None}}
    assert underlay.offers(BOB) == {}


def test_waves_do_not_wait_for_monitors() -> None:
    underlay = Underlay("s0", Advertised)
    underlay.router.attach(ALICE)
    answer = underlay.router.receive(ALICE, Batch((Advertise(0, OFFER),), wave=3))
    assert [message for _, message in underlay.outward(answer)] == [Settled(3)]


def test_steps_are_subscribed_towards_offers_and_taken_back() -> None:
    underlay = Underlay("s0", Advertised)
    underlay.router.attach(ONE)
    underlay.router.receive(ONE, Batch((Advertise(0, OFFER),), fresh=True))
    (send,) = underlay.subscribe(7, [A, A, B])
    assert isinstance(send.message, Batch)
    assert [type(each) for each in send.message.requests] == [Subscribe]
    parcel = RowParcel("p", [{"a": 1}, {"c": 1}, {"b": 1}])
    mine = underlay.router.route(ONE, parcel)[underlay.monitors]
    assert mine.tolist() == [True, False, True]
    assert underlay.needed(parcel)[7].tolist() == [True, False, True]
    assert len(underlay.unsubscribe(7)) == 1
    assert underlay.unsubscribe(7) == []
    assert underlay.router.route(ONE, parcel) == {}


def test_a_link_joins_the_tree() -> None:
    underlay = Underlay("s0", partial(General, inner=Advertised))
    underlay.router.attach(ONE)
    assert not underlay.is_in_tree(ONE)
    underlay.router.receive(ONE, LinkState("s1", 1, ("s0",)))
    underlay.router.receive(ONE, Join())
    assert underlay.is_in_tree(ONE)
