from __future__ import annotations

from math import inf

import pytest

from palio.multicast import limits, outflows
from palio.multicast.datagrams import Datagram
from palio.multicast.epochs import Epoch
from palio.multicast.limits import (
    FIRST_WINDOW,
    LEAST_WINDOW,
    LINK_S,
    MAX_HISTORY_BYTES,
    MAX_TOGETHER,
    MAX_WAITING_BYTES,
    MOST_TAIL_S,
    SLOW_S,
)
from palio.multicast.listed import flooding
from palio.multicast.outflow import ByLinks, FlowState
from palio.multicast.outflows import FlowMessage
from tests.multicast.flows import Pair, event


def test_an_event_for_many_is_sent_once() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.send(1, 2)
    assert len(pair.datagrams) == 2
    assert not pair.links
    assert pair.came == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


def test_an_event_for_one_and_a_large_one_go_by_links() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.send(1, to=("a",))
    pair.send(2, is_small=False)
    assert not pair.datagrams
    assert pair.came == {"a": [1, 2], "b": [2]}


def test_who_does_not_want_an_event_of_its_group_takes_none() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.send(1, to=("a", "b"))
    assert pair.came == {"a": [1], "b": [1], "c": []}


def test_nothing_goes_by_a_flow_before_its_receiver_has_answered() -> None:
    pair = Pair("a", "b", loses=lambda said, name: name == "b")
    pair.deliver()
    assert pair.sender.can_reach("a")
    assert not pair.sender.can_reach("b")
    pair.loses = lambda said, name: False
    pair.wait(2.0)
    assert pair.sender.can_reach("b")


def test_datagrams_begin_once_what_went_before_the_flow_has_arrived() -> None:
    pair = Pair("a", "b")
    answered = False

    def loses(said: object, _name: str) -> bool:
        return isinstance(said, FlowState) and said.stage == 1 and not answered

    pair.loses = loses
    pair.deliver()
    pair.send(1)
    assert not pair.datagrams
    assert pair.came == {"a": [1], "b": [1]}
    answered = True
    pair.wait(2.0)
    pair.send(2)
    assert len(pair.datagrams) == 1


def test_what_one_lacks_comes_by_a_link_and_what_two_lack_by_the_group() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.loses = lambda said, name: isinstance(said, Datagram) and name == "a"
    pair.send(1)
    pair.loses = lambda said, name: False
    pair.wait(0.5)
    assert pair.came["a"] == [1]
    assert [each.to for each in pair.links] == [(("a", 1),)]
    pair.outgoing.clear()
    lost = [2]
    pair.loses = lambda said, name: isinstance(said, Datagram) and name != "c" and bool(lost)
    pair.send(2)
    lost.clear()
    pair.wait(0.5)
    assert pair.came == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    assert len(pair.links) == 1
    assert len(pair.datagrams) == 2


def test_the_tail_is_not_lost() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: isinstance(said, Datagram) and said.parcel is not None
    pair.send(1)
    assert pair.came["a"] == []
    pair.wait(0.5)
    assert pair.came == {"a": [1], "b": [1]}


def test_nothing_is_said_when_all_is_heard() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.send(1)
    pair.wait(0.5)
    pair.outgoing.clear()
    pair.wait(5.0)
    assert pair.outgoing == []


def test_a_window_is_halved_when_somebody_lacks_something_and_grows_when_it_is_heard() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: isinstance(said, Datagram) and name == "a"
    pair.send(1)
    pair.loses = lambda said, name: False
    pair.wait(0.3)
    assert LEAST_WINDOW <= pair.sender.window <= FIRST_WINDOW / 2 + 1
    before = pair.sender.window
    for number in range(2, 200):
        pair.send(number)
        pair.wait(0.02)
    assert pair.sender.window > before
    assert pair.came["a"] == list(range(1, 200))


def test_a_sender_whose_window_is_shut_asks_at_once() -> None:
    """Who has heard too few events to speak by itself answers."""
    pair = Pair("a", "b")
    pair.settle()
    pair.sender.window = LEAST_WINDOW
    numbers = list(range(1, 3 * LEAST_WINDOW + 1))
    for number in numbers:
        pair.send(number)
    assert pair.came["a"] == pair.came["b"] == numbers


def test_who_keeps_the_window_shut_is_moved_to_links_and_comes_back() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: name == "b"
    events = list(range(1, 4 * FIRST_WINDOW))
    for number in events:
        pair.send(number)
    assert len(pair.came["a"]) < len(events)
    pair.wait(SLOW_S + 0.5)
    assert pair.came["a"] == events
    assert pair.sender.moved == pair.sender.slow == ["b"]
    pair.loses = lambda said, name: False
    pair.wait(5.0)
    assert pair.sender.slow == []
    assert pair.came["b"] == events
    assert pair.sender.receivers() == {"a": True, "b": True}


def test_too_much_that_waits_moves_at_once() -> None:
    pair = Pair("a", "b", share=40_000 / MAX_WAITING_BYTES)
    pair.settle()
    pair.loses = lambda said, name: name == "b"
    for number in range(1, 4 * FIRST_WINDOW):
        pair.send(number)
    pair.send(4 * FIRST_WINDOW)
    assert pair.sender.moved == ["b"]


def test_what_is_never_heard_is_lost_in_the_end_and_told() -> None:
    pair = Pair("a", "b", share=100 * event(1).held_bytes / MAX_HISTORY_BYTES)
    pair.settle()
    pair.loses = lambda said, name: name == "b"
    for number in range(1, 400):
        pair.send(number, is_small=False)
        pair.wait(0.02)
    assert pair.sender.lost > 0
    pair.loses = lambda said, name: False
    pair.wait(3.0)
    assert pair.came["a"] == list(range(1, 400))
    assert pair.came["b"][-1] == 399
    assert pair.came["b"] == sorted(set(pair.came["b"]))
    assert len(pair.came["b"]) + pair.receivers["b"].lost == 399
    assert pair.receivers["b"].lost == pair.sender.lost


def test_who_keeps_up_loses_nothing_because_of_one_that_does_not() -> None:
    large = event(1, size=10_000)
    share = 5 * large.held_bytes / MAX_HISTORY_BYTES

    def loses(said: FlowMessage, name: str) -> bool:
        return name == "b" and isinstance(said, ByLinks)

    pair = Pair("a", "b", loses=loses, share=share)
    pair.settle()
    for _ in range(4):
        pair.sender.send(large, ("b",), is_small=False, now=pair.now)
    pair.deliver()
    pair.wait(1.0)
    pair.loses = lambda said, name: isinstance(said, ByLinks)
    for number in range(1, 21):  # more than wait for the other
        pair.sender.send(event(number, size=1_000), ("a",), is_small=False, now=pair.now)
    pair.deliver()
    pair.loses = loses
    pair.wait(3.0)
    assert pair.came["a"] == list(range(1, 21))
    assert pair.receivers["a"].lost == 0


def test_a_receiver_that_starts_anew_hears_what_comes_from_then_on() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.send(1)
    pair.restart("b")
    pair.sender.begin("b", 6)
    pair.sender.join("b", (7,))
    assert not pair.sender.can_reach("b")
    pair.deliver()  # it answers in its earlier incarnation, which counts for nothing
    assert not pair.sender.can_reach("b")


def test_one_that_ends_is_sent_nothing() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.sender.end("b")
    pair.send(1)
    pair.wait(1.0)
    assert pair.came == {"a": [1], "b": []}


def test_a_new_plan_is_used_for_those_who_have_joined_it() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.epoch = Epoch(8, flooding(("s", "a", "b", "c")))
    for name in ("a", "b"):
        pair.sender.join(name, (7, 8))
    pair.sender.use(pair.epoch)
    pair.send(1)
    assert [each.plan for each in pair.datagrams] == [8]
    assert [each.to for each in pair.links] == [(("c", 1),)]
    assert pair.came == {"a": [1], "b": [1], "c": [1]}
    pair.sender.use(None)
    pair.send(2)
    assert len(pair.datagrams) == 1
    assert pair.came == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


def test_more_is_not_repaired_at_once() -> None:
    assert limits.MAX_REPAIRED < 3 * FIRST_WINDOW
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: name == "b"
    for number in range(1, 3 * FIRST_WINDOW):
        pair.send(number, to=("b",))
    pair.outgoing.clear()
    pair.loses = lambda said, name: False
    later = pair.now + LINK_S
    pair.sender.receive_ack("b", 5, stage=2, number=0, lacking=((1, 10_000),), now=later)
    repaired = [each for each in pair.sender.outgoing if isinstance(each, ByLinks)]
    assert len(repaired) == limits.MAX_REPAIRED


def test_who_comes_back_in_the_same_life_hears_what_comes_from_then_on() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.send(1, 2)
    pair.loses = lambda _said, name: name == "a"
    pair.send(3)
    pair.sender.end("a")
    pair.loses = lambda _said, _name: False
    pair.sender.begin("a", 5)
    pair.sender.join("a", (7,))
    pair.settle()
    pair.send(4)
    assert pair.came == {"a": [1, 2, 4], "b": [1, 2, 3, 4]}
    assert pair.receivers["a"].lost == 1


def test_who_goes_sends_by_links_what_was_not_heard_and_what_waits() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.send(1)
    pair.wait(0.1)
    pair.loses = lambda said, name: isinstance(said, Datagram)
    count = 2 * FIRST_WINDOW
    pair.send(*range(2, count))
    assert pair.came["a"] == [1]
    pair.outgoing.clear()
    pair.sender.flush(pair.now)
    pair.deliver()
    assert pair.came == {"a": list(range(1, count)), "b": list(range(1, count))}
    assert len(pair.links) == count - 2


def test_not_too_much_of_what_waited_goes_at_once() -> None:
    pair = Pair("a", "b", loses=lambda said, name: isinstance(said, Datagram))
    pair.settle()
    count = FIRST_WINDOW + 2 * MAX_TOGETHER + 1
    for number in range(1, count + 1):
        pair.sender.send(event(number), ("a", "b"), now=pair.now)
    pair.deliver()
    pair.now += SLOW_S
    sent = []
    while pair.sender.wake_at <= pair.now:
        pair.outgoing.clear()
        pair.sender.tick(pair.now)
        sent.append(len([each for each in pair.sender.outgoing if isinstance(each, ByLinks)]))
        pair.deliver()
    assert [each for each in sent if each] == [MAX_TOGETHER, MAX_TOGETHER, 1]
    pair.wait(3.0)
    assert pair.came == {name: list(range(1, count + 1)) for name in "ab"}


def test_what_waits_for_who_is_gone_has_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outflows, "FIRST_WINDOW", 2)
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda _said, _name: True
    pair.send(1, 2)
    pair.loses = lambda _said, _name: False
    pair.send(3, 4)  # they wait
    pair.sender.end("a")
    pair.sender.begin("a", 5)
    pair.wait(3.0)
    assert pair.came == {"a": [], "b": [1, 2, 3, 4]}
    assert pair.receivers["a"].lost == pair.sender.lost == 4


def test_who_hears_no_group_is_told_of_the_tail_by_links() -> None:
    pair = Pair("a", "b", loses=lambda said, name: isinstance(said, Datagram) and name == "a")
    pair.settle()
    pair.send(1)
    pair.wait(MOST_TAIL_S)
    assert pair.came == {"a": [], "b": [1]}
    pair.wait(MOST_TAIL_S + 0.1)
    assert pair.came == {"a": [1], "b": [1]}


def test_who_is_moved_to_links_is_not_told_by_datagrams_what_goes_by_links() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.sender.join("c", ())
    pair.loses = lambda said, name: name == "c" and not isinstance(said, Datagram)
    pair.send(1)
    assert len(pair.datagrams) == 1
    assert pair.receivers["c"].wake_at == inf
    assert pair.came == {"a": [1], "b": [1], "c": []}


def test_what_goes_by_links_is_not_repeated_while_it_may_be_on_its_way() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: not isinstance(said, Datagram)
    pair.send(1, to=("a",))
    pair.loses = lambda said, name: False
    pair.send(2)
    pair.wait(LINK_S - 0.05)
    assert pair.came["a"] == []
    pair.wait(1.0)
    assert pair.came["a"] == [1, 2]


def test_what_is_sent_again_by_a_slow_link_is_sent_again_once() -> None:
    pair = Pair("a", "b", "c")
    pair.settle()
    pair.loses = lambda _said, name: name == "a"
    pair.send(*range(1, 21))
    pair.outgoing.clear()
    pair.sender.outgoing.clear()
    for asked in range(10):  # what was sent again arrives one by one, slower than it is asked for
        lacking = ((asked + 1, 20),)
        pair.now += LINK_S / 2
        pair.sender.receive_ack("a", 5, stage=2, number=asked, lacking=lacking, now=pair.now)
    again = [each for each in pair.sender.outgoing if isinstance(each, ByLinks)]
    assert [each.to for each in again] == [(("a", number),) for number in range(1, 21)]
    pair.now += LINK_S
    pair.sender.receive_ack("a", 5, stage=2, number=9, lacking=((10, 20),), now=pair.now)
    assert len(pair.sender.outgoing) == len(again) + 11, "it gets no further: they were lost"


def test_who_hears_no_datagram_is_told_by_links_though_events_go_on() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: isinstance(said, Datagram) and name == "b"
    for number in range(1, 31):
        pair.send(number)
        pair.wait(0.1)
    assert pair.came["b"][:10] == list(range(1, 11))
    pair.wait(2.0)
    assert pair.came["b"] == list(range(1, 31))


def test_who_lacks_most_is_moved_to_links_and_keeps_nobody_waiting() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: isinstance(said, Datagram) and name == "b"
    for number in range(1, 3_000):
        pair.send(number)
        if number % 5 == 0:
            pair.wait(0.01)
    assert pair.sender.moved == ["b"] * len(pair.sender.moved)
    assert 1 <= len(pair.sender.moved) <= 3  # each time for longer
    pair.wait(1.0)
    assert pair.came["a"] == list(range(1, 3_000))
    pair.loses = lambda said, name: False
    pair.wait(8.0)
    pair.send(3_000)
    pair.wait(1.0)
    assert pair.came["b"] == list(range(1, 3_001))
    assert pair.sender.receivers() == {"a": True, "b": True}


def test_what_waits_goes_on_when_who_kept_the_window_shut_leaves_the_groups() -> None:
    pair = Pair("a", "b")
    pair.settle()
    pair.loses = lambda said, name: name == "b"
    events = list(range(1, 3 * FIRST_WINDOW))
    for number in events:
        pair.send(number)
    assert len(pair.came["a"]) < len(events)
    pair.sender.join("b", ())
    pair.wait(0.02)
    assert pair.came["a"] == events
