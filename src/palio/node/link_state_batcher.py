"""`LinkStateBatcher`: announces link changes in batches.

All peers of a broker that restarts join it at once. One announcement for each link to each peer
would be as many lists of all links as the broker has pairs of peers. So a few changes are announced
at once; beyond that, one list every `LINK_STATE_INTERVAL_S` has all changes since the last. An
overloaded broker waits longer (`throttle`). This holds for the routing tables (`Router.uncork`) as
for the cluster state.

A peer that begins a new session is not announced as one that went and one that came, if its digest
arrives soon enough.
"""

from __future__ import annotations

from math import inf

from palio.node.core import Core
from palio.node.limits import LINK_STATE_BURST, LINK_STATE_INTERVAL_S, MAX_INTERVAL_S
from palio.node.throttle import Throttle


class LinkStateBatcher:
    """The pending link changes of one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._throttle = Throttle(LINK_STATE_INTERVAL_S, MAX_INTERVAL_S, LINK_STATE_BURST, core.lag)
        # When the oldest pending change happened; `inf` if there is none.
        self._since = inf
        core.router.cork()
        core.durability.cluster_state.cork()

    @property
    def wake_at(self) -> float:
        """When `send_due` is next to be called."""
        if self._since == inf:
            return inf
        greeted_at = next(iter(self._core.awaiting_digest.values()), -inf)
        return max(self._throttle.due_at, min(greeted_at, self._since) + LINK_STATE_INTERVAL_S)

    def send_due(self) -> None:
        """Announce link changes that are due; called after each input, and at `wake_at`."""
        core = self._core
        has_pending_updates = (
            core.router.has_pending_updates or core.durability.cluster_state.has_pending_updates
        )
        self._since = min(self._since, core.at.now) if has_pending_updates else inf
        if self.wake_at <= core.at.now:
            self._since = inf
            self._throttle.record(core.at.now)
            core.durability.cluster_state.uncork()
            core.route(core.router.uncork())
