"""Facts count only from their origin: what is signed, what is believed, and what is not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given

from palio.errors import IllegalMessage, NotAuthenticated
from palio.language.parsing import parse_filter
from palio.model.filters import Filter
from palio.node import cluster_state, fact_store, fact_verifier, limits
from palio.node.authority import NamedAuthority
from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_verifier import LINKS, PLAN, REMOVED, TOKEN, FactVerifier, is_live_subscription
from palio.node.identity import Identity, fact_text
from palio.node.limits import AHEAD_US, MIN_DIGEST_INTERVAL_S, RETRY_REJECTED_S
from palio.protocol.limits import MAX_NAME_BYTES, PORTION_BYTES, PORTION_FACTS
from palio.protocol.messages import ClaimNumbers, Digest, Fact, Facts
from palio.simulation.world import EPOCH_US
from tests import strategies as our
from tests.node.signing import Keyring

AT = Moment(1.0, EPOCH_US)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)


def believer(ring: Keyring, name: str = "b") -> ClusterState:
    """A cluster_state with the neighbours n and m, which have said what they know: nothing."""
    found = ClusterState(name, (), FactVerifier(name, ring.identity(name), ring.authority()))
    found.begin(AT.wall_us)
    return linked(found)


def linked(found: ClusterState) -> ClusterState:
    for neighbour in ("n", "m"):
        found.peer_up(neighbour, AT)
        found.receive(neighbour, Digest({}), AT)
    found.outbox.clear()
    return found


def said(identity: Identity, *facts: Fact) -> Facts:
    """Facts with the signatures of somebody."""
    return Facts(
        tuple(
            msgspec.structs.replace(fact, signature=identity.sign(fact_text(fact)))
            for fact in facts
        )
    )


def introduced(ring: Keyring, origin: str, version: int = 1, **grants: Any) -> Facts:
    """An origin's token and links, as it would say them."""
    identity = ring.broker(origin, **grants)
    ring.identities[origin] = identity
    return said(
        identity,
        Fact(origin, version, TOKEN, (identity.token,)),
        Fact(origin, version + 1, LINKS, ("n",)),
    )


def retiring(ring: Keyring, count: int) -> list[Facts]:
    """Somebody who may operate retires brokers that there never were."""
    evil = ring.broker("evil", operate=True)
    versions = range(2, count + 2)
    facts = [Fact("evil", 1, TOKEN, (evil.token,))]
    facts += [Fact("evil", each, f"{REMOVED}x{each}", claimed_us=1) for each in versions]
    return [
        said(evil, *facts[first : first + PORTION_FACTS])
        for first in range(0, len(facts), PORTION_FACTS)
    ]


# --- signatures ---


def test_what_its_origin_has_signed_is_kept_and_passed_on(ring: Keyring) -> None:
    b = believer(ring)
    facts = introduced(ring, "far")
    b.receive("n", facts, AT)
    assert b.links("far") == ("n",)
    assert ("m", facts) in b.outbox
    assert b.rejected_facts == []


@pytest.mark.parametrize(
    "wrong",
    ["unsigned", "other key", "other fact", "no token", "client token", "other broker", "revoked"],
)
def test_nothing_else_is_kept_or_passed_on(ring: Keyring, wrong: str) -> None:
    b = believer(ring)
    (token, links) = introduced(ring, "far").facts
    match wrong:
        case "unsigned":
            links = msgspec.structs.replace(links, signature=b"")
        case "other key":
            (links,) = said(ring.identity("n"), links).facts
        case "other fact":
            links = msgspec.structs.replace(links, links=("n", "m"))
        case "client token":
            (token,) = said(ring.identity("far"), Fact("far", 1, TOKEN, (ring.free("far"),))).facts
        case "other broker":
            stolen = ring.identity("n")
            (token,) = said(stolen, Fact("far", 1, TOKEN, (stolen.token,))).facts
            (links,) = said(stolen, links).facts
        case "revoked":
            ring.revoked.write_text("far-2\n")
            assert "far-2" in ring.revoked.read_text()
            b = believer(ring)
            (token, links) = introduced(ring, "other").facts
            ring.revoked.write_text(f"other-{ring._number}\n")
            b = believer(ring)
    b.receive("n", Facts((links,) if wrong == "no token" else (token, links)), AT)
    assert b.links("far") == ()
    assert b.links("other") == ()
    assert [name for name, _, _ in b.rejected_facts] == ["n"]
    assert b.unconfirmed("n") == {"b/far"} or wrong == "revoked"
    assert b.unconfirmed("m") == set()
    passed = [each for name, each in b.outbox if name == "m" and isinstance(each, Facts)]
    assert all(fact.subject == TOKEN for each in passed for fact in each.facts)


def test_a_token_whose_time_is_over_still_vouches_for_what_was_said(ring: Keyring) -> None:
    b = believer(ring)
    b.receive("n", introduced(ring, "far", exp=2_000), AT)
    assert b.links("far") == ("n",)


def test_of_who_could_not_be_believed_nothing_is_taken_from_there_until_it_is_asked_again(
    ring: Keyring,
) -> None:
    b = believer(ring)
    facts = introduced(ring, "far")
    forged = Fact("far", 9, "bob/orders", (), "x = 1")
    b.receive("n", Facts((forged,)), AT)
    b.receive("n", facts, AT)
    assert b.links("far") == ()  # there would be a hole
    assert len(b.rejected_facts) == 1  # and it is told once
    b.receive("m", facts, AT)
    assert b.links("far") == ("n",)
    soon = AT._replace(now=AT.now + RETRY_REJECTED_S - 0.1)
    later = AT._replace(now=AT.now + RETRY_REJECTED_S)
    b.outbox.clear()
    b.tick(soon)
    assert b.outbox == []
    b.tick(later)
    assert [(name, type(each)) for name, each in b.outbox] == [("n", Digest)]
    more = said(ring.identity("far"), Fact("far", 3, "bob/orders", (), "x = 1"))
    b.receive("n", more, later)
    assert b.fact("far", "bob/orders") is not None


def test_a_durable_subscription_has_no_home_that_may_not_hear_all_of_it(ring: Keyring) -> None:
    b = believer(ring)
    b.receive("n", introduced(ring, "far", allow_subscribe="symbol = 'IBM'"), AT)
    far = ring.identity("far")
    cases = {
        "symbol = 'IBM' AND x = 1": True,
        "symbol = 'IBM' OR x = 1": False,
        "symbol = 'MSFT'": False,
        "FALSE": True,
        "symbol = :name": False,
        "symbol = 'IBM' AND x RESEMBLES 1": False,
    }
    for version, (filter, kept) in enumerate(cases.items(), 5):
        b = believer(ring)
        b.receive("n", said(far, Fact("far", 1, TOKEN, (far.token,))), AT)
        b.receive("m", said(far, Fact("far", version, f"bob/{version}", (), filter)), AT)
        assert (b.fact("far", f"bob/{version}") is not None) is kept
        if not kept:
            assert "may not receive all" in b.rejected_facts[0][2]


def test_who_may_not_hear_all_takes_nothing_away_that_cannot_be_read(ring: Keyring) -> None:
    b = believer(ring)
    for origin, grant in (("far", "symbol = 'IBM'"), ("wide", "TRUE")):
        b.receive("n", introduced(ring, origin, allow_subscribe=grant), AT)
        assert b.may_receive(origin, "symbol = 'IBM'")
        assert b.may_receive(origin, "symbol = 'IBM' AND x RESEMBLES 1") is (grant == "TRUE")


def test_whether_a_broker_may_hear_costs_no_signature_and_ends_with_its_token(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = ring.authority()
    b = ClusterState("b", (), FactVerifier("b", ring.identity("b"), authority))
    b.begin(AT.wall_us)
    linked(b).receive("n", introduced(ring, "far", allow_subscribe="x = 1"), AT)
    far = f"far-{ring._number}"
    token = b.fact("far", TOKEN)
    assert token is not None
    monkeypatch.setattr(authority, "verified", lambda *_: pytest.fail("a signature was looked at"))
    for _ in range(3):
        assert b.may_receive("far", "x = 1 AND y = 2")
        assert not b.may_receive("far", "y = 2")
    ring.revoked.write_text(f"{far}\n")
    with pytest.raises(NotAuthenticated, match="revoked"):
        authority.vouched(token.links[0], Moment(1e9, EPOCH_US))
    assert not b.may_receive("far", "x = 1 AND y = 2")


@our.examples(25)
@given(our.filters(), our.filters(), our.filters(), our.SEEDS)
def test_a_broker_claims_what_is_left_by_its_grant_and_others_see_that(
    may: Filter, denied: Filter, asked: Filter, seed: int
) -> None:
    with TemporaryDirectory() as directory:
        ring = Keyring(Path(directory))
        grants = {"allow_subscribe": str(may), "deny_subscribe": str(denied)}
        ring.identities["n"] = ring.broker("n", **grants)
        n = ClusterState("n", (), FactVerifier("n", ring.identity("n"), ring.authority()))
        n.begin(AT.wall_us)
        n.announce("bob/d", filter=str(asked))
        n.announce("ann/d", filter="TRUE")
        b = believer(ring)
        for fact in sorted(n.facts(), key=lambda fact: fact.version):
            b.receive("n", Facts((fact,)), AT)
        assert b.rejected_facts == []
        claim = b.fact("n", "bob/d")
        assert claim is not None
        left = parse_filter(claim.filter)
        for event in our.nearby(may, denied, asked, seed=seed):
            if left.matches(event):
                assert asked.matches(event)
                assert may.matches(event)
                assert not denied.matches(event)


def test_only_who_signs_and_may_operate_retires_a_broker(ring: Keyring) -> None:
    b = believer(ring)
    b.receive("n", introduced(ring, "far"), AT)
    b.receive("n", Facts((Fact("mallory", 1, f"{REMOVED}far", claimed_us=AT.wall_us),)), AT)
    assert b.removed == set()
    b.receive("n", introduced(ring, "honest", operate=True), AT)
    gone = Fact("honest", 5, f"{REMOVED}far", claimed_us=AT.wall_us)
    b.receive("n", said(ring.identity("honest"), gone), AT)
    assert b.removed == {"far"}
    b.receive("m", introduced(ring, "narrow"), AT)
    other = Fact("narrow", 9, f"{REMOVED}honest", claimed_us=AT.wall_us)
    b.receive("m", said(ring.identity("narrow"), other), AT)
    assert b.removed == {"far"}


def test_only_who_may_operate_states_a_plan(ring: Keyring) -> None:
    b = believer(ring)
    b.receive("n", Facts((Fact("mallory", 1, PLAN, filter="x", claimed_us=1),)), AT)
    b.receive("n", introduced(ring, "honest", operate=True), AT)
    b.receive("n", said(ring.identity("honest"), Fact("honest", 5, PLAN, claimed_us=1)), AT)
    b.receive("m", introduced(ring, "narrow"), AT)
    b.receive("m", said(ring.identity("narrow"), Fact("narrow", 9, PLAN, claimed_us=2)), AT)
    assert {fact.origin for fact in b.facts() if fact.subject == PLAN} == {"honest"}
    assert "has no grant `operate`" in b.rejected_facts[-1][2]


@pytest.mark.parametrize("subject", [PLAN, f"{REMOVED}far"])
@pytest.mark.parametrize("operate", [True, False])
def test_a_broker_says_nothing_that_others_refuse_by_its_grant(
    ring: Keyring, subject: str, operate: bool
) -> None:
    """Else all that it says later would be refused, too: also with its very token of before."""
    first = ClusterState("n")
    first.begin(AT.wall_us)
    first.announce(subject, filter="x", claimed_us=5)
    ring.identities["n"] = ring.broker("n", operate=operate)
    fact_verifier = FactVerifier("n", ring.identity("n"), ring.authority())
    token = Fact("n", AT.wall_us - 1, TOKEN, (ring.identity("n").token,))
    n = ClusterState("n", said(ring.identity("n"), token, *first.facts()).facts, fact_verifier)
    n.begin(AT.wall_us + 1)
    n.announce("ann/d", filter="x = 1")
    b = believer(ring)
    b.receive("n", Facts(tuple(sorted(n.facts(), key=lambda fact: fact.version))), AT)
    assert b.rejected_facts == []
    assert b.fact("n", "ann/d") is not None
    told = b.fact("n", subject)
    assert told is not None
    assert (told.filter, told.claimed_us) == (("x", 5) if operate else ("", 0))


def test_signatures_are_asked_for_wherever_there_is_an_authority(ring: Keyring) -> None:
    unsigned = Fact("far", 1, LINKS, ("n",))
    made_now = ring.broker("b", iat=AT.wall_us // 1_000_000)
    for its, is_believed in (
        (FactVerifier("b", made_now, ring.authority()), False),
        (FactVerifier("b", made_now, NamedAuthority({})), False),
        (FactVerifier("b", authority=ring.authority()), False),
        (FactVerifier("b", made_now), True),
    ):
        assert (its.check(unsigned, "", AT) == "") is is_believed
        assert (its.filter_signed([unsigned]) == [unsigned]) is is_believed


# --- a broker's own ---


def test_the_token_comes_before_everything_else_that_is_said(ring: Keyring) -> None:
    b = ClusterState("b", (), FactVerifier("b", ring.identity("b"), ring.authority()))
    b.begin(AT.wall_us)
    b.peer_up("n", AT)
    b.announce("bob/orders", filter="x = 1")
    mine = sorted(b.facts(), key=lambda fact: fact.version)
    assert [fact.subject for fact in mine] == [TOKEN, LINKS, "bob/orders"]
    other = ClusterState("c", (), FactVerifier("c", ring.identity("c"), ring.authority()))
    other.peer_up("n", AT)
    other.receive("n", Facts(tuple(mine)), AT)
    assert other.rejected_facts == []
    assert other.fact("b", "bob/orders") == b.fact("b", "bob/orders")


@pytest.mark.parametrize("before", ["unsigned", "another key", "the same"])
def test_with_another_key_than_before_everything_is_said_again(ring: Keyring, before: str) -> None:
    earlier = {
        "unsigned": FactVerifier("b"),
        "another key": FactVerifier("b", ring.broker("b"), ring.authority()),
        "the same": FactVerifier("b", ring.identity("b"), ring.authority()),
    }[before]
    first = ClusterState("b", (), earlier)
    first.begin(AT.wall_us)
    first.announce("bob/orders", filter="x = 1")
    newest = max(fact.version for fact in first.facts())
    again = ClusterState(
        "b", first.facts(), FactVerifier("b", ring.identity("b"), ring.authority())
    )
    again.begin(AT.wall_us)
    said_again = [fact.version > newest for fact in again.facts()]
    assert all(said_again) if before != "the same" else not any(said_again)
    other = linked(ClusterState("c", (), FactVerifier("c", ring.identity("c"), ring.authority())))
    mine = sorted(again.facts(), key=lambda fact: fact.version)
    other.receive("n", Facts(tuple(mine)), AT)
    assert other.rejected_facts == []
    assert other.fact("b", "bob/orders") is not None


def test_what_a_disk_has_from_before_signatures_does_not_count(ring: Keyring) -> None:
    forged = Fact("far", AT.wall_us, "bob/orders", (), "x = 1")
    signed = introduced(ring, "near").facts
    fact_verifier = FactVerifier("b", ring.identity("b"), ring.authority())
    b = ClusterState("b", [forged, *signed, Fact("b", 5, "ann/d", (), "x = 2")], fact_verifier)
    assert {(fact.origin, fact.subject) for fact in b.facts()} == {
        ("near", TOKEN),
        ("near", LINKS),
        ("b", "ann/d"),
    }
    assert b.brokers == ["b", "near"]


@pytest.mark.parametrize("subject", ["bob/orders", LINKS])
def test_who_is_outdone_says_everything_again_above_that(subject: str) -> None:
    b = linked(ClusterState("b"))
    b.begin(AT.wall_us)
    b.announce("bob/orders", filter="x = 1")
    forged = Fact("b", AT.wall_us + AHEAD_US - 10, subject)
    b.receive("n", Facts((forged,)), AT)
    b.tick(AT)
    found = b.fact("b", "bob/orders")
    assert found is not None
    assert found.filter == "x = 1"
    assert found.version > forged.version
    versions = {fact.version for fact in b.facts()}
    b.tick(AT)  # once
    assert {fact.version for fact in b.facts()} == versions


@pytest.mark.parametrize(("more", "calls"), [(-1, 1), (0, 1), (1, 2)])
def test_what_is_said_again_is_said_in_parts(
    more: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_state, "REPUBLISHED_PER_TICK", 5)
    b = linked(ClusterState("b"))
    b.begin(AT.wall_us)
    for number in range(4 + more):
        b.announce(f"bob/{number}", filter="x = 1")
    forged = Fact("b", AT.wall_us + 10**9, LINKS)
    b.receive("n", Facts((forged,)), AT)

    def left() -> int:
        return sum(fact.version <= forged.version for fact in b.facts())

    for call in range(calls):
        assert left() > 0, call
        b.tick(AT)
    assert left() == 0


def test_nothing_is_settled_before_all_is_said_again() -> None:
    b = linked(ClusterState("b"))
    b.begin(AT.wall_us)
    for number in range(limits.REPUBLISHED_PER_TICK * 2):
        b.announce(f"bob/{number}", filter="x = 1")
    forged = Fact("b", AT.wall_us + 10**9, LINKS)
    b.receive("n", Facts((forged,)), AT)
    b.tick(AT)
    b.flush_pending()
    assert all(fact.version > forged.version for fact in b.facts())


def test_an_earlier_life_with_another_key_is_outdone_too(ring: Keyring) -> None:
    earlier = ring.broker("b")
    version = AT.wall_us + 365 * 86_400 * 1_000_000  # its clock was a year ahead
    incarnation = said(
        earlier,
        Fact("b", version, TOKEN, (earlier.token,)),
        Fact("b", version + 1, "bob/old", (), "x = 1"),
    )
    b = believer(ring)
    b.receive("n", incarnation, AT)
    assert b.rejected_facts == []
    b.tick(AT)
    old = b.fact("b", "bob/old")
    assert old is not None
    assert (old.filter, old.version > version + 1) == ("x = 1", True), "it lives here still"
    b.receive("n", Facts((Fact("b", version + 9, "bob/new", (), "x = 1"),)), AT)
    assert b.fact("b", "bob/new") is None
    assert len(b.rejected_facts) == 1


# --- bounds ---


@pytest.mark.parametrize("trust", ["any", "signatures"])
@pytest.mark.parametrize(("beyond", "kept"), [(-1, True), (0, True), (1, False)])
@pytest.mark.parametrize("what", ["version", "claimed_us", "claim", "retired"])
def test_no_time_is_believed_that_is_years_ahead(
    ring: Keyring, trust: str, beyond: int, kept: bool, what: str
) -> None:
    time = AT.wall_us + AHEAD_US + beyond
    fact = {
        "version": Fact("n", time, "bob/d", (), "x = 1"),
        "claimed_us": Fact("n", 9, "bob/d", (), "x = 1", time),
        "claim": Fact("n", 9, "bob/d", (), "x = 1", claim=ClaimNumbers(time)),
        "retired": Fact("n", 9, f"{REMOVED}bob/d", claimed_us=time),
    }[what]
    facts: tuple[Fact, ...] = (fact,)
    if trust == "signatures":
        b = believer(ring)
        n = ring.identity("n")
        facts = said(n, Fact("n", 1, TOKEN, (n.token,)), fact).facts
    else:
        b = linked(ClusterState("b"))
    b.receive("n", Facts(facts), AT)
    assert (b.fact("n", fact.subject) is not None) is kept
    assert not b.rejected_facts if kept else "clocks" in b.rejected_facts[0][2]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_other_bounds_of_facts(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_verifier, "MAX_FACT_CHARS", 20)
    monkeypatch.setattr(fact_verifier, "MAX_BROKERS", 3)
    for fact in (
        Fact("n" * (MAX_NAME_BYTES + more), 1, "d"),
        Fact("n", 1, "o/d", (), "x" * (17 + more)),
        Fact("n", 1, LINKS, ("a",) * (3 + more)),
    ):
        b = linked(ClusterState("b"))
        b.receive("n", Facts((fact,)), AT)
        assert bool(b.rejected_facts) is (more > 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_nobody_has_more_to_say_or_more_brokers_than_there_can_be(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_store, "MAX_FACTS", 3)
    for room in (fact_store, cluster_state):
        monkeypatch.setattr(room, "MAX_BROKERS", 4)
    b = linked(ClusterState("b"))
    b.receive("n", Facts(tuple(Fact("n", 1 + each, f"o/{each}") for each in range(3 + more))), AT)
    assert bool(b.rejected_facts) is (more > 0)
    b.rejected_facts.clear()
    b.receive("m", Facts(tuple(Fact(f"f{each}", 1, "o/d") for each in range(2 + more))), AT)
    assert bool(b.rejected_facts) is (more > 0)
    again = AT._replace(now=AT.now + MIN_DIGEST_INTERVAL_S)
    named = {f"f{each}": 1 for each in range(4 + more)}
    if more > 0:
        with pytest.raises(IllegalMessage, match="MAX_BROKERS"):
            b.receive("n", Digest(named), again)
    else:
        b.receive("n", Digest(named), again)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_message_holds_only_so_many_facts(more: int) -> None:
    b = linked(ClusterState("b"))
    facts = Facts(tuple(Fact("n", 1 + each, f"o/{each}") for each in range(PORTION_FACTS + more)))
    if more > 0:
        with pytest.raises(IllegalMessage, match="PORTION_FACTS"):
            b.receive("n", facts, AT)
    else:
        b.receive("n", facts, AT)
        assert len(b.facts()) >= PORTION_FACTS + more


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_message_holds_only_so_much_of_filters(more: int) -> None:
    b = linked(ClusterState("b"))
    texts = ("x = 1", " " * (PORTION_BYTES - len("x = 1") + more))
    facts = tuple(Fact("n", 1 + at, f"o/{at}", filter=text) for at, text in enumerate(texts))
    b.receive("n", Facts((Fact("n", 9, "o/alone", filter=" " * (PORTION_BYTES + 1)),)), AT)
    if more > 0:
        with pytest.raises(IllegalMessage, match="PORTION_BYTES"):
            b.receive("n", Facts(facts), AT)
    else:
        b.receive("n", Facts(facts), AT)


@pytest.mark.parametrize(("early", "legal"), [(0.1, False), (0.0, True), (-0.1, True)])
def test_who_asks_too_often_is_parted_with(early: float, legal: bool) -> None:
    b = linked(ClusterState("b"))
    at = AT._replace(now=AT.now + MIN_DIGEST_INTERVAL_S - early)
    if legal:
        b.receive("n", Digest({}), at)
    else:
        with pytest.raises(IllegalMessage, match="too soon"):
            b.receive("n", Digest({}), at)


def test_who_does_not_believe_an_origin_says_so_until_it_knows_what_was_said(
    ring: Keyring,
) -> None:
    b, late = believer(ring), introduced(ring, "far")
    b.receive("n", Facts(late.facts[1:]), AT)  # without its token
    assert b.unconfirmed("n") == {"b/far"}
    b.tick(Moment(AT.now + RETRY_REJECTED_S, AT.wall_us))
    assert b.unconfirmed("n") == {"b/far"}  # it is asked again, and has not answered
    b.receive("n", late, AT)
    assert b.unconfirmed("n") == set()


# --- how many ---


def test_brokers_that_there_never_were_are_retired_until_there_are_too_many_and_links_stay(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (fact_store, cluster_state):
        monkeypatch.setattr(room, "MAX_BROKERS", 20)
    b, m = believer(ring), believer(ring, "m")
    for facts in retiring(ring, 30):
        b.receive("n", facts, AT)
    ((_, fact, problem),) = b.rejected_facts
    assert fact.subject == f"{REMOVED}x20"
    assert "MAX_BROKERS" in problem
    b.peer_down("m")
    b.outbox.clear()
    b.peer_up("m", AT)
    (known,) = [each for _, each in b.outbox if isinstance(each, Digest)]
    assert len(known.versions) == 20
    m.peer_up("b", AT)
    m.receive("b", known, AT)  # and does not part with it


def test_origins_that_are_not_believed_are_remembered_within_bounds(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_state, "MAX_BROKERS", 5)
    b = believer(ring)
    b.receive("n", Facts(tuple(Fact(f"x{each}", 1, LINKS) for each in range(9))), AT)
    assert [fact.origin for _, fact, _ in b.rejected_facts] == [f"x{each}" for each in range(5)]
    assert "b" in b.unconfirmed("n")  # for whatever origin
    late = introduced(ring, "far")
    b.receive("n", late, AT)
    assert b.links("far") == ()
    b.tick(Moment(AT.now + RETRY_REJECTED_S, AT.wall_us))
    b.receive("n", late, AT)
    assert b.links("far") == ("n",)


def test_a_fact_says_whether_a_subscription_lives_at_its_origin() -> None:
    assert is_live_subscription(Fact("b1", 1, "alice/d", filter="x > 1"))
    assert not is_live_subscription(Fact("b1", 1, "alice/d"))
