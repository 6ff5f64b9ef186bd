"""`Places`: how many sockets may be open at once, at all ports of a broker together.

A socket takes its place when it is accepted, before a handshake of TLS, of which a loop tells
nobody how it ended: a place that is not held within the time of a handshake is free again.
"""

from __future__ import annotations

import asyncio

__all__ = ["Places", "SocketPlace"]


class Places:
    """The sockets of a broker.

    >>> async def fill() -> list[bool]:
    ...     places = Places(2)
    ...     return [places.take(1.0).is_beyond for _ in range(3)]
    >>> asyncio.run(fill())
    [False, False, True]
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, handshake_s: float) -> SocketPlace:
        """A place for a socket, also if there is none: whoever is beyond the limit is told so."""
        return SocketPlace(self, handshake_s)


class SocketPlace:
    """The place of one socket."""

    __slots__ = ("_places", "_timer", "is_beyond")

    def __init__(self, places: Places, handshake_s: float) -> None:
        places.taken += 1
        self.is_beyond = places.taken > places.most
        """Whether its socket is one too many."""
        self._places: Places | None = places
        self._timer = asyncio.get_running_loop().call_later(handshake_s, self.leave)

    def hold(self) -> None:
        """The connection is up: the place is taken until `leave`."""
        self._timer.cancel()

    def leave(self) -> None:
        """The socket is closed. May be said twice."""
        self._timer.cancel()
        if self._places is not None:
            self._places.taken -= 1
            self._places = None
