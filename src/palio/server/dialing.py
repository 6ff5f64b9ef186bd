"""`Dialers`: connections to other brokers, each kept by a `Dialer` that dials again whenever it is
lost.

Pauses grow from `BACKOFF_MIN_S` to `BACKOFF_MAX_S`, each drawn from its upper half, so that brokers
that lost the same neighbour do not all come back at once. A connection that held for
`STEADY_S` starts over with the shortest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable
from typing import Final

from palio.errors import InvalidConfiguration
from palio.protocol.addresses import parse_address
from palio.server.counters import Traffic
from palio.server.transport import Connection

logger: Final = logging.getLogger("palio.server")

BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0

STEADY_S: Final = 10.0
"""A connection that held for so long was a good one."""

DIAL_S: Final = 5.0
"""How long one attempt to connect may take."""

DUPLICATE_S: Final = 30.0
"""Two brokers that dialled each other keep one of the links. The one whose link was given up tries
again when a link to a broker is lost, and at least so often."""


def backoff(failures: int, draw: float) -> float:
    """The pause after so many failures in a row; `draw` is from [0, 1).

    >>> backoff(1, 0.0), backoff(20, 0.5)
    (0.05, 3.75)
    """
    longest = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + draw / 2)


class Dialer:
    """One neighbour."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: str,
        connection: Callable[[Dialer], Connection],
        traffic: Traffic,
        *,
        tls: ssl.SSLContext | None,
        failed: Callable[[str, str], object],
    ) -> None:
        self.url = url
        self.peer = ""
        """The name of the broker there, once it has answered."""
        self._is_duplicate = False
        self._try_now = asyncio.Event()
        self._address = parse_address(url)
        if self._address.is_secure and tls is None:
            raise InvalidConfiguration(
                f"{url} asks for TLS; set tls.ca to the certificates that vouch for it"
            )
        self._tls = tls if self._address.is_secure else None
        self._loop = loop
        self._connection = connection
        self._traffic = traffic
        self._failed = failed
        """Called each time that nobody could be connected to, with the address, and why."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Dial, until `stop`."""
        self._task = self._loop.create_task(self._run(), name=f"dial {self.url}")

    def stop(self) -> None:
        """Dial no more. A connection that stands is the server's to close."""
        if self._task is not None:
            self._task.cancel()

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Connect by other certificates from now on."""
        self._tls = tls if self._address.is_secure else None

    def try_now(self) -> None:
        """A broker was lost: perhaps it was the other end of a link beside which ours was one too
        many.
        """
        self._try_now.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            held_s = await self._once(first_failure=failures == 0)
            if self._is_duplicate:
                failures = 0
                await self._until_lost()
            else:
                failures = 1 if held_s >= STEADY_S else failures + 1
                await asyncio.sleep(backoff(failures, random.random()))

    async def _until_lost(self) -> None:
        self._try_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DUPLICATE_S):
                await self._try_now.wait()

    async def _once(self, *, first_failure: bool) -> float:
        """Connect, wait until the connection is lost; how long it held."""
        self._is_duplicate = False
        try:
            async with asyncio.timeout(DIAL_S):
                connection = await self._connect()
        except (OSError, TimeoutError, ValueError) as error:  # of TLS, or of what is no host
            self._traffic.dial_failures += 1
            reason = str(error) or type(error).__name__
            details = {"url": self.url, "reason": reason}
            level = logging.WARNING if first_failure else logging.DEBUG
            logger.log(level, "peer_unreachable", extra={"details": details})
            self._failed(self.url, reason)
            return 0.0
        since = self._loop.time()
        await connection.wait_lost()
        self.peer = connection.peer or self.peer
        self._is_duplicate = connection.farewell == "duplicate"
        return self._loop.time() - since

    async def _connect(self) -> Connection:
        """Connect. The owner is notified of the loss of one that is given up, also where it is
        `stop`ped by the result of `Connection.connection_made`: uvloop tells nobody of that.
        """
        address, made = self._address, list[Connection]()

        def begin() -> Connection:
            made.append(self._connection(self))
            return made[-1]

        try:
            _, connection = await self._loop.create_connection(
                begin,
                address.host,
                address.port,
                ssl=self._tls,
                server_hostname=address.host if self._tls else None,
            )
        except BaseException:
            for dialer in made:
                dialer.give_up()
            raise
        return connection


class Dialers:
    """Dials the peers of one broker: those of its configuration, and those its node asks for
    (`palio.node.host.DialPort`).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Callable[[Dialer], Connection],
        failed: Callable[[str, str], object],
        traffic: Traffic,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._failed = failed
        self._traffic = traffic
        self._tls = tls
        self._dialers: dict[str, Dialer] = {}
        self._are_stopped = False

    def keep(self, url: str) -> Dialer:
        """Connect to an address from now on."""
        dialer = self._dialers.get(url)
        if dialer is None:
            dialer = Dialer(
                self._loop,
                url,
                self._connection,
                self._traffic,
                tls=self._tls,
                failed=self._failed,
            )
            self._dialers[url] = dialer
            dialer.start()
        return dialer

    def dial(self, url: str, name: str, /) -> None:
        """Connect to an address that the node names (`DialPort`)."""
        if self._are_stopped:
            return
        try:
            dialer = self.keep(url)
        except InvalidConfiguration as error:
            self._loop.call_soon(self._failed, url, str(error))
        else:
            dialer.peer = dialer.peer or name

    def undial(self, url: str, /) -> None:
        """Stop dialing an address (`DialPort`)."""
        dialer = self._dialers.pop(url, None)
        if dialer is not None:
            dialer.stop()

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Connect by other certificates from now on."""
        self._tls = tls
        for dialer in self._dialers.values():
            dialer.renew(tls)

    def try_now(self) -> None:
        """A link to a broker was lost."""
        for dialer in self._dialers.values():
            dialer.try_now()

    def stop(self) -> None:
        """Dial nobody any more."""
        self._are_stopped = True
        for dialer in self._dialers.values():
            dialer.stop()
