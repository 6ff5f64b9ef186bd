"""Where events go: proxy IV-C.3 to IV-E."""

from __future__ import annotations

import math

from palio.language.parsing import parse_filter
from palio.matching.reference import Reference
from palio.model.row_parcels import RowParcel
from palio.routing.protocol import Matching, Peer
from palio.routing.proxies.messages import (
    Bundle,
    Reg,
    Sub,
    Unsub,
)
from palio.routing.proxies.router import Proxies
from tests.routing.proxy_network import ALL, FIGURE_3, FIGURE_4, E, Network, above, said

# --- IV-C.3: forwarding ---


def test_events_follow_the_table_and_never_return() -> None:
    proxy = Proxies("P1", root=True)
    source, receiver = Peer.client("S"), Peer.client("R")
    for peer in (source, receiver):
        proxy.attach(peer)
    proxy.receive(source, Bundle((Reg(E), Reg(("x", "y")))))
    proxy.receive(receiver, Bundle((Reg(E), Sub(E, above(1)))))
    events = RowParcel("S", [{"x": 1}, {"x": 2}, {"x": 3, "y": 1}, {"z": 2}, {"x": 4, "y": None}])
    (mask,) = proxy.route(source, events).values()
    assert mask.tolist() == [False, True, False, False, True]  # (x, y) is another type
    assert proxy.route(receiver, events) == {}
    proxy.receive(receiver, Unsub(E))
    assert proxy.route(source, events) == {}


def test_an_engine_of_the_matching_room_forwards_the_same() -> None:
    proxy = Proxies("P1", lambda: Matching(Reference()), root=True)
    source, one, other = (Peer.client(name) for name in "Sab")
    for peer in (source, one, other):
        proxy.attach(peer)
    proxy.receive(source, Reg(E))
    proxy.receive(one, Sub(E, above(1)))
    proxy.receive(other, Sub(E, above(2), count=1))
    proxy.receive(one, Sub(E, above(3)))
    masks = proxy.route(source, RowParcel("S", [{"x": each} for each in range(6)]))
    assert {peer.name: mask.tolist() for peer, mask in masks.items()} == {
        "a": [False] * 4 + [True] * 2,
        "b": [False] * 3 + [True] + [False] * 2,
    }


# --- IV-D: sporadic sources ---


def test_a_sporadic_event_climbs_to_the_root_and_finds_standing_subscriptions() -> None:
    network = Network(FIGURE_3)
    sporadic, receiver = network.client("S", "P5"), network.client("R", "P2")
    receiver.subscribe(E, above(1), lifetime=math.inf)
    network.run()
    sporadic.publish_sporadic({"x": 2})
    assert network.run() == said(P5_P3_Encapsulated=1, P3_P1_Encapsulated=1, P1_P2_Encapsulated=1)
    sporadic.publish_sporadic({"x": 1})  # the root drops what matches nothing
    assert network.run() == said(P5_P3_Encapsulated=1, P3_P1_Encapsulated=1)
    assert [each.event["x"] for each in receiver.heard] == [2]


def test_a_receiver_below_does_not_hide_those_above_from_a_sporadic_event() -> None:
    network = Network(FIGURE_3)
    receivers = [network.client(f"R{p}", p) for p in ("P5", "P3", "P1", "P4", "P2")]
    for receiver in receivers:
        receiver.subscribe(E, ALL, lifetime=math.inf)
    network.run()
    network.client("S", "P5").publish_sporadic({"x": 2})
    network.run()
    assert [len(each.heard) for each in receivers] == [1] * 5


def test_where_a_source_is_known_a_sporadic_event_goes_only_where_it_is_wanted() -> None:
    network = Network(FIGURE_3)
    network.client("S1", "P5").register("x")
    sporadic = network.client("S", "P5")
    network.run()
    sporadic.publish_sporadic({"x": 2})
    assert network.run() == {}
    network.client("R", "P2").subscribe(E, ALL)
    network.run()
    sporadic.publish_sporadic({"x": 2})
    network.run()
    assert len(network.clients["R"].heard) == 1


def test_a_standing_subscription_hears_sporadic_sources_besides_a_registered_one() -> None:
    network = Network(FIGURE_3)
    network.client("S1", "P4").register("x")
    receiver, sporadic = network.client("R", "P4"), network.client("S", "P2")
    receiver.subscribe(E, ALL, lifetime=math.inf)
    network.run()
    sporadic.publish_sporadic({"x": 2})
    network.run()
    assert len(receiver.heard) == 1


# --- IV-E: temporal forwarding ---


def test_an_invalidation_is_delivered_once() -> None:
    network = Network(FIGURE_4)
    source, receiver = network.client("S", "P2"), network.client("R", "P3")
    source.register("x")
    receiver.subscribe(E, ALL, count=1)
    network.run()
    source.publish({"x": 1})
    # P2 and P1 have counted down themselves; P3 cannot know that they have (another path, another
    # source), so it unsubscribes, and so does P1, which P2 ignores.
    assert network.run() == said(P1_P2_Unsub=1, P3_P1_Unsub=1)
    source.publish({"x": 2})
    network.run()
    assert len(receiver.heard) == 1
    assert network.line("P2", E) == ({"S"}, set())
    receiver.subscribe(E, ALL, count=1)
    network.run()
    source.publish({"x": 3})
    network.run()
    assert [each.event["x"] for each in receiver.heard] == [1, 3]


def test_a_count_holds_for_all_sources_together_and_inside_a_batch() -> None:
    network = Network(FIGURE_4)
    one, other = network.client("S", "P2"), network.client("T", "P4")
    receiver = network.client("R", "P3")
    one.register("x")
    other.register("x")
    receiver.subscribe(E, above(0), count=3)
    network.run()
    one.publish({"x": 1}, {"x": 0}, {"x": 2})
    network.run()
    other.publish({"x": 3}, {"x": 4})
    network.run()
    one.publish({"x": 5})
    network.run()
    assert [each.event["x"] for each in receiver.heard] == [1, 2, 3]
    assert network.line("P4", E) == ({"T", "P1"}, set())


def test_a_count_neither_uses_up_nor_hides_another() -> None:
    network = Network({"P1": None, "P2": "P1"})
    source = network.client("S", "P1")
    source.register("x")
    wishes = ((above(5), 1), (above(3), 1), (above(3), 2), (parse_filter("x = 1"), None))
    receivers = [network.client(f"R{n}", "P2") for n in range(4)]
    for receiver, (specification, count) in zip(receivers, wishes, strict=True):
        receiver.subscribe(E, specification, count=count)
    network.run()
    for value in (4, 6, 7, 1, 1):
        source.publish({"x": value})
        network.run()
    assert [[each.event["x"] for each in r.heard] for r in receivers] == [[6], [4], [4, 6], [1, 1]]


def test_a_count_that_is_renewed_is_renewed_everywhere() -> None:
    network = Network({"P1": None, "P2": "P1", "P3": "P2"})
    source, receiver = network.client("S", "P1"), network.client("R", "P3")
    source.register("x")
    receiver.subscribe(E, ALL, count=2)
    network.run()
    source.publish({"x": 1})
    network.run()
    receiver.subscribe(E, ALL, count=2)
    assert network.run() == said(P3_P2_Merged=1, P2_P1_Merged=1)
    source.publish({"x": 2})
    network.run()
    source.publish({"x": 3})
    network.run()
    assert len(receiver.heard) == 3


def test_counting_down_is_not_news() -> None:
    network = Network({"P1": None, "P2": "P1"})
    source, one, other = (network.client(*e) for e in (("S", "P1"), ("A", "P2"), ("B", "P2")))
    source.register("x")
    one.subscribe(E, ALL, count=5)
    network.run()
    source.publish({"x": 1})
    network.run()
    other.subscribe(E, ALL, count=3)  # fewer than what is left for A
    assert network.run() == {}


def test_route_leaves_what_a_count_makes_it_say_for_advance() -> None:
    proxy, parent, receiver = Proxies("P2"), Peer.master("P1"), Peer.client("R")
    proxy.attach(parent)
    proxy.attach(receiver)
    proxy.receive(receiver, Sub(E, ALL, count=1))
    proxy.advance(3.0)
    assert [proxy.wake] == [None]
    proxy.route(parent, RowParcel("S", [{"x": 1}]))
    assert proxy.wake == 3.0
    assert [each.message for each in proxy.advance(3.0)] == [Unsub(E, 2)]
