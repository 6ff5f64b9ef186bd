"""`Bookmarks`: how far owners of durable subscriptions have got, in their own words."""

from __future__ import annotations

from collections.abc import Mapping

from palio.node.limits import MAX_BOOKMARKS_BYTES, MAX_OWN_BOOKMARKS_BYTES

__all__ = ["Bookmarks"]


class Bookmarks:
    """One for each durable subscription; of one owner, and of all, only so many bytes are kept.

    >>> bookmarks = Bookmarks({"ann/orders": b"as far as 7"})
    >>> bookmarks.keep("ann/orders", b"as far as 9"), bookmarks.get("ann/orders")
    (True, b'as far as 9')
    >>> bookmarks.keep("ann/more", bytes(MAX_OWN_BOOKMARKS_BYTES)), bookmarks.get("ann/more")
    (False, b'')
    """

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self._kept = dict(stored)
        self._own: dict[str, int] = {}
        self._bytes = 0
        for subscription, bookmark in stored.items():
            self._count(subscription, len(bookmark))

    def get(self, subscription: str) -> bytes:
        """That of a subscription; empty if it has none."""
        return self._kept.get(subscription, b"")

    def keep(self, subscription: str, bookmark: bytes) -> bool:
        """Keep it instead of the one before, unless that is too much."""
        more = len(bookmark) - len(self.get(subscription))
        own = self._own.get(_owner(subscription), 0)
        if more > 0 and (
            own + more > MAX_OWN_BOOKMARKS_BYTES or self._bytes + more > MAX_BOOKMARKS_BYTES
        ):
            return False
        self._kept[subscription] = bookmark
        self._count(subscription, more)
        return True

    def drop(self, subscription: str) -> None:
        """The subscription has ended."""
        bookmark = self._kept.pop(subscription, b"")
        if bookmark:
            self._count(subscription, -len(bookmark))

    def _count(self, subscription: str, more: int) -> None:
        owner = _owner(subscription)
        self._bytes += more
        left = self._own.get(owner, 0) + more
        if left:
            self._own[owner] = left
        else:
            self._own.pop(owner, None)


def _owner(subscription: str) -> str:
    """Whom a durable subscription belongs to: names have no slash."""
    return subscription.partition("/")[0]
