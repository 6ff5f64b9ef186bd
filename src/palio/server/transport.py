"""`Connection`: one socket, framed; bytes in, messages out, and the other way round.

1. Until a connection has shown who it is, a frame may be `MAX_GREETING_BYTES` long and the greeting
   may take `GREETING_S`.
2. What is sent is encoded and written when the loop has nothing else to do in this turn: everything
   that one turn sends to a connection goes out in one call of the system, and a lone message waits
   for nothing. What one turn sends to thousands of connections goes out in several.
3. How much may wait for a receiver is the node's to bound (its window). But a client that does not
   take what it is sent is not read from either, so that requests whose answers it does not take
   cost nothing. Brokers are always read from: two that stopped for each other would stop for good.
4. What one read brings is handed over in slices (see `scheduler`), in its order. Meanwhile nothing
   is read from the connection, a broker's neither.
5. A message of more events than may be taken at once is handed over part by part. If the connection
   ends meanwhile, so does that: the node knows what it has taken, should the message come again.
6. A large frame has room in the account of its sender (`connection_limiter`) before it is read,
   until it has been handed over.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from palio.errors import IllegalMessage
from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.model.untrusted import text_bytes
from palio.protocol.batches import Divisible, is_divisible
from palio.protocol.limits import GREETING_S, MAX_FRAME_BYTES, MAX_GREETING_BYTES, MAX_REQUEST_BYTES
from palio.protocol.messages import Bye, Deliver, EventMessage, Hello, Message, Welcome
from palio.protocol.wire import Decoder, Encoder, write
from palio.server.connection_limiter import ConnectionSlot
from palio.server.counters import Traffic
from palio.server.limits import CLOSE_S, LINGER_S, PLAIN_VALUES, WRITE_HIGH_BYTES
from palio.server.scheduler import LoopScheduler


class Owner(Protocol):
    """The receiver of a connection's events."""

    traffic: Traffic
    scheduler: LoopScheduler

    def opened(self, connection: Connection) -> None:
        """Admit a connection that is up, or refuse it by `Connection.close`."""

    def welcomed(self, connection: Connection) -> bool:
        """The other end has shown who it is; whether it may stay."""

    def arrived(
        self, connection: Connection, message: Message, *, up_to: int | None = None
    ) -> None:
        """A message came; if it is a large one, what of it is to be taken now (`Host.receive`)."""

    def rows_at_once(self) -> int:
        """Return the number of events that may be taken in one step."""

    def illegal(self, connection: Connection, error: IllegalMessage) -> None:
        """Bytes came that are no message; nothing more is read."""

    def gone(self, connection: Connection, reason: str) -> None:
        """Forget a connection that is down. Called once, also after `Connection.close`."""


_PLAIN_ENCODER: Final = ThreadPoolExecutor(1, "palio plain")
"""Turns batches into values for clients without Arrow. One thread for all, so that the loop waits
for the interpreter no longer than one other thread holds it."""


def _values_in(message: Message) -> int:
    """The values of the events of a message."""
    if not isinstance(message, Deliver):
        return 0
    return len(message.parcel) * len(message.parcel.shape.names)


class Connection(asyncio.Protocol):
    """One framed connection over TCP or TLS."""

    __slots__ = (
        "_announced",
        "_behind",
        "_closing",
        "_cut",
        "_decoder",
        "_encoder",
        "_encoding",
        "_greeting",
        "_is_down",
        "_is_short",
        "_lost",
        "_marked",
        "_out",
        "_owner",
        "_parts",
        "_stalled",
        "_transport",
        "dialled",
        "farewell",
        "is_broker",
        "number",
        "peer",
        "slot",
        "url",
    )

    def __init__(
        self,
        owner: Owner,
        number: int,
        slot: ConnectionSlot,
        *,
        dialled: bool = False,
        greeting_s: float = GREETING_S,
    ) -> None:
        self.number = number
        self.dialled = dialled
        self.peer = ""
        """The broker that answered, if we dialled."""
        self.url = ""
        """Where we dialled."""
        self.farewell = ""
        """Why it has ended: the other end's code in place of a greeting, or this end's reason."""
        self.slot = slot
        """Among all sockets of the owner."""
        self._owner = owner
        self.is_broker = dialled
        """Whether the other end is a broker, as far as is known."""
        self._encoder = Encoder()
        self._encoding: asyncio.Future[list[Any]] | None = None
        """What is encoded in a thread; what is sent meanwhile waits."""
        self._decoder = Decoder(f"link {number}", max_frame=MAX_GREETING_BYTES)
        self._out: list[Message] = []
        self._parts = Parts()
        self._marked = False
        self._behind = False
        self._stalled = False
        self._announced = 0
        """What it has asked room for."""
        self._is_short = False
        """Whether it waits for that."""
        self._closing = False
        self._is_down = False
        self._transport: asyncio.Transport | None = None
        self._cut: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._greeting: asyncio.TimerHandle | None = loop.call_later(greeting_s, self._too_late)

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (`asyncio.Protocol`)."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Decode and hand over what was read (`asyncio.Protocol`)."""
        self._owner.traffic.bytes_in += len(data)
        if self._closing:
            return
        if self._behind:  # TLS may still have had something
            self._decoder.keep(data)
        else:
            self._hand_over(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, once (`asyncio.Protocol`)."""
        if self._is_down:
            return
        self._closing = self._is_down = True
        self._parts.drop()
        self._greeted()
        if self._cut is not None:
            self._cut.cancel()
        self._out.clear()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)
        self._owner.gone(self, str(exc) if exc else "closed by the other end")

    def pause_writing(self) -> None:
        """Stop reading from a client that takes nothing (rule 3)."""
        if not self.is_broker:
            self._stalled = True
            self._read_or_not()

    def resume_writing(self) -> None:
        """Read again from a client that takes what it is sent."""
        self._stalled = False
        self._read_or_not()

    # --- received bytes ---

    def proceed(self) -> None:
        """Hand over more of what was read (rule 4)."""
        if not self._closing:
            self._behind = False
            self._hand_over(b"")
            if not self._behind:
                self._read_or_not()

    def _hand_over(self, data: bytes) -> None:
        """Hand over messages for as long as this turn allows."""
        owner, scheduler = self._owner, self._owner.scheduler
        until, clock = scheduler.slice(), scheduler.clock
        if not until:  # this turn is over: the bytes wait in the decoder for the next
            self._decoder.keep(data)
            return self._fall_behind()
        traffic, arrived = owner.traffic, owner.arrived
        try:
            if not self._go_through(until):
                self._decoder.keep(data)
                return self._fall_behind()
            for message in self._decoder.feed(data):
                if self._closing:
                    return None
                traffic.messages_in += 1
                if self._greeting is not None:
                    self._listen_for_greeting(message)
                if is_large(message):
                    self._parts.begin(message)
                    if not self._go_through(until):
                        return self._fall_behind()
                else:
                    arrived(self, message)
                if clock() > until:
                    return self._fall_behind()
            # A frame has begun that needs room before more of it is read (rule 6).
            if self._decoder.announced != self._announced:
                self._ask_for_room()
        except IllegalMessage as error:
            owner.traffic.illegal += 1
            owner.illegal(self, error)
        finally:
            scheduler.spend(until)
        return None

    def _go_through(self, until: float) -> bool:
        """Hand over what was begun, part by part; whether that is done, or its time is used up."""
        owner, parts, clock = self._owner, self._parts, self._owner.scheduler.clock
        while parts.is_begun:
            message, up_to = parts.next(owner.rows_at_once())
            owner.arrived(self, message, up_to=up_to)
            if parts.is_begun and clock() > until:
                return False
        return True

    def _fall_behind(self) -> None:
        self._behind = True
        self._read_or_not()
        self._owner.scheduler.wait(self)
        self.slot.keep(self._decoder.waiting)

    def _ask_for_room(self) -> None:
        """Wait until there is room for the whole of a frame, in the stead of the one before."""
        self._announced = self._decoder.announced
        self._is_short = not self.slot.claim(self._announced, self._go_on_reading)
        self._read_or_not()

    def _go_on_reading(self) -> None:
        self._is_short = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Read, unless what is read or what is written waits."""
        if self._transport is None or self._closing or self._transport.is_closing():
            return
        if self._behind or self._stalled or self._is_short:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- what the server calls ---

    @property
    def principal(self) -> str:
        """The common name in the certificate of the other end; empty without one.

        Of two common names neither counts: together they have a slash, which no principal has.
        """
        transport = self._transport
        certificate = None if transport is None else transport.get_extra_info("peercert")
        subject = (certificate or {}).get("subject", ())
        return "/".join(
            str(value) for part in subject for key, value in part if key == "commonName"
        )

    def send(self, message: Message) -> None:
        """Write a message after those before it."""
        if self._closing:
            return
        traffic = self._owner.traffic
        traffic.messages_out += 1
        if isinstance(message, EventMessage):
            traffic.events_out += len(message.parcel)
        elif isinstance(message, Welcome):
            self._greeted()
            if not self._owner.welcomed(self):
                return
        self._out.append(message)
        if not self._marked:
            self._marked = True
            self._owner.scheduler.write(self)

    def flush(self) -> None:
        """Hand to the system what was sent since the last time."""
        self._marked = False
        if self._out and self._transport is not None and self._encoding is None:
            messages, self._out = self._out, []
            if type(messages[0]) is Deliver:
                self._owner.traffic.latency.sample(messages[0])
            if self._encoder.plain and sum(map(_values_in, messages)) > PLAIN_VALUES:
                loop = asyncio.get_running_loop()
                self._encoding = loop.run_in_executor(_PLAIN_ENCODER, self._encoded, messages)
                self._encoding.add_done_callback(self._write_encoded)
            else:
                try:
                    buffers = self._encoded(messages)
                except Exception:  # those after it would count as others: all are sent again
                    self.abort()
                    raise
                self._write(buffers)

    def _encoded(self, messages: list[Message]) -> list[Any]:
        encode, buffers = self._encoder.encode, list[Any]()
        for message in messages:
            buffers += encode(message)
        return buffers

    def _write_encoded(self, encoding: asyncio.Future[list[Any]]) -> None:
        """Write what was encoded in a thread, and what was sent meanwhile."""
        self._encoding = None
        if encoding.cancelled() or self._is_down:
            return
        if encoding.exception() is not None:
            self.abort()
            encoding.result()
        self._write(encoding.result())
        self.flush()
        if self._closing and self._encoding is None:
            self._shut()

    def _write(self, buffers: list[Any]) -> None:
        if self._transport is not None and write(self._transport, buffers):
            self._owner.traffic.bytes_out += sum(
                buffer.size if hasattr(buffer, "size") else len(buffer) for buffer in buffers
            )

    def close(self, reason: str = "", /, *, last: Message | None = None) -> None:
        """Write what is to be written, and a last word, and close. Nothing more is handed over.

        What the other end still sends is read, for `LINGER_S`: a socket that is closed with bytes
        unread is reset, and the last word may be lost with it.
        """
        if self._closing:
            return
        if last is not None:
            self.send(last)
        self.farewell = self.farewell or reason
        self._closing = True
        self._parts.drop()
        self._decoder.drop()
        self._greeted()
        self.flush()
        if self._encoding is None:
            self._shut()

    def _shut(self) -> None:
        """Close this direction once all is written."""
        transport = self._transport
        if transport is None:
            return
        # TLS cannot close one direction alone: such a connection does not linger.
        if transport.is_closing() or not transport.can_write_eof():
            self._close_for_good(transport)
            return
        transport.write_eof()
        transport.resume_reading()
        later = asyncio.get_running_loop().call_later
        self._cut = later(LINGER_S, self._close_for_good, transport)

    def _close_for_good(self, transport: asyncio.Transport) -> None:
        transport.close()
        self._cut = asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)

    def make_room(self, reason: str) -> None:
        """End, since others need the room: a client gets the reason, and has its session back."""
        # A stranger has no session to keep, and a last word would hold its socket for longer.
        if self._greeting is None:
            self.close(last=Bye("LimitExceeded", reason))
        else:
            self.abort()

    def abort(self) -> None:
        """Cut the connection; what was not written is lost."""
        self._closing = True
        self._parts.drop()
        self._greeted()
        if self._transport is not None:
            self._transport.abort()

    def give_up(self) -> None:
        """End a connection whose dialer has stopped: the loop may not report its end."""
        if self._transport is not None:
            self.abort()
            self.connection_lost(None)
            return
        self._greeted()
        self.slot.leave()

    async def wait_lost(self) -> None:
        """Return when the connection is down. One task may wait."""
        if self._transport is not None and not self._is_down:
            self._lost = asyncio.get_running_loop().create_future()
            await self._lost

    # --- the greeting ---

    def _listen_for_greeting(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.is_broker = message.role == "broker"
            if not self.is_broker:
                self._decoder.max_control = MAX_REQUEST_BYTES
                self._encoder.plain = message.plain
        elif isinstance(message, Welcome):
            self.peer = message.name
            self._greeted()
        elif isinstance(message, Bye):
            self.farewell = message.code

    def _greeted(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None
            self._decoder.max_frame = MAX_FRAME_BYTES

    def _too_late(self) -> None:
        self._greeting = None
        self._owner.traffic.late += 1
        self.close(last=Bye("NotAuthenticated", "no greeting came in time"))


# --- large messages ---


def is_large(message: Message) -> TypeGuard[Divisible]:
    """Return whether a message is to go to the node part by part, where that takes long."""
    return is_divisible(message) and len(message.parcel) > 1


class Parts:
    """One message, if one was begun, and how much of it the node has.

    >>> import pyarrow as pa
    >>> from palio.protocol.messages import Parcel, Publish
    >>> parts = Parts()
    >>> parts.begin(Publish(Parcel("ann", pa.record_batch({"x": [5, 6, 7]})), 10))
    >>> [parts.next(2)[1], parts.is_begun, parts.next(2)[1], parts.is_begun]
    [2, True, None, False]
    """

    __slots__ = ("_given", "_message", "_texts")

    def __init__(self) -> None:
        self._message: Divisible | None = None
        self._given = 0
        self._texts: npt.NDArray[np.int64] | None = None

    @property
    def is_begun(self) -> bool:
        """Return whether something is left of it."""
        return self._message is not None

    def begin(self, message: Divisible) -> None:
        """Begin to hand over a message, from its first row on."""
        self._message, self._given, parcel = message, 0, message.parcel
        is_small = parcel.nbytes <= MAX_EVENT_TEXT_BYTES
        self._texts = None if is_small else np.cumsum(text_bytes(parcel.batch))

    def next(self, rows: int) -> tuple[Divisible, int | None]:
        """Take so many rows more, fewer if they have more text than one event may: the
        message, and up to where its rows are due. None is for all that are left: that was the last
        of it.
        """
        message = self._message
        assert message is not None
        if self._texts is not None:
            before = self._texts[self._given - 1] if self._given else 0
            most = np.searchsorted(self._texts, before + MAX_EVENT_TEXT_BYTES, "right")
            rows = min(rows, max(1, int(most) - self._given))
        self._given += rows
        if self._given < len(message.parcel):
            return message, self._given
        self._message = None
        return message, None

    def drop(self) -> None:
        """The rest is not handed over."""
        self._message = None
