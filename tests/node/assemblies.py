"""Random lives of networks whose brokers assemble patterns, and what must have been found: what
the model's `Monitor` finds among all events.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final, TypeAlias

from palio.client.connection import Client
from palio.client.events import Event
from palio.errors import NotAdvertised
from palio.language.parsing import parse_pattern
from palio.model.patterns import Monitor, Occurrence, place_of
from palio.simulation import Randomness, connected_random, random_tree
from palio.testing import Network
from tests.client.helpers import drain

LONGEST_S: Final = 0.03
"""The longest that anything takes over a link."""

PATTERNS: Final = (
    "n = 1 THEN n = 2",
    "n <= 2 THEN n = 3 WITHIN 80ms",
    "n = 1 THEN EXISTS n THEN n = 3",
    "n = 3 AND s = 'b' THEN n < 3 THEN s = 'a' THEN n = 4 WITHIN 500ms",
)

OFFERS: Final = (
    "EXISTS n AND EXISTS s",
    "n <= 2 AND EXISTS s OR n = 4 AND EXISTS s",
    "n >= 3 AND EXISTS s",
    "n = 1 AND s = 'a'",
)


Found: TypeAlias = list[tuple[tuple[str, int], ...]]
"""Publisher and number of each part of each sequence."""


def found_in(events: list[Event]) -> Found:
    """What a pattern has found."""
    return [tuple((part.publisher, part.seq) for part in event.parts) for event in events]


def expected(text: str, events: list[Event]) -> Found:
    """What one monitor finds among all events."""
    monitor = Monitor(parse_pattern(text))
    whole = [Occurrence(each.time, each.publisher, each.seq, dict(each)) for each in events]
    found = monitor.push(sorted(whole, key=place_of))
    return [tuple((part.publisher, part.seq) for part in one) for one in found]


class Life:
    """One of them: some patterns, publishers that come and go, and events all the while."""

    def __init__(self, seed: int, *, graph: bool) -> None:
        self.rng = random.Random(seed)
        draw, size = Randomness(seed), self.rng.randint(2, 6)
        self.shape = (
            connected_random(size, self.rng.randint(0, 2), draw)
            if graph
            else random_tree(size, draw)
        )
        self.net = Network(
            self.shape, routing="general-advertised" if graph else "advertised", seed=seed
        )
        self.texts = self.rng.sample(PATTERNS, 2)

    async def run(self) -> tuple[list[Found], list[Found]]:
        """What each pattern found, and what there was."""
        rng, net = self.rng, self.net
        async with net:
            await asyncio.sleep(5)  # that links came about is told until then
            for edge in self.shape.edges:
                net.delay(*edge, rng.uniform(0.001, LONGEST_S))
            witness, hearer = await self._client(), await self._client()
            everything = await witness.subscribe("TRUE", queue_size=100_000)
            publishers = [await self._publisher() for _ in range(rng.randint(1, 3))]
            patterns = [await hearer.subscribe(text, match_at="brokers") for text in self.texts]
            await witness.settled()
            await hearer.settled()
            for _ in range(rng.randint(1, 3)):
                table_sync = [asyncio.create_task(self._tell(each)) for each in publishers]
                newcomer = await self._publisher()  # while the others publish
                await asyncio.gather(*table_sync)
                publishers.append(newcomer)
                if rng.random() < 0.5:
                    await publishers.pop(rng.randrange(len(publishers))).close()
            await asyncio.sleep(10)
            found = [found_in(await drain(each)) for each in patterns]
            events = await drain(everything)
        assert not hearer.stale
        return found, [expected(text, events) for text in self.texts]

    async def _client(self) -> Client:
        return await self.net.connect(self.rng.choice(self.shape.brokers))

    async def _publisher(self) -> Client:
        client = await self._client()
        await client.advertise(self.rng.choice(OFFERS))
        await client.settled()
        return client

    async def _tell(self, publisher: Client) -> None:
        """Publish for a while; what was not advertised is refused, and is no event."""
        for _ in range(self.rng.randint(10, 40)):
            event = {"n": self.rng.randint(1, 4), "s": self.rng.choice("ab")}
            with suppress(NotAdvertised):
                await publisher.publish(event)
            await asyncio.sleep(self.rng.uniform(0.0, 0.02))
