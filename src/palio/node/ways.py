"""`next_hops`: over which neighbour the shortest way to each broker goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["next_hops"]


def next_hops(
    name: str, neighbours: Iterable[str], links: Callable[[str], tuple[str, ...]]
) -> dict[str, str]:
    """Breadth first over links that both ends list, neighbours by name.

    >>> said = {"b": ("a", "c"), "c": ("b", "d"), "d": ()}
    >>> next_hops("a", ["b"], lambda broker: said.get(broker, ()))
    {'b': 'b', 'c': 'b'}
    """
    hops: dict[str, str] = {}
    queue = deque((neighbour, neighbour) for neighbour in sorted(neighbours))
    while queue:
        broker, hop = queue.popleft()
        if broker in hops or broker == name:
            continue
        hops[broker] = hop
        queue.extend((beyond, hop) for beyond in links(broker) if broker in links(beyond))
    return hops
