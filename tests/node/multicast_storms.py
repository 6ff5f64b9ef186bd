"""Storms over whole brokers that send each other events by multicast groups.

Plans come and go while links break, brokers die, are paused and join, and datagrams are lost,
doubled and late, or reach some brokers not at all. Who hears live events hears none twice and none
out of order, and if some do not come is told that afterwards; who hears durably misses nothing. If
nothing breaks but the way of datagrams, nothing is lost and nobody is told that it was. Once all is
whole again all brokers send by the newest plan, and everybody hears everything.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from palio.language.parsing import parse_filter
from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.documents import pack
from palio.multicast.listed import ListedGroups, flooding
from palio.multicast.plans import GroupPlan
from palio.node.settings import Settings
from palio.protocol.messages import Apply
from palio.routing.algorithms import find_algorithm
from palio.routing.protocol import Router
from palio.simulation.agenda import FAULT
from palio.simulation.medium import Weather
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random, line, random_tree, ring, star
from palio.simulation.world import US, World
from tests.node.lives import Listener, Publisher

SETTINGS: Final = Settings(multicast=True, heartbeat_s=1.0, client_grace_s=4.0, peer_grace_s=2.0)

CALM_S: Final = 40.0
"""In so long after the last fault all is whole again."""

KINDS: Final = 3

MILD: Final = (0, 1, 2, 3, 4, 5, 99, 99, 99, 99)
"""Of what can happen in a step: what concerns datagrams and plans, and something published."""


class MulticastStorm:
    """One random incarnation of a network."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Randomness(seed)
        self.is_mild = random.chance(0.3)
        """Whether nothing fails but the way of datagrams."""
        self.routing = "flooded" if random.chance(0.5) else "source-trees"
        self.shape = self._topology()
        self.brokers = list(self.shape.brokers)
        self.edges = list(self.shape.edges)
        settings = replace(SETTINGS, window_bytes=3_000) if random.chance(0.4) else SETTINGS
        self.world = World(seed=seed, settings=settings)
        self.world.agenda.limit = 5_000_000
        for name in self.brokers:
            self.world.add_broker(name, self._router)
        for edge in self.edges:
            self.world.connect(*edge)
        self.world.run(1.0)
        self.published: list[tuple[float, Publisher, int, dict[str, Any], bool]] = []
        self.listeners: dict[str, Listener] = {}
        self.filters: dict[str, str] = {}
        self.durables: dict[str, tuple[Member, str]] = {}
        for name in self.brokers:
            self._listen(name)
        self.publishers = [self._publisher(f"publisher{n}") for n in range(2)]
        self.operator = self.world.client("operator", random.choice(self.brokers))
        self.cut: list[tuple[str, str]] = []
        self.apart: list[tuple[str, str]] = []
        self.doubts: dict[str, None] = {}
        """Publishers whose broker was killed: what it had not taken they published again."""

    def _topology(self) -> Topology:
        random = self.random
        size = random.between(3, 6)
        is_plain = random.chance(0.5)
        if self.routing == "source-trees":
            return ring(size) if is_plain else connected_random(size, 2, random.branch())
        return random.choice([line, star])(size) if is_plain else random_tree(size, random.branch())

    def _router(self, name: str) -> Router:
        return find_algorithm(self.routing).new(name, incarnation=self.world.wall_us)

    # --- clients ---

    def _listen(self, broker: str) -> None:
        """A live listener, and perhaps a durable one."""
        world, random = self.world, self.random
        listener = Listener(world, f"live at {broker}", broker)
        world.clients[listener.name] = listener
        listener.connect()
        text = f"kind <= {random.below(KINDS)} AND x >= {random.below(3)}"
        listener.subscribe(text)
        self.listeners[listener.name] = listener
        self.filters[listener.name] = text
        if broker in self.shape.brokers and random.chance(0.3):
            durable = world.client(f"durable at {broker}", broker)
            durable.subscribe(f"kind = {random.below(KINDS)}", durable="d")
            self.durables[durable.name] = durable, durable.core.table.standing[1].filter

    def _publisher(self, name: str) -> Publisher:
        publisher = Publisher(self.world, name, self.random.choice(self.brokers))
        self.world.clients[name] = publisher
        publisher.connect()
        return publisher

    # --- what happens ---

    def run(self, steps: int = 30) -> None:
        self.world.run(4.0)
        self._apply(self._plan())
        for _ in range(10):  # flows begin while events are under way
            self._publish()
            self.world.run(self.random.uniform() * 0.05)
        for _ in range(steps):
            self._step()
            self.world.run(self.random.uniform() ** 2 * 1.5)
        self._calm()
        self._check()
        self._check_calm()

    def _step(self) -> None:  # noqa: C901, PLR0912  # one case for each thing that can happen
        world, random, medium = self.world, self.random, self.world.medium
        broker = random.choice(self.brokers)
        match random.choice(MILD) if self.is_mild else random.below(24):
            case 0 | 1:
                medium.weather = Weather(
                    loss=random.uniform() ** 2 * 0.6,
                    doubled=random.uniform() * 0.3,
                    late=random.uniform() * 0.5,
                )
            case 2:
                medium.deafen(broker)
                self._later(random.uniform() * 6, partial(medium.undeafen, broker))
            case 3:
                self.apart.append((broker, random.choice(self.brokers)))
                medium.cut(*self.apart[-1])
            case 4 if self.apart:
                medium.heal(*self.apart.pop())
            case 5 | 6:
                self._apply(None if random.chance(0.1) else self._plan())
            case 7 | 8:
                edge = random.choice(self.edges)
                world.cut(*edge)
                self.cut.append(edge)
            case 9 | 10 if self.cut:
                world.heal(*self.cut.pop(random.below(len(self.cut))))
            case 11:
                world.drop(*random.choice(self.edges))
            case 12 if broker in world.nodes:
                world.kill(broker)
                self.doubts.update((each.name, None) for each in self.publishers)
            case 13 | 14:
                self._start_all(random.choice)
            case 15 if broker in world.nodes:
                world.pause(broker, random.uniform() ** 2 * 20)
            case 16 if len(self.brokers) < 8:
                self._join(broker)
            case _:
                self._publish()

    def _later(self, seconds: float, action: Any) -> None:
        agenda = self.world.agenda
        agenda.at(agenda.now_us + round(seconds * US), FAULT, action)

    def _start_all(self, choose: Any = None) -> None:
        down = [name for name in self.brokers if name not in self.world.nodes]
        for name in [choose(down)] if choose and down else down:
            self.world.start(name)

    def _join(self, neighbour: str) -> None:
        """A broker joins, with a listener."""
        name = f"new{len(self.brokers)}"
        self.world.add_broker(name, self._router)
        self.world.connect(name, neighbour)
        self.brokers.append(name)
        self.edges.append((name, neighbour))
        self._listen(name)

    def _plan(self) -> GroupPlan:
        random = self.random
        least = max(1, len(self.brokers) - 2)
        members = random.sample(self.brokers, random.between(least, len(self.brokers)))
        groups = [
            random.sample(members, random.between(1, len(members)))
            for _ in range(random.between(1, 4))
        ]
        return ListedGroups("ideal", tuple(members), rows_of(groups, numbered(members)))

    def _apply(self, plan: GroupPlan | None) -> int:
        text = "" if plan is None else pack(plan)
        return self.operator.ask(lambda id: Apply(id, text))

    def _publish(self) -> None:
        random = self.random
        publisher = random.choice(self.publishers)
        durable = random.chance(0.25)
        for _ in range(random.choice([1, 5, 40])):
            event = {"kind": random.below(KINDS), "x": random.below(4), "text": "a" * 20}
            if random.chance(0.02):
                event["text"] = "a" * 3_000
            if publisher.is_connected or durable:
                seq = publisher.publish(event, durable=durable)
                self.published.append((self.world.now, publisher, seq, event, durable))

    def _calm(self) -> None:
        world, medium = self.world, self.world.medium
        medium.weather = Weather()
        for pair in self.apart:
            medium.heal(*pair)
        for edge in self.cut:
            world.heal(*edge)
        self._start_all()
        world.run(CALM_S)
        self._apply(flooding(tuple(self.brokers)))
        world.run(10.0)

    # --- what must have come of it ---

    def _fail(self, what: str) -> None:
        kind = "mild" if self.is_mild else "wild"
        raise AssertionError(f"seed {self.seed} ({kind}, {self.routing}): {what}")

    def _check(self) -> None:
        for who, report in self.world.reports:
            if report.event == "internal_error" or "a frame that cannot be read" in str(
                report.details
            ):
                self._fail(f"{who} failed, or could not read another: {report}")
        for listener in self.listeners.values():
            self._check_live(listener)
        for name, (member, text) in self.durables.items():
            wanted = parse_filter(text)
            expected = {
                (f"{publisher.name}/1", seq)
                for _, publisher, seq, event, durable in self.published
                if durable and wanted.matches(event)
            }
            heard = [(whose, seq) for whose, seq, _ in member.heard if (whose, seq) in expected]
            if len(heard) != len(set(heard)):
                self._fail(f"{name} heard twice {sorted(e for e in heard if heard.count(e) > 1)}")
            if set(heard) != expected:
                self._fail(f"{name} lost {sorted(expected - set(heard))}")

    def _check_live(self, listener: Listener) -> None:
        wanted = parse_filter(self.filters[listener.name])
        for publisher in self.publishers:
            whose = f"{publisher.name}/1"
            heard = [seq for name, seq, _ in listener.heard if name == whose]
            if heard != sorted(set(heard)) and publisher.name not in self.doubts:
                self._fail(f"{listener.name} heard twice or out of order: {whose} {heard}")
        if any(not wanted.matches(event) for _, _, event in listener.heard):
            self._fail(f"{listener.name} heard what it does not want")
        missed = [
            (at, f"{publisher.name}/1", seq)
            for at, publisher, seq, event, _ in self.published
            if wanted.matches(event)
            and seq in publisher.taken
            and (f"{publisher.name}/1", seq) not in listener.got
        ]
        last = max(listener.told, default=0.0)
        late = missed if self.is_mild else [each for each in missed if each[0] > last]
        if late:
            self._fail(f"{listener.name} lost {late}, told {last}")

    def _check_calm(self) -> None:
        """All send by the newest plan, and everybody hears everything."""
        world = self.world
        for name, node in world.nodes.items():
            status = node.status()["multicast"]
            others = sorted(each for each in self.brokers if each != name)
            if status["by_datagrams"] != others or status["used"] != status["plan"]["id"]:
                self._fail(f"{name} does not send by the newest plan: {status}")
        told = {name: len(each.told) for name, each in self.listeners.items()}
        first = len(self.published)
        cast, repaired = self._count("datagrams"), self._count("repaired")
        for _ in range(5):
            for publisher in self.publishers:
                event = {"kind": 0, "x": 3, "text": ""}
                seq = publisher.publish(event)
                self.published.append((world.now, publisher, seq, event, False))
        world.run(3.0)
        for name, listener in self.listeners.items():
            for _, publisher, seq, _, _ in self.published[first:]:
                if (f"{publisher.name}/1", seq) not in listener.got:
                    self._fail(f"{name} lost {seq} of {publisher.name} in a calm network")
            if len(listener.told) != told[name]:
                self._fail(f"{name} was told of a loss in a calm network")
        count, sent = len(self.published) - first, self._count("datagrams") - cast
        if not count <= sent <= 2 * count:  # some say how far flows have got
            self._fail(f"{sent} datagrams were sent for {count} events that all want")
        if self._count("repaired") > repaired:
            self._fail("events were sent again in a calm network")
        if self.is_mild and any(len(each.told) > 2 for each in self.listeners.values()):
            self._fail("a loss was told though nothing was lost")

    def _count(self, what: str) -> int:
        return sum(node.status()["multicast"][what] for node in self.world.nodes.values())
