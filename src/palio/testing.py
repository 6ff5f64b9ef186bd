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
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Self, TypeVar

import palio.client.connection
from palio.client.connection import Client
from palio.client.transport import Dial, Ear, Wire
from palio.errors import IllegalMessage, InvalidInput
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.node.authority import Authority
from palio.node.effects import Append, Close, Effect, Moment, Report, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.settings import Settings
from palio.protocol.messages import Message
from palio.protocol.wire import UNREADABLE, Decoder, Encoder
from palio.routing.general import General
from palio.routing.protocol import Router
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, parse_topology

__all__ = ["Network", "VirtualLoop", "run"]

Result = TypeVar("Result")

DAWN_US: Final = 1_767_225_600_000_000
"""The wall clock when the loop's clock is 0: the first moment of 2026."""

REDIAL_S: Final = 0.1
"""How long a broker waits before it dials a neighbour again."""


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
        found = super().select(timeout if timeout is None else 0)
        if not found and timeout is not None and timeout > 0:
            self._loop.now += timeout
        return found


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Network:
    """Brokers and their links.

    `topology` is a text such as `line:3`, `ring:4`, `star:5`, `tree:7` or `grid:2x3`, or a
    `simulation.Topology`; brokers are called `b1`, `b2` and so on. Everything takes `delay_s` on
    every link, and a journal takes `disk_s` to have written.

    >>> async def main() -> dict[str, object]:
    ...     async with Network("line:3") as net:
    ...         alice, bob = await net.connect("b1"), await net.connect("b3")
    ...         heard = await bob.subscribe("price < 10")
    ...         await heard.settled()
    ...         await alice.publish({"price": 9})
    ...         return dict(await heard.receive())
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
        router: Callable[[str], Router] = General,
        matcher: Callable[[], Matcher] = Reference,
        seed: int = 1,
    ) -> None:
        if isinstance(topology, str):
            topology = parse_topology(topology, Randomness(seed))
        self.topology = topology
        self.delay_s = delay_s
        self.disk_s = disk_s
        self.reports: list[tuple[str, Report]] = []
        """What brokers said to people, with who said it."""
        self.spoils: Callable[[str, Message], bool] = lambda _sender, _message: False
        """What, of all that a broker or client sends, arrives as bytes that nobody can read."""
        self._settings = settings
        self._authority = authority
        self._router = router
        self._matcher = matcher
        self._seed = seed
        self._clients: list[Client] = []
        self._cut: set[frozenset[str]] = set()
        self._delays: dict[frozenset[str], float] = {}
        self._pipes: set[_Pipe] = set()
        self._is_up = asyncio.Event()
        self._brokers = {name: _Broker(self, name) for name in topology.brokers}

    def __repr__(self) -> str:
        return f"<Network of {len(self.topology.brokers)} brokers>"

    async def __aenter__(self) -> Self:
        for name in self._brokers:
            self.restart(name)
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        for broker in self._brokers.values():
            broker.kill()

    # --- clients ---

    async def connect(self, broker: str, *others: str, name: str = "", **options: Any) -> Client:
        """A client of a broker (and of others, should it fail); closed with the network.

        Options are those of `palio.connect`.
        """
        return await self.client(broker, *others, name=name, **options)

    def client(self, broker: str, *others: str, name: str = "", **options: Any) -> Client:
        """A client that is not connected yet."""
        name = name or f"client-{len(self._clients) + 1}"
        given = {"matcher": self._matcher(), "seed": self._seed + len(self._clients), **options}
        urls = [self._known(each).name for each in (broker, *others)]
        client = palio.client.connection.connect(urls, name=name, dial=self.dial(name), **given)
        self._clients.append(client)
        return client

    def dial(self, name: str) -> Dial:
        """How somebody of that name opens connections here: `palio.connect(..., dial=...)`."""

        async def dial(url: str, ear: Ear) -> Wire:
            broker = self._known(url.removeprefix("palio://"))
            await asyncio.sleep(self._delay(name, broker.name))
            if broker.node is None or self.is_cut(name, broker.name):
                raise ConnectionRefusedError(f"{broker.name} does not answer")
            pipe = _Pipe(self, name, broker.name)
            pipe.ends[0].hears(ear.arrived, ear.lost)
            pipe.ends[0].illegal = ear.illegal
            broker.accept(pipe.ends[1])
            return pipe.ends[0]

        return dial

    # --- faults ---

    def kill(self, broker: str) -> None:
        """Stop a broker at once. What its journal has not written is lost."""
        self._known(broker).kill()

    def restart(self, broker: str) -> None:
        """Start a broker with what its journal holds."""
        self._known(broker).start()

    def cut(self, one: str, other: str) -> None:
        """Break the connection between two brokers, or a client and a broker, until `heal`."""
        self._cut.add(frozenset((one, other)))
        self.drop(one, other)

    def drop(self, one: str, other: str) -> None:
        """Break a connection; it may be made again at once."""
        for pipe in [pipe for pipe in self._pipes if pipe.names == frozenset((one, other))]:
            pipe.break_off()

    def heal(self, one: str, other: str) -> None:
        """Undo `cut`."""
        self._cut.discard(frozenset((one, other)))

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Let everything between two take so long from now on."""
        self._delays[frozenset((one, other))] = seconds

    def is_cut(self, one: str, other: str) -> bool:
        """Whether there can be no connection between two."""
        return frozenset((one, other)) in self._cut

    # --- looking on ---

    def node(self, broker: str) -> Node:
        """A broker that runs."""
        node = self._known(broker).node
        if node is None:
            raise InvalidInput(f"the broker {broker!r} does not run; restart it")
        return node

    def store(self, broker: str) -> MemoryStore:
        """A broker's journal, as far as it is written."""
        return self._known(broker).store

    async def up(self) -> None:
        """Wait until all brokers that run are linked as far as nothing is cut."""
        while not all(self._is_linked(*edge) for edge in self.topology.edges):
            self._is_up.clear()
            await self._is_up.wait()

    def _is_linked(self, one: str, other: str) -> bool:
        if self.is_cut(one, other) or not self._brokers[one].node or not self._brokers[other].node:
            return True
        return any(pipe.names == frozenset((one, other)) and pipe.is_used for pipe in self._pipes)

    def _known(self, broker: str) -> _Broker:
        found = self._brokers.get(broker)
        if found is None:
            listed = ", ".join(self._brokers)
            raise InvalidInput(f"there is no broker {broker!r}; there are {listed}")
        return found

    def _delay(self, one: str, other: str) -> float:
        return self._delays.get(frozenset((one, other)), self.delay_s)

    def _neighbours(self, broker: str) -> Sequence[str]:
        """Those whom a broker dials."""
        return [other for one, other in self.topology.edges if one == broker]


class _End:
    """One end of a pipe."""

    def __init__(self, pipe: _Pipe, number: int) -> None:
        self._pipe = pipe
        self._number = number
        self._encoder = Encoder()
        self._decoder = Decoder("the other end")
        self._arrived: Callable[[Message], None] | None = None
        self._lost: Callable[[str], None] | None = None
        self.illegal: Callable[[IllegalMessage], None] | None = None

    def hears(self, arrived: Callable[[Message], None], lost: Callable[[str], None]) -> None:
        """Who is told what comes out here."""
        self._arrived, self._lost = arrived, lost

    def send(self, message: Message) -> None:
        """See `Wire`."""
        if self._pipe.is_open:
            if self._pipe.is_spoilt(self._number, message):
                data = UNREADABLE
            else:
                data = b"".join(map(bytes, self._encoder.encode(message)))
            self._pipe.carry(1 - self._number, data)

    def close(self) -> None:
        """See `Wire`: what was sent before still arrives."""
        self._arrived = self._lost = None
        self._pipe.carry(1 - self._number, None)

    async def wait_closed(self) -> None:
        """See `Wire`."""

    def take(self, data: bytes | None) -> None:
        """Something has come through; None is the end."""
        if data is None:
            self.end("the other end closed the connection")
            return
        self._pipe.used()
        try:
            for message in self._decoder.feed(data):
                if self._arrived is None:
                    return
                self._arrived(message)
        except IllegalMessage as error:
            if self.illegal is None:
                self.end(str(error))
            else:  # it closes this end, after a last word
                self.illegal(error)

    def end(self, reason: str) -> None:
        """Nothing more comes."""
        lost, self._lost, self._arrived = self._lost, None, None
        self._pipe.over()
        if lost is not None:
            lost(reason)


class _Pipe:
    """A connection, both ways; bytes come out as they went in, later."""

    def __init__(self, network: Network, one: str, other: str) -> None:
        self.names = frozenset((one, other))
        self.is_open = True
        self.is_used = False
        self.ends = (_End(self, 0), _End(self, 1))
        self._network = network
        self._one, self._other = one, other
        self._last = [0.0, 0.0]
        self._queues: tuple[deque[bytes | None], deque[bytes | None]] = (deque(), deque())
        network._pipes.add(self)

    def carry(self, to: int, data: bytes | None) -> None:
        """Bring bytes to one end, after those before; a delay that shrinks overtakes nothing."""
        loop = asyncio.get_running_loop()
        delay_s = self._network._delay(self._one, self._other)
        at = self._last[to] = max(loop.time() + delay_s, self._last[to])
        self._queues[to].append(data)
        loop.call_at(at, self._bring, to)

    def is_spoilt(self, sender: int, message: Message) -> bool:
        """Whether what one end sends cannot be read at the other."""
        return self._network.spoils((self._one, self._other)[sender], message)

    def _bring(self, to: int) -> None:
        # The loop does not keep the order of timers of one moment; the queue does.
        data = self._queues[to].popleft()
        if self.is_open:
            self.ends[to].take(data)

    def used(self) -> None:
        """Something has come through."""
        if not self.is_used:
            self.is_used = True
            self._network._is_up.set()

    def break_off(self) -> None:
        """Both ends notice, and what was under way is lost."""
        self.over()
        for end in self.ends:
            end.end("the connection was cut")

    def over(self) -> None:
        """Nothing comes through any more."""
        self.is_open = False
        self._network._pipes.discard(self)


class _Broker:
    """The shell round one node: it does what the node asks for, on the loop."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.store = MemoryStore()
        self._network = network
        self._ends: dict[int, _End] = {}
        self._next_link = 1
        self._wake: asyncio.TimerHandle | None = None
        self._life = 0
        self._unwritten: deque[Append] = deque()

    # --- life ---

    def start(self) -> None:
        if self.node is not None:
            return
        net = self._network
        self._life += 1
        life = f"{self.name}-{self._life}"
        self.node = Node(
            self.name,
            net._router(self.name),
            self.store,
            settings=net._settings,
            authority=net._authority,
            new_id=_ids(life),
            matcher=net._matcher,
        )
        self._do(self.node.start(self._at()))
        for neighbour in net._neighbours(self.name):
            self._dial(neighbour, self._life)

    def kill(self) -> None:
        self.node = None
        self._unwritten.clear()
        if self._wake is not None:
            self._wake.cancel()
        ends, self._ends = self._ends, {}
        for end in ends.values():
            end._pipe.break_off()

    # --- connections ---

    def accept(self, end: _End) -> None:
        assert self.node is not None
        link = self._enter(end)
        self._do(self.node.accept(link, self._at()))

    def _dial(self, neighbour: str, life: int) -> None:
        """Connect to a neighbour, now or as soon as it answers."""
        net = self._network
        other = net._brokers[neighbour]
        if self.node is None or life != self._life:
            return
        if other.node is None or net.is_cut(self.name, neighbour):
            asyncio.get_running_loop().call_later(REDIAL_S, self._dial, neighbour, life)
            return
        pipe = _Pipe(net, self.name, neighbour)
        other.accept(pipe.ends[1])
        link = self._enter(pipe.ends[0], neighbour)
        self._do(self.node.dial(link, self._at(), peer=neighbour))

    def _enter(self, end: _End, dialled: str = "") -> int:
        link, life = self._next_link, self._life
        self._next_link += 1
        self._ends[link] = end

        def arrived(message: Message) -> None:
            if self.node is not None and life == self._life:
                self._do(self.node.receive(link, message, self._at()))

        def lost(_reason: str) -> None:
            self._ends.pop(link, None)
            if self.node is not None and life == self._life:
                self._do(self.node.lost(link, self._at()))
                if dialled:
                    loop = asyncio.get_running_loop()
                    loop.call_later(REDIAL_S, self._dial, dialled, life)

        def illegal(error: IllegalMessage) -> None:
            if self.node is not None and life == self._life:
                self._do(self.node.illegal(link, error, self._at()))

        end.hears(arrived, lost)
        end.illegal = illegal
        return link

    # --- effects ---

    def _do(self, effects: Sequence[Effect]) -> None:
        loop = asyncio.get_running_loop()
        for effect in effects:
            match effect:
                case Send(link, message):
                    if link in self._ends:
                        self._ends[link].send(message)
                case Close(link, _):
                    end = self._ends.pop(link, None)
                    if end is not None:
                        end.close()
                case Append():
                    self._unwritten.append(effect)
                    loop.call_later(self._network.disk_s, self._write, self._life)
                case Report():
                    self._network.reports.append((self.name, effect))
        if self.node is not None:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = loop.call_at(self.node.wake_at, self._tick)

    def _write(self, life: int) -> None:
        if self.node is not None and life == self._life:
            append = self._unwritten.popleft()
            self.store.write(append.operations)
            self._do(self.node.stored(append.ticket, self._at()))

    def _tick(self) -> None:
        if self.node is not None:
            self._do(self.node.tick(self._at()))

    def _at(self) -> Moment:
        now = asyncio.get_running_loop().time()
        return Moment(now, DAWN_US + int(now * 1e6))


def _ids(life: str) -> Callable[[], str]:
    """Names of sessions, never used twice, not even by a broker that was restarted."""
    last = 0

    def new_id() -> str:
        nonlocal last
        last += 1
        return f"{life}-{last}"

    return new_id
