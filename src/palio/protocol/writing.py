"""`write`: the one way from frames to a transport.

A transport that is closing takes nothing more. Those of asyncio say nothing then and those of
uvloop raise; and between the moment that one closes and the call that tells its protocol so, the
protocol may be asked to write. What is not written is lost with the connection, as what
was under way is: counted messages are kept until they were seen, and go again.
"""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Transport", "write"]


class Transport(Protocol):
    """What is asked of a transport (`asyncio.Transport` is one)."""

    def is_closing(self) -> bool:
        """Whether it takes nothing more."""

    def write(self, data: Any) -> None:
        """Write one buffer."""

    def writelines(self, list_of_data: Any) -> None:
        """Write buffers one after another, in one call of the system."""


def write(transport: Transport | None, buffers: list[Any]) -> bool:
    """Hand buffers to a transport; whether it took them."""
    if transport is None or transport.is_closing():
        return False
    if len(buffers) == 1:
        transport.write(buffers[0])
    else:
        transport.writelines(buffers)
    return True
