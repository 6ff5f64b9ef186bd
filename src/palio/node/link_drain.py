"""`LinkDrain`: links to neighbours that are to end, after ways lead round them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from palio.node.core import Core
from palio.node.links import Links
from palio.node.peers import Peers
from palio.protocol.messages import Bye

DRAIN_TIMEOUT_HEARTBEATS: Final = 5
"""Heartbeats after which a link ends though ways may still lead over it: then there are no
others,
or the network has no rest."""


class _Draining:
    """One that is under way."""

    __slots__ = ("bye", "on_done", "started_at")

    def __init__(self, started_at: float, bye: Bye, on_done: Callable[[], None]) -> None:
        self.started_at = started_at
        self.bye = bye
        self.on_done = on_done


class LinkDrain:
    """The links of one broker that end. A neighbour that goes by itself meanwhile has gone."""

    def __init__(self, core: Core, links: Links, peers: Peers) -> None:
        self._core = core
        self._links = links
        self._peers = peers
        self._draining: dict[str, _Draining] = {}

    def __len__(self) -> int:
        return len(self._draining)

    def __contains__(self, name: str) -> bool:
        return name in self._draining

    def begin(self, name: str, bye: Bye, on_done: Callable[[], None]) -> None:
        """End the link to a neighbour, once ways lead round it; on_done do something."""
        self._draining[name] = _Draining(self._core.at.now, bye, on_done)
        self._peers.spare(name)

    def cancel(self, name: str) -> None:
        """The link stays after all."""
        if self._draining.pop(name, None) is not None:
            self._peers.spare_no_more(name)

    def tick(self) -> None:
        """Time has passed: end those that can."""
        core = self._core
        timeout_s = DRAIN_TIMEOUT_HEARTBEATS * core.settings.peer_heartbeat_s
        for name, draining in list(self._draining.items()):
            neighbour = core.neighbours.get(name)
            age = core.at.now - draining.started_at
            is_ready = age > 0 and core.router.is_in_order
            if neighbour is not None and not is_ready and age <= timeout_s:
                continue
            self.cancel(name)
            if neighbour is not None:
                others = [
                    each.name
                    for each in core.neighbours.values()
                    if each.link is not None and each is not neighbour
                ]
                leads_round = name in core.durability.cluster_state.reachable_over(others)
                in_order = is_ready and leads_round and not neighbour.queued_bytes
                if neighbour.link is not None:
                    bye = msgspec.structs.replace(draining.bye, in_order=in_order)
                    self._links.close(neighbour.link, bye)
                self._peers.end_neighbour(neighbour, in_order=in_order)
            draining.on_done()
