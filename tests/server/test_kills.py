"""Real brokers, killed with SIGKILL at random moments under load: what was acknowledged arrives.

Each broker runs in a network namespace of its own, where the machine permits it, and its links take
10 ms in each direction.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from benchmarks.namespaces import Namespace, why_not
from benchmarks.relay import Relay
from palio import connect
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.testing.fleet import Fleet
from tests.conftest import NIGHTLY, share
from tests.server.helpers import Changing

logger: Final = logging.getLogger(__name__)

KILLS: Final = int(os.environ.get("PALIO_KILLS", "40" if NIGHTLY else "2"))
LINK_S: Final = 0.01
PATIENCE_S: Final = 60.0
"""How long everything may take to arrive once all brokers are up for good."""


class Topology(NamedTuple):
    """Brokers b1, b2 and so on, and who dials whom."""

    name: str
    links: tuple[tuple[int, int], ...]
    is_tree: bool
    """Clients stay, and each hears a publisher in its order. Elsewhere they take any broker."""

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(
            f"b{number}" for number in sorted({end for link in self.links for end in link})
        )


TOPOLOGIES: Final = (
    Topology("line", ((2, 1), (3, 2)), is_tree=True),
    Topology("mesh", ((2, 1), (3, 1), (3, 2)), is_tree=False),
    Topology("star", ((1, 2), (3, 2), (4, 2)), is_tree=True),
    Topology("ring", ((2, 1), (3, 2), (4, 3), (1, 4)), is_tree=False),
    Topology(
        "mesh of 5",
        tuple((one, other) for one in range(2, 6) for other in range(1, one)),
        is_tree=False,
    ),
)

PLAYED: Final = TOPOLOGIES if NIGHTLY else share(TOPOLOGIES[:3], 1)


class Apart(Fleet):
    """Brokers that only relays lead to: slow ones from each other, and quick ones from clients."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        links = [(f"b{one}", f"b{other}") for one, other in topology.links]
        super().__init__(topology.brokers, folder, links=links)
        reason = why_not()
        if reason:
            logger.warning("without namespaces, on one loopback: %s", reason)
        self._spaces = {} if reason else {name: Namespace() for name in self.names}
        space = self._spaces.get
        self._doors = {name: Relay(self.port(name), far=space(name)) for name in self.names}
        self._ways = {
            (one, other): Relay(self.port(other), delay_s=LINK_S, near=space(one), far=space(other))
            for one, other in links
        }
        self._open = AsyncExitStack()

    def url(self, name: str) -> str:
        return self._doors[name].url

    def way(self, name: str, other: str) -> str:
        return self._ways[name, other].url

    def launcher(self, name: str) -> Sequence[str]:
        return self._spaces[name].launcher if self._spaces else ()

    async def __aenter__(self) -> Self:
        for relay in (*self._doors.values(), *self._ways.values()):
            await self._open.enter_async_context(relay)
        for space in self._spaces.values():
            self._open.enter_context(space)
        try:
            return await super().__aenter__()
        except BaseException:
            await self._open.aclose()
            raise

    async def stop(self) -> None:
        await super().stop()
        await self._open.aclose()


class Load(Changing):
    """Publishers and listeners, and what they were promised."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: dict[str, list[int]] = {}
        self.heard: dict[str, list[tuple[str, int]]] = {}
        self.stopping = False

    async def publish(self, client: Client, who: str) -> None:
        """Publish numbers one after another; each counts once it is acknowledged."""
        accepted = self.accepted.setdefault(who, [])
        number = 0
        while not self.stopping:
            await client.publish({"who": who, "n": number}, durable=True)
            accepted.append(number)
            number += 1
            self.changed.set()

    async def progress(self) -> None:
        """Wait until each publisher has had some more acknowledged."""
        before = {who: len(accepted) for who, accepted in self.accepted.items()}
        async with asyncio.timeout(PATIENCE_S):
            await self.until(
                lambda: all(len(self.accepted[who]) >= n + 5 for who, n in before.items())
            )

    async def listen(self, subscription: Subscription, name: str) -> None:
        """Note what comes."""
        heard = self.heard.setdefault(name, [])
        async for event in subscription:
            heard.append((event["who"], event["n"]))
            self.changed.set()

    def missing(self) -> dict[str, list[tuple[str, int]]]:
        """What each listener was promised and has not heard."""
        promised = {(who, n) for who, numbers in self.accepted.items() for n in numbers}
        return {
            name: sorted(lacking)
            for name, heard in self.heard.items()
            if (lacking := promised - set(heard))
        }


async def live_through(folder: Path, topology: Topology, *, kills: int, seed: int) -> Load:
    """Kill and restart brokers under load; return when all is quiet again."""
    load, draw = Load(), random.Random(seed)
    names = topology.brokers
    async with Apart(topology, folder) as fleet:

        def urls(name: str) -> list[str]:
            others = [] if topology.is_tree else [each for each in names if each != name]
            return [fleet.url(each) for each in (name, *others)]

        async with (
            connect(urls("b1"), name="p1") as p1,
            connect(urls("b2"), name="p2") as p2,
            connect(urls("b1"), name="near") as near,
            connect(urls(names[-1]), name="far") as far,
            asyncio.TaskGroup() as group,
        ):
            listening = []
            for client in (near, far):
                subscription = await client.subscribe("n >= 0", durable_name="d")
                await subscription.settled(PATIENCE_S)
                listening.append(group.create_task(load.listen(subscription, client.name)))
            publishing = [
                group.create_task(load.publish(client, client.name)) for client in (p1, p2)
            ]
            await asyncio.sleep(0)  # they begin
            for kill in range(kills):
                await load.progress()
                await asyncio.sleep(draw.uniform(0.0, 0.3))
                victim = draw.choice(names)
                logger.info("%s: kill %d, %s", topology.name, kill + 1, victim)
                await fleet.kill(victim)
                await asyncio.sleep(draw.uniform(0.0, 0.5))
                await fleet.start(victim)
            await load.progress()
            load.stopping = True
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*publishing)
            with suppress(TimeoutError):  # then `check` says what is missing
                async with asyncio.timeout(PATIENCE_S):
                    await load.until(lambda: not load.missing())
                    await nothing_is_kept([fleet.url(name) for name in names])
            for task in listening:
                task.cancel()
    return load


async def nothing_is_kept(urls: Sequence[str]) -> None:
    """Wait until no broker keeps what it might send again: nothing comes twice after that."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(url)) for url in urls]
        while any([(await each.admin.status())["custody_entries"] for each in clients]):
            pass


def check(load: Load, *, ordered: bool) -> None:
    """Nothing lost, nothing twice, and order where the way does not change."""
    missing = {name: lacking[:10] for name, lacking in load.missing().items()}
    assert not missing, f"lost {missing}"
    for name, heard in load.heard.items():
        assert len(heard) == len(set(heard)), f"{name} heard some twice"
        if ordered:
            for who in load.accepted:
                numbers = [n for sender, n in heard if sender == who]
                assert numbers == sorted(numbers), f"{name} heard {who} out of order"
    assert all(len(accepted) > 10 for accepted in load.accepted.values()), "there was no load"


@pytest.mark.parametrize("topology", PLAYED, ids=lambda topology: topology.name)
def test_kills(tmp_path: Path, topology: Topology, seed: int) -> None:
    load = asyncio.run(live_through(tmp_path, topology, kills=KILLS, seed=seed))
    check(load, ordered=topology.is_tree)
