"""`Backlog`: what one neighbour carries here and a disk has refused, until it is known what becomes
of it.

It is bounded: what is too much is left out, with all that comes after it.
"""

from __future__ import annotations

from bisect import insort
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from palio.model.parcels import Parcel
from palio.node.limits import UNWRITTEN_BYTES

__all__ = ["Backlog", "Flight", "Part"]

OVERHEAD_BYTES: Final = 500
"""About what a part takes in memory beside its events and names..."""

NAME_BYTES: Final = 60
"""...and each name beside its characters."""


class Flight:
    """One message of a neighbour, which is told once all parts of it are safe."""

    __slots__ = ("number", "parts")

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts = 1


class Part(NamedTuple):
    """What is to become of a flight, for some of its homes."""

    number: int
    """In the order in which they came."""
    flight: Flight
    parcel: Parcel
    """Those events that the neighbour may bring."""
    homes: tuple[str, ...]
    subjects: tuple[str, ...]

    @property
    def size(self) -> int:
        """About what it takes in memory."""
        names = self.homes + self.subjects
        characters = sum(map(len, names)) + NAME_BYTES * len(names)
        return self.parcel.held_bytes + characters + OVERHEAD_BYTES


class Backlog:
    """What waits, goes on or is being written of one neighbour.

    >>> from palio.model.events import to_batch
    >>> def part(number):
    ...     parcel = Parcel("p", to_batch({"x": number}))
    ...     return Part(number, Flight(number), parcel, ("b1",), ())
    >>> backlog = Backlog()
    >>> backlog.put(part(2)), backlog.put_back(part(1))
    (None, None)
    >>> backlog.next().number, backlog.next().number, backlog.is_over
    (1, 2, True)
    """

    def __init__(self) -> None:
        self._last_number = 0
        self.writing: set[int] = set()
        """The numbers of those that are being written."""
        self.is_refused = False
        """The disk refuses writes, as far as is known."""
        self.waiting: list[Part] = []
        """What waits for the disk, in order."""
        self.passing: dict[int, Part] = {}
        """By entry, what goes on to others from memory."""
        self.bytes = 0
        """Of what waits and what goes on."""
        self._left_out: float = inf
        """The first that was too much: it and all that comes after it is to come again."""

    @property
    def has_left_out(self) -> bool:
        """Whether some is to come again."""
        return self._left_out < inf

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return not (self.waiting or self.passing or self.writing)

    def next_number(self) -> int:
        """The number of what comes now."""
        self._last_number += 1
        return self._last_number

    def put(self, part: Part) -> None:
        """It waits behind others. Of what is too much the last is left out, unless it is alone."""
        if part.number >= self._left_out:
            return
        insort(self.waiting, part, key=_number)
        self.bytes += part.size
        while self.bytes > UNWRITTEN_BYTES and len(self.waiting) > 1:
            last = self.waiting.pop()
            self.bytes -= last.size
            self._left_out = last.number

    def put_back(self, part: Part) -> None:
        """It was being written, and was refused."""
        self.writing.discard(part.number)
        self.is_refused = True
        self.put(part)

    def next(self) -> Part:
        """What has waited longest; it waits no longer."""
        part = self.waiting.pop(0)
        self.bytes -= part.size
        return part

    def pass_on(self, entry: int, part: Part) -> bool:
        """It was refused, and goes on from memory, unless that is too much."""
        self.writing.discard(part.number)
        if self.passing and self.bytes + part.size > UNWRITTEN_BYTES:
            self._left_out = min(self._left_out, part.number)
            return False
        self.passing[entry] = part
        self.bytes += part.size
        return True

    def passed(self, entry: int) -> Part:
        """It is where it goes, or on the disk."""
        part = self.passing.pop(entry)
        self.bytes -= part.size
        return part


_number: Final = attrgetter("number")
