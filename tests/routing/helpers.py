"""Short words for tests of single brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import palio
from palio.model.filters import Filter
from palio.model.row_parcels import RowParcel
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.messages import Batch, Request
from palio.routing.protocol import Peer, Router, Send

ALICE, BOB = Peer.client("alice"), Peer.client("bob")
ONE, TWO, THREE = Peer.broker("s1"), Peer.broker("s2"), Peer.broker("s3")
MASTER = Peer.master("s0")

R = TypeVar("R", bound=Router)


def parse(text: str) -> Filter:
    filter = palio.parse(text)
    assert isinstance(filter, Filter)
    return filter


def numbered(publisher: str, seqs: Sequence[int], epoch: int = 0) -> RowParcel:
    """Events without attributes under these numbers."""
    return RowParcel(publisher, [{}] * len(seqs), seqs=seqs, epoch=epoch)


AIRLINE = parse("airline IS NOT NULL")
UA = parse("airline = 'UA'")
UA_TO_DEN = parse("airline = 'UA' AND dest = 'DEN'")
UA_FROM_DEN = parse("airline = 'UA' AND orig = 'DEN'")


def said(sends: list[Send]) -> list[tuple[str, str]]:
    """Who is told what, in short."""
    found = []
    for peer, message in sends:
        assert isinstance(message, Batch)
        found += [(peer.name, type(each).__name__) for each in message.requests]
    return found


def attached(broker: R, *peers: Peer) -> R:
    """A broker with peers, the brokers among them having said their first word."""
    for peer in peers:
        broker.attach(peer)
        if not peer.is_client:
            broker.receive(peer, Batch((), fresh=True))
    return broker


def ask(broker: Router, peer: Peer, *requests: Request, wave: int | None = None) -> list[Send]:
    return broker.receive(peer, Batch(requests, wave=wave))


def filters(broker: ForwardingRouter) -> list[str]:
    return [str(each) for each in broker.subscriptions.table.nodes]
