"""Patterns that brokers assemble: on whole brokers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from palio.client.connection import Client
from palio.client.events import Event, Gap, LateGap
from palio.errors import IllegalMessage, NotSupported
from palio.language.parsing import parse_filter, parse_pattern
from palio.model.filters import TRUE
from palio.model.patterns import Occurrence
from palio.node.assembling import Assembling
from palio.node.authority import Principal
from palio.node.settings import Settings
from palio.protocol.limits import MAX_NUMBER, MAX_PUBLISHER_CHARS
from palio.protocol.messages import Advertise, Message, Route, Subscribe
from palio.routing.patterns.messages import (
    AssemblyProgress,
    Composite,
    HeldBack,
    Resume,
    Returned,
    SubscribePattern,
    TooLate,
)
from palio.routing.patterns.router import Patterned
from palio.simulation.computers import AccessPolicy
from palio.simulation.topologies import line
from palio.simulation.world import World
from palio.testing import Network, run
from tests.client.helpers import NOON, drain
from tests.client.virtual import in_virtual_time
from tests.conftest import seeds
from tests.node.assemblies import Life
from tests.node.badges import Badge, Names, broker

TWO = "n = 1 THEN n = 2"

SEEDS: Final = seeds(5, nightly=500)
"""Each for a tree and for a graph."""


def numbers(events: Sequence[Event]) -> list[list[int]]:
    """The numbers of the events of each sequence."""
    return [[part.seq for part in event.parts] for event in events]


async def house(net: Network, offer: str = "n IS NOT NULL") -> tuple[Client, Client]:
    """A subscriber at the first broker, and at the last one a publisher that advertises."""
    brokers = net.topology.brokers
    hearer, teller = await net.connect(brokers[0]), await net.connect(brokers[-1])
    await teller.advertise(offer)
    await teller.settled()
    return hearer, teller


@in_virtual_time
async def test_brokers_assemble_what_a_client_would() -> None:
    async with Network("line:3", routing="advertised") as net:
        hearer, teller = await house(net)
        theirs = await hearer.subscribe(TWO, match_at="brokers")
        own = await hearer.subscribe(TWO)
        await hearer.settled()
        for n in (2, 1, 1, 2, 3, 1, 2):
            await teller.publish({"n": n})
        await asyncio.sleep(9)
        event, expected = await theirs.receive(), await own.receive()
        assert (dict(event), event.publisher, event.seq) == ({"n": 2}, expected.publisher, 4)
        assert [dict(each) for each in event.parts] == [{"n": 1}, {"n": 2}]
        assert numbers([event, *await drain(theirs)]) == [[2, 4], [6, 7]]
        assert numbers([expected, *await drain(own)]) == [[2, 4], [6, 7]]
        assert hearer.stale == 0


@in_virtual_time
async def test_only_whole_sequences_leave_the_broker_where_the_events_meet() -> None:
    async with Network("line:3", routing="advertised") as net:
        hearer, teller = await house(net)
        await hearer.subscribe(TWO, match_at="brokers")
        await hearer.settled()
        await teller.publish([{"n": n} for n in (1, 1, 1, 2)])
        await asyncio.sleep(5)
        status = [net.node(broker).status() for broker in net.topology.brokers]
        assert [each["routed"] for each in status] == [0, 0, 4]


@in_virtual_time
async def test_a_pattern_that_is_settled_is_in_force_wherever_events_are_published() -> None:
    async with Network("line:5", routing="advertised", delay_s=0.9) as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe(TWO, match_at="brokers")
        await pattern.settled()
        await teller.publish([{"n": 1}, {"n": 2}])
        assert numbers([await pattern.receive(timeout=60)]) == [[1, 2]]


@in_virtual_time
async def test_where_nothing_is_advertised_brokers_assemble_no_pattern() -> None:
    async with Network("line:2", routing="acyclic") as net:
        hearer = await net.connect("b1")
        with pytest.raises(NotSupported, match="advertised"):
            await hearer.subscribe(TWO, match_at="brokers")


@in_virtual_time
async def test_a_pattern_may_be_changed_and_ended() -> None:
    async with Network("line:2", routing="advertised") as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe("n = :one THEN n = 2", {"one": 1}, match_at="brokers")
        await pattern.settled()
        await teller.publish({"n": 1})
        await pattern.update(one=7)  # it starts over
        await pattern.settled()
        await teller.publish([{"n": n} for n in (1, 2, 7, 2)])
        assert numbers([await pattern.receive(timeout=9)]) == [[4, 5]]
        await pattern.replace("n = 5")
        await pattern.settled()
        await teller.publish([{"n": n} for n in (7, 2, 5)])
        await asyncio.sleep(9)
        assert [dict(each) for each in await drain(pattern)] == [{"n": 5}]
        await pattern.replace("n = 8 THEN n = 9")
        await pattern.settled()
        await teller.publish([{"n": n} for n in (5, 8, 9)])
        assert numbers([await pattern.receive(timeout=9)]) == [[10, 11]]
        await pattern.unsubscribe()
        await teller.publish([{"n": n} for n in (8, 9)])
        await asyncio.sleep(9)
        assert [net.node(each).status()["delivered"] for each in ("b1", "b2")] == [1, 0]


@in_virtual_time
async def test_order_is_that_of_publication_however_far_apart_the_publishers_are() -> None:
    """Steps are published 10 ms apart at both ends of a line with links of 20 ms."""
    for place in ("b1", "b3", "b5"):
        async with Network("line:5", routing="advertised", delay_s=0.02) as net:
            first, second = await net.connect("b1"), await net.connect("b5")
            await first.advertise("n = 1 AND EXISTS at")
            await second.advertise("n = 2 AND EXISTS at")
            hearer = await net.connect(place)
            pattern = await hearer.subscribe(TWO, match_at="brokers")
            for each in (first, second, hearer):
                await each.settled()
            for at in range(50):
                soon = asyncio.create_task(first.publish({"n": 1, "at": at}))
                await asyncio.sleep(0.01)
                await second.publish({"n": 2, "at": at})
                await soon
            await asyncio.sleep(9)
            found = [[part["at"] for part in event.parts] for event in await drain(pattern)]
            assert found == [[at, at] for at in range(50)]


@in_virtual_time
async def test_events_that_come_too_late_are_counted_and_told() -> None:
    gaps: list[Gap] = []
    async with Network("line:3", routing="advertised") as net:
        near, far = await net.connect("b2"), await net.connect("b3")
        for each in (near, far):
            await each.advertise("EXISTS n")
        hearer = await net.connect("b1")
        pattern = await hearer.subscribe(TWO, match_at="brokers", on_gap=gaps.append)
        await hearer.settled()
        await asyncio.sleep(5)
        gaps.clear()
        net.delay("b2", "b3", 2.5)
        late = asyncio.create_task(far.publish({"n": 1}))
        await asyncio.sleep(0.1)
        await near.publish({"n": 2})
        await late
        await asyncio.sleep(9)
        assert await drain(pattern) == []
        assert gaps == [LateGap(far.publisher, 1, 1, 1)]
        assert (pattern.late, pattern.dropped) == (1, 1)
        assert net.node("b2").status()["late_events"] == 1
        assert [net.node(each).status()["patterns"] for each in ("b1", "b2", "b3")] == [1, 1, 0]


@in_virtual_time
async def test_what_a_lost_link_takes_along_is_told_and_it_starts_anew() -> None:
    gaps: list[Gap] = []
    quick = Settings(heartbeat_s=1.0, peer_grace_s=2.0)
    async with Network("line:3", routing="advertised", settings=quick) as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe(TWO, match_at="brokers", on_gap=gaps.append)
        await pattern.settled()
        await asyncio.sleep(5)
        await drain(pattern)
        gaps.clear()
        await teller.publish({"n": 1})
        net.cut("b2", "b3")
        await asyncio.sleep(10)
        net.heal("b2", "b3")
        await asyncio.sleep(10)
        await pattern.settled()
        await teller.publish([{"n": n} for n in (2, 1, 2)])
        await asyncio.sleep(9)
        assert numbers(await drain(pattern)) == [[3, 4]]
        assert gaps
        assert not any(each.is_certain for each in gaps)


@in_virtual_time
async def test_occurrences_wait_for_who_is_away_and_those_dropped_are_told() -> None:
    gaps: list[Gap] = []
    small = Settings(queue_bytes=20_000, window_bytes=10_000)
    async with Network("line:1", routing="advertised", settings=small) as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe(TWO, match_at="brokers", on_gap=gaps.append)
        await hearer.suspend()
        for _ in range(100):
            await teller.publish([{"n": 1}, {"n": 2}])
        await asyncio.sleep(9)
        await hearer.resume()
        await asyncio.sleep(9)
        found = numbers(await drain(pattern))
        assert 10 < len(found) < 100
        assert found[-1] == [199, 200]
        assert [each.publisher for each in gaps if each.is_certain] == [teller.publisher]
        assert pattern.dropped == 100 - len(found)


@in_virtual_time
async def test_in_a_new_session_or_at_another_broker_it_starts_over_and_that_is_told() -> None:
    gaps: list[Gap] = []
    quick = Settings(client_grace_s=2.0, heartbeat_s=1.0)
    async with Network("line:2", routing="advertised", settings=quick) as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe(TWO, match_at="brokers", on_gap=gaps.append)
        for number, leave in enumerate((True, False)):
            await pattern.settled()
            await teller.publish({"n": 1})
            await asyncio.sleep(5)
            await drain(pattern)
            gaps.clear()
            if leave:
                await hearer.suspend()
                await asyncio.sleep(9)
                await hearer.resume()
            else:
                await hearer.move("b2")
            await pattern.settled()
            await teller.publish([{"n": n} for n in (2, 1, 2)])
            await asyncio.sleep(9)
            assert numbers(await drain(pattern)) == [[4 * number + 3, 4 * number + 4]]
            assert gaps
            assert not any(each.is_certain for each in gaps)


# --- grants ---


def world_of(size: int, **grants: Principal) -> World:
    """A line of brokers that know each other by keys; some have fewer grants at all."""
    names = [*(f"b{number + 1}" for number in range(size)), "ann", "bob"]
    everybody = {each: broker(each) for each in names}
    access = AccessPolicy(lambda _: Names(*{**everybody, **grants}.values()), Badge, str)
    return World.of(line(size), Patterned, access=access)


def told(world: World) -> list[list[int]]:
    """What bob at the first broker is told of what ann publishes at the last one, by number."""
    brokers = list(world.nodes)
    ann, bob = world.client("ann", brokers[-1]), world.client("bob", brokers[0])
    world.run(2.0)
    ann.ask(lambda id: Advertise(id, 1, "EXISTS n AND EXISTS secret"))
    world.run(1.0)
    bob.ask(lambda id: Subscribe(id, 7, TWO, assembled=True))
    world.run(1.0)
    for n in (1, 2):
        ann.publish({"n": n, "secret": True}, {"n": n})
    world.run(5.0)
    assert not ann.refused
    return [[part.seq for part in each.parts] for each in bob.assembled]


@pytest.mark.parametrize("whose", ["bob", "b1", "b2", "nobody"])
def test_parts_are_of_what_who_is_told_may_hear(whose: str) -> None:
    """A client by its own grant; a neighbour by that which it has there."""
    grant = broker(whose, TRUE, parse_filter("NOT EXISTS secret"))
    expected = [[1, 3]] if whose == "nobody" else [[2, 4]]
    assert told(world_of(3, **{whose: grant})) == expected


def test_who_may_hear_nothing_of_a_step_is_refused_or_waits_for_ever() -> None:
    nothing = broker("b1", TRUE, parse_filter("EXISTS other AND NOT EXISTS n"))
    assert told(world_of(2, b1=nothing)) == []


@pytest.mark.parametrize("whose", ["b2", "b3"])
def test_a_neighbour_brings_only_what_it_may(whose: str) -> None:
    grant = broker(whose, parse_filter("NOT EXISTS secret"), TRUE)
    assert [1, 3] not in told(world_of(3, **{whose: grant}))


# --- hostile neighbours ---

NAIVE: Final = NOON.replace(tzinfo=None)
WHOLE: Final = {"n": 1, "$seq": 1, "$time": NOON}


@pytest.mark.parametrize(
    "wrong",
    [
        Occurrence(NOON, "p", 2, WHOLE),
        Occurrence(NOON, "p", -1, {**WHOLE, "$seq": -1}),
        Occurrence(NOON, "p", 1, {**WHOLE, "$time": None}),
        Occurrence(NAIVE, "p", 1, {**WHOLE, "$time": NAIVE}),
        Occurrence(NOON, "p" * (MAX_PUBLISHER_CHARS + 1), 1, WHOLE),
        Occurrence(NOON, "p", 1, {**WHOLE, "n": [1]}),
        Occurrence(NOON, "p", 1, {**WHOLE, "n": 2**64 - 1}),
        Occurrence(NOON, "p", 1, {"n": 1}),
    ],
)
def test_events_that_no_broker_made_are_refused(wrong: Occurrence) -> None:
    everything = Principal("evil", TRUE, TRUE)
    for control in (
        Composite(0, (wrong, wrong)),
        HeldBack(0, (wrong,), is_back=False),
        Resume(0, AssemblyProgress((wrong,))),
        Returned(0, AssemblyProgress((), (wrong,))),
    ):
        with pytest.raises(IllegalMessage):
            Assembling.restrict_incoming(everything, control)


@pytest.mark.parametrize("values", [{}, {"x": [1]}, {"y": 1}])
def test_a_pattern_without_the_values_that_it_takes_is_refused(values: dict[str, Any]) -> None:
    grant = broker("evil", TRUE, parse_filter("EXISTS n"))
    wish = SubscribePattern(7, parse_pattern("n = :x THEN n = 2"), values)
    with pytest.raises(IllegalMessage, match="SubscribePattern"):
        Assembling.restrict_incoming(grant, wish)


def test_names_and_numbers_of_late_events_have_bounds() -> None:
    everything = Principal("evil", TRUE, TRUE)
    for chars in (MAX_PUBLISHER_CHARS - 1, MAX_PUBLISHER_CHARS):
        late = TooLate(0, "p" * chars, 0, MAX_NUMBER, MAX_NUMBER)
        assert Assembling.restrict_incoming(everything, late) == (late, 0)
    for wrong in (
        TooLate(0, "p" * (MAX_PUBLISHER_CHARS + 1), 1, 1, 1),
        TooLate(0, "p", -1, 1, 1),
        TooLate(0, "p", 1, 1, MAX_NUMBER + 1),
    ):
        with pytest.raises(IllegalMessage):
            Assembling.restrict_incoming(everything, wrong)


# --- against one monitor ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("graph", [False, True], ids=["tree", "graph"])
def test_brokers_find_what_one_monitor_would(seed: int, *, graph: bool) -> None:
    found, expected = run(Life(seed, graph=graph).run())
    assert found == expected


def test_lives_are_not_empty() -> None:
    """In them assemblies move both ways, and there is much to be found."""
    count, moves = 0, dict.fromkeys((Resume, Returned), 0)
    for seed in range(5):
        incarnation = Life(seed, graph=False)

        def note(_who: str, message: Message) -> bool:
            if isinstance(message, Route) and isinstance(message.control, Resume | Returned):
                moves[type(message.control)] += 1
            return False

        incarnation.net.spoils = note
        found, _ = run(incarnation.run())
        count += sum(map(len, found))
    assert count > 50
    assert min(moves.values()) > 2
