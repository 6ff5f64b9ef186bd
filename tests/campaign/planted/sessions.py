"""Deliberate bugs of sessions: of streams, windows, frames, and the client's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from palio.protocol.dedup_window import DedupWindow
from palio.protocol.streams import Stream
from palio.simulation.agenda import MESSAGE
from palio.simulation.pipes import Pipe
from tests.mutations import Mutation, all_fresh, picked
from tests.protocol.mutations import MUTATIONS as OF_CLIENTS


def _keeps_the_last(right: Callable[..., Any]) -> Callable[..., Any]:
    """Of what the other end has seen the last is kept, and goes again on the next connection."""

    def wrong(self: Stream, count: int) -> None:
        right(self, max(count - 1, self.sent - len(self._unseen)))

    return wrong


def _overtakes(right: Callable[..., Any]) -> Callable[..., Any]:
    """One frame of forty is there before those that were sent before it."""
    count = 0

    def wrong(self: Pipe, side: int, data: bytes | None) -> None:
        nonlocal count
        count += 1
        if count % 40 == 0 and data is not None:
            planner = self.surface.planner
            planner.at(planner.now_us, MESSAGE, lambda: self.ends[side].take(data))
        else:
            right(self, side, data)

    return wrong


IN_SESSIONS: Final = (
    Mutation("numbers that came are not known", DedupWindow, "fresh", all_fresh),
    Mutation("a session resumes with too much", Stream, "seen", _keeps_the_last),
    Mutation("a frame overtakes", Pipe, "carry", _overtakes),
    *picked(
        OF_CLIENTS,
        "arrivals are not acknowledged",
        "what is damaged has arrived",
        "open requests are forgotten",
        "durable events do not go again",
        "memory is called durable",
        "what both brokers say is heard twice",
    ),
)
"""Of streams, windows, frames, and the client's end."""
