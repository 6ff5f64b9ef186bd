"""Windows and queues of many receivers, and what they hold together."""

from __future__ import annotations

import msgspec
import pytest

from palio.node.authority import Principal
from palio.node.effects import Effect, Send
from palio.node.limits import FEW_RECEIVERS
from palio.node.sessions import Budget, Neighbour, PeerSession, Session
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import (
    Accepted,
    Carry,
    Deliver,
    Done,
    Forward,
    Gap,
    Gaps,
    Message,
    Route,
    Share,
)
from palio.protocol.streams import Stream, size_of
from palio.routing.messages import Control, Reached
from palio.routing.patterns.messages import Ready
from palio.routing.protocol import Peer
from tests.node.events import parcel

MANY = 1 << 30


def party(budget: Budget, link: int = 1) -> PeerSession:
    peer = Peer.session(f"s{link}")
    return PeerSession(peer.name, peer, Principal("p"), link, Stream(WINDOW_BYTES), budget)


def some(number: int = 0) -> Deliver:
    return Deliver(parcel({"x": number}, first_seq=1 + number))


SIZE = size_of(some())


def sent(out: list[Effect]) -> list[Message]:
    return [effect.message for effect in out if isinstance(effect, Send)]


def test_windows_hold_no_more_than_half_of_the_budget_together() -> None:
    budget = Budget(200 * SIZE)
    stalled = [party(budget, link) for link in range(20)]
    for number in range(100):
        for each in stalled:
            each.offer([], some(number), MANY)
    assert 0 < budget.under_way <= 100 * SIZE
    assert budget.under_way == sum(each.stream.unseen_bytes for each in stalled)
    assert budget.used + budget.under_way <= budget.maximum
    assert all(each.dropped for each in stalled)


def test_one_that_keeps_up_has_room_beside_any_number_that_stall() -> None:
    budget = Budget(200 * SIZE)
    stalled = [party(budget, link) for link in range(50)]
    healthy = party(budget, 99)
    heard: list[Effect] = []
    for number in range(100):
        for each in (*stalled, healthy):
            each.offer(heard if each is healthy else [], some(number), MANY)
        healthy.seen(healthy.stream.sent)
        healthy.send_waiting(heard)
    assert len(sent(heard)) == 100
    assert healthy.dropped == 0


@pytest.mark.parametrize(("beyond", "has_room"), [(-1, False), (0, False), (1, True)])
def test_what_is_left_for_all_is_what_each_may_have(beyond: int, has_room: bool) -> None:
    budget = Budget(200 * SIZE)
    one = party(budget)
    one.send([], some())
    budget.under_way = 100 * SIZE - (SIZE + beyond)
    assert one.has_room == has_room


@pytest.mark.parametrize(
    ("receivers", "room"),
    [(FEW_RECEIVERS - 1, 512), (FEW_RECEIVERS, 512), (FEW_RECEIVERS + 1, 511)],
)
def test_a_fair_share_is_left_to_each_whatever_the_others_hold(receivers: int, room: int) -> None:
    budget = Budget(2 * 512 * FEW_RECEIVERS)
    budget.under_way = budget.maximum
    budget.receivers = receivers
    assert budget.room == room


@pytest.mark.parametrize(("under_way", "most"), [(60, 39), (87, 12), (500, 12)])
def test_queues_have_an_eighth_whatever_is_under_way(under_way: int, most: int) -> None:
    budget = Budget(100 * SIZE)
    one = party(budget)
    budget.under_way = under_way * SIZE
    for number in range(1 + most):  # the first is sent
        one.offer([], some(number), MANY)
    assert one.dropped == 0
    one.offer([], some(1 + most), MANY)
    assert one.dropped


def test_a_quarter_in_answers_is_a_strain_and_events_are_none() -> None:
    budget = Budget(4 * 128 * 5)
    one = party(budget)
    one.offer([], some(), MANY)
    for number in range(5):
        one.send([], Done(number))
    found = [(budget.answers, one.stream.unseen_answers, budget.is_strained)]
    one.send([], Done(6))
    found.append((budget.answers, one.stream.unseen_answers, budget.is_strained))
    one.seen(3)
    found.append((budget.answers, one.stream.unseen_answers, budget.is_strained))
    one.forget()
    assert found == [(640, 640, False), (768, 768, True), (512, 512, False)]
    assert budget.answers == 0


def session(budget: Budget) -> Session:
    peer = Peer.session("s1")
    stream = Stream(SIZE)
    return Session("s1", peer, Principal("p"), 1, stream, budget, owner="p", publisher="p/1")


def told(out: list[Effect]) -> list[Gap]:
    return [gap for each in sent(out) if isinstance(each, Gaps) for gap in each.gaps]


def test_a_gap_names_the_durable_subscription_that_lost_live_events() -> None:
    one, out = session(Budget(100 * SIZE)), list[Effect]()
    one.offer(out, some(0), MANY)
    for number, key in ((1, 7), (2, -1), (3, 7), (4, 8)):
        one.offer(out, msgspec.structs.replace(some(number), key=key), MANY)
    one.shed(0)
    one.seen(one.stream.sent)
    one.send_waiting(out)
    name = some().parcel.publisher
    assert told(out) == [Gap(name, 2, 4, 2, 7), Gap(name, 3, 3, 1, -1), Gap(name, 5, 5, 1, 8)]


def test_what_waits_does_not_say_for_which_subscriptions_it_is() -> None:
    """An answer to a change of one of them may go before it."""
    one, out = session(Budget(100 * SIZE)), list[Effect]()
    named = msgspec.structs.replace(some(), subscriptions=(3,))
    for _ in range(100):
        one.offer(out, named, MANY)
    one.seen(one.stream.sent)
    one.send_waiting(out)
    said = [each.subscriptions for each in sent(out) if isinstance(each, Deliver)]
    assert said == sorted(said, key=lambda each: each is None)
    assert {*said} == {(3,), None}


def test_lapses_while_a_client_is_away_or_reads_nothing_are_one() -> None:
    one, out = session(Budget(100 * SIZE)), list[Effect]()
    one.offer(out, some(), MANY)
    for _ in range(100):
        one.lapse(out, "b2: it broke")
    one.seen(one.stream.sent)
    one.link = None
    for _ in range(100):
        one.lapse(out, "b2: it broke")
    assert told(out) == []
    one.link = 2
    one.send_waiting(out)
    one.send_waiting(out)
    assert told(out) == [Gap("*", 0, 0, 0, reason="b2: it broke")]


def test_a_neighbour_lapses_once_for_what_was_dropped() -> None:
    budget = Budget(100 * SIZE)
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(SIZE), budget)
    assert not link.has_dropped()
    for number in range(3):
        link.offer([], Forward(parcel({"x": number}, first_seq=1 + number)), MANY)
    link.shed(0)
    assert link.has_dropped()
    assert not link.has_dropped()


@pytest.mark.parametrize("last", [Ready(7), Reached("b1", 1, 0)])
def test_that_no_event_follows_is_said_after_the_events_that_wait(last: Control) -> None:
    out = list[Effect]()
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(SIZE), Budget(9 * SIZE))
    for number in (1, 2):
        link.offer(out, Forward(parcel({"x": number}, first_seq=number)), MANY)
    link.send_portion(out, Route(last))
    assert [type(each) for each in sent(out)] == [Forward]
    link.seen(1)
    link.send_waiting(out)
    assert [type(each) for each in sent(out)] == [Forward, Forward, Route]
    link.send_portion(out, Route(last))
    assert len(sent(out)) == 4


def test_a_message_behind_events_waits_for_no_later_ones() -> None:
    out = list[Effect]()
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(SIZE), Budget(MANY))
    for number in range(1, 9):  # events come as fast as the link sends them
        link.offer(out, Forward(parcel({"x": number}, first_seq=number)), MANY)
        if number == 3:
            link.send_portion(out, Route(Ready(7)))
            link.send_behind(out, Done(1))
        link.seen(min(number // 2, len(sent(out))))
        link.send_waiting(out)
    kinds = [type(each) for each in sent(out)]
    assert kinds == [Forward, Forward, Forward, Route, Done, *kinds[5:]]
    assert link.queued_bytes > 0


def test_a_message_behind_events_comes_even_if_they_are_shed() -> None:
    out = list[Effect]()
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(SIZE), Budget(MANY))
    for number in range(1, 5):
        link.offer(out, Forward(parcel({"x": number}, first_seq=number)), MANY)
        if number % 2:
            link.send_behind(out, Done(number))
    link.shed(SIZE)
    link.send_waiting(out)
    assert sent(out)[1:] == [Done(1), Done(3)]
    assert link.dropped == 2
    link.seen(3)
    link.send_waiting(out)
    assert [type(each) for each in sent(out)] == [Forward, Done, Done, Forward]


def test_a_durable_entry_is_in_the_queue_of_a_link_once() -> None:
    out = list[Effect]()
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(SIZE), Budget(MANY))

    def carry(offset: int, previous: int) -> Carry:
        return Carry(parcel({"x": 1}), "b1", 7, "b3", 8, offset, previous, (Share("s", 1, None),))

    link.send(out, some())
    for _ in range(3):  # an origin retransmits what a slow link has not carried yet
        link.carry(out, carry(1, 0), MANY)
        link.carry(out, carry(2, 1), MANY)
    link.carry(out, carry(2, 0), MANY)
    for _ in range(4):
        link.seen(len(sent(out)))
        link.send_waiting(out)
    offsets = [(each.offset, each.previous) for each in sent(out) if isinstance(each, Carry)]
    assert offsets == [(1, 0), (2, 1), (2, 0)]
    link.carry(out, carry(1, 0), MANY)
    assert len(sent(out)) == 5, "what was sent may be lost on its way"


def test_a_link_between_brokers_has_its_window_whatever_clients_hold() -> None:
    budget = Budget(2 * SIZE)
    budget.under_way = 100 * SIZE
    link = Neighbour("b2", Peer.broker("b2"), Principal("b2"), 1, Stream(3 * SIZE), budget)
    rooms = []
    for number in range(4):
        rooms.append(link.has_room)
        link.send([], some(number))
    assert rooms == [True, True, True, False]


def test_one_that_has_seen_all_has_room_whatever_the_others_hold() -> None:
    budget = Budget(2 * SIZE)
    budget.under_way = 100 * SIZE
    one, out = party(budget), list[Effect]()
    one.offer(out, some(), MANY)
    assert len(sent(out)) == 1
    assert not one.has_room


def test_a_session_that_is_over_gives_back_what_it_held_and_takes_no_more() -> None:
    budget = Budget(4 * SIZE)
    one = party(budget)
    for number in range(10):
        one.offer([], some(number), MANY)
    assert (budget.under_way > 0, budget.used > 0) == (True, True)
    one.forget()
    one.send([], Accepted(1, "durable"))
    assert (budget.under_way, budget.used, dict(budget.queued)) == (0, 0, {})
    assert budget.receivers == 0
