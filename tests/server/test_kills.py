"""Real brokers, killed with SIGKILL at random moments under load: what was acknowledged arrives."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Final

import pytest

from palio import connect
from palio.cli.fleet import Fleet
from palio.client.connection import Client
from palio.client.subscription import Subscription

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
KILLS: Final = int(os.environ.get("PALIO_KILLS", "50" if NIGHTLY else "2"))
NAMES: Final = ("b1", "b2", "b3")
PATIENCE_S: Final = 60.0
"""How long everything may take to arrive once all brokers are up for good."""


class Load:
    """Publishers and listeners, and what they were promised."""

    def __init__(self) -> None:
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

    async def progress(self) -> None:
        """Wait until each publisher has had some more acknowledged."""
        before = {who: len(accepted) for who, accepted in self.accepted.items()}
        async with asyncio.timeout(PATIENCE_S):
            while any(  # noqa: ASYNC110  # there is no event
                len(self.accepted[who]) < count + 5 for who, count in before.items()
            ):
                await asyncio.sleep(0.01)

    async def listen(self, subscription: Subscription, name: str) -> None:
        """Note what comes."""
        heard = self.heard.setdefault(name, [])
        async for event in subscription:
            heard.append((event["who"], event["n"]))

    def missing(self) -> dict[str, list[tuple[str, int]]]:
        """What each listener was promised and has not heard."""
        promised = {(who, n) for who, numbers in self.accepted.items() for n in numbers}
        return {
            name: sorted(lacking)
            for name, heard in self.heard.items()
            if (lacking := promised - set(heard))
        }


async def live_through(folder: Path, *, mesh: bool, kills: int, seed: int) -> Load:
    """Kill and restart brokers under load; return when all is quiet again.

    In a mesh everybody takes whatever broker answers; in a line everybody stays, and hears each
    publisher in its order.
    """
    load, draw = Load(), random.Random(seed)
    async with Fleet(NAMES, folder, mesh=mesh) as fleet:

        def urls(name: str) -> list[str]:
            others = [each for each in NAMES if each != name] if mesh else []
            return [fleet.url(each) for each in (name, *others)]

        async with (
            connect(urls("b1"), name="p1") as p1,
            connect(urls("b2"), name="p2") as p2,
            connect(urls("b1"), name="near") as near,
            connect(urls("b3"), name="far") as far,
            asyncio.TaskGroup() as group,
        ):
            listening = []
            for client in (near, far):
                subscription = await client.subscribe("n >= 0", durable="d")
                await subscription.settled(PATIENCE_S)
                listening.append(group.create_task(load.listen(subscription, client.name)))
            publishing = [
                group.create_task(load.publish(client, client.name)) for client in (p1, p2)
            ]
            await asyncio.sleep(0)  # they begin
            for _ in range(kills):
                await load.progress()
                await asyncio.sleep(draw.uniform(0.0, 0.3))
                victim = draw.choice(NAMES)
                await fleet.kill(victim)
                await asyncio.sleep(draw.uniform(0.0, 0.5))
                await fleet.start(victim)
            await load.progress()
            load.stopping = True
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*publishing)
            quiet = asyncio.get_running_loop().time() + PATIENCE_S
            while load.missing() and asyncio.get_running_loop().time() < quiet:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # what comes twice comes late
            for task in listening:
                task.cancel()
    return load


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


@pytest.mark.parametrize("mesh", [False, True], ids=["line", "mesh"])
@pytest.mark.parametrize("seed", range(4 if NIGHTLY else 1))
def test_kills(tmp_path: Path, seed: int, mesh: bool) -> None:
    load = asyncio.run(live_through(tmp_path, mesh=mesh, kills=KILLS, seed=seed))
    check(load, ordered=not mesh)
