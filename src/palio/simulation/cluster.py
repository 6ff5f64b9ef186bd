"""`Cluster`: whole brokers with their disks, and the links between them, in one process.

It drives the same `Node` that the server runs, each in a `Host`. Messages travel as frames, through
the real codec. Links break and heal; brokers are killed and restart from their disks. The planner
gives the time: virtual in a `World`, that of the event loop in `palio.testing`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from palio.errors import InvalidInput
from palio.matching.protocol import Matcher
from palio.node.effects import Report
from palio.node.host import Host
from palio.node.node import Node
from palio.node.settings import Outside, Settings
from palio.protocol.addresses import DEFAULT_PORT, Address
from palio.protocol.messages import Message
from palio.routing.protocol import Router
from palio.simulation.agenda import TIMER, US
from palio.simulation.computers import AccessPolicy, SimulatedMachine, Workers
from palio.simulation.disks import Disk
from palio.simulation.medium import Medium
from palio.simulation.pipes import End, Pipe, Planner, Surface
from palio.simulation.randomness import Randomness

NodeRouter: TypeAlias = Callable[[str], Router]

REDIAL_US: Final = US // 5
"""Wait of a broker before it dials a neighbour again."""

CALL_AGAIN_US: Final = US
"""Wait before a broker dials an address of its node again."""


def address_of(broker: str) -> str:
    """Return the URL of a simulated broker.

    >>> address_of("b1")
    'palio://b1:7400'
    """
    return str(Address(broker.lower(), DEFAULT_PORT, is_secure=False))


class Cluster:
    """Brokers and links. `World` adds a clock and clients, `palio.testing` the application's."""

    def __init__(
        self,
        planner: Planner,
        *,
        settings: Settings | None,
        latency_s: float,
        sync_s: float,
        epoch_us: int,
        matcher: Callable[[], Matcher],
        access: AccessPolicy,
        seed: int = 0,
    ) -> None:
        self.planner = planner
        self.latency_us = round(latency_s * US)
        self.settings = settings or Settings()
        self.sync_us = round(sync_s * US)
        self.epoch_us = epoch_us
        self.access = access
        self.medium = Medium(planner, Randomness(seed).branch(), latency_s=latency_s)
        """Carries datagrams, if the settings have multicast."""
        self.nodes: dict[str, Node] = {}
        """The running brokers."""
        self.disks: dict[str, Disk] = {}
        self.reports: list[tuple[str, Report]] = []
        """Reports, each with the name of its broker."""
        self.changed: Callable[[], object] = lambda: None
        """Called when a connection is first used, or closes."""
        self._matcher = matcher
        self._routers: dict[str, NodeRouter] = {}
        self._places: dict[str, tuple[str, Outside | None]] = {}
        self._computers: dict[str, SimulatedMachine] = {}
        self._wires: dict[tuple[str, str], None] = {}
        """Brokers that are linked: the first dials the second."""
        self.addresses: dict[str, str] = {}
        """The URL that each broker advertises as its own; it need not be right."""
        self._calls: dict[tuple[str, str], None] = {}
        """Pairs of a broker and an address that its node dials."""
        self.spoils: Callable[[str, Message], bool] = lambda _sender, _message: False
        """A predicate that picks messages to arrive as unreadable bytes."""
        self._pipes: dict[Pipe, None] = {}
        """The open connections, in order of opening."""
        self._cut: dict[frozenset[str], None] = {}
        self._delays_us: dict[frozenset[str], int] = {}
        self._held_us: dict[tuple[str, str], int] = {}
        """By sender and receiver, the time until which messages are held."""

    @property
    def wall_us(self) -> int:
        """The wall-clock time."""
        return self.epoch_us + self.planner.now_us

    # --- brokers ---

    def install(
        self,
        name: str,
        router: NodeRouter,
        disk: Disk,
        parent: str = "",
        outside: Outside | None = None,
    ) -> None:
        """Add a broker, not running yet, with its parent in a hierarchy; a gateway by `outside`."""
        self._routers[name] = router
        self._places[name] = parent, outside
        self.addresses[name] = address_of(name)
        self.disks[name] = disk
        self._computers[name] = SimulatedMachine(
            name,
            self.planner,
            disk,
            sync_us=lambda: self.sync_us,
            epoch_us=self.epoch_us,
            medium=self.medium if self.settings.multicast else None,
            dialing=_Dialing(self, name),
        )

    def start(self, name: str) -> None:
        """Start a broker from its disk."""
        if name in self.nodes:
            raise InvalidInput(f"{name} is running already; kill it first")
        if name not in self._computers:
            raise InvalidInput(f"there is no broker {name!r}; install it")
        self._computers[name].disk = self.disks[name]
        self.nodes[name] = self._computers[name].start(
            partial(self._node, name), lambda report: self.reports.append((name, report))
        )
        if self.settings.discovery:
            self.host(name).reachable_at(self.addresses[name])
        for one, other in self._wires:
            if name in (one, other):
                self._dial(one, other)

    def _node(self, name: str, new_id: Callable[[], str]) -> Node:
        parent, outside = self._places[name]
        return Node(
            name,
            self._routers[name](name),
            self.disks[name],
            settings=replace(self.settings, parent=parent, outside=outside),
            authority=self.access.authority(name),
            identity=self.access.identity(name),
            new_id=new_id,
            matcher=self._matcher,
        )

    def share(self, workers: Workers) -> None:
        """Have workers run all actions of the brokers from now on."""
        for computer in self._computers.values():
            computer.workers = workers

    def pause(self, name: str, seconds: float) -> None:
        """Pause a broker; its inputs wait until it resumes."""
        self.host(name)  # refuses one that does not run
        self._computers[name].pause(seconds)

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set a broker's wall clock ahead of the true time."""
        self._computers[name].ahead_us = round(ahead_s * US)

    def wall_of(self, name: str) -> int:
        """Return the time by a broker's wall clock."""
        return self._computers[name].moment().wall_us

    def kill(self, name: str) -> None:
        """Kill a broker; its disk keeps an arbitrary part of the unsynced writes."""
        self.host(name)  # refuses one that does not run
        del self.nodes[name]
        self._computers[name].kill()
        self._calls = {call: None for call in self._calls if call[0] != name}
        for pipe in [pipe for pipe in self._pipes if name in pipe.names]:
            pipe.break_off()

    def host(self, name: str) -> Host:
        """Return the host of a broker that runs."""
        host = self._computers[name].host if name in self._computers else None
        if host is None:
            raise InvalidInput(f"the broker {name!r} does not run; start it")
        return host

    # --- links ---

    def connect(self, one: str, other: str) -> None:
        """Link two brokers: the first dials, and redials when the link breaks."""
        self._wires[one, other] = None
        self._dial_again(one, other)

    def disconnect(self, one: str, other: str) -> bool:
        """Stop the first from dialling the second again; return whether it would have."""
        is_dialled = (one, other) in self._wires
        self._wires.pop((one, other), None)
        return is_dialled

    def calls(self, one: str, url: str) -> bool:
        """Return whether a broker dials an address because its node wants it to."""
        return (one, url) in self._calls

    def call(self, one: str, url: str) -> None:
        """Have a broker dial an address, and redial when that fails or the connection breaks."""
        if (one, url) not in self._calls:
            self._calls[one, url] = None
            self.planner.at(self.planner.now_us, TIMER, partial(self._call, one, url))

    def end_call(self, one: str, url: str) -> None:
        """Have a broker stop dialling an address."""
        if (one, url) in self._calls:
            del self._calls[one, url]
        else:
            self._wires.pop((one, self.broker_at(url)), None)

    def _call(self, one: str, url: str) -> None:
        if (one, url) not in self._calls or one not in self.nodes:
            return
        other = self.broker_at(url)
        if not self._between(one, other):
            end = self.open_end(one, other)
            if end is None:
                self._computers[one].unreachable(url, "nobody answers")
            else:
                self._computers[one].dial(end, "", url)
        again = self.planner.now_us + CALL_AGAIN_US
        self.planner.at(again, TIMER, partial(self._call, one, url))

    def broker_at(self, url: str) -> str:
        """Return the broker at an address; empty if there is none."""
        return next((disk for disk in self.disks if address_of(disk) == url), "")

    # --- connections, and their faults ---

    def hold(self, sender: str, receiver: str, seconds: float) -> None:
        """Hold messages of one direction, and refuse connections, for some seconds. Held messages
        arrive then.
        """
        direction = sender, receiver
        until = self.planner.now_us + round(seconds * US)
        self._held_us[direction] = max(until, self._held_us.get(direction, 0))
        for wire in (direction, (receiver, sender)):
            self.planner.at(until, TIMER, partial(self._dial_again, *wire))

    def heal(self, one: str, other: str) -> None:
        """Repair a link."""
        self._cut.pop(frozenset((one, other)), None)
        for wire in ((one, other), (other, one)):
            self._dial_again(*wire)

    def open_end(self, name: str, broker: str) -> End | None:
        """Open a connection to a broker; return the caller's end, or None if it is unreachable."""
        if broker not in self.nodes or self.is_cut(name, broker):
            return None
        surface = Surface(
            self.planner,
            self._way_us,
            self._is_spoilt,
            self._changed,
        )
        pipe = Pipe(name, broker, surface)
        self._pipes[pipe] = None
        self._computers[broker].accept(pipe.ends[1])
        return pipe.ends[0]

    def cut(self, one: str, other: str) -> None:
        """Cut a link, between brokers or a client and a broker, until `heal`."""
        self._cut[frozenset((one, other))] = None
        self.drop(one, other)

    def drop(self, one: str, other: str) -> None:
        """Break a connection; it may be reopened at once."""
        for pipe in self._between(one, other):
            pipe.break_off()

    def half_open(self, one: str, other: str) -> None:
        """Break a connection, but notify only the first end."""
        for pipe in self._between(one, other):
            pipe.half_open(pipe.names.index(one))

    def damage(self, sender: str, receiver: str) -> None:
        """Flip a bit of the next message of one direction."""
        for pipe in self._between(sender, receiver):
            pipe.damage(pipe.names.index(receiver))

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Set the delay between two ends."""
        self._delays_us[frozenset((one, other))] = round(seconds * US)

    def delay_us(self, one: str, other: str) -> int:
        """Return the delay between two ends."""
        return self._delays_us.get(frozenset((one, other)), self.latency_us)

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether new connections between two ends fail."""
        held = max(self._held_for(one, other), self._held_for(other, one))
        return frozenset((one, other)) in self._cut or held > 0

    def _held_for(self, sender: str, receiver: str) -> int:
        return max(0, self._held_us.get((sender, receiver), 0) - self.planner.now_us)

    def _way_us(self, sender: str, receiver: str) -> int:
        return max(self.delay_us(sender, receiver), self._held_for(sender, receiver))

    def is_linked(self, one: str, other: str) -> bool:
        """Return whether two ends have received from each other through an open connection."""
        return any(pipe.is_open and pipe.is_used for pipe in self._between(one, other))

    def _between(self, one: str, other: str) -> list[Pipe]:
        return [pipe for pipe in self._pipes if pipe.joins(one, other)]

    def _is_spoilt(self, sender: str, message: Message) -> bool:
        return self.spoils(sender, message)

    def _dial(self, one: str, other: str) -> None:
        end = self.open_end(one, other) if one in self.nodes else None
        if end is not None:
            self._computers[one].dial(end, other)

    def _dial_again(self, one: str, other: str) -> None:
        if (one, other) in self._wires and not self._between(one, other):
            self._dial(one, other)

    def _changed(self, pipe: Pipe) -> None:
        """Handle a pipe that was first used, or has closed: linked brokers redial."""
        self.changed()
        if not pipe.is_open:
            del self._pipes[pipe]
            again = self.planner.now_us + REDIAL_US
            for wire in (pipe.names, pipe.names[::-1]):  # the other end may have dialled as well
                if wire in self._wires:
                    self.planner.at(again, TIMER, partial(self._dial_again, *wire))


class _Dialing(NamedTuple):
    """Dials for one node (`palio.node.host.DialPort`)."""

    cluster: Cluster
    broker: str

    def dial(self, url: str, _name: str, /) -> None:
        self.cluster.call(self.broker, url)

    def undial(self, url: str, /) -> None:
        self.cluster.end_call(self.broker, url)
