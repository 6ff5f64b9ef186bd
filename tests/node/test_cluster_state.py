"""The cluster_state: all brokers come to know the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from palio.node.cluster_state import AddressBook, ClusterState
from palio.node.fact_verifier import ADDRESS, LINKS, FactVerifier
from palio.protocol.limits import MAX_URL_CHARS
from palio.protocol.messages import Fact, Facts
from palio.simulation.randomness import Randomness
from tests.conftest import seeds
from tests.node.mesh import AT, Mesh, VouchingFor, full
from tests.node.signing import Keyring


@pytest.fixture(params=["any", "signatures"])
def fact_verifier(request: pytest.FixtureRequest, tmp_path: Path) -> VouchingFor:
    """On what word facts are believed."""
    if request.param == "signatures":
        ring = Keyring(tmp_path)
        authority = ring.authority()
        return lambda name: FactVerifier(name, ring.identity(name), authority)
    return FactVerifier


@pytest.mark.parametrize("seed", seeds(5, nightly=300))
def test_all_come_to_know_the_same(seed: int, fact_verifier: VouchingFor) -> None:
    random = Randomness(seed)
    mesh = full(seed, random.between(2, 6), fact_verifier)
    names = list(mesh.members)
    for step in range(60):
        one, other = random.sample(names, 2)
        match random.below(7):
            case 0:
                mesh.cut(one, other)
            case 6 if step % 5 == 0:  # which is a mistake: it is there
                mesh.members[one].remove(other, 1_000 * step)
                mesh.collect()
            case 1 | 2:
                mesh.join(one, other)
            case 3:
                text = f"x = {random.below(9)}" if random.chance(0.8) else ""
                mesh.members[one].announce(f"a/{random.below(3)}", filter=text)
                mesh.collect()
            case _:
                for _ in range(random.below(5)):
                    mesh.step()
    for one in names:
        for other in names:
            if one < other:
                mesh.join(one, other)
    mesh.rest()
    first = mesh.known(names[0])
    assert all(mesh.known(name) == first for name in names), f"seed {seed}"
    assert all(mesh.members[name].brokers == names for name in names)
    assert not any(member.rejected_facts for member in mesh.members.values())
    assert all(
        mesh.members[one].next_hop(other) == other
        for one in names
        for other in names
        if one != other
    )


def test_what_crosses_a_new_link_is_the_difference() -> None:
    mesh = full(0, 2)
    for number in range(50):
        mesh.members["b0"].announce(f"a/{number}", filter="x = 1")
    mesh.collect()
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.rest()
    mesh.members["b0"].announce("a/new", filter="x = 1")
    mesh.collect()
    mesh.crossed = 0
    mesh.join("b0", "b1")
    mesh.rest()
    assert mesh.crossed <= 10  # the new one, and what both say of their links
    assert mesh.known("b0") == mesh.known("b1")


def wiped(fact_verifier: VouchingFor, count: int = 1) -> Mesh:
    """b0, b1 and b2, that were a line: b0 and b1 have lost their disks, and b2 holds b0 to so many
    subscriptions.
    """
    mesh = Mesh(0, 3, fact_verifier)
    mesh.join("b0", "b1")
    mesh.join("b1", "b2")
    for number in range(count):
        mesh.members["b0"].announce(f"a/{number}", filter="x = 1")
    mesh.collect()
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.cut("b1", "b2")
    mesh.rest()
    for name in ("b0", "b1"):
        mesh.members[name] = ClusterState(name, (), fact_verifier(name))
        mesh.members[name].begin(1_000_000)
    return mesh


@pytest.mark.parametrize("first", [("b0", "b1"), ("b1", "b2")])
def test_two_neighbours_that_lost_their_disks_are_told_by_who_has_one(
    first: tuple[str, str], fact_verifier: VouchingFor
) -> None:
    """Also if they meet each other first, and who asks hears that nothing is known."""
    mesh = wiped(fact_verifier)
    for one, other in (first, ("b0", "b1"), ("b1", "b2")):
        mesh.join(one, other)
        mesh.rest()
    assert mesh.known("b0") == mesh.known("b1") == mesh.known("b2")
    assert mesh.known("b2")["b0", "a/0"] == ((), "x = 1")
    assert not any(each.rejected_facts for each in mesh.members.values())


@pytest.mark.parametrize("first", ["b1", "b2"])
def test_of_facts_from_a_lost_disk_the_newest_counts_whichever_peer_is_first(
    first: str, fact_verifier: VouchingFor
) -> None:
    """One peer has the end of a subscription, the other only its claim."""
    mesh = Mesh(0, 3, fact_verifier)
    mesh.join("b0", "b1")
    mesh.join("b0", "b2")
    mesh.members["b0"].announce("a/0", filter="x = 1")
    mesh.members["b0"].announce("a/1", filter="x = 1")
    mesh.collect()
    mesh.rest()
    mesh.cut("b0", "b2")
    mesh.members["b0"].announce("a/0")
    mesh.collect()
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.rest()
    mesh.members["b0"] = ClusterState("b0", (), fact_verifier("b0"))
    mesh.members["b0"].begin(1_000_000)
    for other in (first, *({"b1", "b2"} - {first})):
        mesh.join("b0", other)
        mesh.rest()
    assert mesh.known("b0") == mesh.known("b1") == mesh.known("b2")
    assert mesh.known("b2")["b0", "a/0"] == ((), "")
    assert mesh.known("b2")["b0", "a/1"] == ((), "x = 1")


def test_a_fact_of_this_incarnation_is_newer_than_all_history(fact_verifier: VouchingFor) -> None:
    mesh = wiped(fact_verifier)
    mesh.join("b0", "b1")
    mesh.join("b1", "b2")
    mesh.rest()
    mesh.members["b0"].announce("a/0", filter="x = 2")
    mesh.collect()
    mesh.rest()
    mesh.cut("b1", "b2")
    mesh.join("b1", "b2")
    mesh.rest()
    assert mesh.known("b2")["b0", "a/0"] == mesh.known("b0")["b0", "a/0"] == ((), "x = 2")


def forgotten(count: int = 1) -> Mesh:
    """The two that have lost their disks are linked again."""
    mesh = wiped(FactVerifier, count)
    mesh.join("b0", "b1")
    mesh.rest()
    mesh.crossed = 0
    return mesh


def test_reminders_are_in_proportion_to_what_was_forgotten() -> None:
    mesh = forgotten(100)
    mesh.join("b1", "b2")
    mesh.rest()
    assert mesh.known("b2")["b0", "a/7"] == ((), "x = 1")
    assert mesh.crossed < 6 * 100  # to b1 and on to b0, and its answer back


def test_the_way_is_the_shortest_over_links_that_both_ends_list() -> None:
    mesh = Mesh(0, 4)
    for one, other in (("b0", "b1"), ("b1", "b3"), ("b0", "b2"), ("b2", "b3")):
        mesh.join(one, other)
    mesh.rest()
    assert mesh.members["b0"].next_hop("b3") == "b1"
    mesh.cut("b1", "b3")
    mesh.rest()
    assert mesh.members["b0"].next_hop("b3") == "b2"
    mesh.cut("b2", "b3")
    mesh.rest()
    assert mesh.members["b0"].next_hop("b3") is None
    assert mesh.members["b0"].next_hop("b0") is None
    lonely = ClusterState("b0", [Fact("b1", 1, LINKS, ("b0",))])
    assert lonely.next_hop("b1") is None


def three() -> Mesh:
    """b0 - b1 - b2, of which b2 has a durable subscription."""
    mesh = Mesh(0, 3)
    mesh.join("b0", "b1")
    mesh.join("b1", "b2")
    mesh.members["b2"].announce("ann/d", filter="x = 1")
    mesh.rest()
    return mesh


def test_a_link_is_told_of_once_the_other_end_has_said_what_it_knows() -> None:
    mesh = Mesh(0, 2)
    mesh.join("b0", "b1")
    mesh.write()
    assert mesh.members["b0"].links("b0") == ()
    mesh.deliver("b1", "b0")
    assert mesh.members["b0"].links("b0") == ("b1",)
    mesh.cut("b0", "b1")
    assert mesh.members["b1"].fact("b1", LINKS) is None  # it had heard nothing, and lost nobody


def test_who_was_not_reached_and_is_retired_is_not_named_by_one_that_is_alone() -> None:
    mesh = Mesh(0, 2)
    mesh.join("b0", "b1")
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.rest()
    alone = mesh.members["b0"]
    assert alone.unreachable() == ["b1"]
    alone.remove("b1", 1_000)
    assert alone.unreachable() == []


def test_a_retired_broker_is_forgotten_by_all_also_after_a_restart() -> None:
    mesh = three()
    mesh.cut("b1", "b2")
    mesh.rest()
    assert mesh.members["b0"].unreachable() == ["b2"]
    mesh.members["b0"].remove("b2", 1_000)
    mesh.rest()
    for name in ("b0", "b1"):
        member = mesh.members[name]
        assert member.brokers == ["b0", "b1"]
        assert member.removed == {"b2"}
        assert member.fact("b2", "ann/d") is None
        assert {fact.subject for fact in member.dropped_facts} == {LINKS, "ann/d"}
        again = ClusterState(
            name, [*member.facts(), *member.dropped_facts]
        )  # the disk has all of it
        assert (again.brokers, again.removed) == (["b0", "b1"], {"b2"})
        assert again.fact("b2", "ann/d") is None
    assert mesh.members["b0"].unreachable() == []


def test_a_broker_that_comes_back_says_everything_again() -> None:
    mesh = three()
    mesh.cut("b1", "b2")
    mesh.members["b0"].remove("b2", 1_000)
    mesh.rest()
    mesh.join("b1", "b2")
    mesh.rest()
    for member in mesh.members.values():
        assert member.brokers == ["b0", "b1", "b2"]
        found = member.fact("b2", "ann/d")
        assert found is not None
        assert found.filter == "x = 1"
        assert found.version > 1_000
    assert mesh.members["b0"].next_hop("b2") == "b1"


def test_who_retired_a_broker_may_go_too() -> None:
    mesh = three()
    mesh.cut("b1", "b2")
    mesh.members["b0"].remove("b2", 1_000)
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.members["b1"].remove("b0", 2_000)
    mesh.rest()
    member = mesh.members["b1"]
    assert member.removed == {"b0", "b2"}
    again = ClusterState("b1", member.facts())
    assert again.removed == {"b0", "b2"}
    late = ClusterState("b3", [Fact("b2", 5, "ann/d", filter="x = 1")])
    late.peer_up("b1", AT)
    late.receive("b1", Facts(tuple(sorted(member.facts(), key=lambda fact: -fact.version))), AT)
    assert late.removed == {"b0", "b2"}
    assert late.fact("b2", "ann/d") is None


def test_a_retirement_outlives_the_disk_of_who_said_it() -> None:
    mesh = three()
    mesh.cut("b1", "b2")
    mesh.members["b0"].remove("b2", 1_000)
    mesh.rest()
    mesh.cut("b0", "b1")
    mesh.members["b0"] = ClusterState("b0")
    mesh.members["b0"].begin(5_000)
    mesh.join("b0", "b1")
    mesh.rest()
    for name in ("b0", "b1"):
        assert mesh.members[name].removed == {"b2"}
        assert ClusterState(name, mesh.members[name].facts()).removed == {"b2"}


@pytest.mark.parametrize("is_back", [False, True])
def test_who_is_gone_or_was_is_named_until_others_are_told(*, is_back: bool) -> None:
    """Also if it is back: who asked while it was gone is to ask again, by another map."""
    mesh = three()
    b1, before = mesh.members["b1"], mesh.members["b0"].routing_version
    mesh.cut("b1", "b2")
    if is_back:
        mesh.join("b1", "b2")
        mesh.deliver("b2", "b1")
    assert b1.unconfirmed("b0") == {"b2"}
    mesh.write()
    assert b1.unconfirmed("b0") == set()
    mesh.deliver("b1", "b0")
    assert mesh.members["b0"].routing_version > before
    assert (mesh.members["b0"].unreachable() == []) is is_back


# --- addresses ---


def test_a_broker_says_once_where_it_can_be_reached_and_takes_it_back() -> None:
    cluster_state = ClusterState("b1")
    cluster_state.begin(7)
    known = AddressBook(cluster_state)
    for url in ("palio://one:1", "palio://one:1", "palios://two:2", ""):
        known.announce(url)
    said = [fact.filter for fact in cluster_state.new_facts if fact.subject == ADDRESS]
    assert said == ["palio://one:1", "palios://two:2", ""]
    assert known.of("b1") is None


def test_a_broker_without_an_address_says_nothing() -> None:
    cluster_state = ClusterState("b1")
    AddressBook(cluster_state).announce("")
    assert cluster_state.new_facts == []


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("palios://South.example", "palios://south.example:7400"),
        ("palio://[::1]:7", "palio://[::1]:7"),
        (
            f"palio://{'n' * (MAX_URL_CHARS - 8)}",
            f"palio://{'n' * (MAX_URL_CHARS - 8)}:7400",
        ),
        (f"palio://{'n' * (MAX_URL_CHARS - 7)}", "None"),
        ("http://south.example", "None"),
        ("palio://u:p@south.example", "None"),
        ("palio://south.example:70000", "None"),
        ("nonsense", "None"),
        ("", "None"),
    ],
)
def test_what_others_say_is_an_address_or_nothing(said: str, understood: str) -> None:
    cluster_state = ClusterState("b1", [Fact("b2", 1, ADDRESS, filter=said)])
    assert str(AddressBook(cluster_state).of("b2")) == understood


def test_a_retired_broker_is_nowhere() -> None:
    cluster_state = ClusterState("b1", [Fact("b2", 1, ADDRESS, filter="palio://b2:1")])
    cluster_state.begin(7)
    cluster_state.remove("b2", 9)
    assert AddressBook(cluster_state).of("b2") is None
