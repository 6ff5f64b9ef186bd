"""`ClientSession`: a client's end of a session with a broker, across connections, without I/O.

1. A connection that breaks is dialled again: the addresses in turn, beginning with the one that
   answered last, with pauses that grow and are partly left to chance, so that a thousand clients of
   a broker that comes back do not come at once.
2. If the broker still knows the session, both go on where they were: what the other has not got is
   sent again, nothing is lost or doubled.
3. If not, the session is *renewed*: its owner says again all that must be known.
4. What was damaged on its way is sent again.
5. What no attempt can change ends it: who we are is not accepted, or one end cannot take what the
   other says.

The shell round it opens connections and hands in what comes, each time with the time of now, and
calls `tick` when `wake_at` has come. The session calls its `Connector` and its `Owner` at once; its
own state is complete before it does, so both may call back.
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
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    DIAL_S,
    GREETING_S,
    HEARTBEAT_S,
    MOST_TOGETHER,
    SEEN_AFTER_S,
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

_GREETS: Final = ALLOWED[Speaker.BROKER, State.GREETING]
_SAYS: Final = ALLOWED[Speaker.BROKER, State.ESTABLISHED]


class Stage(Enum):
    """The states of a session's connection."""

    IDLE = "not connected, and nobody asked for it"
    PAUSE = "waiting to dial again"
    DIALLING = "waiting for a connection"
    GREETING = "waiting for `Welcome`"
    ESTABLISHED = "connected"
    ENDED = "over for good"


class Connector:
    """The shell's side: one connection at a time."""

    def dial(self, url: str) -> None:
        """Open a connection: `dialled` or `lost` tells what came of it."""
        raise NotImplementedError

    def send(self, message: Message) -> None:
        """Write a message after those before it."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection once everything before is written, or stop dialling.

        Nothing of that connection is handed in any more.
        """
        raise NotImplementedError

    def opened(self, *, resumed: bool) -> None:
        """The session is connected."""

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """No broker welcomed us. That is tried again, or it was for `connect`, which has failed."""

    def broke(self, error: Exception) -> None:
        """The connection broke; it is dialled again."""


class Owner(Protocol):
    """Whose session it is: who says things in it and hears what the broker says."""

    def renewed(self, session: ClientSession, *, is_first: bool) -> None:
        """The broker knows nothing of us: say it all. `is_first`: nothing was ever said."""

    def hear(self, session: ClientSession, message: Message) -> None:
        """A counted message came. `IllegalMessage` if it cannot be taken."""

    def flow(self, session: ClientSession) -> None:
        """There may be room to send more."""

    def lost(self, session: ClientSession) -> None:
        """The connection broke."""

    def ended(self, session: ClientSession, error: PalioError) -> None:
        """There will be no further connection."""


class ClientSession:
    """One session, over any number of connections."""

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
        """`returns`: a connection that broke is dialled again; else the session ends with it.
        `paced` is called for each counted message that arrived: `StreamAck` is said by the shell,
        when its consumer is done with it. Else the session says it. `soon` is called when something
        waits to be said with what follows: the shell calls `go_on` in a moment.
        """
        self.urls = list(urls)
        """The brokers to try, the one that answered last first."""
        self.stream = Stream()
        self.stage = Stage.IDLE
        self.broker = ""
        """The name of the broker at the other end."""
        self.publisher = ""
        """The name that events published here bear."""
        self.id = hello.session
        self.wake_at = inf
        """When `tick` is to be called."""
        self.heard_at = 0.0
        """When something came last."""
        self.stream.received = hello.received
        self._connector = connector
        self._owner = owner
        self.hello = hello
        """How it says who it is; a token that runs out may be replaced."""
        self._draw = draw
        self._returns = returns
        self._paced = paced
        self._soon = soon
        self._together: list[Subscribe] = []
        """The publications to be sent in one message."""
        self._together_chars = 0
        self._is_new = True
        """True if no broker has ever welcomed it."""
        self._opens = False
        """True if this round of attempts is for `connect`: it is not repeated."""
        self._untried = 0
        self._reasons: list[str] = []
        self._pause_s = BACKOFF_MIN_S
        self._heartbeat_s = HEARTBEAT_S
        self._beat_at = inf
        self._seen_at = inf

    @property
    def is_connected(self) -> bool:
        """True if messages go out at once."""
        return self.stage is Stage.ESTABLISHED

    # --- connections ---

    def connect(self, now: float) -> None:
        """Connect for the first time, or after `pause`: every address is tried once."""
        if self.stage is Stage.ENDED:
            raise Closed("the session has ended; connect anew")
        if self.stage is Stage.ESTABLISHED or (self._opens and self._is_trying):
            return
        if self._is_trying:  # in a round that began before
            self._connector.close()
        self._opens = True
        self._begin_round(now)

    def pause(self) -> None:
        """Leave the broker, which keeps the session for its grace. `connect` comes back."""
        if self.stage is not Stage.ENDED:
            self._leave(Stage.IDLE, Bye("suspended"))

    def abandon(self) -> None:
        """Nobody waits for `connect` any longer: leave without a word."""
        if self.stage is not Stage.ENDED:
            self._leave(Stage.IDLE)

    def end(self, error: PalioError | None = None) -> None:
        """Leave the broker for good."""
        if self.stage is not Stage.ENDED:
            error = error or Closed("the client is closed; connect anew")
            opens = self._opens and self._is_trying
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
        """There is a connection to the address that was dialled: say who we are."""
        if self.stage is not Stage.DIALLING:
            return
        self.stage = Stage.GREETING
        self.wake_at = min(self.wake_at, now + GREETING_S)
        received = self.stream.received if self.id else 0
        self._connector.send(structs.replace(self.hello, session=self.id, received=received))

    def lost(self, error: Exception, now: float) -> None:
        """The connection broke, or none could be made."""
        if self._is_trying:
            self._failed(error, now)
        elif self.stage is Stage.ESTABLISHED:
            self._break(error, now)

    def illegal(self, error: IllegalMessage, now: float) -> None:
        """Something came that cannot be read."""
        if self._is_trying:
            self._failed(error, now)
        elif self.stage is Stage.ESTABLISHED:
            self._cannot_take(error, now)

    def _failed(self, error: Exception, now: float) -> None:
        """An attempt came to nothing: try the next address, or all again later."""
        self._connector.close()
        if is_final(error):
            self._give_up(error)
            return
        self._reasons.append(f"{self.urls[0]}: {why_not(error, self.urls[0])}")
        self.urls.append(self.urls.pop(0))
        if self._untried:
            self._dial(now)
            return
        nobody = Unreachable(f"no broker answers: {'; '.join(self._reasons)}")
        nobody.__cause__ = error
        if self._opens:
            self._give_up(error if isinstance(error, LimitExceeded) else nobody)
        else:
            self._pause(now)
            self._connector.unopened(nobody, again=True)

    def _give_up(self, error: PalioError) -> None:
        """Whoever called `connect` is told; a session that comes back by itself ends."""
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
        """A connection is lost: close what is left of it, and come back later."""
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
        """Close the connection, after a last word if there is one to hear it."""
        before, self.stage = self.stage, stage
        self.wake_at = self._beat_at = self._seen_at = inf
        self._opens = False
        if before is Stage.ESTABLISHED and last is not None:
            self._connector.send(last)
        if before in (Stage.DIALLING, Stage.GREETING, Stage.ESTABLISHED):
            self._connector.close()

    # --- the greeting ---

    def _greeted(self, message: Message, now: float) -> None:
        if type(message) not in _GREETS:
            what = f"{type(message).__name__} before its Welcome"
            self._failed(IllegalMessage("the broker", what), now)
        elif isinstance(message, Bye):
            self._failed(farewell(message), now)
        elif isinstance(message, Ping):
            self._connector.send(Pong())
        elif isinstance(message, Welcome):
            try:
                again = self._welcomed(message)
            except IllegalMessage as error:
                self._failed(error, now)
            else:
                self._begin(message, again, now)

    def _welcomed(self, welcome: Welcome) -> list[Message]:
        """Return what to send first: what the broker has not got, if it knows the session."""
        if not welcome.resumed:
            self._take_together()  # the owner says it again
            self.stream = Stream()
            return []
        if not self.id or welcome.session != self.id:
            raise IllegalMessage("the broker", "it resumes a session that is none")
        stream = self.stream
        if self._is_new:  # another program began it
            stream.take_up(welcome.received)
        return stream.resume(welcome.received)

    def _begin(self, welcome: Welcome, again: list[Message], now: float) -> None:
        is_first, self._is_new = self._is_new, False
        self.stage = Stage.ESTABLISHED
        self._opens = False
        self.id, self.broker, self.publisher = welcome.session, welcome.name, welcome.publisher
        self._heartbeat_s = welcome.heartbeat_s or HEARTBEAT_S
        self.heard_at = now
        self._beat_at = self.wake_at = now + self._heartbeat_s
        for message in again:
            self._connector.send(message)
        if not welcome.resumed:
            self._owner.renewed(self, is_first=is_first)
        self._connector.opened(resumed=welcome.resumed)
        self._owner.flow(self)

    # --- messages ---

    def send(self, message: Message) -> None:
        """Send a counted message now, or when there is a connection.

        Subscriptions wait for others that follow at once, where the shell sees to it (`soon`).
        """
        if self._soon is not None and isinstance(message, Subscribe):
            chars = chars_together(message)
            if self._together and self._together_chars + chars > TOGETHER_CHARS:
                self.go_on()
            self._together.append(message)
            self._together_chars += chars
            if len(self._together) == MOST_TOGETHER:
                self.go_on()
            elif len(self._together) == 1:
                self._soon()
        else:
            self.go_on()
            self._send(message)

    def go_on(self) -> None:
        """Say what waits to be said with what follows."""
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

    def say_seen(self, count: int) -> None:
        """Say that so many messages need not be kept (see `paced`)."""
        if self.stage is Stage.ESTABLISHED:
            self._connector.send(StreamAck(count))

    def receive(self, message: Message, now: float) -> None:
        """A message came over the connection."""
        self.heard_at = now
        if self.stage is Stage.ESTABLISHED:
            try:
                self._take(message, now)
            except IllegalMessage as error:
                self._cannot_take(error, now)
        elif self.stage is Stage.GREETING:
            self._greeted(message, now)

    def _take(self, message: Message, now: float) -> None:
        kind = type(message)
        if kind not in _SAYS:
            raise IllegalMessage("the broker", f"{kind.__name__}, which no client is told")
        if kind not in UNCOUNTED:
            self._owner.hear(self, message)
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
        """Say what arrived: at once when it is much, else a moment later.

        Events that come one by one are not each answered: that would cost as much again as they do.
        """
        ack = self.stream.ack() if is_due else None
        if ack is not None:
            self._connector.send(ack)
        elif self._seen_at == inf:
            self._seen_at = now + SEEN_AFTER_S
            self.wake_at = min(self._seen_at, self._beat_at)

    def _cannot_take(self, error: IllegalMessage, now: float) -> None:
        """Something came that cannot be read or taken: it has not arrived."""
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
        """Time has passed."""
        if now < self.wake_at:
            return
        if self.stage is Stage.PAUSE:
            self._begin_round(now)
        elif self._is_trying:
            self._failed(TimeoutError(), now)
        elif self.stage is Stage.ESTABLISHED:
            if now >= self._seen_at:
                self._seen_at = inf
                ack = self.stream.ack()
                if ack is not None:
                    self._connector.send(ack)
            if now >= self._beat_at:
                self._beat(now)
            if self.stage is Stage.ESTABLISHED:
                self.wake_at = min(self._seen_at, self._beat_at)

    def _beat(self, now: float) -> None:
        """Ask a silent broker whether it is there, and give up one that does not answer."""
        silent_s = now - self.heard_at
        if silent_s >= SILENT_BEATS * self._heartbeat_s:
            self._break(Unreachable(f"nothing came for {silent_s:.0f} s"), now)
            return
        if silent_s >= self._heartbeat_s:
            self._connector.send(Ping())
        self._beat_at = now + self._heartbeat_s
