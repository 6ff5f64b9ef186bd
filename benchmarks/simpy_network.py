"""The simulator beside SimPy: one scenario, the same routers and clients, on either's clock.

    pip install simpy
    python -m benchmarks.simpy_network [--size 20000] [--rounds 5]

SimPy's side is written twice: as its manual does it (a process for each message on its way, a store
and a process for each broker), and with the least that it can do (a callback of a timeout). It only
counts steps and deliveries, where the simulator also keeps a trace and all costs. Two kinds of
brokers: real routers, and ones that pass every event on and do nothing else, which shows what the
simulators take themselves. Turns are interleaved; processor time, medians.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Generator
from statistics import median
from time import process_time
from typing import Any, Final, Protocol

import simpy

from palio.matching.protocol import RowMask
from palio.model.masks import ONE_ROW
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Control
from palio.routing.patterns.messages import PatternControl
from palio.routing.protocol import Peer, Router, Send
from palio.simulation import Randomness, Topology, random_tree
from palio.simulation.agenda import US_PER_MS
from palio_studies.simulator import Network
from palio_studies.simulator.clients import Client

Message = Control | RowParcel
RouterFactory = Callable[[str], Router]

BROKERS: Final = 20
CLIENTS: Final = 100
SYMBOLS: Final = 20
PRICES: Final = 100
LATENCY_US: Final = 10_000
EVERY_US: Final = 970
"""So that no two of what follows from different events are due at one moment, whose order would be
each simulator's own."""


class Relay(Acyclic):
    """Passes every event on to all other brokers, and does nothing else."""

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """See `Router`."""
        del parcel
        return {peer: ONE_ROW for peer in self.peers if peer != sender and not peer.is_client}

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """See `Router`."""
        del sender, message
        return []


class Clock(Protocol):
    """What the scenario needs of a simulator."""

    @property
    def steps(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    def client(self, name: str, at: str) -> Client: ...
    def run(self, for_us: int | None = None) -> None: ...


class OnPalio:
    """The simulator."""

    def __init__(self, topology: Topology, routing: RouterFactory) -> None:
        self._network = Network.of(topology, routing, seed=4)

    @property
    def steps(self) -> int:
        return self._network.costs.steps

    @property
    def delivered(self) -> int:
        return self._network.costs.delivered

    def client(self, name: str, at: str) -> Client:
        return self._network.client(name, at)

    def run(self, for_us: int | None = None) -> None:
        now_ms = self._network.now_ms
        self._network.run(None if for_us is None else now_ms + for_us / US_PER_MS)


class OnSimpy:
    """The same on SimPy, whatever carries a message."""

    def __init__(self, topology: Topology, routing: RouterFactory) -> None:
        self.env = simpy.Environment()
        self.steps = 0
        self.delivered = 0
        self._clients: dict[str, Client] = {}
        self._routers = {name: routing(name) for name in topology.brokers}
        self._peers = {name: Peer.broker(name) for name in topology.brokers}
        self.begin(topology)
        for one, other in topology.edges:
            self._send(one, self._routers[one].attach(self._peers[other]))
            self._send(other, self._routers[other].attach(self._peers[one]))

    def begin(self, topology: Topology) -> None:
        """Start what brokers need."""

    def carry(self, source: str, target: str, message: Message) -> None:
        """Bring a message to a broker, to `work` on."""
        raise NotImplementedError

    def client(self, name: str, at: str) -> Client:
        client = self._clients[name] = Client(self, name, at)
        self._send(at, self._routers[at].attach(client.peer))
        return client

    def control(self, client: Client, message: Batch | PatternControl) -> None:
        self.work(client.broker, client.peer, message)

    def publish(self, client: Client, parcel: RowParcel) -> None:
        self.work(client.broker, client.peer, parcel)

    def work(self, broker: str, sender: Peer, message: Message) -> None:
        """A broker takes a message in hand."""
        self.steps += 1
        router = self._routers[broker]
        if isinstance(message, RowParcel):
            for peer, mask in router.route(sender, message).items():
                self._give(broker, peer, message.select(mask))
        else:
            self._send(broker, router.receive(sender, message))

    def come(self, source: str, target: str, message: Message) -> None:
        """A message is there."""
        self.work(target, self._peers[source], message)

    def _send(self, broker: str, sends: Any) -> None:
        for peer, message in sends:
            self._give(broker, peer, message)

    def _give(self, broker: str, peer: Peer, message: Message) -> None:
        if peer.is_client:
            self.delivered += self._clients[peer.name].take(message, int(self.env.now))
        else:
            self.carry(broker, peer.name, message)

    def run(self, for_us: int | None = None) -> None:
        if for_us is None:
            self.env.run()
            return
        until = self.env.now + for_us
        while self.env.peek() <= until:  # what is due at the end comes before it, as with Palio
            self.env.step()
        if until > self.env.now:
            self.env.run(until)


class OnProcesses(OnSimpy):
    """As SimPy's manual has it ("Event Latency")."""

    def begin(self, topology: Topology) -> None:
        self._stores = {name: simpy.Store(self.env) for name in topology.brokers}
        for name in topology.brokers:
            self.env.process(self._serve(name))

    def _serve(self, broker: str) -> Generator[Any, Any, None]:
        store = self._stores[broker]
        while True:
            source, message = yield store.get()
            self.come(source, broker, message)

    def carry(self, source: str, target: str, message: Message) -> None:
        self.env.process(self._travel(source, target, message))

    def _travel(self, source: str, target: str, message: Message) -> Generator[Any, Any, None]:
        yield self.env.timeout(LATENCY_US)
        self._stores[target].put((source, message))


class OnCallbacks(OnSimpy):
    """The least that SimPy can do."""

    def carry(self, source: str, target: str, message: Message) -> None:
        due = self.env.timeout(LATENCY_US, (source, target, message))
        due.callbacks.append(self._arrived)

    def _arrived(self, event: Any) -> None:
        self.come(*event.value)


SIDES: Final[dict[str, Callable[[Topology, RouterFactory], Clock]]] = {
    "palio": OnPalio,
    "simpy, processes": OnProcesses,
    "simpy, callbacks": OnCallbacks,
}


def turn(side: str, routing: RouterFactory, size: int) -> tuple[int, int, float]:
    """Steps, deliveries and seconds of one run: as many updates of parameters as events."""
    random = Randomness(4)
    clock = SIDES[side](random_tree(BROKERS, random), routing)
    clock.run()
    clients = [clock.client(f"c{n}", f"b{1 + random.below(BROKERS)}") for n in range(CLIENTS)]
    keys = [
        client.subscribe(
            f"symbol = 's{random.below(SYMBOLS)}' AND price < :x", {"x": random.below(PRICES)}
        )
        for client in clients
    ]
    clock.run()
    before, start = clock.steps, process_time()
    for _ in range(size // 20):
        place = random.below(CLIENTS)
        clients[place].update(keys[place], x=random.below(PRICES))
        event = {"symbol": f"s{random.below(SYMBOLS)}", "price": random.below(PRICES)}
        random.choice(clients).publish(event)
        clock.run(EVERY_US)
    clock.run()
    return clock.steps - before, clock.delivered, process_time() - start


def compare(size: int, rounds: int) -> list[dict[str, Any]]:
    """Each side's median, for routers and for relays."""
    found = []
    for brokers, routing in (("routers", Acyclic), ("relays", Relay)):
        rates: dict[str, list[float]] = {side: [] for side in SIDES}
        counts = set()
        for _ in range(rounds):
            for side in SIDES:
                steps, delivered, seconds = turn(side, routing, size)
                rates[side].append(steps / seconds)
                counts.add((steps, delivered))
        if len(counts) > 1:
            raise SystemExit(f"{brokers}: not the same was simulated: {sorted(counts)}")
        ((steps, delivered),) = counts
        for side in SIDES:
            ratio = median(a / b for a, b in zip(rates["palio"], rates[side], strict=True))
            found.append(
                {
                    "brokers": brokers,
                    "side": side,
                    "steps": steps,
                    "delivered": delivered,
                    "steps_per_s": round(median(rates[side])),
                    "palio_is_faster_by": round(ratio, 2),
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = compare(options.size, options.rounds)
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
