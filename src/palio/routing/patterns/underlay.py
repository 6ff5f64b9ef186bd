"""`Underlay`: the router of single events, as the pattern layer uses it.

To that router all monitors of a broker are one more peer, a `SIDE`. It subscribes the steps of the
patterns that are assembled here, offers nothing, and answers every wave at once. The router's
requests to it are dropped, as the pattern layer reads the table of offers directly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from palio.errors import InvalidInput
from palio.matching.protocol import RowMask
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.messages import (
    Advertise,
    Batch,
    Control,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Withdraw,
)
from palio.routing.protocol import Peer, Role, Router, SelectorFactory, Send
from palio.routing.reference_selector import ReferenceSelector

Offers: TypeAlias = Mapping[Peer, Collection[Advertisement]]
"""The table of available patterns: the advertisements of each peer."""


class Underlay:
    """A router for single events, and the monitors as one of its peers.

    >>> import palio
    >>> underlay = Underlay("b1", Advertised)
    >>> _ = underlay.router.attach(Peer.client("alice"))
    >>> underlay.subscribe(7, palio.parse("a = 1 THEN b = 2").steps)
    []
    >>> from palio.model.row_parcels import RowParcel
    >>> underlay.needed(RowParcel("p", [{"a": 1}, {"a": 2}]))
    {7: array([ True, False])}
    """

    def __init__(
        self,
        name: str,
        router: Callable[[str], Router],
        selector: SelectorFactory = ReferenceSelector,
    ) -> None:
        whole = router(name)
        tree = whole.inner if isinstance(whole, General) else whole
        if not isinstance(tree, Advertised) or not isinstance(whole, Advertised | General):
            raise InvalidInput("patterns need advertisements: use Advertised, or General over it")
        self.router = whole
        self.tree = tree
        self.monitors = Peer(Role.SIDE, f"{name} monitors")
        self._steps: dict[int, list[int]] = {}
        self._next_step = 0
        self._selector = selector()
        # A neighbour's first batch is fresh; without it, later ones would be illegal.
        self.router.attach(self.monitors)
        self.router.receive(self.monitors, Batch((), fresh=True))

    def is_in_tree(self, peer: Peer) -> bool:
        """Return whether a peer is a client, or a neighbour by a link of the tree."""
        return peer in self.tree.advertisements.entries

    def offers(self, only: Peer | None = None) -> Offers:
        """Return the current advertisements of each peer of the tree, or of one."""
        entries = self.tree.advertisements.entries
        peers = entries if only is None else [only] if only in entries else []
        return {
            peer: dict.fromkeys(entry.bound for entry in entries[peer].values()) for peer in peers
        }

    # --- the monitors ---

    def subscribe(self, number: int, steps: Iterable[Filter]) -> list[Send]:
        """Subscribe an assembly, by its number, to the events of any step."""
        keys = self._steps[number] = []
        requests = []
        for step in dict.fromkeys(steps):  # `a THEN a` needs each event once
            key = self._next_step
            self._next_step += 1
            keys.append(key)
            self._selector.add(key, step, {}, number)
            requests.append(Subscribe(key, step))
        return self._send(Batch(tuple(requests)))

    def unsubscribe(self, number: int) -> list[Send]:
        """Unsubscribe the steps of an assembly, if it subscribed any."""
        keys = self._steps.pop(number, [])
        for key in keys:
            self._selector.remove(key)
        if not keys:
            return []
        return self._send(Batch(tuple(Unsubscribe(key) for key in keys)))

    def needed(self, parcel: Parcel) -> dict[int, RowMask]:
        """Select for each assembly the events that match one of its steps."""
        return self._selector.route(parcel)

    def _send(self, batch: Batch) -> list[Send]:
        return self.outward(self.router.receive(self.monitors, batch))

    def outward(self, sends: Iterable[Send]) -> list[Send]:
        """Return the messages to other peers than the monitors, which only answer waves."""
        pending = deque(sends)
        outgoing = []
        while pending:
            to, message = pending.popleft()
            if to != self.monitors:
                outgoing.append(Send(to, message))
            elif isinstance(message, Batch) and message.wave is not None:
                pending.extend(self.router.receive(to, Settled(message.wave)))
        return outgoing


def only_subscribes(message: Control) -> bool:
    """Return whether a message certainly changes no offers and no tree."""
    if isinstance(message, Batch):
        changes_offers = Advertise | Unadvertise | Withdraw
        return not message.fresh and not any(
            isinstance(request, changes_offers) for request in message.requests
        )
    return isinstance(message, Settled)
