"""`BrokerAccess`: the broker that a command talks to, and the status lines meanwhile."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from palio.cli import inputs
from palio.cli.reporting import print_status

if TYPE_CHECKING:
    from palio.client.connection import Client

DEFAULT_BROKER: Final = "palio://localhost:7400"

UNDER_WAY: Final = 32
"""Publications that are on their way before the first of them must be answered."""

TOKEN_VARIABLE: Final = "PALIO_TOKEN"

Answer = TypeVar("Answer")


class BrokerAccess(NamedTuple):
    """The addresses of brokers, the client's name, identity and token, the authorities to trust."""

    urls: list[str] | None = None
    token_file: Path | None = None
    ca: Path | None = None
    name: str = ""
    identity: str = ""

    def connect(self, *, warns: bool = True) -> Client:
        """Return an unconnected client; if it `warns`, stderr reports each loss and recovery of its
        connection.
        """
        from palio.client.connection import connect

        _print_warnings(warns=warns)
        urls, token = self.urls or [DEFAULT_BROKER], self.token
        return connect(urls, name=self.name, identity=self.identity, token=token, tls=self.ca)

    @property
    def token(self) -> str:
        """The token of the file, or of the environment; empty for none."""
        if self.token_file is not None:
            return inputs.token_of(str(self.token_file))
        return os.environ.get(TOKEN_VARIABLE, "")

    def ask(self, question: Callable[[Client], Awaitable[Answer]], *, warns: bool = True) -> Answer:
        """Connect, and wait for the outcome of what is done with the client."""
        import asyncio

        async def answer() -> Answer:
            async with self.connect(warns=warns) as client:
                return await question(client)

        return asyncio.run(answer())


class ProgressLine:
    """A count on the terminal, now and then; nothing where there is no terminal."""

    def __init__(self, what: str = "events") -> None:
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._last = time.monotonic()
        self._has_written = False

    def show(self, count: int) -> None:
        """So many so far."""
        if self._is_shown and time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            self._has_written = True
            sys.stderr.write(f"\r{count:,} {self._what}")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the count away."""
        if self._has_written:
            sys.stderr.write("\r\x1b[K")


class _Warnings(logging.Handler):
    """Prints a client's warnings, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        print_status(record.getMessage())


def _print_warnings(*, warns: bool) -> None:
    """Let people read what clients of this process warn of, or not."""
    logger = logging.getLogger("palio")
    if not any(isinstance(each, _Warnings | logging.NullHandler) for each in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING) if warns else logging.NullHandler())
