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
    """The time, and what is to happen later: an `EventQueue`, or one on an event loop's clock."""

    @property
    def now_us(self) -> int:
        """The time in microseconds."""

    def at(self, time_us: int, priority: int, action: Action) -> None:
        """Plan an action; of one moment, in the order of priorities, then of planning."""


class Reader(Protocol):
    """Receives what comes out at an end."""

    def arrived(self, message: Message) -> None:
        """A message came."""

    def lost(self, reason: str) -> None:
        """The connection is gone. Comes once, unless it was this end that closed it."""

    def illegal(self, error: IllegalMessage) -> None:
        """Something came that cannot be read; nothing more does. In the place of `lost`."""


class Holder(Protocol[Link_contra]):
    """Owner of several ends: the host of a broker, by number, or a client, by the end itself."""

    def receive(self, link: Link_contra, message: Message, /) -> object:
        """A message came."""

    def lost(self, link: Link_contra, /) -> object:
        """A connection broke."""

    def illegal(self, link: Link_contra, error: IllegalMessage, /) -> object:
        """Something came that cannot be read."""


class HeldEnd(Generic[Link_contra]):
    """The `Reader` of one of a holder's ends; `do` calls that, at once or when it is awake."""

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
        """Hand a message on."""
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
    """Gives the delay from one to the other, from now on."""
    spoils: Callable[[str, Message], bool]
    """True if what someone sends arrives as bytes that cannot be read."""
    changed: Callable[[Pipe], object]
    """Something has come through for the first time, or the pipe is open no longer."""


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
        """Read nothing more. What was sent before still arrives, and then the end."""
        self.reader = None
        self.pipe.carry(1 - self._side, None)

    def take(self, data: bytes | None) -> None:
        """Something has come through; None is the end."""
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
        """Nothing more comes."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.lost(reason)


class Pipe:
    """A connection between two who have names."""

    def __init__(self, one: str, other: str, surface: Surface) -> None:
        self.names = (one, other)
        self.surface = surface
        self.is_open = True
        self.ends = (End(self, 0), End(self, 1))
        self._has_carried = [False, False]
        self._last_us = [0, 0]
        self._is_damaged = [False, False]

    def joins(self, one: str, other: str) -> bool:
        """Return whether it lies between these two."""
        return {*self.names} == {one, other}

    @property
    def is_used(self) -> bool:
        """True if each end has received from the other."""
        return all(self._has_carried)

    def carry(self, side: int, data: bytes | None) -> None:
        """Bring bytes to one end, after those before; a delay that shrinks overtakes nothing."""
        planner, delay_us, _, _ = self.surface
        if data and self._is_damaged[side]:
            self._is_damaged[side] = False
            data = data[:-1] + bytes((data[-1] ^ 1,))
        takes_us = delay_us(self.names[1 - side], self.names[side])
        at_us = self._last_us[side] = max(planner.now_us + takes_us, self._last_us[side])
        planner.at(at_us, MESSAGE, partial(self._bring, side, data))

    def damage(self, side: int) -> None:
        """A bit of what is brought to one end next turns round."""
        self._is_damaged[side] = True

    def _bring(self, side: int, data: bytes | None) -> None:
        if self.is_open:
            if not self._has_carried[side] and data is not None:
                self._has_carried[side] = True
                self.surface.changed(self)
            self.ends[side].take(data)

    def break_off(self, reason: str = "the connection was cut") -> None:
        """Drop what is under way, and tell both ends."""
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
        """Nothing comes through any more."""
        if self.is_open:
            self.is_open = False
            self.surface.changed(self)
