"""`Mesh`: registries, and links between them that a test cuts, joins and holds up as it likes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from palio.node.cluster_state import ClusterState
from palio.node.effects import Moment
from palio.node.fact_verifier import FactVerifier
from palio.protocol.messages import Facts
from palio.simulation.randomness import Randomness

AT = Moment(0.0, 0)

VouchingFor = Callable[[str], FactVerifier]


class Mesh:
    """Registries, and links that keep order and lose what is on its way when they break."""

    def __init__(self, seed: int, size: int, fact_verifier: VouchingFor = FactVerifier) -> None:
        self.random = Randomness(seed)
        self.members = {
            name: ClusterState(name, (), fact_verifier(name))
            for name in (f"b{number}" for number in range(size))
        }
        for member in self.members.values():
            if member.fact_verifier.token:
                member.begin(1)
        self.links: dict[tuple[str, str], deque[object]] = {}
        self.crossed = 0
        self.written: list[tuple[str, int]] = []

    def join(self, one: str, other: str) -> None:
        if (one, other) not in self.links:
            self.links[one, other], self.links[other, one] = deque(), deque()
            self.members[one].peer_up(other, AT)
            self.members[other].peer_up(one, AT)
            self.collect()

    def cut(self, one: str, other: str) -> None:
        if (one, other) in self.links:
            del self.links[one, other], self.links[other, one]
            self.members[one].peer_down(other)
            self.members[other].peer_down(one)
            self.collect()

    def collect(self) -> None:
        for name, member in self.members.items():
            outbox, member.outbox = member.outbox, []
            for to, message in outbox:
                if (name, to) in self.links:
                    self.links[name, to].append(message)
            if member.new_facts:
                news, member.new_facts = member.new_facts, []
                self.written.append((name, max(fact.version for fact in news)))

    def write(self) -> None:
        """Disks catch up."""
        written, self.written = self.written, []
        for name, version in written:
            self.members[name].mark_durable(version)
        self.collect()

    def step(self) -> bool:
        if self.written and self.random.chance(0.3):
            self.write()
        waiting = [ends for ends, queue in self.links.items() if queue]
        if not waiting:
            self.write()
            return any(self.links.values()) or bool(self.written)
        self.receive(*self.random.choice(waiting))
        return True

    def deliver(self, source: str, target: str) -> None:
        """All that is on its way from one to another."""
        for _ in range(len(self.links[source, target])):
            self.receive(source, target)

    def receive(self, source: str, target: str) -> None:
        """The next message on its way from one to another."""
        message = self.links[source, target].popleft()
        self.crossed += len(message.facts) if isinstance(message, Facts) else 0
        self.members[target].receive(source, message, AT)  # type: ignore[arg-type]  # as it was sent
        self.collect()

    def rest(self) -> None:
        while True:
            while self.step():
                pass
            for member in self.members.values():
                member.tick(AT)
            self.collect()
            if not (self.written or any(self.links.values())):
                return

    def known(self, name: str) -> dict[tuple[str, str], tuple[object, ...]]:
        return {
            (fact.origin, fact.subject): (fact.links, fact.filter)
            for fact in self.members[name].facts()
        }


def full(seed: int, size: int, fact_verifier: VouchingFor = FactVerifier) -> Mesh:
    mesh = Mesh(seed, size, fact_verifier)
    for one in range(size):
        for other in range(one):
            mesh.join(f"b{one}", f"b{other}")
    mesh.rest()
    return mesh
