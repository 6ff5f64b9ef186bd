"""Topologies: the links between brokers.

Brokers are named `b1`, `b2`, ...; an edge (i, j) of a tree has the one nearer the root first,
which is what makes it a hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.simulation.randomness import Randomness


class Topology(msgspec.Struct, frozen=True):
    """Brokers and their links."""

    brokers: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, size: int, edges: Iterable[tuple[int, int]]) -> Topology:
        """From numbers counted from 0."""
        return cls(
            tuple(_name(number) for number in range(size)),
            tuple((_name(one), _name(other)) for one, other in edges),
        )

    @property
    def is_connected(self) -> bool:
        """True if there is a way from each broker to each other one."""
        reached = {self.brokers[0]}
        growing = True
        while growing:
            before = len(reached)
            reached.update(
                end for edge in self.edges if not reached.isdisjoint(edge) for end in edge
            )
            growing = len(reached) > before
        return len(reached) == len(self.brokers)

    @property
    def is_tree(self) -> bool:
        """True if it is connected and has no cycle."""
        return self.is_connected and len(self.edges) == len(self.brokers) - 1


def _name(number: int) -> str:
    return f"b{number + 1}"


def line(size: int) -> Topology:
    """b1 - b2 - b3 - ..."""
    return Topology.of(size, ((number, number + 1) for number in range(size - 1)))


def star(size: int) -> Topology:
    """b1 in the middle."""
    return Topology.of(size, ((0, number) for number in range(1, size)))


def tree(size: int, fanout: int = 2) -> Topology:
    """A complete tree with its root at b1."""
    return Topology.of(size, (((number - 1) // fanout, number) for number in range(1, size)))


def ring(size: int) -> Topology:
    """b1 - b2 - ... - b1."""
    return Topology.of(size, ((number, (number + 1) % size) for number in range(size)))


def grid(width: int, height: int) -> Topology:
    """Rows of `width` brokers, each linked with its neighbours right and below."""
    edges = []
    for place in range(width * height):
        if (place + 1) % width:
            edges.append((place, place + 1))
        if place + width < width * height:
            edges.append((place, place + width))
    return Topology.of(width * height, edges)


def random_tree(size: int, random: Randomness) -> Topology:
    """Each broker below one of those before it."""
    return Topology.of(size, ((random.below(number), number) for number in range(1, size)))


def connected_random(size: int, extra: int, random: Randomness) -> Topology:
    """A random tree with up to `extra` more links."""
    edges = {(random.below(number), number) for number in range(1, size)}
    for _ in range(extra):
        one, other = random.below(size), random.below(size)
        if one != other:
            edges.add((min(one, other), max(one, other)))
    return Topology.of(size, sorted(edges))


Shapes: TypeAlias = Mapping[str, Callable[..., Topology]]
"""Makers of topologies from sizes, by the name of its shape."""

_SHAPES: Final[Shapes] = {
    "line": line,
    "star": star,
    "tree": tree,
    "ring": ring,
    "grid": grid,
}

_RANDOM_SHAPES: Final[Shapes] = {
    "random": connected_random,
    "random-tree": random_tree,
}

_NO_SHAPES: Final[Shapes] = MappingProxyType({})


def parse_topology(text: str, random: Randomness, more: Shapes = _NO_SHAPES) -> Topology:
    """`ring:12`, `grid:4x3`, `tree:15x2`, `random-tree:20`, `random:20x10`, or one `more` shape.

    Random shapes, and the `more`, are given `random` after their sizes.

    >>> len(parse_topology("grid:4x3", Randomness(1)).edges)
    17
    """
    shape, _, sizes = text.partition(":")
    try:
        numbers = [int(size_text) for size_text in sizes.split("x")]
        if any(number < 1 for number in numbers):
            raise ValueError
        drawn = more.get(shape) or _RANDOM_SHAPES.get(shape)
        if drawn is not None:
            return drawn(*numbers, random)
        return _SHAPES[shape](*numbers)
    except (KeyError, ValueError, TypeError):
        shapes = ", ".join(sorted([*_SHAPES, *_RANDOM_SHAPES, *more]))
        raise InvalidInput(
            f"{text!r} is no topology; write a shape of {shapes} and its sizes, such as grid:4x3"
        ) from None
