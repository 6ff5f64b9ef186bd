"""For tests: brokers in one process and virtual time, or brokers as processes.

`Network` and `run` are for the tests of applications. `fleet.Fleet` runs real brokers on loopback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palio.testing.network import Network, VirtualLoop, run

__all__ = ["Network", "VirtualLoop", "run"]


def __getattr__(name: str) -> Any:
    """Load the simulation for those who use it: the demo runs a `Fleet` alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("palio.testing.network"), name)
