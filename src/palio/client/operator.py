"""`Operator`: the verbs of a client that ask of its broker, and of the network of brokers."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from palio.client.answers import (
    AddedPeer,
    CatalogueEntry,
    PeerOfBroker,
    Remains,
    RemovedPeer,
    Topology,
    Trace,
)
from palio.client.base_bus import BaseBus
from palio.client.broker_upstream import BrokerUpstream
from palio.client.subscription import SETTLE_PATIENCE_S
from palio.protocol.limits import check_seconds
from palio.protocol.messages import AddPeer, Answer, Apply, Drain, Query, RemovePeer, Retire


class Operator(BaseBus[BrokerUpstream]):
    """The verbs of operators; most need the grant `monitor` or `operate`."""

    def __init__(self, upstream: BrokerUpstream, *, reorder_s: float | None) -> None:
        super().__init__(upstream.dispatcher, upstream, reorder_s=reorder_s)
        self._drained_broker = ""

    async def settled(self, patience: float = SETTLE_PATIENCE_S) -> None:
        """Return when all that was subscribed and advertised here is in force everywhere.

        `Unsettled` names brokers that could not be reached, not even after `patience` seconds.
        """
        self._check_open()
        await self._upstream.settled(check_seconds(patience, "patience"))

    async def topology(self) -> Topology:
        """The brokers that this one knows of, and how they are linked."""
        found: Topology = await self.ask("topology")
        return found

    async def status(self) -> dict[str, Any]:
        """Counts of the broker by name, or of what is this client's own (then with `limited`)."""
        found: dict[str, Any] = await self.ask("status")
        return found

    async def trace(self, event: Mapping[str, Any]) -> Trace:
        """Where an event would go, broker by broker. Nobody receives it."""
        found: Trace = await self.ask("trace", event)
        return found

    async def catalogue(self, *, own: bool = False) -> list[CatalogueEntry]:
        """The subscriptions of the broker's clients, or of this one's principal only (`own`)."""
        entries: list[CatalogueEntry] = []
        start = ""
        while True:
            page = await self.ask("catalogue", {"own": own, "from": start})
            entries += page["subscriptions"]
            start = page["next"]
            if not start:
                return entries

    async def ask(self, what: str, about: Any = None) -> Any:
        """A question by its name, such as a newer broker may answer; else see `topology`,
        `status`, `trace` and `catalogue`.
        """
        self._check_open()
        answer: Answer = await self._upstream.ask(Query(0, what, about))
        return answer.data

    async def peers(self) -> list[PeerOfBroker]:
        """The neighbours of this broker, and where it dials."""
        found: list[PeerOfBroker] = await self.ask("peers")
        return found

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
        """Have the broker part from a neighbour, and return once ways lead round that link, if
        there are others, and it is gone.
        """
        self._check_open()
        answer: Answer = await self._upstream.ask(RemovePeer(0, name))
        removed: RemovedPeer = answer.data
        return removed

    async def retire(self, broker: str) -> None:
        """Remove a broker that is gone for good, and return when all others know.

        Nothing is kept for it from now on, its durable subscriptions are over, and `settled` waits
        for it no longer. A broker that can be reached is refused. One that comes back all the same
        is there again, with what is on its disk.
        """
        self._check_open()
        await self._upstream.ask(Retire(0, broker))
        await self._upstream.settled(SETTLE_PATIENCE_S)

    async def drain(self, *, undo: bool = False) -> Remains:
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
        remains: Remains = answer.data
        return remains

    async def apply_plan(
        self, plan: bytes | str | PathLike[str] | None, *, patience: float = SETTLE_PATIENCE_S
    ) -> None:
        """Put a plan of multicast groups in use, and return when all brokers know of it; see
        `settled` for `patience`.

        A plan is a document that `palio plan make` wrote, or the path of one; None ends multicast.
        Brokers join its groups meanwhile, and then use it; until then nothing changes. `topology`
        shows which of them have joined.
        """
        self._check_open()
        await self._upstream.ask(Apply(0, "" if plan is None else _packed(plan)))
        await self.settled(patience)


def _packed(plan: bytes | str | PathLike[str]) -> str:
    """A plan, or one in a file, as it travels between brokers."""
    from palio.multicast.documents import decode, pack

    found, _ = decode(plan if isinstance(plan, bytes) else Path(plan).read_bytes())
    return pack(found)
