"""`Admin`: what operators ask of a broker, and of the network of brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from palio.client.answers import (
    AddedPeer,
    CatalogueEntry,
    DrainStatus,
    PeerInfo,
    RemovedPeer,
    Topology,
    Trace,
)
from palio.client.broker_upstream import BrokerUpstream
from palio.client.subscription import SETTLE_TIMEOUT_S
from palio.protocol.limits import check_seconds
from palio.protocol.messages import AddPeer, Answer, Apply, Drain, Query, RemoveBroker, RemovePeer


class Admin:
    """Requests of operators to the broker and the network: `client.admin`.

    Most of it needs the grant `monitor` or `operate`.
    """

    def __init__(self, upstream: BrokerUpstream, check_open: Callable[[], None]) -> None:
        self._upstream = upstream
        self._check_open = check_open
        self._drained_broker = ""

    async def topology(self) -> Topology:
        """The brokers that this one knows of, and how they are linked."""
        topology: Topology = await self.query("topology")
        return topology

    async def status(self) -> dict[str, Any]:
        """Counts of the broker by name, or of what is this client's own (then with `limited`)."""
        status: dict[str, Any] = await self.query("status")
        return status

    async def trace(self, event: Mapping[str, Any]) -> Trace:
        """Trace the path of an event, broker by broker, without delivering it."""
        trace: Trace = await self.query("trace", event)
        return trace

    async def subscriptions(self, *, own: bool = False) -> list[CatalogueEntry]:
        """The subscriptions of the broker's clients, or of this one's principal only (`own`)."""
        entries: list[CatalogueEntry] = []
        start = ""
        while True:
            page = await self.query("catalogue", {"own": own, "from": start})
            entries += page["subscriptions"]
            start = page["next"]
            if not start:
                return entries

    async def query(self, what: str, about: Any = None) -> Any:
        """A question by its name, such as a newer broker may answer; else see `topology`,
        `status`, `trace` and `subscriptions`.
        """
        self._check_open()
        answer: Answer = await self._upstream.ask(Query(0, what, about))
        return answer.data

    async def peers(self) -> list[PeerInfo]:
        """The neighbours of this broker, and where it dials."""
        peers: list[PeerInfo] = await self.query("peers")
        return peers

    async def add_peer(self, url: str) -> AddedPeer:
        """Have the broker linked to another, and return once it is; it is so after a restart, too.

        Where no link comes about nothing has changed, and the error names the reason: no broker can
        be reached (`Unreachable`), one of the two refuses (`NotPermitted`), or it would close a
        circle where routing needs a tree (`NotSupported`).
        """
        self._check_open()
        answer: Answer = await self._upstream.ask(AddPeer(0, url))
        added: AddedPeer = answer.data
        return added

    async def remove_peer(self, name: str) -> RemovedPeer:
        """Have the broker remove a neighbour. Returns once events take other paths, if there are
        any, and the link is closed.
        """
        self._check_open()
        answer: Answer = await self._upstream.ask(RemovePeer(0, name))
        removed: RemovedPeer = answer.data
        return removed

    async def remove_broker(self, broker: str) -> None:
        """Remove a broker that is gone for good, and return when all others know.

        Nothing is kept for it from now on, its durable subscriptions are over, and `settled` waits
        for it no longer. A broker that can be reached is refused. One that comes back all the same
        is there again, with what is on its disk.
        """
        self._check_open()
        await self._upstream.ask(RemoveBroker(0, broker))
        await self._upstream.settled(SETTLE_TIMEOUT_S)

    async def drain(self, *, undo: bool = False) -> DrainStatus:
        """Have the broker at the other end hand over all it has to others: what is left of that.

        It continues while this client is connected; ask again until it is `done`. From then on the
        broker stays empty, until it is stopped or restarted, or a client calls with `undo`. If this
        client leaves before that, the broker is in service again. A client that has once asked for
        it stays with that broker; one that had to go to another is refused there.
        """
        self._check_open()
        self._upstream.stays = True
        self._drained_broker = self._drained_broker or self._upstream.session.broker
        answer: Answer = await self._upstream.ask(Drain(0, self._drained_broker, undo))
        remains: DrainStatus = answer.data
        return remains

    async def apply_plan(
        self,
        plan: bytes | str | PathLike[str] | None,
        *,
        timeout: float = SETTLE_TIMEOUT_S,  # noqa: ASYNC109  # brokers are named at its end
    ) -> None:
        """Put a plan of multicast groups in use, and return when all brokers know of it; see
        `Client.settled` for `timeout`.

        A plan is a document that `palio plan make` wrote, or the path of one; None ends multicast.
        Brokers join its groups meanwhile, and then use it; until then nothing changes. `topology`
        shows which of them have joined.
        """
        self._check_open()
        await self._upstream.ask(Apply(0, "" if plan is None else _packed(plan)))
        await self._upstream.settled(check_seconds(timeout, "timeout"))


def _packed(plan: bytes | str | PathLike[str]) -> str:
    """A plan, or one in a file, as it travels between brokers."""
    from palio.multicast.documents import decode, pack

    decoded, _ = decode(plan if isinstance(plan, bytes) else Path(plan).read_bytes())
    return pack(decoded)
