"""`Script`: all that happens in one run of the campaign, as data, so that it can be cut shorter.

A script says which brokers there are, how they route, and what clients and faults do at which time.
Each step stands by itself: one that makes no sense any more, since the step that it followed was
removed, does nothing. So any part of a script is a script, which is what `shrink` relies on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tests.campaign.faults import FAULTS


class Step(NamedTuple):
    """One thing that happens: when, what, and the words that say more, such as who and how long."""

    at_s: float
    what: str
    words: tuple[Any, ...] = ()


class Border(msgspec.Struct, frozen=True):
    """A broker that stands between two networks: those of the other are `beyond` it."""

    broker: str
    routing: str
    """The algorithm of the brokers beyond."""
    beyond: tuple[str, ...]


class Script(msgspec.Struct, frozen=True):
    """One run.

    >>> script = Script(7, "acyclic", ("b1",), (), (Step(0.5, "join", ("alice", "b1")),))
    >>> script.faults, script.until_s
    (frozenset(), 0.5)
    """

    seed: int
    routing: str
    brokers: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    """Of a tree, the one nearer the root first."""
    steps: tuple[Step, ...]
    sync_s: float = 0.002
    """How long a disk takes."""
    window_bytes: int = 1 << 20
    queue_bytes: int = 1 << 20
    memory_bytes: int = 1 << 30
    discovery: bool = False
    """Whether brokers know where others can be reached: clients of a broker that is about to go
    are sent there, and on any graph brokers look for others when they have lost a neighbour."""
    grants: bool = False
    """Whether clients may only hear and publish what `grants.py` grants them."""
    gate: Border | None = None
    multicast: bool = False
    """Whether brokers have a way of datagrams."""

    @property
    def faults(self) -> frozenset[str]:
        """The kinds of faults in it."""
        return frozenset(each.what for each in self.steps if each.what in FAULTS)

    @property
    def until_s(self) -> float:
        """When the last step begins."""
        return max((each.at_s for each in self.steps), default=0.0)

    def with_steps(self, steps: tuple[Step, ...]) -> Script:
        """The same with other steps."""
        return msgspec.structs.replace(self, steps=steps)


class Breach(NamedTuple):
    """Something that must not happen: its kind, by which a shorter script is known to fail alike,
    and what it was.
    """

    kind: str
    what: str
