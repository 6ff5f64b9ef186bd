"""A link that returns: what changed meanwhile goes over it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from benchmarks.relay import Relay
from palio.protocol.limits import MAX_NUMBER
from palio.protocol.messages import Answer, Deliver, Done, Query, Settle, Subscribe, Unsubscribe
from palio.server.settings import Limits, Peers
from tests.server.helpers import PATIENCE_S, Peer, publish
from tests.server.test_run import broker, linked, xs

SUBSCRIPTIONS: Final = 400
QUIET: Final = 600.0
"""Seconds without heartbeats, which would be counted too."""


class Line(NamedTuple):
    """Two brokers with a link that can be cut, a listener at the one and a publisher at the other.

    Under key k the listener subscribes to `x = k`: nothing covers anything.
    """

    relay: Relay
    listener: Peer
    publisher: Peer

    async def subscribe(self, keys: Sequence[int]) -> None:
        self.listener.send(*(Subscribe(key, key, f"x = {key}") for key in keys))
        for _ in keys:
            await self.listener.next(Done)

    async def unsubscribe(self, keys: Sequence[int]) -> None:
        self.listener.send(*(Unsubscribe(key, key) for key in keys))
        for _ in keys:
            await self.listener.next(Done)

    async def settle(self) -> None:
        """Wait until all that was asked for is in force everywhere, also beyond a link that is up
        and not yet in use.
        """
        async with asyncio.timeout(PATIENCE_S):
            unreached = True
            while unreached:
                self.listener.send(Settle(MAX_NUMBER))
                while (done := await self.listener.next(Done)).id != MAX_NUMBER:
                    pass
                unreached = bool(done.unreached)

    async def returns(self, gone: range, new: range) -> int:
        """Bytes that a return of the link takes, until what changed meanwhile is in force."""
        self.relay.cut()
        await linked(self.publisher, 0)
        await self.unsubscribe(gone)
        await self.subscribe(new)
        before = self.relay.carried_bytes
        self.relay.mend()
        await linked(self.publisher, 1)  # where nothing has changed nothing waits for the link
        await self.settle()
        return self.relay.carried_bytes - before

    async def hears(self, first_seq: int, *wanted: int, unwanted: Sequence[int]) -> None:
        """What the publisher says arrives, if it is asked for now."""
        self.publisher.send(publish(first_seq, *unwanted, *wanted))
        heard: list[int] = []
        while len(heard) < len(wanted):
            heard += xs(await self.listener.next(Deliver))
        assert heard == list(wanted)


@asynccontextmanager
async def line(heartbeat_s: float, peer_grace_s: float) -> AsyncIterator[Line]:
    limits = Limits(heartbeat_s=heartbeat_s, peer_grace_s=peer_grace_s)
    async with (
        # One that has lost the other would look for it where it listens, past the relay.
        broker("b1", limits=limits, peers=Peers(discovery=False)) as (_, here),
        Relay(here[1]) as relay,
        broker("b2", limits=limits, peers=Peers(urls=(relay.url,), discovery=False)) as (_, there),
    ):
        found = Line(relay, await Peer.client(here), await Peer.client(there, "bob"))
        await linked(found.publisher, 1)
        await found.subscribe(range(SUBSCRIPTIONS))
        await found.settle()
        yield found
        found.listener.close()
        found.publisher.close()


async def test_a_link_that_returns_takes_bytes_for_what_changed() -> None:
    async with line(QUIET, QUIET) as found:
        table = found.relay.carried_bytes
        nothing = await found.returns(range(0), range(0))
        some = await found.returns(range(5), range(1_000, 1_005))
        more = await found.returns(range(5, 55), range(1_005, 1_055))
        each = (more - some) / 90
        assert nothing < 1_000
        assert some - nothing < 3 * 10 * each  # of many, more travel as one than of a few
        assert each < 3 * table / SUBSCRIPTIONS
        assert more < table / 2
        await found.hears(1, 55, 399, 1_000, 1_054, unwanted=(0, 4, 54))


async def test_one_that_was_away_for_too_long_takes_the_table() -> None:
    async with line(5.0, 0.1) as found:
        table = found.relay.carried_bytes
        found.relay.cut()
        await forgotten(found.publisher)
        before = found.relay.carried_bytes
        found.relay.mend()
        await linked(found.publisher, 1)
        await found.settle()
        assert found.relay.carried_bytes - before > table / 4
        await found.hears(1, 0, 399, unwanted=(400,))


async def forgotten(peer: Peer) -> None:
    """Wait until the broker of a client has forgotten its neighbour."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            peer.send(Query(901, "status"))
            if not (await peer.next(Answer)).data["peers"]:
                return
