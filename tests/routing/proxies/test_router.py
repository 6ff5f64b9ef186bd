"""Registrations and subscriptions: every rule, figure and example of proxy IV-A to IV-C.2."""

from __future__ import annotations

import math

import pytest

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.routing.protocol import Peer
from palio.routing.proxies.messages import (
    MAX_BUNDLE,
    Alive,
    Bundle,
    Dereg,
    Merged,
    Reg,
    Sub,
    Wish,
    type_of,
    type_with,
)
from palio.routing.proxies.router import Proxies
from tests.routing.proxy_network import ALL, FIGURE_3, FIGURE_4, E, Network, above, said

# --- IV-A: events and their types ---


def test_a_type_is_the_attributes_of_an_event() -> None:
    assert type_of({"b": 1, "a": None, "$seq": 7, "c": "x"}) == ("b", "c")
    assert type_with(["c", "b", "c", "$time"]) == ("b", "c")


def test_the_stock_example_merges_as_in_the_paper() -> None:
    network = Network({"P1": None, "P2": "P1"})
    source, one, other = (network.client(*e) for e in (("S", "P1"), ("a", "P2"), ("b", "P2")))
    stock = ("Stock.Name", "Stock.Price")
    source.register(*stock)
    one.subscribe(stock, parse_filter("Stock.Name = 'A' AND Stock.Price < 10"))
    other.subscribe(stock, parse_filter("Stock.Name = 'A' AND Stock.Price < 15"))
    assert network.run() == said(P2_P1_Merged=2)
    (line,) = network.proxies["P1"].table()
    merged = line.outgoing[Peer.broker("P2")]
    assert [str(each.specification) for each in merged] == ["Stock.Name = 'A' AND Stock.Price < 15"]
    source.publish({"Stock.Name": "A", "Stock.Price": 12}, {"Stock.Name": "A", "Stock.Price": 9})
    network.run()
    assert [len(each.heard) for each in (one, other)] == [1, 2]


# --- IV-C.1: registrations ---


def test_figure_3_registration_procedures() -> None:
    network = Network(FIGURE_3)
    s1, s2, s3 = (network.client(*each) for each in (("S1", "P2"), ("S2", "P4"), ("S3", "P5")))
    s1.register("x")
    assert network.run() == said(P2_P1_Reg=1)  # (a)
    assert network.line("P2", E) == ({"S1"}, set())
    assert network.line("P1", E) == ({"P2"}, set())

    s2.register("x")
    assert network.run() == said(  # (b)
        P4_P3_Reg=1, P3_P1_Reg=1, P1_P2_Reg=1, P1_P3_Reg=1, P3_P4_Reg=1
    )
    assert network.line("P1", E) == ({"P2", "P3"}, set())
    assert network.line("P2", E) == ({"S1", "P1"}, set())
    assert network.line("P3", E) == ({"P1", "P4"}, set())
    assert network.line("P4", E) == ({"S2", "P3"}, set())

    s3.register("x")
    assert network.run() == said(P5_P3_Reg=1, P3_P5_Reg=1)  # (c)
    assert network.line("P3", E) == ({"P1", "P4", "P5"}, set())
    assert network.line("P5", E) == ({"P3", "S3"}, set())
    assert network.line("P1", E) == ({"P2", "P3"}, set())
    assert network.line("P2", E) == ({"S1", "P1"}, set())
    assert network.line("P4", E) == ({"S2", "P3"}, set())


def test_deregistration_takes_figure_3_back() -> None:
    network = Network(FIGURE_3)
    s1, s2, s3 = (network.client(*each) for each in (("S1", "P2"), ("S2", "P4"), ("S3", "P5")))
    for source in (s1, s2, s3):
        source.register("x")
    network.run()
    s2.deregister("x")  # two are left at P3: the message stops there
    assert network.run() == said(P4_P3_Dereg=1)
    assert network.line("P4", E) is None
    assert network.line("P3", E) == ({"P1", "P5"}, set())
    s3.deregister("x")  # one is left at P3, H = P1, and then at P1, H = P2
    assert network.run() == said(P5_P3_Dereg=1, P3_P1_Dereg=1, P1_P2_Dereg=1)
    assert network.line("P2", E) == ({"S1"}, set())
    s1.deregister("x")  # none is left: to the parent
    assert network.run() == said(P2_P1_Dereg=1)
    assert not any(proxy.table() for proxy in network.proxies.values())


def test_a_second_source_at_a_proxy_is_nobody_elses_business() -> None:
    network = Network(FIGURE_3)
    for name in ("S1", "S2", "S3"):
        network.client(name, "P2").register("x")
    assert network.run() == said(P2_P1_Reg=1)
    assert network.line("P2", E) == ({"S1", "S2", "S3"}, set())


def test_a_silent_source_is_given_up_by_its_primary_proxy() -> None:
    network = Network(FIGURE_4, silence=10)
    source, receiver = network.client("S", "P2"), network.client("R", "P3")
    source.register("x")
    receiver.subscribe(E, ALL, lifetime=math.inf)
    network.run()
    network.advance(9.5)
    source.publish({"x": 1})  # an event is as good as a heartbeat
    network.advance(9.5)
    source.say(Alive())
    network.advance(9.5)
    network.run()
    assert network.line("P1", E) == ({"P2"}, {"P3"})
    assert network.proxies["P2"].wake == 29.0
    network.advance(0.5)
    assert network.run() == said(P2_P1_Dereg=1)
    assert network.line("P1", E) == (set(), {"P3"})
    assert not source.offered  # it was told
    source.register("x")
    network.run()
    source.publish({"x": 2})
    network.run()
    assert [each.event["x"] for each in receiver.heard] == [1, 2]


def test_a_source_that_comes_and_goes_is_watched_once() -> None:
    proxy, source = Proxies("P1", root=True, silence=1.0), Peer.client("S")
    for now in range(5):
        proxy.attach(source)
        proxy.receive(source, Reg(E))
        proxy.detach(source)
        proxy.advance(now / 100)
    proxy.attach(source)
    proxy.receive(source, Reg(E))
    proxy.advance(1.0)
    assert proxy.table()
    assert [each.message for each in proxy.advance(1.04)] == [Dereg(E)]
    assert proxy.wake is None


# --- IV-C.2: subscriptions ---


def test_figure_4_registration_after_subscription() -> None:
    network = Network(FIGURE_4)
    s1, s2 = network.client("S1", "P2"), network.client("S2", "P4")
    receiver = network.client("R", "P3")
    s1.register("x")
    receiver.subscribe(E, ALL)
    assert network.run() == said(P2_P1_Reg=1, P3_P1_Merged=1, P1_P2_Merged=1)
    assert network.line("P1", E) == ({"P2"}, {"P3"})
    assert network.line("P2", E) == ({"S1"}, {"P1"})
    assert network.line("P3", E) == ({"P1"}, {"R"})
    s2.register("x")
    assert network.run() == said(P4_P1_Reg=1, P1_P2_Reg=1, P1_P4_Reg=1, P1_P4_Merged=1)
    assert network.line("P4", E) == ({"S2", "P1"}, {"P1"})
    s2.publish({"x": 1})
    network.run()
    assert [each.publisher for each in receiver.heard] == ["S2"]


def test_a_covered_subscription_stops() -> None:
    network = Network({"P1": None, "P2": "P1", "P3": "P2"})
    source, wide, narrow = (
        network.client(name, proxy) for name, proxy in (("S", "P1"), ("W", "P2"), ("N", "P3"))
    )
    source.register("x")
    wide.subscribe(E, above(1))
    network.run()
    narrow.subscribe(E, above(5))
    assert network.run() == said(P3_P2_Merged=1)
    narrow.unsubscribe(*E)
    assert network.run() == said(P3_P2_Unsub=1)
    wide.subscribe(E, above(3))  # narrows: one message in place of the old
    assert network.run() == said(P2_P1_Merged=1)
    source.publish({"x": 2})
    network.run()
    assert not network.crossed


def test_a_subscription_goes_to_all_incoming_but_its_own() -> None:
    network = Network(FIGURE_3)
    for name, proxy in (("S1", "P2"), ("S2", "P4"), ("S3", "P5")):
        network.client(name, proxy).register("x")
    network.run()
    network.client("R", "P4").subscribe(E, ALL)
    assert network.run() == said(P4_P3_Merged=1, P3_P1_Merged=1, P3_P5_Merged=1, P1_P2_Merged=1)
    assert network.line("P3", E) == ({"P1", "P4", "P5"}, {"P4"})


def test_an_unsubscription_takes_everything_back() -> None:
    network = Network(FIGURE_3)
    for name, proxy in (("S1", "P2"), ("S2", "P4")):
        network.client(name, proxy).register("x")
    one, other = network.client("R", "P5"), network.client("Q", "P4")
    network.run()
    before = {name: network.line(name, E) for name in network.proxies}
    one.subscribe(E, above(1))
    other.subscribe(E, above(2))
    network.run()
    one.unsubscribe(*E)
    # P4 and P2 need only serve Q now; the others lose R's demand and keep Q's, or nothing.
    assert network.run() == said(P5_P3_Unsub=1, P3_P4_Unsub=1, P3_P1_Merged=1, P1_P2_Merged=1)
    other.unsubscribe(*E)
    assert network.run() == said(P4_P3_Unsub=1, P3_P1_Unsub=1, P1_P2_Unsub=1)
    assert {name: network.line(name, E) for name in network.proxies} == before


def test_without_a_source_the_root_drops_and_tells() -> None:
    network = Network(FIGURE_3)
    receiver = network.client("R", "P4")
    receiver.subscribe(E, ALL)
    assert network.run() == said(P4_P3_Merged=1, P3_P1_Merged=1, P1_P3_Drop=1, P3_P4_Drop=1)
    assert receiver.dropped == [E]
    assert not any(proxy.table() for proxy in network.proxies.values())


def test_a_pre_subscription_is_kept_for_its_lifetime() -> None:
    network = Network(FIGURE_3)
    receiver = network.client("R", "P4")
    receiver.subscribe(E, ALL, lifetime=10)
    assert network.run() == said(P4_P3_Merged=1, P3_P1_Merged=1)
    assert network.line("P1", E) == (set(), {"P3"})
    assert network.line("P4", E) == ({"P3"}, {"R"})
    assert network.proxies["P4"].wake == 10.0
    network.advance(9.75)
    network.client("S", "P2").register("x")
    network.run()
    network.clients["S"].publish({"x": 1})
    network.run()
    assert len(receiver.heard) == 1
    network.clients["S"].deregister("x")
    network.run()
    assert not receiver.dropped
    network.advance(0.25)
    network.run()
    assert receiver.dropped == [E]
    assert not any(proxy.table() for proxy in network.proxies.values())


def test_a_lifetime_that_ends_while_there_is_a_source_changes_nothing_for_the_receiver() -> None:
    network = Network(FIGURE_4)
    source, receiver = network.client("S", "P2"), network.client("R", "P3")
    source.register("x")
    receiver.subscribe(E, ALL, lifetime=1)
    network.run()
    network.advance(1)
    network.run()
    source.publish({"x": 1})
    network.run()
    assert len(receiver.heard) == 1
    source.deregister("x")
    network.run()
    assert receiver.dropped == [E]


def test_a_new_subscription_starts_a_new_lifetime() -> None:
    network = Network({"P1": None})
    receiver = network.client("R", "P1")
    receiver.subscribe(E, ALL, lifetime=5)
    network.advance(3)
    receiver.subscribe(E, above(3), lifetime=5)
    network.advance(3)
    assert not receiver.dropped
    network.advance(2)
    assert receiver.dropped == [E]


def test_what_a_pre_subscription_covers_is_kept_with_it() -> None:
    network = Network({"P1": None, "P2": "P1"})
    kept, covered, dropped = (network.client(name, "P2") for name in "KCD")
    kept.subscribe(E, above(1), lifetime=math.inf)
    covered.subscribe(E, above(3))
    dropped.subscribe(E, parse_filter("x < 3"))
    network.run()
    assert (kept.dropped, covered.dropped, dropped.dropped) == ([], [], [E])
    assert network.line("P1", E) == (set(), {"P2"})


def test_an_ordinary_wish_comes_out_when_the_pre_wish_that_hid_it_goes() -> None:
    network = Network({"P1": None, "P2": "P1"})
    source, kept, hidden = (network.client(*e) for e in (("S", "P1"), ("K", "P2"), ("H", "P2")))
    source.register("x")
    kept.subscribe(E, above(1), lifetime=math.inf)
    hidden.subscribe(E, above(3))
    assert network.run() == said(P2_P1_Merged=1)
    kept.unsubscribe(*E)
    assert network.run() == said(P2_P1_Merged=1)
    source.publish({"x": 4}, {"x": 2})
    network.run()
    assert len(hidden.heard) == 1
    assert network.crossed["P1", "P2"] == 1


def test_what_a_drop_leaves_is_the_same_at_both_ends() -> None:
    """A proxy cannot know what of its subscription is covered by others above it."""
    network = Network({"P1": None, "P2": "P1"})
    kept, covered, other = (network.client(*e) for e in (("K", "P1"), ("C", "P2"), ("D", "P2")))
    kept.subscribe(E, above(1), lifetime=math.inf)
    covered.subscribe(E, above(3))
    network.run()
    assert network.line("P1", E) == (set(), {"K", "P2"})
    other.subscribe(E, parse_filter("x < 1"))
    network.run()
    assert (kept.dropped, covered.dropped, other.dropped) == ([], [E], [E])
    assert network.line("P1", E) == (set(), {"K"})
    assert network.line("P2", E) is None


def test_losing_the_last_source_drops_what_is_not_pre() -> None:
    network = Network(FIGURE_4)
    source = network.client("S", "P2")
    near, far = network.client("N", "P2"), network.client("F", "P3")
    source.register("x")
    network.run()
    near.subscribe(E, ALL)
    far.subscribe(E, ALL)
    network.run()
    source.deregister("x")
    network.run()
    assert (near.dropped, far.dropped) == ([E], [E])
    assert not any(proxy.table() for proxy in network.proxies.values())


def test_a_source_below_leaves_no_gap_in_what_comes_from_above() -> None:
    """The parent is in the IPL by default; a registration from below does not take it out."""
    network = Network(FIGURE_4)
    far, near, receiver = (network.client(*e) for e in (("F", "P2"), ("N", "P3"), ("R", "P3")))
    far.register("x")
    receiver.subscribe(E, ALL)
    network.run()
    near.register("x")
    network.links["P3", "P1"].clear()  # say that REG takes its time
    far.publish({"x": 1})
    network.run()
    assert network.line("P3", E) == ({"P1", "N"}, {"R"})
    assert len(receiver.heard) == 1


# --- crossing messages ---


def test_a_drop_of_an_older_subscription_is_stale() -> None:
    network = Network({"P1": None, "P2": "P1"})
    one, other, source = (network.client(*e) for e in (("A", "P2"), ("B", "P2"), ("S", "P1")))
    one.subscribe(E, above(5))
    network.step(lambda busy: ("P2", "P1"))  # the root answers with a drop
    other.subscribe(E, above(1))  # meanwhile: more
    source.register("x")
    network.step(lambda busy: ("P2", "P1"))
    network.run()
    assert not one.dropped
    assert not other.dropped
    source.publish({"x": 6})
    network.run()
    assert [len(one.heard), len(other.heard)] == [1, 1]


def test_a_drop_that_meets_a_new_source_drops_nothing() -> None:
    network = Network({"P1": None, "P2": "P1"})
    receiver, source = network.client("R", "P2"), network.client("S", "P2")
    receiver.subscribe(E, ALL)
    network.step(lambda busy: ("P2", "P1"))
    source.register("x")
    assert network.run() == said(P2_P1_Merged=1, P1_P2_Drop=1, P2_P1_Reg=1)
    source.publish({"x": 1})
    assert len(receiver.heard) == 1
    assert not receiver.dropped


def test_what_was_said_of_a_withdrawn_registration_is_stale() -> None:
    network = Network(FIGURE_4)
    steady, source, receiver = (network.client(*e) for e in (("T", "P2"), ("S", "P4"), ("R", "P3")))
    steady.register("x")
    receiver.subscribe(E, ALL, lifetime=math.inf)
    network.run()
    source.register("x")
    network.step(lambda busy: ("P4", "P1"))  # P1 answers: there are others, and R wants it
    source.deregister("x")
    source.register("x")  # with another number
    steady.deregister("x")
    network.step(lambda busy: ("P2", "P1"))
    network.run()
    assert network.line("P4", E) == ({"S"}, {"P1"})  # not P1 as a source, which is gone
    source.publish({"x": 1})
    network.run()
    assert len(receiver.heard) == 1


# --- peers that come and go ---


def test_a_detached_child_is_withdrawn_and_an_attached_parent_told_all_in_one_bundle() -> None:
    network = Network(FIGURE_3)
    source, receiver = network.client("S", "P5"), network.client("R", "P2")
    for name in ("a", "b", "x"):
        source.register(name)
    receiver.subscribe(E, ALL, lifetime=math.inf)
    network.run()
    network.detach("P3")
    network.run()
    assert network.line("P1", ("a",)) is None
    assert network.line("P1", E) == (set(), {"P2"})
    assert network.line("P5", E) == ({"S"}, set())
    (send,) = network.proxies["P3"].attach(Peer.master("P1"))
    assert isinstance(send.message, Bundle)
    assert [type(each) for each in send.message.messages] == [Reg] * 3
    network.carry("P3", [send])
    network.carry("P1", network.proxies["P1"].attach(Peer.broker("P3")))
    network.run()
    source.publish({"x": 1})
    network.run()
    assert len(receiver.heard) == 1


def test_a_proxy_without_its_parent_is_no_root() -> None:
    proxy, receiver = Proxies("P2"), Peer.client("R")
    proxy.attach(receiver)
    assert proxy.receive(receiver, Sub(E, ALL)) == []
    (send,) = proxy.attach(Peer.master("P1"))
    assert send.message == Merged(E, (Wish(ALL),), 1)


def test_a_proxy_has_one_parent_and_the_root_none() -> None:
    proxy = Proxies("P2")
    proxy.attach(Peer.master("P1"))
    with pytest.raises(InvalidInput, match="has master P1 above it"):
        proxy.attach(Peer.master("P9"))
    with pytest.raises(InvalidInput, match="is the root"):
        Proxies("P1", root=True).attach(Peer.master("P0"))
    with pytest.raises(ValueError, match="attached already"):
        proxy.attach(Peer.master("P1"))
    with pytest.raises(ValueError, match="not attached"):
        proxy.detach(Peer.client("R"))
    assert proxy.peers == [Peer.master("P1")]


def test_a_bundle_is_answered_by_bundles_of_at_most_max_bundle() -> None:
    proxy, child, parent = Proxies("P2"), Peer.broker("P3"), Peer.master("P1")
    for peer in (child, parent):
        proxy.attach(peer)
    proxy.receive(child, Bundle(tuple(Reg((f"t{n}",), 1) for n in range(MAX_BUNDLE - 1))))
    for more, sizes in (("", [MAX_BUNDLE - 1]), ("u", [MAX_BUNDLE]), ("v", [MAX_BUNDLE, 1])):
        if more:
            proxy.receive(child, Reg((more,), 1))
        proxy.detach(parent)
        sends = proxy.attach(parent)
        assert {send.to for send in sends} == {parent}
        assert [
            len(send.message.messages) if isinstance(send.message, Bundle) else 1 for send in sends
        ] == sizes
