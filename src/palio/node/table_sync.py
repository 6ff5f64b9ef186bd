"""`TableSync`: sends long tables to peers chunk by chunk, and merges pending updates.

The tables that a joining peer needs may be long: to cut and encode them at once would block all
other work. Later messages to that peer queue behind them, so that their order stays. Events wait in
the peer's own queue (`Neighbour.has_room`).

Batches also wait while the link is busy (`Neighbour.is_busy`), and continue as the peer
acknowledges. A new batch is merged into a pending one (`WaitingBatch`), unless the tree changes
between the two, or facts are queued between them, which no wave may overtake. So a batch may be
sent sooner than earlier messages, never later (docs/concepts/routing.md, "Parameters").
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from palio.node.sessions import Neighbour
from palio.protocol.messages import Facts, Message, Route
from palio.protocol.portions import portions
from palio.routing.messages import PORTION, Batch, Flood, Settled


class TableSync:
    """The peers that have pending messages.

    `send` is called for each chunk, and `on_synced` when a peer was sent all that may be sent now.
    """

    def __init__(
        self, send: Callable[[Neighbour, Message], None], on_synced: Callable[[Neighbour], None]
    ) -> None:
        self._send = send
        self._on_synced = on_synced
        self.waiting: dict[Neighbour, None] = {}
        """The peers for which `send_next` has chunks."""

    def send(self, neighbour: Neighbour, message: Message) -> None:
        """Send the first chunk of a message now, and queue the others."""
        control = message.control if isinstance(message, Route) else None
        if isinstance(control, Batch):
            if (neighbour.unsent or neighbour.is_busy) and neighbour.join(control):
                return
        elif isinstance(message, Facts) or not (control is None or isinstance(control, Settled)):
            neighbour.close_batch()
        chunks = portions(message)
        if not neighbour.unsent:
            self._send(neighbour, next(chunks))
            second = next(chunks, None)
            if second is None:
                return
            chunks = chain((second,), chunks)
            self.waiting[neighbour] = None
        neighbour.unsent.append(chunks)

    def send_next(self) -> None:
        """Send about a chunk more to each peer that has some pending."""
        for neighbour in list(self.waiting):
            done = 0
            while done < PORTION:
                chunk = neighbour.next_portion()
                if chunk is None:
                    del self.waiting[neighbour]
                    self._on_synced(neighbour)
                    break
                self._send(neighbour, chunk)
                done += _weight(chunk)

    def resume(self, neighbour: Neighbour) -> None:
        """Continue with a peer that has acknowledged messages."""
        if neighbour.unsent and not neighbour.is_busy:
            self.waiting[neighbour] = None

    def forget(self, neighbour: Neighbour) -> None:
        """Drop a peer whose session has ended."""
        self.waiting.pop(neighbour, None)


def _weight(chunk: Message) -> int:
    """Return the number of requests or facts in a message, by which chunks are counted."""
    match chunk:
        case Route(Batch(requests)) | Route(Flood(_, requests)):
            return max(1, len(requests))
        case Facts(facts):
            return max(1, len(facts))
    return 1
