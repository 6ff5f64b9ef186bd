"""`SimulatedMachine`: the machine of a simulated broker: its disk, its clock, and its processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from palio.node.authority import Authority, OpenAuthority
from palio.node.effects import Moment, Report
from palio.node.host import DialPort, Host, Machine, numbered_ids
from palio.node.identity import NOBODY, Identity
from palio.node.operations import Append
from palio.simulation.agenda import MESSAGE, TIMER, US, to_us_rounded_up
from palio.simulation.disks import Disk
from palio.simulation.medium import Medium
from palio.simulation.pipes import End, HeldEnd, Planner


class AccessPolicy(NamedTuple):
    """The authority and credentials of each broker, and the token of each client, by name.

    By default everybody may do everything.

    >>> AccessPolicy().identity("b1").token
    ''
    """

    authority: Callable[[str], Authority] = lambda _: OpenAuthority()
    """The authority of a broker, which decides about each connection."""
    identity: Callable[[str], Identity] = lambda _: NOBODY
    """Credentials of a broker."""
    token: Callable[[str], str] = lambda _: ""
    """Token of a client."""


PROBE_US: Final = US
"""Time between checks of a disk that refuses writes."""

Started = TypeVar("Started", bound=Machine)


Action: TypeAlias = Callable[[], object]


class Workers(Protocol):
    """Processors that computers share, so that each action takes time and waits its turn."""

    def do(self, name: str, action: Action) -> None:
        """Run an action of a computer after all those before it."""

    def forget(self, name: str) -> None:
        """Drop the actions of a computer that was killed."""


class SimulatedMachine:
    """One broker's ports (`node.host.StorePort`, `ClockPort`). They are one host's at a time.

    Where there is a `medium`, each incarnation has a port of it.
    """

    def __init__(
        self,
        name: str,
        planner: Planner,
        disk: Disk,
        *,
        sync_us: Callable[[], int],
        epoch_us: int,
        medium: Medium | None = None,
        dialing: DialPort | None = None,
    ) -> None:
        self.name = name
        self.disk = disk
        self.host: Host | None = None
        """The host; None while the broker does not run."""
        self.workers: Workers | None = None
        """Shared processors; without them, work takes no time."""
        self._planner = planner
        self._sync_us = sync_us
        self._epoch_us = epoch_us
        self._medium = medium
        self._dialing = dialing
        self._incarnation = 0
        self.ahead_us = 0
        """Error of its wall clock, ahead of the true time."""
        self._paused_until_us = 0
        self._paused: deque[Callable[[], object]] = deque()
        """Actions deferred by a pause."""
        self._is_probing = False
        self._answered_us = 0
        """Time at which the last append is answered."""

    def start(
        self,
        node: Callable[[Callable[[], str]], Started],
        report: Callable[[Report], object],
    ) -> Started:
        """Begin an incarnation with what is on the disk. `node` makes one that names its sessions
        so.
        """
        self._incarnation += 1
        begun = node(numbered_ids(f"{self.name}-{self._incarnation}"))
        port = None if self._medium is None else self._medium.port(self.name)
        self.host = Host(begun, self, self, report, port, self._dialing)
        if port is not None:
            receive = self.host.receive_datagram
            port.listener = lambda datagram: self._awake(partial(receive, datagram))
        self.host.start()
        return begun

    def kill(self) -> None:
        """Stop at once, as by a kill."""
        if self.host is not None:
            self.host.stop()
            self.host = None
            self._paused.clear()
            self._paused_until_us = 0
            self._is_probing = False  # what waited for the end of a pause is gone
            if self.workers is not None:
                self.workers.forget(self.name)
            self.disk.crash()
            if self._medium is not None:
                self._medium.leave(self.name)

    def pause(self, seconds: float) -> None:
        """Defer all actions for a while, then run them in order."""
        until = self._planner.now_us + round(seconds * US)
        self._paused_until_us = max(until, self._paused_until_us)
        self._planner.at(until, MESSAGE, self._wake)

    def _wake(self) -> None:
        while self._paused and self._planner.now_us >= self._paused_until_us:
            self._paused.popleft()()

    def _awake(self, action: Callable[[], object]) -> None:
        """Run an action as soon as a worker is free."""
        if self.workers is None:
            self._do(action)
        else:
            self.workers.do(self.name, partial(self._do_in, self._incarnation, action))

    def _do_in(self, incarnation: int, action: Callable[[], object]) -> None:
        """Run an action, unless the broker was killed meanwhile."""
        if self.host is not None and self._incarnation == incarnation:
            self._do(action)

    def _do(self, action: Callable[[], object]) -> None:
        """Run an action, after deferred ones during a pause."""
        if self._paused or self._planner.now_us < self._paused_until_us:
            self._paused.append(action)
        else:
            action()

    def accept(self, end: End) -> None:
        """Accept a connection."""
        if self.host is not None:
            number = self.host.new_link()
            end.reader = HeldEnd(self.host, number, self._awake)
            self._awake(partial(self.host.accept, number, end))

    def dial(self, end: End, peer: str, url: str = "") -> None:
        """Take a connection to another broker, with the address if its node dialled it."""
        if self.host is not None:
            number = self.host.new_link()
            end.reader = HeldEnd(self.host, number, self._awake)
            self._awake(partial(self.host.dial, number, end, peer, url))

    def unreachable(self, url: str, reason: str) -> None:
        """Report an address that could not be reached."""
        if self.host is not None:
            self._awake(partial(self.host.unreachable, url, reason))

    # --- the host's ports ---

    def append(self, append: Append) -> None:
        """Write a step, and answer once it is synced."""
        host, is_written = self.host, self.disk.append(append)

        def synced() -> None:
            if host is None or not host.is_running:
                return
            if not is_written:
                host.answered(append.ticket, "the disk is full")
            elif self.disk.holds(append) and self.disk.sync():
                host.answered(append.ticket, None)
            else:
                host.answered(append.ticket, "the disk failed")
            self._probe()

        # In order: a disk that gets faster overtakes nothing.
        at_us = max(self._planner.now_us + self._sync_us(), self._answered_us)
        self._answered_us = at_us
        self._planner.at(at_us, MESSAGE, partial(self._awake, synced))

    def _probe(self) -> None:
        """Check at intervals whether a disk that refused a write takes writes again."""
        if self._is_probing or not self.disk.is_refusing:
            return
        self._is_probing = True

        def probe() -> None:
            self._is_probing = False
            host = self.host
            if host is not None and self.disk.takes_writes():  # behind what was refused
                at_us = max(self._planner.now_us, self._answered_us)
                self._planner.at(at_us, MESSAGE, partial(self._awake, host.writable))
            self._probe()

        self._planner.at(self._planner.now_us + PROBE_US, TIMER, partial(self._awake, probe))

    def moment(self) -> Moment:
        """Return the time by both clocks."""
        now_us = self._planner.now_us
        return Moment(now_us / US, self._epoch_us + self.ahead_us + now_us)

    def wake_at(self, at: float) -> None:
        """Plan a wake-up. Alarms that were replaced have no effect."""
        host = self.host
        if host is not None:
            rings = partial(self._awake, partial(host.tick, at))
            self._planner.at(max(self._planner.now_us, to_us_rounded_up(at)), TIMER, rings)
