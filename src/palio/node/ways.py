"""`ShortestWays`: over which neighbour the way to each broker goes, and over whom after that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["ShortestWays"]


class ShortestWays:
    """Breadth first over links that both ends list, neighbours by name; over brokers that are
    about to go only where there is no other way.

    >>> said = {"b": ("a", "c"), "c": ("b", "d"), "d": ()}
    >>> ways = ShortestWays("a", ["b"], lambda broker: said.get(broker, ()))
    >>> ways.hops, ways.way("c"), ways.way("d")
    ({'b': 'b', 'c': 'b'}, ('b', 'c'), ())
    >>> ring = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}
    >>> ShortestWays("a", ["b", "d"], ring.__getitem__, {"b"}.__contains__).way("c")
    ('d', 'c')
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        links: Callable[[str], tuple[str, ...]],
        is_leaving: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.hops: dict[str, str] = {}
        """By broker, the neighbour over which the way to it begins."""
        self._name = name
        self._before: dict[str, str] = {}
        queue = deque((neighbour, name) for neighbour in sorted(neighbours))
        last: deque[tuple[str, str]] = deque()
        while queue or last:
            broker, before = (queue or last).popleft()
            if broker in self._before or broker == name:
                continue
            self._before[broker] = before
            self.hops[broker] = self.hops.get(before, broker)
            ways = last if is_leaving(broker) else queue
            ways.extend((beyond, broker) for beyond in links(broker) if broker in links(beyond))

    def way(self, broker: str) -> tuple[str, ...]:
        """The brokers on the way to one, which is the last; none if there is no way."""
        way: list[str] = []
        while broker in self._before:
            way.append(broker)
            broker = self._before[broker]
        return tuple(reversed(way))
