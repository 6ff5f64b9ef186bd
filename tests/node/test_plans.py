"""Which plan counts."""

from __future__ import annotations

from itertools import permutations

import pytest

from palio.multicast.documents import pack
from palio.multicast.listed import flooding
from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_verifier import LINKS, PLAN, REMOVED, is_subscription
from palio.node.plans import REPLANS, NetworkPlan, Plans, epoch_id
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import Digest, Fact, Facts

AT = Moment(0.0, 1_000)

TEXT = pack(flooding(("b1", "b2")))
OTHER = pack(flooding(("b1", "b2", "b3")))


def stated(origin: str, epoch: int, text: str = TEXT, version: int = 1) -> Fact:
    return Fact(origin, version, PLAN, filter=text, claimed_us=epoch)


def listener(*facts: Fact) -> tuple[ClusterState, Plans]:
    """A cluster_state with a neighbour, and what it makes of facts on its disk."""
    cluster_state = ClusterState("b0", facts)
    cluster_state.peer_up("n", AT)
    cluster_state.receive("n", Digest({}), AT)
    return cluster_state, Plans(cluster_state)


def heard(cluster_state: ClusterState, plans: Plans, *facts: Fact) -> bool:
    cluster_state.receive("n", Facts(facts), AT)
    news, cluster_state.new_facts = cluster_state.new_facts, []
    return plans.learn(news)


def current_of(plans: Plans) -> NetworkPlan:
    assert plans.current is not None
    return plans.current


def test_the_latest_epoch_counts_and_of_equals_the_later_name_in_whatever_order() -> None:
    said = [stated("b1", 5), stated("b2", 7), stated("b3", 7, OTHER), stated("b4", 6)]
    for order in permutations(said):
        cluster_state, plans = listener()
        for fact in order:
            heard(cluster_state, plans, fact)
        current = current_of(plans)
        assert (current.origin, current.epoch_us) == ("b3", 7)
        assert current.plan.brokers == ("b1", "b2", "b3")
        assert current.id == epoch_id(said[2])


def test_it_is_told_whether_another_plan_counts() -> None:
    cluster_state, plans = listener()
    assert plans.current is None
    assert heard(cluster_state, plans, stated("b1", 5))
    assert not heard(cluster_state, plans, stated("b2", 4))
    assert not heard(cluster_state, plans, Fact("b1", 2, LINKS))
    assert not heard(cluster_state, plans, stated("b1", 5, version=3))  # said again
    assert heard(cluster_state, plans, stated("b1", 6, version=4))


def test_what_is_on_the_disk_counts_from_the_start() -> None:
    _, plans = listener(stated("b1", 5), stated("b0", 6, OTHER))
    assert current_of(plans).origin == "b0"


def test_an_empty_text_ends_multicast() -> None:
    cluster_state, plans = listener(stated("b1", 5))
    assert heard(cluster_state, plans, stated("b2", 6, ""))
    assert plans.current is None
    assert not plans.problem
    assert plans.next_epoch(3) == 7


def test_what_cannot_be_read_is_no_plan_and_told_of() -> None:
    cluster_state, plans = listener(stated("b1", 5), stated("b2", 6, TEXT[:-8]))
    assert plans.current is None
    assert "no plan" in plans.problem
    assert heard(cluster_state, plans, stated("b3", 7))
    assert plans.problem == ""
    assert current_of(plans).origin == "b3"


def test_what_a_retired_broker_has_stated_counts_no_more() -> None:
    cluster_state, plans = listener(stated("b1", 5, OTHER), stated("b2", 6))
    assert heard(cluster_state, plans, Fact("b1", 9, f"{REMOVED}b2", claimed_us=8))
    assert current_of(plans).origin == "b1"
    assert PLAN in {fact.subject for fact in cluster_state.dropped_facts}
    assert heard(cluster_state, plans, stated("b2", 7, version=10))  # it is back
    assert current_of(plans).origin == "b2"


def test_an_epoch_is_above_all_that_are_known() -> None:
    cluster_state, plans = listener()
    assert plans.next_epoch(50) == 50
    heard(cluster_state, plans, stated("b1", 99))
    assert (plans.next_epoch(98), plans.next_epoch(99), plans.next_epoch(101)) == (100, 100, 101)


def test_ids_differ_by_all_that_is_stated_but_not_by_how_often() -> None:
    one = stated("b1", 5)
    assert epoch_id(one) == epoch_id(stated("b1", 5, version=9))
    others = [stated("b2", 5), stated("b1", 6), stated("b1", 5, OTHER), stated("b1", 5, "")]
    ids = {epoch_id(each) for each in (one, *others)}
    assert len(ids) == 5
    assert all(0 < each < 1 << 63 for each in ids)


@pytest.mark.parametrize("text", [TEXT, ""])
def test_a_broker_that_lost_its_disk_states_again_what_it_had_stated(text: str) -> None:
    cluster_state = ClusterState("b1")
    cluster_state.begin(20)
    cluster_state.peer_up("n", AT)
    cluster_state.receive("n", Digest({"b1": 30}), AT)
    cluster_state.receive("n", Facts((stated("b1", 5, text, version=30),)), AT)
    again = cluster_state.fact("b1", PLAN)
    assert again is not None
    assert (again.filter, again.claimed_us) == (text, 5)
    assert again.version > 30


def test_a_plan_is_no_durable_subscription() -> None:
    assert not is_subscription(PLAN)
    cluster_state, _ = listener(stated("b1", 5))
    assert cluster_state.facts_about(PLAN) == ()


def test_a_plan_that_is_applied_is_read_once() -> None:
    plans = Plans(ClusterState("b1"))
    one, other = (pack(flooding(names)) for names in (("b1", "b2"), ("b1", "b3")))
    assert plans.read(one) is plans.read(one)
    assert plans.read(other)[0].brokers == ("b1", "b3")


@pytest.mark.parametrize(
    ("said", "replans"),
    [(3, 3), (MAX_NUMBER, MAX_NUMBER), (MAX_NUMBER + 1, 0), (-1, 0), (True, 0), ("3", 0)],
)
def test_it_is_told_how_often_brokers_have_changed_a_plan(said: object, replans: int) -> None:
    cluster_state, plans = listener()
    text = pack(flooding(("b1", "b2")), {REPLANS: said})
    heard(cluster_state, plans, stated("b1", 5, text))
    assert current_of(plans).replans == replans
