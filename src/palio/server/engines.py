"""`Engines`: what one broker matches with, and how much that takes at once.

The compiled engine is plain Python until it has had some work: a broker without its kernels is a
third the size of one with them. They are loaded beside the loop in some seconds, the first time on
a machine in a minute. Until then a pair of event and filter takes ten times as long and more, so
that a large message is matched in many small steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from palio.matching import warming
from palio.matching.index import Index
from palio.matching.kernels import registry
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.routing.protocol import Matching, Selector
from palio.server.limits import COMPILED_PAIRS, COUNT_AGAIN_S, FEW_ROWS, PLAIN_PAIRS, RESIDUALS

__all__ = ["Engines", "load_kernels"]

logger: Final = logging.getLogger("palio.server")


class Engines:
    """Makes the engines of one broker and the selectors of its router.

    >>> engines = Engines()
    >>> engines.new_index().match_event({"x": 1}).tolist(), len(engines.new_selector())
    ([], 0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._made: WeakSet[Index] = WeakSet()
        self._clock = clock
        self._filters = self._cost = 0
        self._counted_at = float("-inf")

    def new_selector(self) -> Selector:
        """One for a router."""
        return Matching(self.new_index())

    def new_index(self) -> Index:
        """A compiled engine: it merges beside the loop, and loads its kernels there once it has had
        some work.
        """
        index = Index(_in_background, load_kernels)
        self._made.add(index)
        return index

    def rows_at_once(self) -> int:
        """How many events are to be matched in one step: the fewer, the more filters there are, and
        while it is done in plain Python. There may be thousands of engines: they are not counted
        each time.
        """
        now = self._clock()
        if now - self._counted_at >= COUNT_AGAIN_S:
            self._filters, self._counted_at = sum(map(len, self._made)), now
            self._cost = sum(each.residual_cost for each in self._made)
        pairs = PLAIN_PAIRS if registry.ready() is None else COMPILED_PAIRS
        rows = max(FEW_ROWS, min(MAX_BATCH_ROWS, pairs // max(1, self._filters)))
        return min(rows, max(1, RESIDUALS // self._cost)) if self._cost else rows


def load_kernels() -> None:
    """Load the compiled code of matching and of routing; until then both are plain Python."""
    if not registry.are_on_disk():
        logger.info("compiling the engine's kernels takes a minute; plain Python until then")
    warming.warm()


def _in_background(job: Callable[[], Any]) -> None:
    """Do something beside the loop, such as compiling; a broker may end before it has."""
    threading.Thread(target=job, name="palio-engine", daemon=True).start()
