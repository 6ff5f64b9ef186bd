"""How long patterns wait: what may be given, what is found out, and that it is enough."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pytest
from hypothesis import given

from palio.client.connection import Client
from palio.client.events import Event, Gap
from palio.client.reordering import (
    MAX_ADAPTIVE_S,
    MAX_REORDER_S,
    MIN_ADAPTIVE_S,
    REORDER_S,
    TRIAL_EVENTS,
    TRIAL_S,
    Window,
    check_reorder,
)
from palio.client.subscription import Subscription
from palio.errors import InvalidInput, LimitExceeded
from palio.testing import Network, run
from tests import strategies as our
from tests.client.helpers import drain
from tests.client.virtual import PATIENCE_S, in_virtual_time

# --- the room, to which time is an argument ---


def test_a_reorder_window_has_a_largest_size() -> None:
    for seconds in (0, 0.0, 1, MAX_REORDER_S - 0.1, MAX_REORDER_S):
        assert check_reorder(seconds) == seconds
    with pytest.raises(LimitExceeded, match="MAX_REORDER_S"):
        check_reorder(MAX_REORDER_S + 0.1)
    for wrong in (-0.1, float("nan"), float("inf"), True, "1", None):
        with pytest.raises(InvalidInput, match="reorder_timeout"):
            check_reorder(wrong)


def calm(window: Window, begin: float, events: int = TRIAL_EVENTS, s: float = TRIAL_S) -> float:
    """A trial in which nothing is overtaken: the window after it."""
    window.record_in_time(begin, 1, 0.0)
    window.record_in_time(begin + s, events - 1, 0.0)
    return window.seconds


def test_a_window_grows_at_once_to_twice_what_is_needed() -> None:
    window = Window(None)
    window.record_in_time(0.0, 1, REORDER_S / 2)
    assert window.seconds == REORDER_S
    window.record_in_time(0.1, 1, 0.75)
    assert window.seconds == 1.5
    window.record_in_time(0.2, 1, 0.1)
    assert window.seconds == 1.5


@pytest.mark.parametrize(
    ("delay_s", "found_s"), [(4.9, 9.8), (5.0, MAX_ADAPTIVE_S), (5.1, MAX_ADAPTIVE_S)]
)
def test_nothing_longer_than_so_long_is_found_out(delay_s: float, found_s: float) -> None:
    for tell in (
        Window.record_late,
        lambda window, now, seconds: window.record_in_time(now, 1, seconds),
    ):
        window = Window(None)
        tell(window, 0.0, delay_s)
        assert window.seconds == found_s


def test_a_window_shrinks_by_half_a_trial_and_not_below_the_least() -> None:
    window = Window(None)
    assert [calm(window, trial * 1_000.0) for trial in range(3)] == [0.5, 0.25, MIN_ADAPTIVE_S]


def test_a_window_stays_twice_as_long_as_events_were_overtaken_lately() -> None:
    window = Window(None)
    window.record_in_time(0.0, TRIAL_EVENTS, 0.4)
    window.record_in_time(TRIAL_S, 1, 0.0)
    assert window.seconds == 0.8
    assert calm(window, 1_000.0) == 0.4


@pytest.mark.parametrize(
    ("events", "seconds", "found_s"),
    [
        (TRIAL_EVENTS - 1, TRIAL_S, REORDER_S),
        (TRIAL_EVENTS, TRIAL_S - 0.1, REORDER_S),
        (TRIAL_EVENTS, TRIAL_S, REORDER_S / 2),
        (TRIAL_EVENTS + 1, TRIAL_S + 0.1, REORDER_S / 2),
    ],
)
def test_a_trial_takes_time_and_events(events: int, seconds: float, found_s: float) -> None:
    assert calm(Window(None), 0.0, events, seconds) == found_s


def test_late_events_double_the_window_once_in_its_own_length() -> None:
    """What came before it grew says nothing of the window as it is now."""
    window, found = Window(None), []
    for now in (0.0, 0.5, 1.9, 2.0, 5.9, 6.0, 14.0):
        window.record_late(now, 0.01)
        found.append(window.seconds)
    assert found == [2.0, 2.0, 2.0, 4.0, 4.0, 8.0, MAX_ADAPTIVE_S]


def test_a_late_event_begins_the_trial_anew() -> None:
    window = Window(None)
    window.record_in_time(0.0, TRIAL_EVENTS, 0.0)
    window.record_late(1.0, 0.01)
    window.record_in_time(2.0, TRIAL_EVENTS, 0.0)
    window.record_in_time(TRIAL_S + 1, 1, 0.0)
    assert window.seconds == 2.0
    window.record_in_time(TRIAL_S + 2, 1, 0.0)
    assert window.seconds == 1.0


# --- over brokers ---


class Copy(NamedTuple):
    """An event as everybody can see it; copies are ordered as patterns order events."""

    time: float
    publisher: str
    seq: int
    n: int


class Shape(NamedTuple):
    """A pattern, and what it means in plain Python."""

    text: str
    steps: tuple[Callable[[int], bool], ...]
    within_s: float | None = None


SHAPES: Final = (
    Shape("n = 1 THEN n = 2", (lambda n: n == 1, lambda n: n == 2)),
    Shape("n = 1 THEN n = 1 WITHIN 200ms", (lambda n: n == 1, lambda n: n == 1), 0.2),
    Shape(
        "n < 3 THEN n > 1 THEN n = 1 OR n = 3 WITHIN 500ms",
        (lambda n: n < 3, lambda n: n > 1, lambda n: n in (1, 3)),
        0.5,
    ),
)


LONGEST_S: Final = 0.12
"""What a link takes at most."""

ENOUGH_S: Final = 0.5
"""What the longest way takes: four links."""


def plainly(shape: Shape, published: Sequence[Copy]) -> list[list[tuple[str, int]]]:
    """What there is in some events by the order of their publication."""
    found: list[list[tuple[str, int]]] = []
    begun: list[Copy] = []
    for copy in sorted(published):
        span_s = round(copy.time - begun[0].time, 6) if begun else 0.0
        if shape.within_s is not None and span_s > shape.within_s:
            begun = []
        if shape.steps[len(begun)](copy.n):
            begun.append(copy)
        if len(begun) == len(shape.steps):
            found.append([(each.publisher, each.seq) for each in begun])
            begun = []
    return found


async def publish_at_random(client: Client, rng: random.Random) -> int:
    """Publish at irregular moments, a few at a time: how many."""
    receipts = []
    for _ in range(rng.randint(5, 25)):
        await asyncio.sleep(rng.choice((rng.uniform(0, 0.02), rng.uniform(0, 0.4))))
        events = [{"n": rng.randint(1, 3)} for _ in range(rng.choice((1, 1, 1, 2)))]
        receipts.append(client.publish_nowait(events))
    return sum(each.last_seq - each.first_seq + 1 for each in await asyncio.gather(*receipts))


async def hear_all(heard: Subscription) -> list[list[tuple[str, int]]]:
    """The parts of every sequence until the subscription ends."""
    return [[(part.publisher, part.seq) for part in event.parts] async for event in heard]


async def compare_with_plain_python(seed: int) -> None:
    rng = random.Random(seed)
    topology = rng.choice(("line:1", "line:3", "line:5", "star:5", "tree:7", "ring:4"))
    async with Network(topology) as net:
        brokers = net.topology.brokers
        for edge in net.topology.edges:
            net.delay(*edge, rng.choice((0.001, rng.uniform(0, LONGEST_S), LONGEST_S)))
        await asyncio.sleep(2)  # the links as they are now have formed the network
        listener = await net.connect(rng.choice(brokers))
        shape, reorder_timeout = (
            rng.choice(SHAPES),
            rng.choice((None, ENOUGH_S, ENOUGH_S, 0.02, 0.1)),
        )
        told: list[Gap] = []
        heard = await listener.subscribe(
            shape.text, reorder_timeout=reorder_timeout, on_gap=told.append
        )
        everything = await listener.subscribe("EXISTS n")
        hearing = asyncio.create_task(hear_all(heard))
        await listener.settled()
        publishers = [await net.connect(rng.choice(brokers)) for _ in range(rng.randint(2, 5))]
        counts = await asyncio.gather(*(publish_at_random(each, rng) for each in publishers))
        await asyncio.sleep(4)
        published = [copy_of(each) for each in await drain(everything)]
        await heard.unsubscribe()
        found = await hearing
    assert len(published) == sum(counts)
    late = {copy for gap in told for copy in published if is_in(gap, copy, shape)}
    assert len(late) == heard.late == sum(gap.count for gap in told)
    if reorder_timeout in (None, ENOUGH_S):
        assert not late
    assert found == plainly(shape, [each for each in published if each not in late])


def copy_of(event: Event) -> Copy:
    return Copy(event.time.timestamp(), event.publisher, event.seq, event["n"])


def is_in(gap: Gap, copy: Copy, shape: Shape) -> bool:
    """Whether an event is among those of a gap; what no step wants never came for the pattern."""
    is_wanted = any(step(copy.n) for step in shape.steps)
    return (
        is_wanted and gap.publisher == copy.publisher and gap.first_seq <= copy.seq <= gap.last_seq
    )


@our.examples(50)
@given(our.SEEDS)
def test_clients_hear_what_plain_python_finds_in_the_order_of_publication(seed: int) -> None:
    """On networks of any form and delay, less what the client is told of as too late."""
    run(asyncio.wait_for(compare_with_plain_python(seed), PATIENCE_S))


async def pairs(net: Network, heard: Subscription, count: int, pause_s: float) -> int:
    """A first step far away and 10 ms later the second here, so many times; how many are heard."""
    *_, here = brokers = net.topology.brokers
    far, near = await net.connect(brokers[0]), await net.connect(here)
    await heard.settled(60)
    before = heard.pending
    for _ in range(count):
        receipts = [far.publish_nowait({"x": 1})]
        await asyncio.sleep(0.01)
        receipts.append(near.publish_nowait({"y": 1}))
        await asyncio.gather(*receipts)
        await asyncio.sleep(pause_s)
    await asyncio.sleep(heard.reorder_timeout + 1)
    return heard.pending - before


async def hear_in_calm_times() -> None:
    async with Network("line:5", delay_s=0.02) as net:
        client = await net.connect("b5")
        heard = await client.subscribe("x = 1 THEN y = 1")
        for reorder_timeout, count, pause_s in (
            (REORDER_S, 101, 6.0),
            (REORDER_S / 2, 101, 6.0),
            (MIN_ADAPTIVE_S, 50, 0.3),
        ):
            assert heard.reorder_timeout == reorder_timeout
            assert await pairs(net, heard, count, pause_s) == count
        assert (heard.late, heard.dropped) == (0, 0)


def test_where_events_keep_their_order_sequences_are_told_sooner() -> None:
    """And none is missed for it."""
    run(asyncio.wait_for(hear_in_calm_times(), 3 * TRIAL_S))


@in_virtual_time
async def test_where_events_are_longer_on_their_way_patterns_wait_longer_soon() -> None:
    """The first are late, which is told; the later ones are not."""
    async with Network("line:2") as net:
        net.delay("b1", "b2", 2.5)
        client = await net.connect("b2")
        heard = await client.subscribe("x = 1 THEN y = 1")
        assert await pairs(net, heard, 20, 10.0) == 18
        assert heard.late == 2
        assert 4.9 < heard.reorder_timeout < 5.1
