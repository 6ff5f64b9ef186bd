"""`LinkReports`: links that come and go are told of together.

A broker with many neighbours that starts again is joined by all of them at once. To tell each of
them of each link by itself would be as many lists of all its links as it has pairs of neighbours:
so the first that comes or goes is told of at once, and what follows waits for up to `NEWS_S`, and
is one list for each. So it is for the routing tables (`Router.catch_up`) and for the registry.
"""

from __future__ import annotations

from math import inf

from palio.node.core import Core
from palio.node.limits import NEWS_S

__all__ = ["LinkReports"]


class LinkReports:
    """When one broker tells of links."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told_at = -inf
        core.router.bide()
        core.durability.registry.bide()

    @property
    def wake_at(self) -> float:
        """When `look` is next to be called."""
        core = self._core
        is_behind = core.router.is_behind or core.durability.registry.is_behind
        return self._told_at + NEWS_S if is_behind else inf

    def look(self) -> None:
        """Something has happened, or it is time: tell what is to be told by now."""
        core = self._core
        if self.wake_at <= core.at.now:
            self._told_at = core.at.now
            core.durability.registry.catch_up()
            core.route(core.router.catch_up())
