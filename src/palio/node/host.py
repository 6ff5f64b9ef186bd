"""`Host`: calls a node with inputs and carries out its effects (docs/concepts/node.md).

```
  links, store, clock -----inputs------> Host --(..., moment)--> Node
        ^                                  |  <---- effects, in order
        +-- send, close, append, wake_at --+
```

1. The node gets one input at a time, and its effects are carried out before the next. So a port
   must not call the host while the host calls the port, only later.
2. The node asks to be woken by `wake_at`. The clock rings at the earliest time requested.
3. A stopped host ignores everything. A broker that restarts gets a new host, so answers that were
   pending for the old one have no effect.
4. A broker without multicast has no `MulticastPort`, and its node casts nothing. A broker that
   does not dial has no `DialPort`.

The server, the simulated world and `palio.testing` differ only in their ports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any, Protocol

from palio.errors import IllegalMessage
from palio.multicast.datagrams import Datagram
from palio.node.authority import Principal
from palio.node.effects import (
    Answered,
    Cast,
    Close,
    Dial,
    Effect,
    Moment,
    Report,
    Send,
    StopDialing,
    Tune,
)
from palio.node.operations import Append, Record
from palio.node.readiness import Readiness
from palio.protocol.messages import Message


class Machine(Protocol):
    """The interface of a node (`palio.node.node.Node`) for its host."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def wake_at(self) -> float:
        """The time at which `tick` is due."""

    def start(self, at: Moment) -> Sequence[Effect]:
        """Begin. Called once, before anything else."""

    def accept(self, link: int, at: Moment, principal: str = "") -> Sequence[Effect]:
        """Take a connection that a client or broker has made."""

    def dial(self, link: int, at: Moment, peer: str = "", url: str = "") -> Sequence[Effect]:
        """Greet the broker at a connection that this one has made; `peer` is its name if known."""

    def unreachable(self, url: str, reason: str, at: Moment) -> Sequence[Effect]:
        """Note that one attempt to connect to an address has failed."""

    def reachable_at(self, url: str, at: Moment) -> Sequence[Effect]:
        """Announce the address at which others can reach this broker; empty for none."""

    def receive(
        self, link: int, message: Message, at: Moment, *, up_to: int | None = None
    ) -> Sequence[Effect]:
        """Handle a message. If it is handed in by slices, handle its rows up to `up_to`."""

    def illegal(self, link: int, error: IllegalMessage, at: Moment) -> Sequence[Effect]:
        """Refuse bytes that are no message."""

    def lost(self, link: int, at: Moment) -> Sequence[Effect]:
        """Handle the loss of a connection."""

    def principal(self, link: int) -> Principal:
        """Return the principal at the other end of a connection after its handshake."""

    def receive_datagram(self, datagram: Datagram, at: Moment) -> Sequence[Effect]:
        """Handle a datagram that a broker of the network has sent."""

    def stored(self, ticket: int, at: Moment) -> Sequence[Effect]:
        """Continue after an `Append` that is on the disk."""

    def failed(self, ticket: int, reason: str, at: Moment) -> Sequence[Effect]:
        """Handle an `Append` that the journal refused: nothing of it is on the disk."""

    def writable(self, at: Moment) -> Sequence[Effect]:
        """Resume appends: the journal accepts them, after one that it refused."""

    def keep(self, record: Record, answered: Answered, at: Moment) -> Sequence[Effect]:
        """Store or delete a record for a front."""

    def tick(self, at: Moment) -> Sequence[Effect]:
        """Do the work that is due. Called at `wake_at` or later."""

    def leave(self, at: Moment) -> Sequence[Effect]:
        """Prepare to close: have paths avoid this broker, and redirect its clients."""

    @property
    def is_leaving(self) -> bool:
        """True if the broker is shutting down or drained, and accepts no clients of fronts."""

    @property
    def is_free_to_go(self) -> bool:
        """True after `leave`, once paths avoid the broker and its clients have left."""

    def close(self, at: Moment) -> Sequence[Effect]:
        """Close all connections, with a `Bye`."""

    def status(self) -> dict[str, Any]:
        """Return counts for people and metrics."""

    def readiness(self) -> Readiness:
        """Return what keeps the broker from serving clients, and warnings."""


class LinkPort(Protocol):
    """This end of a connection."""

    def send(self, message: Message) -> None:
        """Write a message after those before it."""

    def close(self, reason: str, /) -> None:
        """Close it once all messages sent before are written. Hand in no further input from it."""


class StorePort(Protocol):
    """The writer of the journal."""

    def append(self, append: Append) -> None:
        """Write soon, in order, and call `Host.answered` for each append, in the same order. After
        a refusal refuse all appends until the disk accepts writes; then call `Host.writable`.
        """


class MulticastPort(Protocol):
    """The groups that a broker has joined, and those that it sends to."""

    def cast(self, datagram: Datagram) -> None:
        """Send a datagram to its group. It may be lost, duplicated or late."""

    def tune(self, plan: int, groups: tuple[int, ...]) -> None:
        """Join these groups of a plan, and leave its others."""


class DialPort(Protocol):
    """A port that connects to other brokers."""

    def dial(self, url: str, name: str, /) -> None:
        """Connect, and reconnect after each failure or loss, until `undial`."""

    def undial(self, url: str, /) -> None:
        """Stop connecting there. An open connection stays."""


class ClockPort(Protocol):
    """The time, and one alarm."""

    def moment(self) -> Moment:
        """Return the time, by both clocks."""

    def wake_at(self, at: float) -> None:
        """Call `Host.tick(at)` at that time. It replaces any time requested before."""


class Host:
    """The host of one node, from its start until it stops; `links` are the node's, by number."""

    def __init__(
        self,
        machine: Machine,
        store: StorePort,
        clock: ClockPort,
        report: Callable[[Report], object],
        multicast: MulticastPort | None = None,
        dialing: DialPort | None = None,
    ) -> None:
        self.machine = machine
        self.links: dict[int, LinkPort] = {}
        self.is_running = True
        self._store = store
        self._clock = clock
        self._report = report
        self._multicast = multicast
        self._dialing = dialing
        self._numbers = count(1)
        self.alarm_at = inf
        """When the clock rings."""

    def start(self) -> None:
        """Begin, with the content of the journal."""
        self._perform(self.machine.start(self._clock.moment()))

    def leave(self) -> None:
        """Have paths avoid the broker, before it is closed."""
        self._perform(self.machine.leave(self._clock.moment()))

    def close(self, reason: str) -> None:
        """Close the node and all its links. It is not woken again."""
        self.alarm_at = -inf
        self._perform(self.machine.close(self._clock.moment()))
        for link in self.links.values():
            link.close(reason)
        self.links.clear()

    def stop(self) -> None:
        """Ignore all inputs and effects from now on."""
        self.is_running = False
        self.alarm_at = -inf
        self.links.clear()

    # --- links ---

    def new_link(self) -> int:
        """Return a number for a link, which is never used twice."""
        return next(self._numbers)

    def accept(self, number: int, link: LinkPort, principal: str = "") -> None:
        """Hand in a new connection; `principal` is the name that its transport proves, if any."""
        self.links[number] = link
        self._perform(self.machine.accept(number, self._clock.moment(), principal))

    def dial(self, number: int, link: LinkPort, peer: str = "", url: str = "") -> None:
        """Hand in a connection that was dialed; `peer` is the other broker's name, if known."""
        self.links[number] = link
        self._perform(self.machine.dial(number, self._clock.moment(), peer, url))

    def unreachable(self, url: str, reason: str) -> None:
        """Hand in a failed attempt to connect to an address."""
        if self.is_running:
            self._perform(self.machine.unreachable(url, reason, self._clock.moment()))

    def reachable_at(self, url: str) -> None:
        """Announce the address at which others can reach this broker; empty for none."""
        self._perform(self.machine.reachable_at(url, self._clock.moment()))

    def receive(self, number: int, message: Message, *, up_to: int | None = None) -> None:
        """Hand in a message. A divisible one may be handed in several times, each time with its
        rows up to `up_to`; None stands for all remaining rows.
        """
        if self.is_running:
            at = self._clock.moment()
            self._perform(self.machine.receive(number, message, at, up_to=up_to))

    def illegal(self, number: int, error: IllegalMessage) -> None:
        """Hand in bytes that are no message."""
        if number in self.links:
            self._perform(self.machine.illegal(number, error, self._clock.moment()))

    def lost(self, number: int) -> bool:
        """Hand in the loss of a connection; return whether the node knew it until now."""
        if self.links.pop(number, None) is None:
            return False
        self._perform(self.machine.lost(number, self._clock.moment()))
        return True

    def receive_datagram(self, datagram: Datagram) -> None:
        """Hand in a datagram."""
        if self.is_running:
            self._perform(self.machine.receive_datagram(datagram, self._clock.moment()))

    # --- store and clock ---

    def answered(self, ticket: int, reason: str | None) -> None:
        """Hand in the outcome of an `Append`: a reason if it could not be written."""
        if self.is_running:
            at = self._clock.moment()
            if reason is None:
                self._perform(self.machine.stored(ticket, at))
            else:
                self._perform(self.machine.failed(ticket, reason, at))

    def writable(self) -> None:
        """Hand in that the store accepts writes, after one that it refused."""
        if self.is_running:
            self._perform(self.machine.writable(self._clock.moment()))

    def keep(self, record: Record, answered: Answered) -> None:
        """Store or delete a record for a front; `answered` is called with the outcome."""
        if self.is_running:
            self._perform(self.machine.keep(record, answered, self._clock.moment()))
        else:
            answered("the broker is stopping")

    def tick(self, due: float) -> None:
        """Wake the node. The clock calls this at `due`, the time that was requested."""
        if due == self.alarm_at:  # any other alarm has been replaced
            self.alarm_at = inf
            at = self._clock.moment()
            # A clock may ring early by its resolution, and the node may want a later time by now.
            self._perform(self.machine.tick(at) if self.machine.wake_at <= at.now else ())

    # --- effects ---

    def _perform(self, effects: Sequence[Effect]) -> None:
        links = self.links
        fault: Exception | None = None
        for effect in effects:
            try:
                if type(effect) is Send:
                    link = links.get(effect.link)
                    if link is not None:
                        link.send(effect.message)
                elif type(effect) is Append:
                    self._store.append(effect)
                elif type(effect) is Close:
                    closed = links.pop(effect.link, None)
                    if closed is not None:
                        closed.close(effect.reason)
                elif type(effect) is Report:
                    self._report(effect)
                else:
                    self._to_ports(effect)
            except Exception as error:  # noqa: BLE001  # raised after the other effects
                fault = fault or error
        # A later time needs no call of the clock: the alarm then rings early, and sets the next.
        wake_at = self.machine.wake_at
        if wake_at < self.alarm_at:
            self.alarm_at = wake_at
            self._clock.wake_at(wake_at)
        if fault is not None:
            raise fault

    def _to_ports(self, effect: Effect) -> None:
        """Carry out an effect that only some hosts have a port for."""
        multicast, dialing = self._multicast, self._dialing
        if multicast is not None and isinstance(effect, Cast):
            multicast.cast(effect.datagram)
        elif multicast is not None and isinstance(effect, Tune):
            multicast.tune(effect.plan, effect.groups)
        elif dialing is not None and isinstance(effect, Dial):
            dialing.dial(effect.url, effect.name)
        elif dialing is not None and isinstance(effect, StopDialing):
            dialing.undial(effect.url)


def numbered_ids(prefix: str) -> Callable[[], str]:
    """Return a source of session names, for simulations and tests; `prefix` is a broker's name and
    its incarnation. A server draws random names, which cannot be guessed.

    >>> new_id = numbered_ids("b1-2")
    >>> new_id(), new_id()
    ('b1-2-1', 'b1-2-2')
    """
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"
