"""`Host`: what stands round a node and carries out what it wants done (docs/concepts/node.md).

```
  links, store, clock --what happened--> Host --(..., moment)--> Node
        ^                                  |  <---- effects, in order
        +-- send, close, append, wake_at --+
```

1. The node is called for one thing at a time, and its effects are carried out before the next. So
   no port may call the host back while it is called itself: what it has to say, it says later.
2. The node asks to be woken by `wake_at`. The clock rings at the earliest time that was asked for.
3. A host that was stopped does nothing any more. A broker that starts again gets a new host, so
   what was still under way for the old one reaches nobody.

4. A broker without a multicast way has no `MulticastPort`; its node casts nothing. One that nobody
   dials for has no `DialPort`.

The server, the simulated world and `palio.testing` differ only in the ports.
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
    Tune,
    Undial,
)
from palio.node.operations import Append, Record
from palio.protocol.messages import Message


class Machine(Protocol):
    """A node, as its host sees it (`palio.node.node.Node`)."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def wake_at(self) -> float:
        """When it next wants `tick`."""

    def start(self, at: Moment) -> Sequence[Effect]:
        """Once, before anything else."""

    def accept(self, link: int, at: Moment, principal: str = "") -> Sequence[Effect]:
        """Someone connected."""

    def dial(self, link: int, at: Moment, peer: str = "", url: str = "") -> Sequence[Effect]:
        """We connected to a broker at an address; `peer` is its name, if that is known already."""

    def unreachable(self, url: str, reason: str, at: Moment) -> Sequence[Effect]:
        """Nobody could be connected to at an address, this time."""

    def reachable_at(self, url: str, at: Moment) -> Sequence[Effect]:
        """Where others can reach this broker; empty if they cannot."""

    def receive(
        self, link: int, message: Message, at: Moment, *, up_to: int | None = None
    ) -> Sequence[Effect]:
        """A message came; if it is handed in by and by, its rows `up_to` there are due."""

    def illegal(self, link: int, error: IllegalMessage, at: Moment) -> Sequence[Effect]:
        """Bytes came that are no message."""

    def lost(self, link: int, at: Moment) -> Sequence[Effect]:
        """A connection broke."""

    def principal(self, link: int) -> Principal:
        """The principal at the other end of a connection that was greeted."""

    def heard(self, datagram: Datagram, at: Moment) -> Sequence[Effect]:
        """A datagram came that a broker of the network has sent."""

    def stored(self, ticket: int, at: Moment) -> Sequence[Effect]:
        """An `Append` is on the disk."""

    def failed(self, ticket: int, reason: str, at: Moment) -> Sequence[Effect]:
        """An `Append` could not be written; nothing of it was."""

    def writable(self, at: Moment) -> Sequence[Effect]:
        """The journal takes writes again, after one that it refused."""

    def keep(self, record: Record, answered: Answered, at: Moment) -> Sequence[Effect]:
        """A front keeps something, or keeps it no longer."""

    def tick(self, at: Moment) -> Sequence[Effect]:
        """It is `wake_at` or later."""

    def leave(self, at: Moment) -> Sequence[Effect]:
        """Let ways lead round it."""

    @property
    def is_leaving(self) -> bool:
        """True if it is about to go, and takes no clients of fronts."""

    @property
    def is_free_to_go(self) -> bool:
        """True if they do."""

    def close(self, at: Moment) -> Sequence[Effect]:
        """Say goodbye to everybody."""

    def status(self) -> dict[str, Any]:
        """Return counts for people and metrics."""


class LinkPort(Protocol):
    """This end of a connection."""

    def send(self, message: Message) -> None:
        """Write a message after those before it."""

    def close(self, reason: str, /) -> None:
        """Close it once everything before is written. Nothing of it is handed in any more."""


class StorePort(Protocol):
    """The journal, as it is written."""

    def append(self, append: Append) -> None:
        """Write soon, in order. `Host.answered` says what became of each, in the same order. After
        a refusal all is refused until it is tried again; then `Host.writable` is called.
        """


class MulticastPort(Protocol):
    """The groups that a broker has joined, and those that it sends to."""

    def cast(self, datagram: Datagram) -> None:
        """Send to a group what may be lost, doubled or late."""

    def tune(self, plan: int, groups: tuple[int, ...]) -> None:
        """Join these groups of a plan, and leave its others."""


class DialPort(Protocol):
    """A port that connects to other brokers."""

    def dial(self, url: str, name: str, /) -> None:
        """Connect, and again whenever that fails or the connection is lost, until `undial`."""

    def undial(self, url: str, /) -> None:
        """Connect there no more. A connection that stands stays."""


class ClockPort(Protocol):
    """The time, and one alarm."""

    def moment(self) -> Moment:
        """Now, by both clocks."""

    def wake_at(self, at: float) -> None:
        """Call `Host.tick(at)` at that time, and no more at the one that was asked for before."""


class Host:
    """The host of one node, from its start until it stops.

    `links` are those that the node knows, by their numbers.
    """

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
        """Begin, with what the journal holds."""
        self._perform(self.machine.start(self._clock.moment()))

    def leave(self) -> None:
        """Let ways lead round the node, before it is closed."""
        self._perform(self.machine.leave(self._clock.moment()))

    def close(self, reason: str) -> None:
        """Let the node say goodbye, and close all links. It is not woken again."""
        self.alarm_at = -inf
        self._perform(self.machine.close(self._clock.moment()))
        for link in self.links.values():
            link.close(reason)
        self.links.clear()

    def stop(self) -> None:
        """Nothing reaches the node from now on, and nothing is done for it."""
        self.is_running = False
        self.alarm_at = -inf
        self.links.clear()

    # --- links ---

    def new_link(self) -> int:
        """A number for a link, which is never used twice."""
        return next(self._numbers)

    def accept(self, number: int, link: LinkPort, principal: str = "") -> None:
        """Someone connected; `principal` is the name that the transport has proven, if any."""
        self.links[number] = link
        self._perform(self.machine.accept(number, self._clock.moment(), principal))

    def dial(self, number: int, link: LinkPort, peer: str = "", url: str = "") -> None:
        """A connection to a broker was made; `peer` is its name, if that is known already."""
        self.links[number] = link
        self._perform(self.machine.dial(number, self._clock.moment(), peer, url))

    def unreachable(self, url: str, reason: str) -> None:
        """No connection could be made to an address, this time."""
        if self.is_running:
            self._perform(self.machine.unreachable(url, reason, self._clock.moment()))

    def reachable_at(self, url: str) -> None:
        """Where others can reach this broker; empty if they cannot."""
        self._perform(self.machine.reachable_at(url, self._clock.moment()))

    def receive(self, number: int, message: Message, *, up_to: int | None = None) -> None:
        """A message came. One that is divisible may be handed in several times: what is to be
        taken now are its rows `up_to` there, without that all that are left.
        """
        if self.is_running:
            at = self._clock.moment()
            self._perform(self.machine.receive(number, message, at, up_to=up_to))

    def illegal(self, number: int, error: IllegalMessage) -> None:
        """Bytes came that are no message."""
        if number in self.links:
            self._perform(self.machine.illegal(number, error, self._clock.moment()))

    def lost(self, number: int) -> bool:
        """A connection broke. Whether it was one that the node knew until now."""
        if self.links.pop(number, None) is None:
            return False
        self._perform(self.machine.lost(number, self._clock.moment()))
        return True

    def heard(self, datagram: Datagram) -> None:
        """A datagram came."""
        if self.is_running:
            self._perform(self.machine.heard(datagram, self._clock.moment()))

    # --- store and clock ---

    def answered(self, ticket: int, reason: str | None) -> None:
        """An `Append` is on the disk, or could not be written for a reason."""
        if self.is_running:
            at = self._clock.moment()
            if reason is None:
                self._perform(self.machine.stored(ticket, at))
            else:
                self._perform(self.machine.failed(ticket, reason, at))

    def writable(self) -> None:
        """The store takes writes again, after one that it refused."""
        if self.is_running:
            self._perform(self.machine.writable(self._clock.moment()))

    def keep(self, record: Record, answered: Answered) -> None:
        """A front keeps something: see `Machine`."""
        if self.is_running:
            self._perform(self.machine.keep(record, answered, self._clock.moment()))
        else:
            answered("the broker is stopping")

    def tick(self, due: float) -> None:
        """The clock rings, as it was asked to do at `due`."""
        if due == self.alarm_at:
            self.alarm_at = inf
            at = self._clock.moment()
            # A clock may ring too early by a step of its own, and the node may want it later now.
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
            except Exception as error:  # noqa: BLE001  # raised once all else is done
                fault = fault or error
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
        elif dialing is not None and isinstance(effect, Undial):
            dialing.undial(effect.url)


def numbered_ids(prefix: str) -> Callable[[], str]:
    """Names of sessions, for simulations and tests: `prefix` is a broker's name and its life. A
    server draws them at random, so that nobody guesses one.

    >>> new_id = numbered_ids("b1-2")
    >>> new_id(), new_id()
    ('b1-2-1', 'b1-2-2')
    """
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"
