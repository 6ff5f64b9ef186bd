"""What is known of all brokers, whoever told it: seen through the cluster_state that keeps it."""

from __future__ import annotations

from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_store import ShortestPaths
from palio.node.fact_verifier import LEAVING, LINKS, REMOVED
from palio.protocol.messages import Digest, Fact, Facts

AT = Moment(0.0, 0)


def knowing(*facts: Fact) -> ClusterState:
    found = ClusterState("a", facts)
    found.peer_up("n", AT)
    found.receive("n", Digest({}), AT)
    return found


def test_the_newest_fact_of_a_subject_counts_and_an_older_one_is_no_news() -> None:
    cluster_state = knowing(Fact("b", 5, "ann/orders", filter="x = 1"))
    cluster_state.receive("n", Facts((Fact("b", 4, "ann/orders", filter="x = 4"),)), AT)
    assert [fact.version for fact in cluster_state.facts_about("ann/orders")] == [5]
    cluster_state.receive("n", Facts((Fact("b", 6, "ann/orders", filter="x = 6"),)), AT)
    assert cluster_state.fact("b", "ann/orders") == Fact("b", 6, "ann/orders", filter="x = 6")


def test_what_brokers_say_of_a_durable_subscription_is_in_the_order_of_their_names() -> None:
    said = [Fact(name, 1, "ann/orders", filter="x = 1") for name in ("d", "b", "c")]
    assert [fact.origin for fact in knowing(*said).facts_about("ann/orders")] == ["b", "c", "d"]


def test_only_links_and_leaving_change_ways() -> None:
    cluster_state = knowing()
    for version, (subject, links, changes) in enumerate(
        [
            ("ann/orders", (), False),
            (LINKS, ("c",), True),
            (LINKS, ("c",), True),  # they may have been gone
            (LEAVING, (), True),
            (LEAVING, (), False),
        ],
        start=1,
    ):
        before = cluster_state.routing_version
        cluster_state.receive("n", Facts((Fact("b", version, subject, links),)), AT)
        assert (cluster_state.routing_version > before) == changes, subject


def test_a_broker_that_is_retired_has_said_nothing_until_it_says_more() -> None:
    cluster_state = knowing(Fact("b", 5, LINKS, ("c",)), Fact("b", 6, "ann/orders", filter="x = 1"))
    cluster_state.receive("n", Facts((Fact("c", 1, f"{REMOVED}b", claimed_us=9),)), AT)
    assert (cluster_state.removed, cluster_state.brokers) == ({"b"}, ["a", "c"])
    assert (cluster_state.links("b"), cluster_state.facts_about("ann/orders")) == ((), ())
    cluster_state.receive("n", Facts((Fact("b", 10, LINKS, ("c",)),)), AT)
    assert (cluster_state.removed, cluster_state.links("b")) == (set(), ("c",))


# --- ways ---


def test_ties_go_to_the_lesser_name_and_one_sided_links_nowhere() -> None:
    said = {
        "b": ("a", "d"),
        "c": ("a", "d"),
        "d": ("b", "c", "e", "f"),
        "e": ("d",),
        "f": (),
    }
    found = ShortestPaths("a", ["c", "b"], lambda broker: said.get(broker, ()))
    assert found.hops == {"b": "b", "c": "c", "d": "b", "e": "b"}
    assert [found.path(each) for each in ("c", "e", "f", "a")] == [("c",), ("b", "d", "e"), (), ()]


def test_over_who_is_about_to_go_leads_only_what_has_no_other_way() -> None:
    links = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d", "e"), "d": ("a", "c"), "e": ("c",)}
    ways = ShortestPaths("a", ["b", "d"], links.__getitem__, {"b", "c"}.__contains__)
    assert ways.path("b") == ("b",)
    assert ways.path("c") == ("d", "c")
    assert ways.path("e") == ("d", "c", "e")
