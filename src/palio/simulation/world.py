"""`World`: whole brokers, with their disks and clients, on one virtual clock (see `Cluster`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from palio.errors import InvalidInput
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.node.effects import Moment
from palio.node.settings import Outside, Settings
from palio.routing.acyclic import Acyclic
from palio.simulation.agenda import US, Agenda
from palio.simulation.cluster import Cluster, NodeRouter
from palio.simulation.computers import AccessPolicy
from palio.simulation.disks import Disk
from palio.simulation.member import Member
from palio.simulation.pipes import End, HeldEnd, Holder
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology

__all__ = ["EPOCH_US", "US", "World"]

EPOCH_US: Final = 1_700_000_000_000_000
"""The wall-clock time at the start of a world."""


class World(Cluster):
    """Brokers, links and clients. The same calls with the same seed do the same.

    >>> from palio.simulation.topologies import line
    >>> world = World.of(line(2))
    >>> alice, bob = world.client("alice", "b1"), world.client("bob", "b2")
    >>> _ = alice.subscribe("x > 1")
    >>> world.run(1.0)
    >>> _ = bob.publish({"x": 1}, {"x": 2})
    >>> world.run(1.0)
    >>> [row["x"] for _, _, row in alice.heard]
    [2]
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        settings: Settings | None = None,
        latency_s: float = 0.01,
        sync_s: float = 0.002,
        matcher: Callable[[], Matcher] = Reference,
        access: AccessPolicy | None = None,
    ) -> None:
        self.agenda = Agenda()
        super().__init__(
            self.agenda,
            settings=settings,
            latency_s=latency_s,
            sync_s=sync_s,
            epoch_us=EPOCH_US,
            matcher=matcher,
            access=access or AccessPolicy(),
            seed=seed,
        )
        self.random = Randomness(seed)
        self.clients: dict[str, Holder[End]] = {}

    @classmethod
    def of(cls, topology: Topology, router: NodeRouter = Acyclic, **options: Any) -> World:
        """Make a world of brokers whose links are up."""
        world = cls(**options)
        for name in topology.brokers:
            world.add_broker(name, router)
        for one, other in topology.edges:
            world.connect(one, other)
        world.run(1.0)
        return world

    @property
    def now(self) -> float:
        """The time, in seconds."""
        return self.agenda.now_us / US

    @property
    def at(self) -> Moment:
        """The time by both clocks."""
        return Moment(self.now, EPOCH_US + self.agenda.now_us)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.agenda.run(self.agenda.now_us + round(seconds * US))

    def add_broker(
        self,
        name: str,
        router: NodeRouter = Acyclic,
        parent: str = "",
        outside: Outside | None = None,
    ) -> None:
        """Add a broker with an empty disk, and start it."""
        self.install(name, router, Disk(self.random.branch()), parent, outside)
        self.start(name)

    # --- clients ---

    def client(self, name: str, at: str) -> Member:
        """Add a client of a broker, which reconnects by itself."""
        if name in self.clients or name in self.disks:
            raise InvalidInput(f"there is a {name!r} already; choose another name")
        member = Member(self, name, at)
        self.clients[name] = member
        member.connect()
        return member

    def open_client(self, name: str, broker: str) -> End | None:
        """Connect a client to its broker; return its end if the broker runs."""
        end = self.open_end(name, broker)
        if end is not None:
            end.reader = HeldEnd(self.clients[name], end)
        return end
