"""`LinkDrain`: links to neighbours that are to end, after ways lead round them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from palio.node.core import Core
from palio.node.links import Links
from palio.node.peers import Peers
from palio.protocol.messages import Bye

PATIENCE_BEATS: Final = 5
"""Heartbeats after which a link ends though ways may still lead over it: then there are no others,
or the network has no rest."""


class _Parting:
    """One that is under way."""

    __slots__ = ("begun_at", "bye", "then")

    def __init__(self, begun_at: float, bye: Bye, then: Callable[[], None]) -> None:
        self.begun_at = begun_at
        self.bye = bye
        self.then = then


class LinkDrain:
    """The links of one broker that end. A neighbour that goes by itself meanwhile has gone."""

    def __init__(self, core: Core, links: Links, peers: Peers) -> None:
        self._core = core
        self._links = links
        self._peers = peers
        self._open: dict[str, _Parting] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def begin(self, name: str, bye: Bye, then: Callable[[], None]) -> None:
        """End the link to a neighbour, once ways lead round it; then do something."""
        self._open[name] = _Parting(self._core.at.now, bye, then)
        self._peers.spare(name)

    def stop(self, name: str) -> None:
        """The link stays after all."""
        if self._open.pop(name, None) is not None:
            self._peers.spare_no_more(name)

    def go_on(self) -> None:
        """Time has passed: end those that can."""
        core = self._core
        patience_s = PATIENCE_BEATS * core.settings.peer_heartbeat_s
        for name, parting in list(self._open.items()):
            neighbour = core.neighbours.get(name)
            age = core.at.now - parting.begun_at
            is_ripe = age > 0 and core.router.is_in_order
            if neighbour is not None and not is_ripe and age <= patience_s:
                continue
            self.stop(name)
            if neighbour is not None:
                others = [
                    each.name
                    for each in core.neighbours.values()
                    if each.link is not None and each is not neighbour
                ]
                leads_round = name in core.durability.cluster_state.reached_over(others)
                in_order = is_ripe and leads_round and not neighbour.queued_bytes
                if neighbour.link is not None:
                    bye = msgspec.structs.replace(parting.bye, in_order=in_order)
                    self._links.close(neighbour.link, bye)
                self._peers.end_neighbour(neighbour, in_order=in_order)
            parting.then()
