"""What a broker says of itself: seen through the cluster_state that tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_verifier import LINKS, FactVerifier
from palio.node.local_facts import SKIPPED, UnpublishedFacts
from palio.protocol.messages import Digest, Fact
from tests.node.signing import Keyring

AT = Moment(0.0, 0)


def test_all_that_is_said_has_a_version_of_its_own_above_the_last() -> None:
    cluster_state = ClusterState("b0", [Fact("b0", 7, "a/d", filter="x = 1")])
    cluster_state.begin(1_000)
    cluster_state.announce("a/e", filter="x = 2")
    cluster_state.announce_links("found", ("b1",))
    cluster_state.announce_links("found", ("b1",))  # which is no news
    cluster_state.report_loss("it broke")
    first = 7 + SKIPPED + 1  # the wall says less
    assert [(fact.version, fact.subject) for fact in cluster_state.new_facts] == [
        (first, "a/e"),
        (first + 1, "found"),
        (first + 2, "/lapse"),
    ]
    assert not cluster_state.has_published_all
    cluster_state.mark_durable(first + 2)
    assert cluster_state.has_published_all


def test_no_version_is_used_twice_though_the_disk_does_not_know_of_it() -> None:
    """Of its links a broker tells also what a full disk did not take."""
    again = ClusterState("b0", [Fact("b0", 7, "a/d", filter="x = 1")])
    again.begin(9_000_000)
    again.announce("a/e", filter="x = 2")
    assert [fact.version for fact in again.new_facts] == [9_000_001]


@pytest.mark.parametrize("was_linked", [False, True])
def test_links_say_from_when_on_a_broker_remembers(was_linked: bool) -> None:
    """Also after it has started again, with its disk."""
    first = ClusterState("b0")
    first.begin(1_000)
    if was_linked:
        first.peer_up("b1", AT)
        first.receive("b1", Digest({}), AT)
    else:
        first.announce("a/d", filter="x = 1")
    again = ClusterState("b0", first.facts())
    again.begin(2_000)
    again.peer_up("b2", AT)
    again.receive("b2", Digest({}), AT)
    links = again.fact("b0", LINKS)
    assert links is not None
    assert (links.links, links.claimed_us) == (("b2",), 1_000)


@pytest.mark.parametrize("has_key", [False, True])
def test_a_broker_that_stopped_as_it_learned_of_its_retirement_says_all_again(
    has_key: bool, tmp_path: Path
) -> None:
    ring = Keyring(tmp_path)

    def fact_verifier(name: str) -> FactVerifier:
        return (
            FactVerifier(name, ring.identity(name), ring.authority())
            if has_key
            else FactVerifier(name)
        )

    before, other = (
        ClusterState("b0", (), fact_verifier("b0")),
        ClusterState("b1", (), fact_verifier("b1")),
    )
    for each in (before, other):
        each.begin(1)
    before.announce("a/d", filter="x = 1")
    other.remove("b0", 1_000)
    after = ClusterState("b0", [*before.facts(), *other.facts()], fact_verifier("b0"))
    after.begin(2_000)
    after.tick(AT)
    assert not after.removed
    said = {fact.subject: fact for fact in after.facts() if fact.origin == "b0"}
    assert said["a/d"].filter == "x = 1"
    assert all(fact.version > 1_000 for fact in said.values())
    after.mark_durable(said["a/d"].version)
    assert after.has_published_all


# --- what others may not know yet ---


def own(version: int, subject: str = "ann/d") -> Fact:
    return Fact("b1", version, subject)


def test_what_is_being_written_is_told_once_it_is_on_the_disk() -> None:
    untold = UnpublishedFacts()
    first, second = own(2), own(3, "bob/d")
    untold.add(first)
    untold.add(second)
    assert untold
    assert untold.withholds(first)
    assert untold.mark_written(2) == [first]
    assert (untold.withholds(first), untold.withholds(second)) == (False, True)
    assert untold.mark_written(9) == [second]
    assert not untold


def test_what_could_not_be_written_is_not_waited_for_until_it_is() -> None:
    untold = UnpublishedFacts()
    lost, links, other = own(2), own(3, "links"), own(4, "bob/d")
    for each in (lost, links):
        untold.add(each)
    assert untold.mark_refused(3, publishable=("links",)) == ([links], ["ann/d"])
    untold.add(other)
    assert untold.mark_written(4) == [other]
    again = own(5)
    untold.add(again)
    assert untold.withholds(lost)
    assert untold.mark_written(5) == [again]
    assert not untold
