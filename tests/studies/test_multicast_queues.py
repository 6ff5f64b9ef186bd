"""Links with queues, and how long events take on them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from palio.multicast.broker_sets import words_of
from palio.multicast.listed import flooding
from palio.multicast.traffic import GroupTraffic
from palio_studies.multicast_queues import (
    EVENT_BYTES,
    MATCHING_S,
    MEGABITS,
    EventTimes,
    LinkQueue,
    QueuedWan,
)
from palio_studies.multicast_scenes import multicasts, nearest, plans_for
from tests.studies.test_multicast_network import small_wan

WAN = small_wan()
SUBSCRIBERS = len(WAN.subscribers)
SERVICES_S = [8 * EVENT_BYTES / (1e6 * rate) for rate in MEGABITS]


def one_wants(broker: int, events: int) -> EventTimes:
    """Events at the same time from the first publisher, for one broker."""
    wanted = np.zeros((events, SUBSCRIBERS), np.bool_)
    wanted[:, broker] = True
    return EventTimes(np.ones(events), np.zeros(events, np.int64), wanted)


def alone_s(broker: int) -> float:
    """How long an event takes that meets no other."""
    path = WAN.tree(SUBSCRIBERS).paths[broker] > 0
    sending = sum(SERVICES_S[kind] for kind in WAN.classes[path])
    latency_s = float(WAN.latency_us[SUBSCRIBERS, broker]) / 1e6
    return latency_s + float(sending) + 2 * MATCHING_S


def test_an_event_alone_takes_its_way_its_sending_and_matching_at_both_ends() -> None:
    for broker in range(SUBSCRIBERS):
        traffic = one_wants(broker, 1)
        sent = multicasts(WAN, flooding(WAN.subscribers), traffic.wanted, traffic.publishers)
        found = QueuedWan(WAN, 0.0, 1).carry(traffic, sent)
        assert found.tolist() == [pytest.approx(alone_s(broker))]


def test_events_at_once_go_one_behind_the_other() -> None:
    traffic = one_wants(3, 5)
    sent = multicasts(WAN, flooding(WAN.subscribers), traffic.wanted, traffic.publishers)
    found = QueuedWan(WAN, 0.0, 1).carry(traffic, sent)
    slowest = max(*SERVICES_S, MATCHING_S)
    assert np.sort(found) == pytest.approx(alone_s(3) + slowest * np.arange(5))


@pytest.mark.parametrize("gap", [400.0, 100.0])
def test_ambient_load_makes_events_wait_as_in_a_queue_by_chance(gap: float) -> None:
    """Left alone for longer than a queue remembers, and for less; both have the known mean."""
    load = 0.5
    queue = LinkQueue(1.0, load, Random(3))
    waits = [queue.sent(now) - now - 1.0 for now in np.arange(1, 20_001) * gap]
    assert np.mean(waits) == pytest.approx(load / (1 - load), rel=0.06)
    assert np.mean(np.array(waits) == 0) == pytest.approx(1 - load, rel=0.03)


def test_neighbours_match_at_every_broker_on_the_way() -> None:
    traffic = one_wants(int(WAN.latency_us[SUBSCRIBERS, :SUBSCRIBERS].argmax()), 1)
    sent = multicasts(WAN, nearest(WAN, WAN.latency_us), traffic.wanted, traffic.publishers)
    found = QueuedWan(WAN, 0.0, 1).carry(traffic, sent)
    expected = MATCHING_S
    for sender, members in zip(sent.roots.tolist(), sent.members, strict=True):
        (member,) = np.flatnonzero(members).tolist()
        path = WAN.tree(sender).paths[member] > 0
        expected += sum(SERVICES_S[kind] for kind in WAN.classes[path]) + MATCHING_S
        expected += float(WAN.latency_us[sender, member]) / 1e6
    assert len(sent.roots) > 1
    assert found.tolist() == [pytest.approx(expected)]


def test_every_delivery_that_is_wanted_is_timed_and_no_other() -> None:
    random = np.random.default_rng(2)
    wanted = random.random((40, SUBSCRIBERS)) < 0.4
    traffic = EventTimes(np.cumsum(random.exponential(0.001, 40)), np.zeros(40, np.int64), wanted)
    learned = GroupTraffic.counted(WAN.subscribers, words_of(wanted))
    for made in plans_for(WAN, learned, learned, 5).values():
        sent = multicasts(WAN, made, wanted, traffic.publishers)
        found = QueuedWan(WAN, 0.3, 1).carry(traffic, sent)
        assert len(found) == wanted.sum()
        assert (found > 0).all()
