"""Storms over whole brokers: what is promised about durable events, whatever breaks."""

from __future__ import annotations

from functools import partial
from typing import Final

from palio.language.parsing import parse_filter
from palio.node.settings import Settings
from palio.protocol.messages import Done, Route
from palio.routing.algorithms import ALGORITHMS, Algorithm, GraphKind
from palio.routing.messages import Batch
from palio.routing.protocol import Router
from palio.simulation.doors import Doors
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, line, random_tree, ring
from palio.simulation.world import World

QUICK: Final = Settings(heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)


class Storm:
    """One random life of a network, and what every durable subscription must have heard."""

    def __init__(self, seed: int, doors: Doors | None = None) -> None:
        self.seed = seed
        self.random = Randomness(seed)
        self.is_tree = self.random.chance(0.6)
        self.moves = self.random.chance(0.3)
        shape = self._topology()
        kind = GraphKind.TREE if self.is_tree else GraphKind.GRAPH
        routings = [  # whoever comes back has yet to advertise again before it may publish
            each for each in ALGORITHMS.values() if each.graph is kind and not each.is_advertised
        ]
        self.routing = self.random.choice(routings)
        self.world = World(seed=seed, settings=QUICK, doors=doors)
        above = {below: each for each, below in shape.edges}
        for name in shape.brokers:
            parent = above.get(name, "") if self.routing.has_parents else ""
            self.world.add_broker(name, partial(self._router, self.routing), parent)
        for edge in shape.edges:
            self.world.connect(*edge)
        self.world.run(1.0)
        self.brokers = shape.brokers
        self.edges = shape.edges
        self.listeners: list[tuple[Member, int, str]] = []
        self.settled: dict[str, int] = {}
        self.expected: dict[str, list[tuple[str, int]]] = {}
        self.published: list[tuple[str, int, dict[str, int], int]] = []
        self.cut: list[tuple[str, str]] = []
        self.killed: list[str] = []

    def _router(self, routing: Algorithm, name: str) -> Router:
        """One that says what it says with the versions of this life."""
        return routing.new(name, life=self.world.wall_us)

    def _topology(self) -> Topology:
        size = self.random.between(2, 5)
        if not self.is_tree:
            return ring(max(3, size))
        return line(size) if self.random.chance(0.5) else random_tree(size, self.random.branch())

    def run(self, steps: int = 25) -> None:
        world, random = self.world, self.random
        for number in range(random.between(1, 3)):
            member = world.client(f"listener{number}", random.choice(self.brokers))
            text = f"kind = {number % 2} AND x >= {random.below(4)}"
            key = member.subscribe(text, durable="d")
            self.listeners.append((member, key, text))
        publishers = [
            world.client(f"publisher{number}", random.choice(self.brokers)) for number in range(2)
        ]
        world.run(2.0)
        answers = {member.name: member.settle() for member, _, _ in self.listeners}
        world.run(3.0)
        for member, _, _ in self.listeners:
            id = answers[member.name]
            assert member.answers[id] == Done(id), f"seed {self.seed}: not settled"
        if self.seed % 3 == 0:
            self._poison()
        for _ in range(steps):
            self._step(publishers)
            world.run(random.uniform() * 0.8)
        self._end()
        self._check(publishers)

    def _poison(self) -> None:
        """Somebody wants what no other broker can read, for as long as the storm lasts."""
        self.world.spoils = lambda _who, message: (
            isinstance(message, Route)
            and isinstance(message.control, Batch)
            and any("666" in str(getattr(each, "filter", "")) for each in message.control.requests)
        )
        self.world.client("poisoner", self.brokers[0]).subscribe("poison = 666")

    def _step(self, publishers: list[Member]) -> None:
        world, random = self.world, self.random
        match random.below(11):
            case 0 if self.edges:
                edge = random.choice(self.edges)
                if edge not in self.cut:
                    world.cut(*edge)
                    self.cut.append(edge)
            case 1 if self.cut:
                world.heal(*self.cut.pop())
            case 2:
                broker = random.choice(self.brokers)
                if broker in world.nodes:
                    world.kill(broker)
                    self.killed.append(broker)
            case 3 | 4 if self.killed:
                world.start(self.killed.pop())
            case 5:
                random.choice([each for each, _, _ in self.listeners] + publishers).cut()
            case 6 if self.moves:
                random.choice(self.listeners)[0].move(random.choice(self.brokers))
            case _:
                publisher = random.choice(publishers)
                events = [
                    {"kind": random.below(3), "x": random.below(6)}
                    for _ in range(random.between(1, 4))
                ]
                last = publisher.publish(*events, durable=True)
                first = last - len(events) + 1
                for offset, event in enumerate(events):
                    self.published.append((f"{publisher.name}/1", first + offset, event, last))

    def _end(self) -> None:
        for edge in self.cut:
            self.world.heal(*edge)
        for broker in self.killed:
            self.world.start(broker)
        self.world.run(40.0)

    def _check(self, publishers: list[Member]) -> None:
        where = f"seed {self.seed}"
        for publisher in publishers:
            mine = [last for name, _, _, last in self.published if name == f"{publisher.name}/1"]
            if mine:
                assert publisher.accepted_durable == max(mine), f"{where}: not all accepted"
        for member, _, text in self.listeners:
            filter = parse_filter(text)
            expected = [
                (name, seq) for name, seq, event, _ in self.published if filter.matches(event)
            ]
            heard = [(name, seq) for name, seq, _ in member.heard]
            assert len(heard) == len(set(heard)), f"{where}: {member.name} heard twice"
            assert sorted(heard) == sorted(expected), (
                f"{where}: {member.name} lost {sorted(set(expected) - set(heard))}, "
                f"got too much {sorted(set(heard) - set(expected))}"
            )
            if self.is_tree and not self.moves:
                for publisher in publishers:
                    order = [seq for name, seq in heard if name == f"{publisher.name}/1"]
                    assert order == sorted(order), f"{where}: {member.name} out of order"
        held = {name: node.status()["custody_entries"] for name, node in self.world.nodes.items()}
        assert not any(held.values()), f"{where}: still in custody {held}"
