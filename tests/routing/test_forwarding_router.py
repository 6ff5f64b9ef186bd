"""What the brokers of subscription forwarding have in common: beginnings, order, refusals."""

from __future__ import annotations

import pytest

from palio.matching.index import Index
from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, LinkState, Settled, Subscribe, Unsubscribe, Update
from palio.routing.protocol import (
    MOST_MATCHES,
    MOST_NAMED,
    IllegalMessage,
    Matching,
    Peer,
    SelectorFactory,
    Send,
    matched_keys,
)
from palio.routing.reference_selector import ReferenceSelector
from tests.routing.helpers import ALICE, BOB, ONE, TWO, ask, attached, filters, parse, said


def test_the_first_batch_to_a_neighbour_is_fresh_and_says_all() -> None:
    broker = attached(Acyclic("b1"), ALICE)
    ask(broker, ALICE, Subscribe(0, parse("a = 1")), Subscribe(1, parse("b = 1")))
    assert broker.attach(ONE) == [
        (ONE, Batch((Subscribe(0, parse("a = 1")), Subscribe(1, parse("b = 1"))), fresh=True))
    ]


def test_a_neighbour_says_its_first_word_fresh() -> None:
    broker = Acyclic("b1")
    broker.attach(ONE)
    with pytest.raises(IllegalMessage, match="must be fresh"):
        broker.receive(ONE, Batch((Subscribe(0, parse("a = 1")),)))
    assert filters(broker) == []


def test_a_fresh_batch_stands_for_all_that_was_before() -> None:
    broker = attached(Acyclic("b1"), ONE, TWO)
    ask(broker, ONE, Subscribe(0, parse("a = 1")), Subscribe(1, parse("b = 1")))
    broker.receive(ONE, Batch((Subscribe(0, parse("c = 1")),), fresh=True))
    assert filters(broker) == ["c = 1"]


def test_many_requests_are_one_batch_to_each_neighbour() -> None:
    broker = attached(Acyclic("b1"), ALICE, ONE, TWO)
    requests = [Subscribe(key, parse(f"a = {key}")) for key in range(50)]
    sends = ask(broker, ALICE, *requests)
    assert [(to, len(said([Send(to, batch)]))) for to, batch in sends] == [(ONE, 50), (TWO, 50)]


def test_requests_that_undo_each_other_are_not_told() -> None:
    broker = attached(Acyclic("b1"), ALICE, ONE)
    assert ask(broker, ALICE, Subscribe(0, parse("a = 1")), Unsubscribe(0)) == []


def test_whoever_leaves_is_withdrawn_from_all_others() -> None:
    broker = attached(Acyclic("b1"), ONE, TWO, ALICE)
    ask(broker, ONE, Subscribe(0, parse("a = 1")))
    ask(broker, ALICE, Subscribe(0, parse("b = 1")))
    assert said(broker.detach(ONE)) == [("s2", "Unsubscribe")]
    assert said(broker.detach(ALICE)) == [("s2", "Unsubscribe")]
    assert filters(broker) == []


def test_events_go_to_all_who_asked_but_never_back() -> None:
    broker = attached(Acyclic("b1"), ALICE, BOB, ONE)
    for peer in (ALICE, BOB, ONE):
        ask(broker, peer, Subscribe(0, parse("a > 1")))
    found = broker.route(ONE, RowParcel("p", [{"a": 0}, {"a": 2}]))
    assert {peer: mask.tolist() for peer, mask in found.items()} == {
        ALICE: [False, True],
        BOB: [False, True],
    }


@pytest.mark.parametrize("selector", [ReferenceSelector, lambda: Matching(Index())])
def test_of_an_event_by_itself_it_is_said_which_subscriptions_of_a_session_match(
    selector: SelectorFactory,
) -> None:
    session = Peer.session("s")
    broker = attached(Acyclic("b1", selector), ALICE, session, ONE)
    for peer in (ALICE, session, ONE):
        ask(broker, peer, *(Subscribe(key, parse(f"a > {key}")) for key in range(3)))
    ask(broker, session, Subscribe(9, parse("a > :low"), {"low": 1}))
    ask(broker, session, Update(9, {"low": 3}, 1), Unsubscribe(0))
    batch = to_batch({"a": 2})
    for sender, others in ((ONE, [ALICE, session]), (session, [ALICE, ONE])):
        routes = broker.route(sender, Parcel.of("p", batch))
        assert sorted(routes) == sorted(others)
        assert routes.keys() == broker.route(sender, Parcel("p", batch)).keys()
    routes = broker.route(ONE, Parcel.of("p", batch))
    assert [matched_keys(routes, each) for each in (ALICE, session)] == [None, (1,)]
    assert matched_keys(broker.route(ONE, Parcel("p", batch)), session) is None
    broker.detach(session)
    assert list(broker.route(ONE, Parcel.of("p", batch))) == [ALICE]


@pytest.mark.parametrize(
    ("count", "is_named"), [(MOST_NAMED, True), (MOST_NAMED + 1, False), (MOST_MATCHES + 1, False)]
)
def test_of_many_that_match_none_is_named(
    count: int, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it matched twice."""
    session, index = Peer.session("s"), Index()
    broker = attached(Acyclic("b1", lambda: Matching(index)), session, ONE)
    ask(broker, session, *(Subscribe(key, parse(f"a > {key}")) for key in range(count)))
    monkeypatch.setattr(index, "route_event", lambda _: pytest.fail("it is matched again"))
    routes = broker.route(ONE, Parcel.of("p", to_batch({"a": count})))
    assert list(routes) == [session]
    assert matched_keys(routes, session) == (tuple(range(count)) if is_named else None)


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        (Peer.broker("s9"), Batch(()), "not attached"),
        (ONE, LinkState("s1", 1, ()), "no meaning"),
        (ONE, Settled(3), "wave 3"),
    ],
)
def test_an_illegal_message_names_its_sender(
    sender: Peer, message: Batch | LinkState | Settled, reason: str
) -> None:
    broker = attached(Acyclic("b1"), ONE)
    with pytest.raises(IllegalMessage, match=reason) as caught:
        broker.receive(sender, message)
    assert caught.value.sender == sender


def test_attaching_twice_and_detaching_a_stranger_are_mistakes_of_the_shell() -> None:
    broker = attached(Acyclic("b1"), ONE)
    with pytest.raises(ValueError, match="attached already"):
        broker.attach(ONE)
    with pytest.raises(ValueError, match="not attached"):
        broker.detach(TWO)
