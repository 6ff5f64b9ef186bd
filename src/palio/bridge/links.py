"""`ForeignLink`: one connection to another message system, as `Bridge` uses it.

Each system has a module with `connect(url, name, source)`, a context manager of a link, which never
reconnects: it raises `Unreachable`, and the bridge opens another one. `name` is the durable name of
the consumer of `source`; an empty source makes a link that only sends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from palio.errors import Unreachable

BATCH: Final = 256
"""At most this many unconfirmed messages in each direction: a crash repeats no more."""

TIMEOUT_S: Final = 10.0
"""How long the other system may take to confirm; then the connection counts as lost."""

Failures: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class Message(NamedTuple):
    """A message of the other system; its `id` is the same whenever it is delivered again."""

    address: str
    body: bytes
    id: str = ""
    handle: Any = None
    """The argument of its acknowledgement."""


class ForeignLink(Protocol):
    """A connection to the other system."""

    async def send(self, messages: Sequence[Message]) -> list[str]:
        """Publish, and wait for the confirms: for each message the reason why it was refused, or an
        empty text.
        """
        ...

    async def take(self) -> Sequence[Message]:
        """Wait for messages, and return at most `BATCH` of them."""
        ...

    async def ack(self, messages: Sequence[Message]) -> None:
        """Acknowledge all that the last `take` returned."""
        ...


class Inbox:
    """Messages that a callback received, until they are taken."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._has_changed = asyncio.Event()
        self._reason = ""

    def put(self, message: Message) -> None:
        """Add a message."""
        self._messages.append(message)
        self._has_changed.set()

    def lose(self, reason: str) -> None:
        """Let `take` raise `Unreachable`: nothing can be acknowledged any longer."""
        self._reason = reason
        self._has_changed.set()

    async def take(self) -> list[Message]:
        """Wait for messages, and return at most `BATCH` of them."""
        while not self._messages and not self._reason:
            self._has_changed.clear()
            await self._has_changed.wait()
        if self._reason:
            raise Unreachable(self._reason)
        return [self._messages.popleft() for _ in range(min(BATCH, len(self._messages)))]


async def confirms(
    publications: Iterable[Awaitable[object]], refused: Failures, lost: Failures
) -> list[str]:
    """Wait for all publications, and return the reasons of refusals as `send` does: an error of
    `refused`, or a text as the result.
    """
    results = await asyncio.gather(*publications, return_exceptions=True)
    with lost_by(lost):
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, refused):
                raise result
    return [reason_of(each) if isinstance(each, refused) else str(each or "") for each in results]


@contextmanager
def lost_by(failures: Failures) -> Iterator[None]:
    """Raise `Unreachable` for the errors of a client by which its connection is lost."""
    try:
        yield
    except Unreachable:
        raise
    except failures as error:
        raise Unreachable(f"the connection was lost: {reason_of(error)}") from None


def reason_of(error: object) -> str:
    """Return the text of an error, or its type if it has none.

    >>> reason_of(TimeoutError())
    'TimeoutError'
    """
    return str(error) or type(error).__name__
