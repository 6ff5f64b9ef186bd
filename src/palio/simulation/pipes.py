"""`Pipe`: a simulated connection. Messages go through it as frames of the real codec, in order.

What is sent arrives after a delay, unless the pipe breaks first. An end that closes reads nothing
more; what it sent before still arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from palio.errors import IllegalMessage
from palio.protocol.messages import Message
from palio.protocol.wire import UNREADABLE, Decoder, Encoder
from palio.simulation.agenda import MESSAGE, Action

Link_contra = TypeVar("Link_contra", contravariant=True)


class Planner(Protocol):
    """A clock and its planned actions: an `Agenda`, or one on an event loop's clock."""

    @property
    def now_us(self) -> int:
        """The time in microseconds."""

    def at(self, time_us: int, priority: int, action: Action) -> None:
        """Plan an action; those of one time run by priority, then in order of planning."""


class Reader(Protocol):
    """Receives the messages of one end."""

    def arrived(self, message: Message) -> None:
        """Receive a message."""

    def lost(self, reason: str) -> None:
        """Handle the end of the connection. Called once, unless this end closed it."""

    def illegal(self, error: IllegalMessage) -> None:
        """Handle unreadable bytes, after which nothing follows. Called instead of `lost`."""


class Holder(Protocol[Link_contra]):
    """Owner of several ends: the host of a broker, by number, or a client, by the end itself."""

    def receive(self, link: Link_contra, message: Message, /) -> object:
        """Receive a message."""

    def lost(self, link: Link_contra, /) -> object:
        """Handle a broken connection."""

    def illegal(self, link: Link_contra, error: IllegalMessage, /) -> object:
        """Handle unreadable bytes."""


class HeldEnd(Generic[Link_contra]):
    """The `Reader` of one of a holder's ends; `do` calls the holder, at once or after a pause."""

    def __init__(
        self,
        holder: Holder[Link_contra],
        link: Link_contra,
        do: Callable[[Action], object] = lambda action: action(),
    ) -> None:
        self._holder = holder
        self._link = link
        self._do = do

    def arrived(self, message: Message) -> None:
        """Pass on a message."""
        self._do(partial(self._holder.receive, self._link, message))

    def lost(self, _reason: str) -> None:
        """Report the loss of the connection."""
        self._do(partial(self._holder.lost, self._link))

    def illegal(self, error: IllegalMessage) -> None:
        """Report bytes that cannot be read."""
        self._do(partial(self._holder.illegal, self._link, error))


class Surface(NamedTuple):
    """The services that a pipe needs of its world."""

    planner: Planner
    delay_us: Callable[[str, str], int]
    """Returns the current delay from one end to the other."""
    spoils: Callable[[str, Message], bool]
    """Returns whether a message arrives as unreadable bytes."""
    changed: Callable[[Pipe], object]
    """Called at the first delivery, and when the pipe closes."""


class End:
    """One end of a pipe (see `node.host.LinkPort`)."""

    def __init__(self, pipe: Pipe, side: int) -> None:
        self.pipe = pipe
        self.reader: Reader | None = None
        self._side = side
        self._encoder = Encoder()
        self._decoder = Decoder("the other end")

    def send(self, message: Message) -> None:
        """Write a message after those before it."""
        pipe = self.pipe
        if pipe.is_open:
            if pipe.surface.spoils(pipe.names[self._side], message):
                data = UNREADABLE
            else:
                data = b"".join(map(bytes, self._encoder.encode(message)))
            pipe.carry(1 - self._side, data)

    def close(self, _reason: str = "") -> None:
        """Stop reading. Messages sent before still arrive, then the end."""
        self.reader = None
        self.pipe.carry(1 - self._side, None)

    def take(self, data: bytes | None) -> None:
        """Take bytes that arrived; None is the end."""
        if data is None:
            self.pipe.over()
            self.end("the other end closed the connection")
            return
        try:
            for message in self._decoder.feed(data):
                if self.reader is None:
                    return
                self.reader.arrived(message)
        except IllegalMessage as error:
            reader, self.reader = self.reader, None
            if reader is not None:
                reader.illegal(error)

    def end(self, reason: str) -> None:
        """Notify the reader of the end of the connection."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.lost(reason)


class Pipe:
    """A connection between two named ends."""

    def __init__(self, one: str, other: str, surface: Surface) -> None:
        self.names = (one, other)
        self.surface = surface
        self.is_open = True
        self.ends = (End(self, 0), End(self, 1))
        self._has_carried = [False, False]
        self._last_us = [0, 0]
        self._is_damaged = [False, False]

    def joins(self, one: str, other: str) -> bool:
        """Return whether it connects these two ends."""
        return {*self.names} == {one, other}

    @property
    def is_used(self) -> bool:
        """True if each end has received from the other."""
        return all(self._has_carried)

    def carry(self, side: int, data: bytes | None) -> None:
        """Send bytes to one end, in order even if the delay shrinks."""
        planner, delay_us, _, _ = self.surface
        if data and self._is_damaged[side]:
            self._is_damaged[side] = False
            data = data[:-1] + bytes((data[-1] ^ 1,))
        takes_us = delay_us(self.names[1 - side], self.names[side])
        at_us = self._last_us[side] = max(planner.now_us + takes_us, self._last_us[side])
        planner.at(at_us, MESSAGE, partial(self._bring, side, data))

    def damage(self, side: int) -> None:
        """Flip a bit of the next bytes to one end."""
        self._is_damaged[side] = True

    def _bring(self, side: int, data: bytes | None) -> None:
        if self.is_open:
            if not self._has_carried[side] and data is not None:
                self._has_carried[side] = True
                self.surface.changed(self)
            self.ends[side].take(data)

    def break_off(self, reason: str = "the connection was cut") -> None:
        """Drop bytes in flight, and notify both ends."""
        self.over()
        for end in self.ends:
            end.end(reason)

    def half_open(self, side: int) -> None:
        """One end is notified that it broke. The other is not: it receives nothing, and sends in
        vain.
        """
        self.over()
        self.ends[side].end("the connection was reset")

    def over(self) -> None:
        """Close both directions."""
        if self.is_open:
            self.is_open = False
            self.surface.changed(self)
