"""The callers of Arrow Flight: identified before anything else of a call is read, and counted.

1. `Callers.start_call` greets the node with the token of a call. A call that shows none, or whose
   principal has its share of calls already, ends there, and so does one that is not offered: its
   ticket, its descriptor and its batches are not read.
2. What a call takes, a session of the node and a place among the calls, is given back when gRPC
   says that it is over, which it says once for each call that has begun, however it ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow.flight as pf

from palio.errors import InvalidInput
from palio.server.flight.errors import told
from palio.server.limits import (
    MAX_LOOKUPS,
    MAX_LOOKUPS_EACH,
    MAX_PUTS,
    MAX_PUTS_EACH,
    MAX_STREAMS,
    MAX_STREAMS_EACH,
)
from palio.server.local_client import Guest

__all__ = ["SHARES", "Callers", "FlightCall", "Share"]


class Share(NamedTuple):
    """The calls of a kind that may be under way, in all and of one principal."""

    name: str
    most: int
    most_each: int
    limit: str


SHARES: Final[dict[pf.FlightMethod, Share]] = {
    pf.FlightMethod.DO_GET: Share("streams", MAX_STREAMS, MAX_STREAMS_EACH, "MAX_STREAMS"),
    pf.FlightMethod.DO_PUT: Share("publications", MAX_PUTS, MAX_PUTS_EACH, "MAX_PUTS"),
    pf.FlightMethod.GET_FLIGHT_INFO: Share(
        "look-ups", MAX_LOOKUPS, MAX_LOOKUPS_EACH, "MAX_LOOKUPS"
    ),
}
"""The calls that are offered."""


class FlightCall(pf.ServerMiddleware):
    """A call whose principal is known, from its first word to its last."""

    def __init__(self, guest: Guest, end: Callable[[], None]) -> None:
        super().__init__()
        self.guest = guest
        self._end: Callable[[], None] | None = end

    def call_completed(self, exception: Exception | None) -> None:  # noqa: ARG002  # however it ended
        """See `pyarrow.flight.ServerMiddleware`."""
        if self._end is not None:
            end, self._end = self._end, None
            end()


class Callers(pf.ServerMiddlewareFactory):
    """Greets the node for each call; `greet` and `leave` block no longer than the broker takes."""

    def __init__(
        self,
        greet: Callable[[str], Guest],
        leave: Callable[[Guest], None],
        shares: dict[pf.FlightMethod, Share] = SHARES,
    ) -> None:
        super().__init__()
        self._greet = greet
        self._leave = leave
        self._shares = shares
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, str]] = Counter()

    @told
    def start_call(self, info: pf.CallInfo, headers: dict[str, Any]) -> FlightCall:
        """See `pyarrow.flight.ServerMiddlewareFactory`."""
        token = _bearer(headers)
        guest = self._greet(token)
        who = guest.owner if token else ""
        try:
            share = self._shares.get(info.method)
            if share is None:
                raise InvalidInput("this broker offers DoGet, DoPut and GetFlightInfo")
            self._take(share, who)
        except BaseException:
            self._leave(guest)
            raise

        def end() -> None:
            self._give_back(share, who)
            self._leave(guest)

        return FlightCall(guest, end)

    def _take(self, share: Share, who: str) -> None:
        """A place. Where nobody shows a token all are one principal, which has all places."""
        name = share.name
        with self._lock:
            if who and self._taken[name, who] >= share.most_each:
                raise pf.FlightUnavailableError(
                    f"{who!r} has {share.most_each} {name} ({share.limit}_EACH); end one first"
                )
            if self._taken[name, ""] >= share.most:
                raise pf.FlightUnavailableError(
                    f"{share.most} {name} are open ({share.limit}); try again later"
                )
            self._taken[name, ""] += 1
            if who:
                self._taken[name, who] += 1

    def _give_back(self, share: Share, who: str) -> None:
        with self._lock:
            for each in {"", who}:
                self._taken[share.name, each] -= 1
                if not self._taken[share.name, each]:
                    del self._taken[share.name, each]


def _bearer(headers: dict[str, Any]) -> str:
    given = headers.get("authorization", [""])[0]
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
