"""`Bounded`: a dictionary that never has more than so many entries."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A new entry takes the place of the oldest once there are `most`. One that is set again keeps
    its place.

    >>> known = Bounded[str, int](2)
    >>> for name in ("a", "b", "a", "c"):
    ...     known[name] = len(known)
    >>> known
    {'b': 1, 'c': 2}
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.most and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, value)
