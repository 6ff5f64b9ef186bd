"""`LinkStateBatcher`: links that come and go in numbers are told of together.

A broker with many neighbours that starts again is joined by all of them at once. To tell each of
them of each link by itself would be as many lists of all its links as it has pairs of neighbours:
so a few changes are told of at once, and where there are more, one list in `LINK_STATE_INTERVAL_S`
reports all
since the last; a broker that has much to do waits longer (`throttle`). So it is for the routing
tables (`Router.uncork`) and for the cluster_state. A neighbour that begins a new session is not
told of as one that went and one that came, if it says soon what it knows.
"""

from __future__ import annotations

from math import inf

from palio.node.core import Core
from palio.node.limits import LINK_STATE_BURST, LINK_STATE_INTERVAL_S, MAX_INTERVAL_S
from palio.node.throttle import Throttle


class LinkStateBatcher:
    """When one broker reports links."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._throttle = Throttle(LINK_STATE_INTERVAL_S, MAX_INTERVAL_S, LINK_STATE_BURST, core.lag)
        self._since = inf
        """Since when something is to be told."""
        core.router.cork()
        core.durability.cluster_state.cork()

    @property
    def wake_at(self) -> float:
        """When `look` is next to be called."""
        if self._since == inf:
            return inf
        greeted_at = next(iter(self._core.awaiting_digest.values()), -inf)
        return max(self._throttle.due_at, min(greeted_at, self._since) + LINK_STATE_INTERVAL_S)

    def send_due(self) -> None:
        """Something has happened, or it is time: tell what is to be told by now."""
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
