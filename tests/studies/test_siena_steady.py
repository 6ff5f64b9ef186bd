"""Steady runs: what is published does not depend on who carries it, and full links make it wait."""

from __future__ import annotations

import pytest

from palio.simulation.randomness import Randomness
from palio_studies.siena_interests import ManyKinds
from palio_studies.siena_scenario import OneKind
from palio_studies.siena_sites import LATENCY_MS, Architecture
from palio_studies.siena_steady import NOTIFICATION_BYTES, Flow, SteadyPlan, busiest_link, flow
from palio_studies.siena_tally import CostClass
from palio_studies.simulator.clients import Client


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

    def ask(client: Client, number: int, random: Randomness) -> None:
        client.subscribe(interests.filter(number, random))

    return flow(plan, 1, interests, ask)


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
    assert busiest_link(idle).share < 0.01
    assert busiest_link(full).share > 1
    assert max(full.latencies_ms) > 2 * max(idle.latencies_ms)
    assert taken(idle) == taken(full)


def test_the_busiest_link_has_what_crossed_it_over_what_it_could_carry() -> None:
    done = run("hs")
    busiest = busiest_link(done)
    crossed = done.tally.by_direction(CostClass.NOTIFICATION)
    assert crossed[busiest.ends] == max(crossed.values())
    assert busiest.share == pytest.approx(crossed[busiest.ends] / (done.seconds * 100))


def test_the_size_of_a_notification_is_that_of_those_published() -> None:
    from palio.model.row_parcels import RowParcel
    from palio_studies.simulator.network import size_of

    event = ManyKinds(0.0)
    event.advertisement(0, Randomness(1))
    for interests in (event, OneKind()):
        parcel = RowParcel("o0", [interests.event(0, 0, Randomness(1))])
        assert size_of(parcel) == NOTIFICATION_BYTES
