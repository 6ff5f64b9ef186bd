"""`Allowances`: what principals have left of their rates, however many sessions they have."""

from __future__ import annotations

from palio.node.authority import Allowance, Limits, Principal
from palio.node.limits import MAX_ALLOWANCES

__all__ = ["Allowances"]


class Allowances:
    """By principal and rates: a new session is no new second.

    >>> allowances, alice = Allowances(), Principal("alice", limits=Limits(events_per_s=5))
    >>> allowances.of(alice, 0.0).spend(10, 0, 0.0)
    >>> allowances.of(alice, 0.0).wait_s(0.0)
    1.0
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, Limits], Allowance] = {}

    def of(self, principal: Principal, now: float) -> Allowance:
        """What a principal has left."""
        place = principal.name, principal.limits
        found = self._known.get(place)
        if found is None:
            found = self._known[place] = Allowance(principal.limits, now)
            if len(self._known) > MAX_ALLOWANCES:
                del self._known[next(iter(self._known))]
        return found
