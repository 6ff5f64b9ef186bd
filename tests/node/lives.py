"""Lives of networks in which live events are published all the time, while things break."""

from __future__ import annotations

from collections.abc import Sequence

from palio.matching.protocol import RowMask
from palio.model.events import rows
from palio.protocol.messages import Advertise, Deliver, Gap, Settle
from palio.protocol.requests import Outcome
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.world import World


class Listener(Member):
    """A client as ours are: it notes a gap when its session is new, and once all is in force."""

    def __init__(self, world: World, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.told: list[float] = []
        """When a gap was told."""
        self.got: dict[tuple[str, int], None] = {}

    def renewed(self, *, may_have_missed: bool) -> None:
        super().renewed(may_have_missed=may_have_missed)
        self.told.append(self.world.now)
        self.core.table.ask(Settle(0), self._is_whole)

    def _is_whole(self, _outcome: Outcome) -> None:
        self.told.append(self.world.now)

    def lose(self, gaps: Sequence[Gap]) -> None:
        super().lose(gaps)
        self.told.append(self.world.now)

    def record(self, message: Deliver, mask: RowMask) -> None:
        super().record(message, mask)
        for row in rows(message.parcel.select(mask).batch):
            self.got[message.parcel.publisher, row["$seq"]] = None


class Publisher(Member):
    """A client that says again what it announces, and notes what its broker has taken."""

    in_force = False
    """Whether what it announces is so everywhere."""

    def renewed(self, *, may_have_missed: bool) -> None:
        super().renewed(may_have_missed=may_have_missed)
        self.in_force = False
        self.core.table.ask(Settle(0), self._is_in_force)

    def _is_in_force(self, _outcome: Outcome) -> None:
        self.in_force = True

    @property
    def taken(self) -> set[int]:
        return {each.last for each in self.publications if "memory" in each.levels}


class Life:
    """A network in which live events are published all the time, while things break."""

    def __init__(
        self, seed: int, world: World, brokers: list[str], *, announces: bool = False
    ) -> None:
        self.seed, self.world, self.brokers = seed, world, brokers
        self.announces = announces
        """Whether only what was announced is routed: a client that comes back waits for that."""
        self.random = Randomness(seed)
        self.listeners = [self._listener(name) for name in brokers]
        self.publishers = [self._publisher(name) for name in brokers]
        world.run(5.0)
        self.published: list[tuple[float, Publisher, int]] = []

    def _listener(self, broker: str) -> Listener:
        member = Listener(self.world, f"listener at {broker}", broker)
        self.world.clients[member.name] = member
        member.connect()
        member.subscribe("x >= 0")
        return member

    def _publisher(self, broker: str) -> Publisher:
        member = Publisher(self.world, f"publisher at {broker}", broker)
        self.world.clients[member.name] = member
        member.connect()
        member.core.table.ask(Advertise(0, 1, "x >= 0"), lambda _outcome: None)
        return member

    def pass_time(self, seconds: float, every_s: float = 0.1) -> None:
        """Everybody publishes all the time."""
        until = self.world.now + seconds
        while self.world.now < until:
            for each in self.publishers:
                if each.is_connected and (each.in_force or not self.announces):
                    self.published.append((self.world.now, each, each.publish({"x": 1})))
            self.world.run(every_s)
        self.world.run(0.2)

    def lost(self, listener: Listener) -> list[float]:
        """When events were published that were taken, and that a listener has not got."""
        return [
            at
            for at, publisher, seq in self.published
            if seq in publisher.taken and (f"{publisher.name}/1", seq) not in listener.got
        ]

    def check(self) -> None:
        """After every loss a gap was told."""
        for each in self.listeners:
            lost = self.lost(each)
            last = max(each.told, default=0.0)
            late = [at for at in lost if at > last]
            assert not late, f"seed {self.seed}: {each.name} lost events at {late}, told {last}"
