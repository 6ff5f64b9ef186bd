"""A scenario depends on its seed alone, is the same for all architectures, and is paid for."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from palio.errors import InvalidInput
from palio.model.patterns import Pattern
from palio.model.row_parcels import RowParcel
from palio.simulation.randomness import Randomness
from palio_studies.siena_scenario import (
    KINDS,
    NOTIFICATION_BYTES,
    Flow,
    Interests,
    ManyKinds,
    ManySequences,
    Played,
    SitePlan,
    SteadyPlan,
    flow,
    found_by_parties,
    play,
    sites_of,
)
from palio_studies.siena_sites import LATENCY_MS, Architecture, CostClass
from palio_studies.simulator.clients import Client
from palio_studies.simulator.network import size_of

# --- what is published and wanted ---


@pytest.mark.parametrize(
    ("skew", "share"), [(0.0, 0.1), (1.0, 1 / sum(1 / r for r in range(1, 11)))]
)
def test_the_first_kind_is_wanted_as_often_as_the_skew_says(skew: float, share: float) -> None:
    interests, random = ManyKinds(skew), Randomness(1)
    wanted = Counter(str(interests.filter(random)).partition(" AND ")[0] for _ in range(4_000))
    assert len(wanted) == KINDS
    assert wanted["kind = 0"] / 4_000 == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    "interests",
    [Interests(), ManyKinds(1.0), ManySequences(objects=20, sources=1, steps=2)],
    ids=lambda each: type(each).__name__,
)
def test_an_object_publishes_what_it_advertised(interests: Interests) -> None:
    random = Randomness(1)
    for thing in range(20):
        advertisement = interests.advertisement(thing, random)
        events = [interests.event(thing, number, random) for number in range(5)]
        assert all(advertisement.announces(event, open=False) for event in events)
        assert size_of(RowParcel("o0", events[:1])) == NOTIFICATION_BYTES


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_a_pattern_takes_its_objects_in_turn(sources: int) -> None:
    wishes, random = ManySequences(objects=5, sources=sources, steps=6), Randomness(1)
    for _ in range(20):
        kinds = [str(step).partition(" AND ")[0] for step in wishes.pattern(random).steps]
        assert len(set(kinds[:sources])) == sources
        assert kinds == (kinds[:sources] * 6)[:6]


def test_the_filter_of_a_party_is_what_any_step_of_its_pattern_wants() -> None:
    wishes = ManySequences(objects=5, sources=2, steps=3)
    assert wishes.filter(Randomness(4)) == wishes.pattern(Randomness(4)).any_step


def test_sizes_that_are_not_planned_are_refused() -> None:
    with pytest.raises(InvalidInput, match="choose one of 100, 1000, 10000"):
        sites_of(99, Randomness(1))


# --- applications that come and go ---


def played(
    architecture: str = "as", seed: int = 1, parties: int = 5, objects: int = 2, **changed: float
) -> Played:
    given = {"m": 2, "n": 3, "p": 2, "q": 2} | changed
    plan = {"architecture": architecture, "objects": objects, "parties": parties, **given}
    return play(msgspec.convert(plan, SitePlan), seed)


def test_who_publishes_what_when_does_not_depend_on_the_architecture() -> None:
    hierarchy, peers = played("hs"), played("as")
    assert hierarchy.sites.prices == peers.sites.prices
    for one, other in zip(hierarchy.objects, peers.objects, strict=True):
        assert one.client.broker == other.client.broker
        gaps = [
            [after - before for before, after in pairwise(each.published_us)]
            for each in (one, other)
        ]
        assert gaps[0] == gaps[1]
    for a, b in zip(hierarchy.parties, peers.parties, strict=True):
        assert a.client.broker == b.client.broker


def test_a_seed_gives_the_same_numbers_again_and_another_does_not() -> None:
    one, again, other = (played("aa", seed) for seed in (1, 1, 2))
    assert one.tally.by_link() == again.tally.by_link()
    assert one.tally.by_link() != other.tally.by_link()


@pytest.mark.parametrize("architecture", ["ce", "as", "aa"])
def test_all_that_is_wanted_arrives_with_one_server_and_with_many(architecture: str) -> None:
    run = played(architecture)
    assert [each.requests for each in run.objects] == [2 * (1 + 3 + 1)] * 2
    assert [(each.requests, each.subscribed) for each in run.parties] == [(4, 2)] * 5
    assert (run.published, run.subscribed, run.requests) == (2 * 6, 5 * 2, 2 * 10 + 5 * 4)
    assert run.network.costs.delivered == 5 * 4


def test_a_party_that_waits_in_vain_stays() -> None:
    run = played(parties=1, objects=1, m=1, n=2, p=1, q=3)
    assert run.network.costs.delivered == 2
    assert [each.requests for each in run.parties] == [1]


def test_gaps_are_those_of_a_poisson_process() -> None:
    run = played(parties=1, objects=1, m=1, n=4_000, p=0, q=1, gap_ms=10)
    times = run.objects[0].published_us
    assert times == sorted(times)
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(10_000, rel=0.06)
    spread = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert spread**0.5 == pytest.approx(mean, rel=0.1)
    assert run.parties[0].requests == 0


def test_only_clients_of_one_server_pay_for_their_own_requests() -> None:
    central, peers = played("ce"), played("as", parties=0)
    assert central.tally.cost(CostClass.ADVERTISEMENT) > 0
    assert sum(peers.tally.cost(each) for each in CostClass) == 0


# --- a steady flow ---


def run(
    architecture: str, *, rate: float = 10.0, capacity: float | None = 100.0, parties: int = 5
) -> Flow:
    interests = ManyKinds(0.0)
    plan = SteadyPlan(
        architecture=Architecture(architecture),
        objects=10,
        parties=parties,
        publications=100,
        rate=rate,
        capacity=capacity,
    )
    return flow(
        plan, 1, interests, lambda client, random: client.subscribe(interests.filter(random))
    )


def taken(run: Flow) -> list[list[tuple[str, int]]]:
    return [sorted((one.publisher, one.seq) for one in each.received) for each in run.parties]


def test_the_same_is_published_and_taken_whoever_carries_it() -> None:
    runs = [run(each) for each in ("hs", "as", "aa", "hy")]
    assert len(runs[0].published_us) == 100
    for other in runs[1:]:
        assert taken(other) == taken(runs[0])
        starts = [min(each.published_us.values()) for each in (runs[0], other)]
        assert [when - starts[0] for when in runs[0].published_us.values()] == [
            when - starts[1] for when in other.published_us.values()
        ]
    assert any(taken(runs[0]))


def test_notifications_come_at_the_rate_that_was_planned() -> None:
    slow, fast = run("as", rate=10.0), run("as", rate=1000.0)
    assert slow.seconds == pytest.approx(100 * fast.seconds, rel=1e-3)
    assert slow.seconds == pytest.approx(99 / 10, rel=0.3)


def test_only_notifications_cross_links_once_they_are_published() -> None:
    before = run("as", capacity=None)
    assert before.tally.cost(CostClass.ADVERTISEMENT) == 0
    assert before.tally.cost(CostClass.SUBSCRIPTION) > 0
    assert min(before.published_us.values()) > LATENCY_MS * 1000


def test_without_a_limit_a_notification_takes_whole_latencies() -> None:
    latencies = run("as", capacity=None).latencies_ms
    assert latencies == sorted(latencies)
    assert all(each % LATENCY_MS == 0 for each in latencies)


def test_with_a_limit_it_takes_its_time_on_each_link_too() -> None:
    free, idle = run("as", capacity=None), run("as", rate=0.001)
    assert idle.latencies_ms == [2 * each for each in free.latencies_ms]


def test_a_full_link_makes_notifications_wait() -> None:
    idle, full = run("hs", rate=0.001), run("hs", rate=1000.0)
    assert idle.busiest_link.share < 0.01
    assert full.busiest_link.share > 1
    assert max(full.latencies_ms) > 2 * max(idle.latencies_ms)
    assert taken(idle) == taken(full)


def test_the_busiest_link_has_what_crossed_it_over_what_it_could_carry() -> None:
    done = run("hs")
    busiest = done.busiest_link
    crossed = done.tally.by_direction(CostClass.NOTIFICATION)
    assert crossed[busiest.ends] == max(crossed.values())
    assert busiest.share == pytest.approx(crossed[busiest.ends] / (done.seconds * 100))


def assembled(architecture: str) -> tuple[Flow, list[Pattern]]:
    wishes = ManySequences(objects=4, sources=2, steps=2)
    patterns: list[Pattern] = []
    plan = SteadyPlan(
        architecture=Architecture(architecture), objects=4, parties=8, publications=80, rate=10.0
    )

    def ask(client: Client, random: Randomness) -> None:
        patterns.append(wishes.pattern(random))
        if architecture == "pa":
            client.subscribe_pattern(patterns[-1])
        else:
            client.subscribe(patterns[-1].any_step)

    return flow(plan, 2, wishes, ask), patterns


def test_parties_find_what_servers_find() -> None:
    by_parties, patterns = assembled("aa")
    by_servers, same = assembled("pa")
    assert patterns == same
    found = sum(len(each.found) for each in by_servers.parties)
    assert found_by_parties(by_parties, patterns) == found > 8


def test_servers_bring_fewer_notifications_to_parties() -> None:
    by_parties, _ = assembled("aa")
    by_servers, _ = assembled("pa")
    assert sum(len(each.received) for each in by_servers.parties) == 0
    assert by_servers.network.costs.notifications < by_parties.network.costs.notifications
