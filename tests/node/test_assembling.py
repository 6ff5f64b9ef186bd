"""Patterns that brokers assemble: on whole brokers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from palio.client.connection import Client
from palio.client.events import Event
from palio.errors import NotSupported
from palio.protocol.messages import Message, Route
from palio.routing.patterns.messages import Resume, Returned
from palio.testing import Network, run
from tests.client.helpers import drain
from tests.client.virtual import in_virtual_time
from tests.conftest import NIGHTLY
from tests.node.assemblies import Life

TWO = "n = 1 THEN n = 2"

SEEDS: Final = range(500) if NIGHTLY else range(25)
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
        theirs = await hearer.subscribe(TWO, assembled_by="brokers")
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
        assert hearer.spurious == 0


@in_virtual_time
async def test_only_whole_sequences_leave_the_broker_where_the_events_meet() -> None:
    async with Network("line:3", routing="advertised") as net:
        hearer, teller = await house(net)
        await hearer.subscribe(TWO, assembled_by="brokers")
        await hearer.settled()
        await teller.publish([{"n": n} for n in (1, 1, 1, 2)])
        await asyncio.sleep(5)
        status = [net.node(broker).status() for broker in net.topology.brokers]
        assert [each["routed"] for each in status] == [0, 0, 4]


@in_virtual_time
async def test_a_pattern_that_is_settled_is_in_force_wherever_events_are_published() -> None:
    async with Network("line:5", routing="advertised", delay_s=1.0) as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe(TWO, assembled_by="brokers")
        await pattern.settled()
        await teller.publish([{"n": 1}, {"n": 2}])
        assert numbers([await pattern.receive(timeout=60)]) == [[1, 2]]


@in_virtual_time
async def test_where_nothing_is_advertised_brokers_assemble_no_pattern() -> None:
    async with Network("line:2", routing="acyclic") as net:
        hearer = await net.connect("b1")
        with pytest.raises(NotSupported, match="advertised"):
            await hearer.subscribe(TWO, assembled_by="brokers")


@in_virtual_time
async def test_a_pattern_may_be_changed_and_ended() -> None:
    async with Network("line:2", routing="advertised") as net:
        hearer, teller = await house(net)
        pattern = await hearer.subscribe("n = :one THEN n = 2", assembled_by="brokers", one=1)
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
            pattern = await hearer.subscribe(TWO, assembled_by="brokers")
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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("graph", [False, True], ids=["tree", "graph"])
def test_brokers_find_what_one_monitor_would(seed: int, *, graph: bool) -> None:
    found, expected = run(Life(seed, graph=graph).run())
    assert found == expected


def test_lives_are_not_empty() -> None:
    """In them assemblies move both ways, and there is much to be found."""
    count, moves = 0, dict.fromkeys((Resume, Returned), 0)
    for seed in range(5):
        life = Life(seed, graph=False)

        def note(_who: str, message: Message) -> bool:
            if isinstance(message, Route) and isinstance(message.control, Resume | Returned):
                moves[type(message.control)] += 1
            return False

        life.net.spoils = note
        found, _ = run(life.run())
        count += sum(map(len, found))
    assert count > 50
    assert min(moves.values()) > 2
