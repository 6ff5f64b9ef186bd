"""`Engines`: the compiled engines of one broker, which are plain Python until they have much to do.

A broker without its kernels is a third the size of one with them. They are loaded beside the loop
in some seconds, the first time on a machine in a minute. Until then a pair of event and filter
takes ten times as long and more, so that a large message is matched in many small steps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from palio.matching.index import Index
from palio.matching.kernels.registry import ready
from palio.protocol.limits import MAX_BATCH_ROWS
from palio.routing import kernels
from palio.server.limits import COMPILED_PAIRS, FEW_ROWS, PLAIN_PAIRS

__all__ = ["Engines", "load_kernels"]

logger: Final = logging.getLogger("palio.server")


class Engines:
    """Makes engines, and knows how much they can take.

    >>> Engines().new().match_event({"x": 1}).tolist()
    []
    """

    def __init__(self) -> None:
        self._made: WeakSet[Index] = WeakSet()

    def new(self) -> Index:
        """One more: it merges beside the loop, and loads its kernels there once it has had some
        work.
        """
        index = Index(_in_background, load_kernels)
        self._made.add(index)
        return index

    def rows_at_once(self) -> int:
        """How many events are to be matched in one step: the fewer, the more filters there are, and
        while the engines are plain Python.
        """
        filters = max(map(len, self._made), default=0)
        pairs = PLAIN_PAIRS if ready() is None else COMPILED_PAIRS
        return max(FEW_ROWS, min(MAX_BATCH_ROWS, pairs // max(1, filters)))


def load_kernels() -> None:
    """Load the compiled code of matching and of routing; until then both are plain Python."""
    if not kernels.are_on_disk():
        logger.info("compiling the engine's kernels takes a minute; plain Python until then")
    kernels.warm()


def _in_background(job: Callable[[], Any]) -> None:
    """Do something beside the loop, such as compiling; a broker may end before it has."""
    threading.Thread(target=job, name="palio-engine", daemon=True).start()
