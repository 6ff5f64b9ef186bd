"""`Releases`: what a journal may forget, held back until something is written anyway.

Nobody waits until an acknowledgement is on the disk: an event whose acknowledgement was lost in a
crash comes again, as it does where the acknowledgement itself was lost. A commit of its own would
make the next publication wait for its sync, and so many more statements in each commit would do so
too. So acknowledgements and entries that are over go together with an append, the next one after
`RIPE_S`, or by themselves after `RELEASE_S`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from palio.node.effects import DropEntries, Forget, Operation
from palio.node.limits import MAX_RELEASES, RELEASE_S, RIPE_S

__all__ = ["Releases"]


class Releases:
    """Acknowledgements and entries that are over, together.

    >>> releases = Releases()
    >>> releases.add(0.0, [Forget("d", 1), DropEntries((1,))])
    >>> releases.add(0.0, [Forget("d", 2), DropEntries((2,))])
    >>> releases.take() == [Forget("d", 2), DropEntries((1, 2))]
    True
    """

    def __init__(self) -> None:
        self._forgotten: dict[str, Forget] = {}
        self._over: list[int] = []
        self._ripe_at = inf
        self.due_at = inf
        """When they are to be written though nothing else is."""

    def add(self, now: float, operations: Iterable[Forget | DropEntries]) -> None:
        """These may be written later. The last of a subscription stands for those before it."""
        for each in operations:
            if isinstance(each, Forget):
                known = self._forgotten.get(each.subscription)
                if known is None or (each.entry >= known.entry and not known.bookmark):
                    self._forgotten[each.subscription] = each
                else:
                    entry, bookmark = max(known.entry, each.entry), each.bookmark or known.bookmark
                    self._forgotten[each.subscription] = Forget(each.subscription, entry, bookmark)
            else:
                self._over += each.entries
            self._ripe_at = min(self._ripe_at, now + RIPE_S)
            self.due_at = min(self.due_at, now + RELEASE_S)

    def end(self, subscription: str) -> None:
        """It has ended, and all that is written of it goes: one of its name may begin anew."""
        self._forgotten.pop(subscription, None)

    @property
    def are_many(self) -> bool:
        """Whether they are enough for a commit of their own."""
        return len(self._over) >= MAX_RELEASES

    def are_ripe(self, now: float) -> bool:
        """Whether they are to be written with what is written now."""
        return now >= self._ripe_at

    def are_due(self, now: float) -> bool:
        """Whether it is time to write what is held; said once."""
        if now < self.due_at:
            return False
        self.due_at = inf
        return True

    def take(self) -> list[Operation]:
        """What to write now. The time that is due stays: there is one look in `RELEASE_S`."""
        operations: list[Operation] = list(self._forgotten.values())
        if self._over:
            operations.append(DropEntries(tuple(self._over)))
        self._forgotten.clear()
        self._over.clear()
        self._ripe_at = inf
        return operations
