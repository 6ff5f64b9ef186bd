"""Links: what happens to a message between two brokers."""

from __future__ import annotations

from typing import Final

import msgspec

from palio.simulation.agenda import US_PER_MS
from palio.simulation.randomness import Randomness

_RETRANSMIT_LATENCIES: Final = 3
"""A link sends what was lost again after this many latencies: 1.5 round trips."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The character of a link. It keeps order, repeats what was lost and drops duplicates, as TCP
    does, so that faults only delay.
    """

    latency_ms: float = 10.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    price: float | None = None
    """What a message costs (site-to-site links of siena 6). None for no price: it counts as 1, and
    ways are chosen by time."""

    @property
    def weight(self) -> int:
        """What it weighs where ways can be chosen: its price, or else its round trip in ms.

        >>> Link(price=1).weight, Link().weight
        (1, 20)
        """
        return max(1, round(2 * self.latency_ms if self.price is None else self.price))


class Direction:
    """One way of a link: when does a message that is sent now arrive?"""

    __slots__ = ("_last_us", "_random", "link", "lost", "steady_us")

    def __init__(self, link: Link, random: Randomness) -> None:
        self.link = link
        self.lost = 0
        self._random = random
        self._last_us = 0
        self.steady_us = None if link.jitter_ms or link.loss else self._travel()
        """How long every message takes, where nothing happens to any."""

    def arrival_us(self, now_us: int) -> int:
        """When a message that is sent now arrives."""
        link, random = self.link, self._random
        arrival = now_us + self._travel()
        while link.loss and random.chance(link.loss):
            self.lost += 1
            arrival += round(_RETRANSMIT_LATENCIES * link.latency_ms * US_PER_MS)
        self._last_us = max(arrival, self._last_us)
        return self._last_us

    def _travel(self) -> int:
        link = self.link
        jitter = link.jitter_ms * self._random.uniform() if link.jitter_ms else 0.0
        return round((link.latency_ms + jitter) * US_PER_MS)
