"""`LinkDrain`: ends links to peers without losing events, once no path uses them any longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from palio.node.core import Core
from palio.node.links import Links
from palio.node.peers import Peers
from palio.protocol.messages import Bye

DRAIN_TIMEOUT_HEARTBEATS: Final = 5
"""Heartbeats after which a link ends though paths may still use it: there is no other path, or the
network keeps changing."""


class _Draining:
    """A link that is being drained."""

    __slots__ = ("bye", "on_done", "started_at")

    def __init__(self, started_at: float, bye: Bye, on_done: Callable[[], None]) -> None:
        self.started_at = started_at
        self.bye = bye
        self.on_done = on_done


class LinkDrain:
    """The links of one broker that are to end. A peer that disconnects counts as drained."""

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
        """Drain the link to a peer, end it, and call back."""
        self._draining[name] = _Draining(self._core.at.now, bye, on_done)
        self._peers.spare(name)

    def cancel(self, name: str) -> None:
        """Keep a link that was to end."""
        if self._draining.pop(name, None) is not None:
            self._peers.spare_no_more(name)

    def tick(self) -> None:
        """End the links that are drained, or whose time is up."""
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
                has_other_path = name in core.durability.cluster_state.reachable_over(others)
                in_order = is_ready and has_other_path and not neighbour.queued_bytes
                if neighbour.link is not None:
                    bye = msgspec.structs.replace(draining.bye, in_order=in_order)
                    self._links.close(neighbour.link, bye)
                self._peers.end_neighbour(neighbour, in_order=in_order)
            draining.on_done()
