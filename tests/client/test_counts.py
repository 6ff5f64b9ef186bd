"""`max_events` on whole brokers: the first so many events that match, and never fewer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from palio.client.registration import Registration
from palio.client.subscription import Subscription
from palio.errors import Closed
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.routing.general import General
from palio.routing.messages import Batch, Control, Subscribe
from palio.routing.protocol import Peer, Send
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import random_tree
from palio.testing import Network, run
from tests.conftest import seeds
from tests.mutations import Mutation

PUBLISHERS = 3
SETTLED_S = 10.0
"""Virtual seconds after which nothing is under way."""

TREES = [name for name, each in ALGORITHMS.items() if each.graph is not GraphKind.ALONE]


async def received(subscription: Subscription) -> tuple[list[tuple[int, int]], bool]:
    """All events that have come, as publisher and number; and whether the subscription ended."""
    found = []
    try:
        while True:
            event = await subscription.receive(timeout=1.0)
            found.append((event["by"], event["n"]))
    except TimeoutError:
        return found, False
    except Closed:
        return found, True


async def publish(net: Network, number: int, random: Randomness) -> None:
    """Publish some events, several at a time or with pauses."""
    client = await net.connect(random.choice(net.topology.brokers))
    if ALGORITHMS[net.node(client.broker).status()["routing"]].is_advertised:
        await client.advertise("by >= 0 AND n >= 0 AND x >= 0")
        await client.settled()
    at = 0
    for _ in range(random.between(1, 8)):
        events = []
        for _ in range(random.between(1, 6)):
            events.append({"by": number, "n": at, "x": random.between(0, 9)})
            at += 1
        await client.publish(events)
        await asyncio.sleep(random.exponential(0.02))


async def count(name: str, seed: int) -> None:
    """Compare each counted subscription with one of the same client that has no end."""
    random = Randomness(seed)
    tree = random_tree(random.between(2, 7), random.branch())
    async with Network(tree, routing=name, delay_s=0.005, seed=seed) as net:
        pairs = []
        for _ in range(3):
            client = await net.connect(random.choice(tree.brokers))
            text, most = f"x < {random.between(1, 10)}", random.between(1, 12)
            every, few = (
                await client.subscribe(text),
                await client.subscribe(text, max_events=most),
            )
            pairs.append((most, few, every))
            await client.settled()
        publishing = [publish(net, each, random.branch()) for each in range(PUBLISHERS)]
        await asyncio.gather(*publishing)
        await asyncio.sleep(SETTLED_S)
        for most, few, every in pairs:
            due, _ = await received(every)
            found, has_ended = await received(few)
            assert found == due[:most]
            assert has_ended == (len(due) >= most)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("seed", seeds(3, nightly=500))
def test_it_is_the_first_so_many_that_match(name: str, seed: int) -> None:
    run(count(name, seed))


def takes_one_too_many(right: Callable[..., None]) -> Callable[..., None]:
    """Count an event more than came, but for the last."""

    def wrong(self: Registration, taken: int) -> None:
        right(self, min(taken + 1, self.left or 0))

    return wrong


def test_that_fails_where_a_count_is_wrong() -> None:
    bug = Mutation("counts too many", Registration, "took", takes_one_too_many)
    assert bug.noticed_at(lambda seed: run(count("proxies", seed)), range(10)) is not None


LINK_S = 0.03


async def crossings(rate: float) -> list[int]:
    """Publish 60 events at a rate for a subscription to ten; return what each broker received of
    its neighbour, from the source on.
    """
    async with Network("line:4", routing="proxies", delay_s=LINK_S) as net:
        source, receiver = await net.connect("b1"), await net.connect("b4")
        few = await receiver.subscribe("x >= 0", max_events=10)
        await receiver.settled()
        for x in range(60):
            _ = source.publish_nowait({"x": x})
            await asyncio.sleep(1 / rate)
        await asyncio.sleep(SETTLED_S)
        assert [event["x"] async for event in few] == list(range(10))
        return [net.node(name).status()["routed"] for name in ("b2", "b3", "b4")]


@pytest.mark.parametrize("rate", [1, 10, 100, 1000])
def test_more_events_cross_a_link_while_the_end_of_a_count_is_on_its_way(rate: float) -> None:
    """What a count in the brokers' lists would spare (proxy IV-E): docs/concepts/papers.md."""
    for far, crossed in enumerate(run(crossings(rate)), 1):
        round_trip_s = 2 * LINK_S * (5 - far)
        assert 10 <= crossed <= min(60, 10 + rate * round_trip_s + 1)


def test_many_counts_of_one_filter_are_one_request_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts in the brokers' lists would cost: one request for each, as no two are equal."""
    requests: Counter[str] = Counter()
    receive = General.receive

    def noted(router: General, sender: Peer, message: Control) -> list[Send]:
        if isinstance(message, Batch) and not sender.is_client:
            requests[router.name] += sum(isinstance(each, Subscribe) for each in message.requests)
        return receive(router, sender, message)

    async def main() -> None:
        async with Network("line:3", routing="proxies") as net:
            client = await net.connect("b3")
            monkeypatch.setattr(General, "receive", noted)
            for _ in range(100):
                await client.subscribe("x >= 0", max_events=1)
            await client.settled()

    run(main())
    assert {name: count for name, count in requests.items() if count} == {"b1": 1, "b2": 1}
