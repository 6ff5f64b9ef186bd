"""Run a client's end of a session with a broker, across connections, without I/O.

1. A session redials after its connection breaks. It tries the addresses in turn, first the one that
   answered last. Pauses grow and are partly random, so that a thousand clients of a broker that
   restarts do not reconnect at once.
2. If the broker still has the session, both ends resume it: each retransmits the messages that the
   other has not received. None is lost or duplicated.
3. If not, the session is *renewed*: its owner declares all its state to the broker.
4. A damaged message breaks the connection, and is retransmitted when the session resumes.
5. An error that no retry can change ends the session: the broker denies the client's identity, or
   one end receives a message that is not legal.

The shell opens connections and hands in messages, each with the current time, and calls `tick` when
`wake_at` has come. The session calls its `Connector` and its `Owner` at once. Its own state is
complete before it does, so both may call back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Final, Protocol

from msgspec import structs

from palio.errors import (
    Closed,
    DamagedFrame,
    IllegalMessage,
    LimitExceeded,
    PalioError,
    Unreachable,
)
from palio.protocol.addresses import why_not
from palio.protocol.failures import farewell, is_final
from palio.protocol.limits import (
    ACK_DELAY_S,
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    DIAL_S,
    GREETING_S,
    HEARTBEAT_S,
    MOST_TOGETHER,
    SILENT_BEATS,
    TOGETHER_CHARS,
)
from palio.protocol.messages import (
    UNCOUNTED,
    Bye,
    Hello,
    Message,
    Ping,
    Pong,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Welcome,
)
from palio.protocol.portions import chars_together
from palio.protocol.streams import Stream
from palio.protocol.transitions import ALLOWED, Speaker, State

_IN_HANDSHAKE: Final = ALLOWED[Speaker.BROKER, State.GREETING]
_ACCEPTED: Final = ALLOWED[Speaker.BROKER, State.ESTABLISHED]


class Stage(Enum):
    """The states of a session's connection."""

    IDLE = "not connected, and not to be"
    PAUSE = "waiting to dial again"
    DIALLING = "waiting for a connection"
    GREETING = "waiting for `Welcome`"
    ESTABLISHED = "connected"
    ENDED = "over for good"


class Connector:
    """Define what a shell does for a session: it keeps one connection at a time."""

    def dial(self, url: str) -> None:
        """Open a connection, and report the result by `dialled` or `lost`."""
        raise NotImplementedError

    def send(self, message: Message) -> None:
        """Write a message after those before it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection once all messages are written, or stop dialling.

        The shell hands in nothing more from that connection.
        """
        raise NotImplementedError

    def opened(self, *, resumed: bool) -> None:
        """Note that the session is connected."""

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """Note that no broker answered. If `again`, the session retries; else `connect` failed."""

    def broke(self, error: Exception) -> None:
        """Note that the connection broke; the session redials."""


class Owner(Protocol):
    """Define what a session calls on its owner, which sends and receives its messages."""

    def renewed(self, session: ClientSession, *, is_first: bool) -> None:
        """Declare all state to the broker, which has none. `is_first`: nor had any before."""

    def process(self, session: ClientSession, message: Message) -> None:
        """Process a sequenced message; raise `IllegalMessage` to reject it."""

    def flow(self, session: ClientSession) -> None:
        """Send more, as the window may allow it again."""

    def lost(self, session: ClientSession) -> None:
        """Note that the connection broke."""

    def ended(self, session: ClientSession, error: PalioError) -> None:
        """Note that the session has ended and never reconnects."""


class ClientSession:
    """Keep one session, over any number of connections."""

    def __init__(
        self,
        connector: Connector,
        owner: Owner,
        urls: Sequence[str],
        hello: Hello,
        draw: Callable[[], float],
        *,
        returns: bool = True,
        paced: Callable[[], None] | None = None,
        soon: Callable[[], None] | None = None,
    ) -> None:
        """`returns`: the session redials after its connection breaks; else it ends with it.
        `paced` is called for each sequenced message that arrived: the shell then sends the acks, by
        the pace of its consumer. Without it the session sends them. `soon` is called when the first
        of several messages is held back for one frame: the shell calls `flush` in a moment.
        """
        self.urls = list(urls)
        """The addresses to try, first the one that answered last."""
        self.stream = Stream()
        self.stage = Stage.IDLE
        self.broker = ""
        """The name of the broker at the other end."""
        self.publisher = ""
        """The publisher's name on events of this session."""
        self.id = hello.session
        self.wake_at = inf
        """The time at which `tick` is due."""
        self.received_at = 0.0
        """The time of the last message from the broker."""
        self.stream.received = hello.received
        self._connector = connector
        self._owner = owner
        self.hello = hello
        """The `Hello` of each connection; the shell may replace a token that expires."""
        self._draw = draw
        self._returns = returns
        self._paced = paced
        self._soon = soon
        self._together: list[Subscribe] = []  # to be sent in one message
        self._together_chars = 0
        self._is_new = True  # no broker has ever welcomed it
        self._opens = False  # this round of attempts is for `connect`
        self._opens_until = -inf  # and after that it does not try again
        self._untried = 0  # addresses left in this round
        self._reasons: list[str] = []
        self._pause_s = BACKOFF_MIN_S
        self._heartbeat_s = HEARTBEAT_S
        self._beat_at = inf
        self._ack_at = inf

    @property
    def is_connected(self) -> bool:
        """True if messages are sent at once."""
        return self.stage is Stage.ESTABLISHED

    # --- connections ---

    def connect(self, now: float, *, retry_s: float = 0.0) -> None:
        """Connect for the first time, or after `pause`: every address is tried once, and for
        `retry_s` again and again, as after a connection broke.
        """
        if self.stage is Stage.ENDED:
            raise Closed("the session has ended; connect again")
        if self.stage is Stage.ESTABLISHED or (self._opens and self._is_trying):
            return
        if self._is_trying:  # abort the round of a reconnection, whose failure would not be raised
            self._connector.close()
        self._opens, self._opens_until = True, now + retry_s
        self._begin_round(now)

    def pause(self) -> None:
        """Disconnect; the broker keeps the session for its grace period. `connect` resumes it."""
        if self.stage is not Stage.ENDED:
            self._leave(Stage.IDLE, Bye("suspended"))

    def abandon(self) -> None:
        """Abort a `connect` whose caller has stopped waiting, without a `Bye`."""
        if self.stage is not Stage.ENDED:
            self._leave(Stage.IDLE)

    def end(self, error: PalioError | None = None) -> None:
        """End the session for good, and report `error` to its owner."""
        if self.stage is not Stage.ENDED:
            error = error or Closed("the client is closed; connect again")
            opens = self._opens
            self._leave(Stage.ENDED, Bye("closed"))
            if opens:
                self._connector.unopened(error, again=False)
            self._owner.ended(self, error)

    @property
    def _is_trying(self) -> bool:
        return self.stage is Stage.DIALLING or self.stage is Stage.GREETING

    def _begin_round(self, now: float) -> None:
        self._untried = len(self.urls)
        self._reasons = []
        self._dial(now)

    def _dial(self, now: float) -> None:
        self._untried -= 1
        self.stage = Stage.DIALLING
        self.wake_at = now + DIAL_S
        self._connector.dial(self.urls[0])

    def dialled(self, now: float) -> None:
        """Send `Hello` on the new connection."""
        if self.stage is not Stage.DIALLING:
            return
        self.stage = Stage.GREETING
        self.wake_at = min(self.wake_at, now + GREETING_S)
        received = self.stream.received if self.id else 0
        self._connector.send(structs.replace(self.hello, session=self.id, received=received))

    def lost(self, error: Exception, now: float) -> None:
        """Take the loss of the connection, or the failure to open one."""
        if self._is_trying:
            self._failed(error, now)
        elif self.stage is Stage.ESTABLISHED:
            self._break(error, now)

    def illegal(self, error: IllegalMessage, now: float) -> None:
        """Reject a frame that does not decode."""
        if self._is_trying:
            self._failed(error, now)
        elif self.stage is Stage.ESTABLISHED:
            self._cannot_take(error, now)

    def _failed(self, error: Exception, now: float) -> None:
        """Try the next address after a failed attempt, or all of them after a pause."""
        self._connector.close()
        if is_final(error):
            self._give_up(error)
            return
        self._reasons.append(f"{self.urls[0]}: {why_not(error, self.urls[0])}")
        self.urls.append(self.urls.pop(0))
        if self._untried:
            self._dial(now)
            return
        unreachable = Unreachable(f"no broker answers: {'; '.join(self._reasons)}")
        unreachable.__cause__ = error
        if self._opens and now >= self._opens_until:
            self._give_up(error if isinstance(error, LimitExceeded) else unreachable)
        else:
            self._pause(now)
            self._connector.unopened(unreachable, again=True)

    def _give_up(self, error: PalioError) -> None:
        """Fail the `connect` under way; else, on a reconnection, end the session."""
        if self._opens:
            self._leave(Stage.IDLE)
            self._connector.unopened(error, again=False)
        else:
            self.end(error)

    def _pause(self, now: float) -> None:
        self.stage = Stage.PAUSE
        self.wake_at = now + self._pause_s * (0.5 + self._draw())
        self._pause_s = min(2 * self._pause_s, BACKOFF_MAX_S)

    def _break(self, error: Exception, now: float) -> None:
        """Close a broken connection, and redial after a pause."""
        self._leave(Stage.IDLE)
        if not self._returns:
            self.end(error if isinstance(error, PalioError) else Unreachable(str(error)))
            return
        self._opens = False
        self._pause_s = BACKOFF_MIN_S
        self._pause(now)
        self._connector.broke(error)
        self._owner.lost(self)

    def _leave(self, stage: Stage, last: Bye | None = None) -> None:
        """Close the connection, with `last` as its last message if it is established."""
        before, self.stage = self.stage, stage
        self.wake_at = self._beat_at = self._ack_at = inf
        self._opens = False
        if before is Stage.ESTABLISHED and last is not None:
            self._connector.send(last)
        if before in (Stage.DIALLING, Stage.GREETING, Stage.ESTABLISHED):
            self._connector.close()

    # --- the handshake ---

    def _greeted(self, message: Message, now: float) -> None:
        if type(message) not in _IN_HANDSHAKE:
            problem = f"{type(message).__name__} before its Welcome"
            self._failed(IllegalMessage("the broker", problem), now)
        elif isinstance(message, Bye):
            self._failed(farewell(message), now)
        elif isinstance(message, Ping):
            self._connector.send(Pong())
        elif isinstance(message, Welcome):
            try:
                unacked = self._welcomed(message)
            except IllegalMessage as error:
                self._failed(error, now)
            else:
                self._begin(message, unacked, now)

    def _welcomed(self, welcome: Welcome) -> list[Message]:
        """Return the messages to retransmit: those that the broker of a resumed session lacks."""
        if not welcome.resumed:
            self._take_together()  # the owner declares these subscriptions, too
            self.stream = Stream()
            return []
        if not self.id or welcome.session != self.id:
            raise IllegalMessage("the broker", "it resumes an unknown session")
        stream = self.stream
        if self._is_new:  # another program began it, so the counts start from the broker's
            stream.take_up(welcome.received)
        return stream.resume(welcome.received)

    def _begin(self, welcome: Welcome, unacked: list[Message], now: float) -> None:
        is_first, self._is_new = self._is_new, False
        self.stage = Stage.ESTABLISHED
        self._opens = False
        self.id, self.broker, self.publisher = welcome.session, welcome.name, welcome.publisher
        self._heartbeat_s = welcome.heartbeat_s or HEARTBEAT_S
        self.received_at = now
        self._beat_at = self.wake_at = now + self._heartbeat_s
        for message in unacked:  # before any new message, as the stream is ordered
            self._connector.send(message)
        if not welcome.resumed:
            self._owner.renewed(self, is_first=is_first)
        self._connector.opened(resumed=welcome.resumed)
        self._owner.flow(self)

    # --- messages ---

    def send(self, message: Message) -> None:
        """Send a sequenced message now, or once there is a connection.

        With `soon`, subscriptions are held back for a moment, to share a frame with the next ones.
        """
        if self._soon is not None and isinstance(message, Subscribe):
            chars = chars_together(message)
            if self._together and self._together_chars + chars > TOGETHER_CHARS:
                self.flush()
            self._together.append(message)
            self._together_chars += chars
            if len(self._together) == MOST_TOGETHER:
                self.flush()
            elif len(self._together) == 1:
                self._soon()
        else:
            self.flush()
            self._send(message)

    def flush(self) -> None:
        """Send the subscriptions that were held back."""
        if self._together:
            together = self._take_together()
            self._send(together[0] if len(together) == 1 else SubscribeAll(tuple(together)))

    def _take_together(self) -> list[Subscribe]:
        together, self._together, self._together_chars = self._together, [], 0
        return together

    def _send(self, message: Message) -> None:
        self.stream.send(message)
        if self.stage is Stage.ESTABLISHED:
            self._connector.send(message)

    def send_ack(self, count: int) -> None:
        """Ack the first `count` messages of the broker, where the shell sends acks (`paced`)."""
        if self.stage is Stage.ESTABLISHED:
            self._connector.send(StreamAck(count))

    def receive(self, message: Message, now: float) -> None:
        """Process a message from the connection."""
        self.received_at = now
        if self.stage is Stage.ESTABLISHED:
            try:
                self._take(message, now)
            except IllegalMessage as error:
                self._cannot_take(error, now)
        elif self.stage is Stage.GREETING:
            self._greeted(message, now)

    def _take(self, message: Message, now: float) -> None:
        kind = type(message)
        if kind not in _ACCEPTED:
            raise IllegalMessage("the broker", f"{kind.__name__}, which is not for clients")
        if kind not in UNCOUNTED:
            self._owner.process(self, message)
            is_due = self.stream.arrive(message)
            if self._paced is not None:
                self._paced()
            elif self.stage is Stage.ESTABLISHED:
                self._acknowledge(now, is_due=is_due)
        elif isinstance(message, StreamAck):
            self.stream.seen(message.count)
            self._owner.flow(self)
        elif isinstance(message, Ping):
            self._connector.send(Pong())
        elif isinstance(message, Bye):
            self._dismissed(message, now)

    def _acknowledge(self, now: float, *, is_due: bool) -> None:
        """Ack at once if much has arrived, else a moment later.

        An ack for each single event would cost as much as the event itself.
        """
        ack = self.stream.ack() if is_due else None
        if ack is not None:
            self._connector.send(ack)
        elif self._ack_at == inf:
            self._ack_at = now + ACK_DELAY_S
            self.wake_at = min(self._ack_at, self._beat_at)

    def _cannot_take(self, error: IllegalMessage, now: float) -> None:
        """Reject a message, which does not count as arrived.

        A damaged one is retransmitted on the next connection; `DAMAGE_TRIES` bounds that.
        """
        if self.stage is not Stage.ESTABLISHED:
            return
        if isinstance(error, DamagedFrame) and not self.stream.damaged():
            self._break(error, now)
        else:
            self.end(error)

    def _dismissed(self, bye: Bye, now: float) -> None:
        error = farewell(bye)
        if is_final(error):
            self._leave(Stage.IDLE)
            self.end(error)
        else:
            self._break(error, now)

    # --- time ---

    def tick(self, now: float) -> None:
        """Do everything that is due: redial, time out, ack, send a heartbeat."""
        if now < self.wake_at:
            return
        if self.stage is Stage.PAUSE:
            self._begin_round(now)
        elif self._is_trying:
            self._failed(TimeoutError(), now)
        elif self.stage is Stage.ESTABLISHED:
            if now >= self._ack_at:
                self._ack_at = inf
                ack = self.stream.ack()
                if ack is not None:
                    self._connector.send(ack)
            if now >= self._beat_at:
                self._beat(now)
            if self.stage is Stage.ESTABLISHED:
                self.wake_at = min(self._ack_at, self._beat_at)

    def _beat(self, now: float) -> None:
        """Ping an idle broker, and drop the connection to one that has timed out."""
        silent_s = now - self.received_at
        if silent_s >= SILENT_BEATS * self._heartbeat_s:
            self._break(Unreachable(f"nothing came for {silent_s:.0f} s"), now)
            return
        if silent_s >= self._heartbeat_s:
            self._connector.send(Ping())
        self._beat_at = now + self._heartbeat_s
