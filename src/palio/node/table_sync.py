"""`TableSync`: what is much is told to a neighbour portion by portion, and what is often, joined.

The tables that a neighbour has to learn of when it joins may be long: to cut and encode them at
once would hold up everybody else. What is said to it meanwhile waits behind them, so that the order
is that in which it was said; events wait in its queue (`Neighbour.has_room`).

Batches wait too while the link is busy (`Neighbour.is_busy`), and go on when the neighbour has seen
some. A batch that comes while another waits is joined to it (`WaitingBatch`), unless the tree
changes between the two, or facts wait there, which no wave may overtake. So a batch may be said
sooner than what came before it, never later (docs/concepts/routing.md, "Parameters").
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from palio.node.sessions import Neighbour
from palio.protocol.messages import Facts, Message, Route
from palio.protocol.portions import portions
from palio.routing.messages import PORTION, Batch, Flood, Settled


class TableSync:
    """Neighbours to whom something is untold.

    `send` is called for each portion as its turn comes, and `on_synced` when a neighbour has heard
    all
    that may be said to it now.
    """

    def __init__(
        self, send: Callable[[Neighbour, Message], None], on_synced: Callable[[Neighbour], None]
    ) -> None:
        self._send = send
        self._on_synced = on_synced
        self.waiting: dict[Neighbour, None] = {}
        """Those to whom `send_next` has something to send."""

    def send(self, neighbour: Neighbour, message: Message) -> None:
        """Say the first portion now, and each of the others at another time."""
        control = message.control if isinstance(message, Route) else None
        if isinstance(control, Batch):
            if (neighbour.untold or neighbour.is_busy) and neighbour.join(control):
                return
        elif isinstance(message, Facts) or not (control is None or isinstance(control, Settled)):
            neighbour.part()
        parts = portions(message)
        if not neighbour.untold:
            self._send(neighbour, next(parts))
            second = next(parts, None)
            if second is None:
                return
            parts = chain((second,), parts)
            self.waiting[neighbour] = None
        neighbour.untold.append(parts)

    def send_next(self) -> None:
        """Say about a portion more to each neighbour that waits for one."""
        for neighbour in list(self.waiting):
            done = 0
            while done < PORTION:
                portion = neighbour.next_portion()
                if portion is None:
                    del self.waiting[neighbour]
                    self._on_synced(neighbour)
                    break
                self._send(neighbour, portion)
                done += _weight(portion)

    def resume(self, neighbour: Neighbour) -> None:
        """A neighbour has seen more: `send_next` with what waited for that."""
        if neighbour.untold and not neighbour.is_busy:
            self.waiting[neighbour] = None

    def forget(self, neighbour: Neighbour) -> None:
        """A neighbour's session is on_synced."""
        self.waiting.pop(neighbour, None)


def _weight(portion: Message) -> int:
    """Count the things that a message between brokers is about."""
    match portion:
        case Route(Batch(requests)) | Route(Flood(_, requests)):
            return max(1, len(requests))
        case Facts(facts):
            return max(1, len(facts))
    return 1
