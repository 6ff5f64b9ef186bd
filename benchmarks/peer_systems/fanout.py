"""The filters and events of the fan-out, and who is to hear what: found by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.peer_systems.system import Wanted

SEED: Final = 1
KINDS_OF_A: Final = 20
LARGEST: Final = 100
"""`c` is below, and so is the largest `x`: half of the filters whose pair fits match."""

SHARE: Final = 5
"""A client has filters for one of so many pairs: each pair is wanted by a fifth of the clients."""

EVENTS: Final = 1_024
"""Different ones; they come again with other numbers."""


def event_of(number: int, a: int, b: int, c: int) -> dict[str, Any]:
    """An event of ten attributes."""
    return {
        "n": number,
        "a": a,
        "b": b,
        "c": c,
        "price": 99.5,
        "volume": 1_200,
        "symbol": "PALIO",
        "market": "Siena",
        "open": True,
        "change": -0.25,
    }


class Fanout:
    """So many filters of so many clients; no two of a client have the same pair of equalities."""

    def __init__(self, filters: int, clients: int) -> None:
        rng = np.random.default_rng(SEED)
        each = filters // clients
        pairs = each * SHARE
        self.wanted: list[list[Wanted]] = []
        """The filters of each client."""
        for _ in range(clients):
            chosen = rng.choice(pairs, size=each, replace=False)
            bounds = rng.integers(1, LARGEST + 1, each)
            self.wanted.append(
                [
                    Wanted(int(pair) % KINDS_OF_A, int(pair) // KINDS_OF_A, int(bound))
                    for pair, bound in zip(chosen, bounds, strict=True)
                ]
            )
        self._owners = np.repeat(np.arange(clients), each)
        self._all = np.array([each for some in self.wanted for each in some])
        self.events: list[dict[str, Any]] = []
        """Such as somebody wants."""
        self.hearers: list[list[int]] = []
        """The clients that each is for."""
        while len(self.events) < EVENTS:
            pair = int(rng.integers(pairs))
            event = event_of(0, pair % KINDS_OF_A, pair // KINDS_OF_A, int(rng.integers(LARGEST)))
            if hearers := self.by_hand(event):
                self.events.append(event)
                self.hearers.append(hearers)

    def by_hand(self, event: dict[str, Any]) -> list[int]:
        """Which clients want an event: every filter is looked at."""
        a, b, x = self._all.T
        matching = (a == event["a"]) & (b == event["b"]) & (x > event["c"])
        found: list[int] = self._owners[matching].tolist()
        return found

    def check(self, delivered: Sequence[tuple[int, int]], events: int) -> int:
        """How many pairs of event and client there are; an error if others were delivered.

        Events are numbered from 0, and are those of `events` over and over.
        """
        right = [
            (number, client) for number in range(events) for client in self.hearers[number % EVENTS]
        ]
        if sorted(delivered) != right:
            missing, strange = set(right) - set(delivered), set(delivered) - set(right)
            twice = len(delivered) - len(set(delivered))
            raise RuntimeError(
                f"of {len(right):,} pairs of event and client {len(missing):,} were not delivered, "
                f"{len(strange):,} others were, and {twice:,} more than once"
            )
        return len(right)
