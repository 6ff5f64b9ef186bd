"""Several brokers in one process, for the tests of applications: real nodes and frames, no sockets.

    async with palio.testing.Network("line:3") as net:
        alice = await net.connect("b1", name="alice")
        ...
        net.kill("b2")
        net.restart("b2")
        net.cut("b1", "b2")

Links and clients' connections can be slowed, cut and healed; brokers can be killed and started
again with what their journals hold. Time is that of the event loop: under `run`, or in a loop made
by `VirtualLoop`, it jumps to the next moment at which something happens, so that a test of a minute
of heartbeats takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

import palio.client.connection
from palio.client.connection import Client
from palio.client.transport import Dial, Receiver, Wire
from palio.errors import InvalidInput
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.node.authority import Authority, OpenAuthority
from palio.node.effects import Report
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.messages import Message
from palio.routing.algorithms import Algorithm, GraphKind, find_algorithm
from palio.routing.protocol import Router
from palio.simulation.agenda import US, Action
from palio.simulation.cluster import Cluster
from palio.simulation.computers import AccessPolicy
from palio.simulation.disks import Disk
from palio.simulation.medium import Medium
from palio.simulation.pipes import End
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, parse_topology

Result = TypeVar("Result")

DAWN_US: Final = 1_767_225_600_000_000
"""The wall clock when the loop's clock is 0: the first moment of 2026."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when there is nothing else to do.

    >>> async def main() -> float:
    ...     await asyncio.sleep(3600)
    ...     return asyncio.get_running_loop().time()
    >>> run(main())
    3600.0
    """

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.now = 0.0

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    """A selector that lets time pass instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout if timeout is None else 0)
        if not events and timeout is not None and timeout > 0:
            self._loop.now += timeout
        return events


DEFAULTS: Final = Settings(discovery=True)
"""The settings of `palio serve`: a broker that loses a neighbour discovers others."""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Network:
    """Brokers and their links.

    `topology` is a text such as `line:3`, `ring:4`, `star:5`, `tree:7` or `grid:2x3`, or a
    `simulation.Topology`; brokers are called `b1`, `b2` and so on. Everything takes `delay_s` on
    every link, and a journal takes `disk_s` to have written. `routing` is the name of one of
    `palio.routing.algorithms`; in a hierarchy a link's first end is above the second, and with
    `proxies` the broker that is no second end is the root. With `Settings(multicast=True)` brokers
    have a multicast way, the `medium`.

    >>> async def main() -> dict[str, object]:
    ...     async with Network("line:3") as net:
    ...         alice, bob = await net.connect("b1"), await net.connect("b3")
    ...         cheap = await bob.subscribe("price < 10")
    ...         await cheap.settled()
    ...         await alice.publish({"price": 9})
    ...         return dict(await cheap.receive())
    >>> run(main())
    {'price': 9}
    """

    def __init__(
        self,
        topology: str | Topology = "line:1",
        *,
        delay_s: float = 0.001,
        disk_s: float = 0.001,
        settings: Settings | None = None,
        authority: Authority | None = None,
        routing: str | Algorithm = "general",
        matcher: Callable[[], Matcher] = Reference,
        seed: int = 1,
    ) -> None:
        if isinstance(topology, str):
            topology = parse_topology(topology, Randomness(seed))
        algorithm = find_algorithm(routing) if isinstance(routing, str) else routing
        _check_shape(algorithm, topology)
        self.topology = topology
        self._agenda = _LoopAgenda()
        self._cluster = Cluster(
            self._agenda,
            settings=replace(settings or DEFAULTS, routing=algorithm.name),
            latency_s=delay_s,
            sync_s=disk_s,
            epoch_us=DAWN_US,
            matcher=matcher,
            access=AccessPolicy(authority=lambda _: authority or OpenAuthority()),
            seed=seed,
        )
        self._algorithm = algorithm
        parents = {below: above for above, below in topology.edges}
        for name in topology.brokers:
            self._install(name, parents.get(name, ""))
        for edge in topology.edges:
            self._cluster.connect(*edge)
        self._matcher = matcher
        self._seed = seed
        self._clients: list[Client] = []
        self._has_changed = asyncio.Event()
        self._cluster.changed = self._has_changed.set

    def __repr__(self) -> str:
        return f"<Network of {len(self.topology.brokers)} brokers>"

    async def __aenter__(self) -> Self:
        for name in self.topology.brokers:
            self.restart(name)
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        for name in self.topology.brokers:
            self.kill(name)
        self._agenda.clear()

    @property
    def delay_s(self) -> float:
        """The latency of a link that `delay` has not set."""
        return self._cluster.latency_us / US

    @delay_s.setter
    def delay_s(self, seconds: float) -> None:
        self._cluster.latency_us = round(seconds * US)

    @property
    def disk_s(self) -> float:
        """The time that a journal takes to sync."""
        return self._cluster.sync_us / US

    @disk_s.setter
    def disk_s(self, seconds: float) -> None:
        self._cluster.sync_us = round(seconds * US)

    @property
    def reports(self) -> list[tuple[str, Report]]:
        """Log events of the brokers, each with its broker's name."""
        return self._cluster.reports

    @property
    def spoils(self) -> Callable[[str, Message], bool]:
        """A predicate that picks messages, by sender, which arrive as unreadable bytes."""
        return self._cluster.spoils

    @spoils.setter
    def spoils(self, spoils: Callable[[str, Message], bool]) -> None:
        self._cluster.spoils = spoils

    @property
    def medium(self) -> Medium:
        """The carrier of datagrams: its weather and its faults may be set."""
        return self._cluster.medium

    # --- clients ---

    async def connect(self, broker: str, *others: str, name: str = "", **options: Any) -> Client:
        """A client of a broker (and of others, should it fail); closed with the network.

        Options are those of `palio.connect`.
        """
        return await self.client(broker, *others, name=name, **options)

    def client(self, broker: str, *others: str, name: str = "", **options: Any) -> Client:
        """Make a client that is not connected yet."""
        name = name or f"client-{len(self._clients) + 1}"
        given = {"matcher": self._matcher(), "seed": self._seed + len(self._clients), **options}
        urls = [self._known(node) for node in (broker, *others)]
        client = palio.client.connection.connect(urls, name=name, dial=self.dial(name), **given)
        self._clients.append(client)
        return client

    def dial(self, name: str) -> Dial:
        """Make the dialer of a client of that name: `palio.connect(..., dial=...)`."""

        async def dial(url: str, receiver: Receiver) -> Wire:
            broker = self._cluster.broker_at(url) or self._known(url.removeprefix("palio://"))
            await asyncio.sleep(self._cluster.delay_us(name, broker) / US)
            end = self._cluster.open_end(name, broker)
            if end is None:
                raise ConnectionRefusedError(f"{broker} does not answer")
            end.reader = receiver
            return _Wire(end)

        return dial

    def add(self, broker: str, *neighbours: str) -> None:
        """Add a broker linked to others; in a hierarchy the first of them is above it."""
        if broker in self._cluster.disks:
            raise InvalidInput(f"there is a broker {broker!r} already; choose another name")
        edges = tuple((self._known(neighbour), broker) for neighbour in neighbours)
        topology = Topology((*self.topology.brokers, broker), (*self.topology.edges, *edges))
        _check_shape(self._algorithm, topology)
        self.topology = topology
        self._install(broker, *neighbours[:1])
        self.restart(broker)
        for edge in edges:
            self._cluster.connect(*edge)

    def _install(self, broker: str, above: str = "") -> None:
        def router(name: str) -> Router:
            incarnation = self._cluster.wall_us
            return self._algorithm.new_assembling(
                name, incarnation=incarnation, has_parent=bool(above)
            )

        parent = above if self._algorithm.has_parents else ""
        self._cluster.install(broker, router, Disk(), parent)

    # --- faults ---

    def kill(self, broker: str) -> None:
        """Kill a broker; unwritten journal entries are lost."""
        if self._known(broker) in self._cluster.nodes:
            self._cluster.kill(broker)

    def leave(self, broker: str) -> None:
        """Drain a broker: it sends its clients elsewhere, and paths avoid it."""
        self._cluster.host(self._known(broker)).leave()

    def restart(self, broker: str) -> None:
        """Start a broker from its journal."""
        if self._known(broker) not in self._cluster.nodes:
            self._cluster.start(broker)

    def cut(self, one: str, other: str) -> None:
        """Break the connection between two brokers, or a client and a broker, until `heal`."""
        self._cluster.cut(one, other)

    def drop(self, one: str, other: str) -> None:
        """Break a connection; it may be reopened at once."""
        self._cluster.drop(one, other)

    def heal(self, one: str, other: str) -> None:
        """Undo `cut`."""
        self._cluster.heal(one, other)

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Set the delay between two ends."""
        self._cluster.delay(one, other, seconds)

    # --- inspection ---

    def node(self, broker: str) -> Node:
        """Return a running broker."""
        node = self._cluster.nodes.get(self._known(broker))
        if node is None:
            raise InvalidInput(f"the broker {broker!r} does not run; restart it")
        return node

    def store(self, broker: str) -> MemoryStore:
        """Return a broker's written journal."""
        return self._cluster.disks[self._known(broker)].synced

    async def up(self) -> None:
        """Wait until all links between running brokers, except cut ones, are up."""
        while not all(self._is_linked(*edge) for edge in self.topology.edges):
            self._has_changed.clear()
            await self._has_changed.wait()

    def _is_linked(self, one: str, other: str) -> bool:
        cluster = self._cluster
        if cluster.is_cut(one, other) or not {one, other} <= cluster.nodes.keys():
            return True
        return cluster.is_linked(one, other)

    def _known(self, broker: str) -> str:
        """The broker's name, if there is one."""
        if broker not in self._cluster.disks:
            listed = ", ".join(self.topology.brokers)
            raise InvalidInput(f"there is no broker {broker!r}; there are {listed}")
        return broker


def _check_shape(algorithm: Algorithm, topology: Topology) -> None:
    """Refuse a network that an algorithm does not support: it would deliver nothing."""
    if algorithm.graph is GraphKind.ALONE and len(topology.brokers) > 1:
        raise InvalidInput(f"{algorithm.name} is for one broker; make the topology line:1")
    if algorithm.graph is GraphKind.TREE and not topology.is_tree:
        raise InvalidInput(f"{algorithm.name} needs a tree; choose general, or another topology")


class _Wire:
    """A client's end of a connection (see `client.transport.Wire`)."""

    def __init__(self, end: End) -> None:
        self.send = end.send
        self._end = end

    def close(self) -> None:
        """Close behind what was sent before, which still arrives (`Wire`)."""
        self._end.close()

    def flush(self) -> None:
        """Do nothing: messages are sent at once (`Wire`)."""

    async def wait_closed(self) -> None:
        """Return at once (`Wire`)."""


class _LoopAgenda:
    """Plans actions on the clock of the event loop (see `simulation.pipes.Planner`)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Action]] = []
        self._sequence = 0

    @property
    def now_us(self) -> int:
        """The loop's time in microseconds."""
        return round(asyncio.get_running_loop().time() * US)

    def at(self, time_us: int, priority: int, action: Action) -> None:
        """Plan an action."""
        heappush(self._heap, (time_us, priority, self._sequence, action))
        self._sequence += 1
        asyncio.get_running_loop().call_at(time_us / US, self._act)

    def _act(self) -> None:
        # The loop does not keep the order of timers of one moment; the heap does.
        if self._heap:
            heappop(self._heap)[-1]()

    def clear(self) -> None:
        """Cancel all planned actions."""
        self._heap.clear()
