"""Tempests: storms over larger networks in which everything changes, and disks fail too.

A storm keeps its subscriptions; here they change their filters, end and begin anew, several to a
client; clients stall, stay away longer than their grace, and move; disks fill up and flip bits;
syncing takes longer or shorter than a message. What is promised is then less simple: an event must
be heard if it matches whatever filter was in force from its publication on, and may be if it
matches one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from palio.errors import PalioError
from palio.language.parsing import parse_filter
from palio.matching.protocol import RowMask
from palio.node.settings import Settings
from palio.protocol.messages import (
    Deliver,
    Done,
    Failed,
    Message,
    Replace,
    Subscribe,
    unpack_mask,
)
from palio.protocol.requests import Outcome
from palio.routing.acyclic import Acyclic
from palio.routing.general import General
from palio.simulation.agenda import TIMER
from palio.simulation.member import Member
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, connected_random, grid, line, random_tree, ring
from palio.simulation.world import US, World

__all__ = ["Tempest"]

EVENT_KINDS: Final = 3


class Standing:
    """One durable subscription and the filters that it had, until it was forgotten."""

    def __init__(self, name: str, key: int, text: str) -> None:
        self.name = name
        self.key = key
        self.filters = [text]
        self.settled = 0
        """How many of the filters are history: all before the newest that was settled."""
        self.is_settled = False
        self.question: tuple[int, int] | None = None
        """A settle that is open, and the filter that it is about."""
        self.change = 0
        """The request that asked for the newest filter."""
        self.since: list[int] = []
        """For each event published so far, the first filter that counts for it; -1 if none."""
        self.ended: int | None = None
        """How many events had been published when it was forgotten."""


class Listener(Member):
    """A client with several durable subscriptions, which notes what each of them heard."""

    def __init__(self, world: World, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.durables: list[Standing] = []
        self.by_key: dict[int, list[tuple[str, int]]] = {}
        self.live: list[tuple[str, int, dict[str, Any]]] = []
        self.doubled: list[tuple[int, str, int]] = []
        """What came in a second entry, though it was dealt with; a client lets it pass once."""
        self._held: list[tuple[int, Message]] = []
        self._newest: dict[int, int] = {}
        self.is_stalled = False

    def receive(self, link: int, message: Message) -> None:
        """A stalled client reads nothing."""
        if self.is_stalled:
            self._held.append((link, message))
        else:
            super().receive(link, message)

    def stall(self, seconds: float) -> None:
        """Read nothing for some time."""
        self.is_stalled = True
        until = self.world.agenda.now_us + round(seconds * US)
        self.world.agenda.at(until, TIMER, self._wake)

    def _wake(self) -> None:
        self.is_stalled = False
        held, self._held = self._held, []
        for link, message in held:
            super().receive(link, message)

    def stay_away(self, seconds: float) -> None:
        """Break the connection and come back later."""
        self.vanish()
        until = self.world.agenda.now_us + round(seconds * US)
        self.world.agenda.at(until, TIMER, self.connect)

    def listen(self, name: str, text: str) -> None:
        """Make a durable subscription."""
        self.durables.append(Standing(name, self.subscribe(text, durable=name), text))

    def replace(self, standing: Standing, text: str) -> None:
        """Change its filter."""
        known = self.standing[standing.key]
        self.standing[standing.key] = Subscribe(known.id, standing.key, text, {}, standing.name)
        standing.filters.append(text)
        standing.change = self.ask(lambda id: Replace(id, standing.key, text))
        standing.question = None

    def ask_settled(self, standing: Standing) -> None:
        """Ask whether its newest filter is in force everywhere."""
        standing.question = (self.settle(), len(standing.filters) - 1)

    def look(self, standing: Standing) -> None:
        """See whether that was answered."""
        if standing.question is None:
            return
        id, filter = standing.question
        if self.answers.get(id) == Done(id) and filter == len(standing.filters) - 1:
            refused = isinstance(self.answers.get(standing.change), Failed)
            standing.is_settled = standing.is_settled or not refused
            standing.settled = standing.settled if refused else filter
            standing.question = None

    def forget(self, standing: Standing, published: int) -> None:
        """End a durable subscription."""
        standing.ended = published
        self.unsubscribe(standing.key, forget=True)

    def answered(self, id: int, outcome: Outcome) -> None:
        """What a full disk refused is asked for again."""
        super().answered(id, outcome)
        if isinstance(outcome, Failed):
            for request in self.standing.values():
                if request.id == id:
                    self._later(partial(self._subscribe_again, request.key))
            for standing in self.durables:
                if standing.change == id and standing.ended is None:
                    self._later(partial(self._replace_again, standing))

    def withdrawn(self, key: int, error: PalioError) -> None:
        """Likewise when a session was renewed."""
        super().withdrawn(key, error)
        self._later(partial(self._subscribe_again, key))

    def _later(self, action: Callable[[], None]) -> None:
        self.world.agenda.at(self.world.agenda.now_us + US, TIMER, action)

    def _subscribe_again(self, key: int) -> None:
        if key in self.standing:
            self.subscribe_again(self.standing[key])

    def _replace_again(self, standing: Standing) -> None:
        if standing.ended is None and isinstance(self.answers.get(standing.change), Failed):
            self.replace(standing, standing.filters[-1])

    def deliver_durable(self, message: Deliver) -> None:
        key, parcel = message.key, message.parcel
        if message.entry > self._newest.get(key, 0) and key in self.receipts:
            self._newest[key] = message.entry
            numbers = parcel.numbers[unpack_mask(message.rows, len(parcel))]
            known = ~self.receipts[key].came(parcel.publisher, numbers)
            self.doubled += [(key, parcel.publisher, seq) for seq in numbers[known].tolist()]
        super().deliver_durable(message)

    def hear(self, message: Deliver, mask: RowMask) -> None:
        before = len(self.heard)
        super().hear(message, mask)
        for publisher, seq, row in self.heard[before:]:
            if message.entry:
                self.by_key.setdefault(message.key, []).append((publisher, seq))
            else:
                self.live.append((publisher, seq, row))


class Tempest:
    """One random life of a network."""

    def __init__(self, seed: int, *, disks: bool = False) -> None:
        self.seed = seed
        self.disks = disks
        self.random = random = Randomness(seed)
        self.is_tree = random.chance(0.5)
        self.moves = random.chance(0.3)
        self.shape = self._topology()
        tiny = random.chance(0.4)
        settings = Settings(
            heartbeat_s=1.0,
            client_grace_s=4.0,
            peer_grace_s=2.0,
            window_bytes=6_000 if tiny else 1 << 20,
            queue_bytes=12_000 if tiny else 1 << 20,
        )
        self.world = World.of(
            self.shape,
            Acyclic if self.is_tree else General,
            seed=seed,
            settings=settings,
            sync_s=random.choice([0.0005, 0.005, 0.05, 0.3]),
        )
        self.listeners: list[Listener] = []
        self.published: list[tuple[str, int, dict[str, int]]] = []
        self.cut: list[tuple[str, str]] = []
        self.killed: list[str] = []
        self.flipped: dict[tuple[str, int], None] = {}
        """Events of which some copy was damaged."""

    def _topology(self) -> Topology:
        random = self.random
        size = random.between(2, 8)
        if self.is_tree:
            return line(size) if random.chance(0.4) else random_tree(size, random.branch())
        match random.below(3):
            case 0:
                return ring(max(3, size))
            case 1:
                return grid(2, random.between(2, 4))
            case _:
                return connected_random(max(3, size), 2, random.branch())

    # --- what happens ---

    def run(self, steps: int = 30) -> None:
        """Let it rage, then calm down, then compare."""
        world, random = self.world, self.random
        for number in range(random.between(1, 3)):
            self._add_listener(f"listener{number}")
        self.publishers = [
            world.client(f"publisher{number}", random.choice(self.shape.brokers))
            for number in range(3)
        ]
        world.run(2.0)
        for listener in self.listeners:
            for standing in listener.durables:
                listener.ask_settled(standing)
        world.run(4.0)
        for _ in range(steps):
            self._look()
            self._step()
            world.run(random.uniform() * 0.8)
        self._calm()
        self._check()
        self._check_live()

    def _add_listener(self, name: str) -> None:
        world = self.world
        listener = Listener(world, name, self.random.choice(self.shape.brokers))
        world.clients[name] = listener
        listener.connect()
        for number in range(self.random.between(1, 3)):
            listener.listen(f"d{number}", self._text())
        listener.subscribe(self._text())
        self.listeners.append(listener)

    def _text(self) -> str:
        random = self.random
        return f"kind = {random.below(EVENT_KINDS)} AND x >= {random.below(4)}"

    def _look(self) -> None:
        for listener in self.listeners:
            for standing in listener.durables:
                listener.look(standing)

    def _step(self) -> None:  # noqa: C901, PLR0912  # one case for each thing that can happen
        world, random, brokers = self.world, self.random, self.shape.brokers
        match random.below(24 if self.disks else 21):
            case 0 | 1 if self.shape.edges:
                edge = random.choice(self.shape.edges)
                if edge not in self.cut:
                    world.cut(*edge)
                    self.cut.append(edge)
            case 2 | 3 if self.cut:
                world.heal(*self.cut.pop(random.below(len(self.cut))))
            case 4:
                broker = random.choice(brokers)
                if broker in world.nodes:
                    world.kill(broker)
                    self.killed.append(broker)
            case 5 | 6 if self.killed:
                world.start(self.killed.pop(random.below(len(self.killed))))
            case 7:
                random.choice([*self.listeners, *self.publishers]).cut()
            case 8 if self.moves:
                random.choice([*self.listeners, *self.publishers]).move(random.choice(brokers))
            case 9:
                random.choice(self.listeners).stall(random.uniform() * 5)
            case 10:
                random.choice(self.listeners).stay_away(random.uniform() * 8)
            case 11 | 12:
                self._change()
            case 21:
                disk = world.disks[random.choice(brokers)]
                disk.is_full = not disk.is_full
            case 22:
                self._flip(random.choice(brokers))
            case 23:
                for disk in world.disks.values():
                    disk.is_full = False
            case _:
                self._publish(durable=True)

    def _change(self) -> None:
        listener = self.random.choice(self.listeners)
        standing = self.random.choice(listener.durables)
        if standing.ended is not None:
            return
        if self.random.chance(0.25):
            listener.forget(standing, len(self.published))
            listener.listen(standing.name, self._text())
            standing = listener.durables[-1]
        else:
            listener.replace(standing, self._text())
        listener.ask_settled(standing)

    def _flip(self, broker: str) -> None:
        disk = self.world.disks[broker]
        entries = disk.held()
        if entries:
            entry = self.random.choice(entries)
            disk.flip(entry.entry)
            for seq in entry.parcel.batch.column("$seq").to_numpy().tolist():
                self.flipped[entry.parcel.publisher, seq] = None

    def _publish(self, *, durable: bool) -> None:
        random = self.random
        publisher = random.choice(self.publishers)
        events = [
            {"kind": random.below(EVENT_KINDS), "x": random.below(6)}
            for _ in range(random.between(1, 6))
        ]
        last = publisher.publish(*events, durable=durable)
        for seq, event in enumerate(events, last - len(events) + 1):
            self.published.append((f"{publisher.name}/1", seq, event))
            for listener in self.listeners:
                for standing in listener.durables:
                    if len(standing.since) < len(self.published):
                        missing = len(self.published) - 1 - len(standing.since)
                        standing.since += [-1] * missing
                        standing.since.append(standing.settled if standing.is_settled else -1)

    def _calm(self) -> None:
        for disk in self.world.disks.values():
            disk.is_full = False
        for edge in self.cut:
            self.world.heal(*edge)
        for broker in self.killed:
            self.world.start(broker)
        self.world.run(60.0)

    # --- what must have come of it ---

    def _fail(self, what: str) -> None:
        raise AssertionError(f"seed {self.seed}{' with disks' if self.disks else ''}: {what}")

    def _refused(self) -> set[tuple[str, int]]:
        return {
            (f"{publisher.name}/1", seq)
            for publisher in self.publishers
            for each in publisher.refused
            for seq in range(each.first_seq, each.last_seq + 1)
        }

    def _check(self) -> None:
        excused = self._refused() | set(self.flipped)
        for publisher in self.publishers:
            mine = [seq for name, seq, _ in self.published if name == f"{publisher.name}/1"]
            if mine and publisher.accepted_durable != max(mine):
                self._fail(f"{publisher.name}: not all accepted")
        for listener in self.listeners:
            if listener.doubled and not self.moves:
                self._fail(f"{listener.name} was sent twice {listener.doubled}")
            for standing in listener.durables:
                self._check_standing(listener, standing, excused)
        for name, node in self.world.nodes.items():
            status = node.status()
            if status["custody_entries"] and not self.disks:
                self._fail(f"{name} still holds {status['custody_entries']}")
            if self.world.disks[name].held() and not self.disks:
                self._fail(f"the disk of {name} still holds entries")

    def _check_standing(
        self, listener: Listener, standing: Standing, excused: Iterable[tuple[str, int]]
    ) -> None:
        who = f"{listener.name} {standing.name} (key {standing.key})"
        heard = listener.by_key.get(standing.key, [])
        if len(heard) != len(set(heard)):
            self._fail(f"{who} heard twice {sorted({e for e in heard if heard.count(e) > 1})}")
        filters = [parse_filter(text) for text in standing.filters]
        events: Mapping[tuple[str, int], dict[str, int]] = {
            (name, seq): event for name, seq, event in self.published
        }
        # The word that it ended may be lost with a session; then its successor takes it over.
        ever = [
            parse_filter(text)
            for each in listener.durables
            if each.name == standing.name
            for text in each.filters
        ]
        for each in heard:
            if not any(filter.matches(events[each]) for filter in ever):
                self._fail(f"{who} heard {each} {events[each]}, {standing.filters}")
        lost = [
            (name, seq)
            for place, (name, seq, event) in enumerate(self.published)
            if place < len(standing.since) and (first := standing.since[place]) >= 0
            if standing.ended is None
            if all(filter.matches(event) for filter in filters[first:])
            if (name, seq) not in set(heard) and (name, seq) not in excused
        ]
        told = self.disks and any(gap.key == standing.key for gap in listener.gaps)
        if lost and not told:
            self._fail(f"{who} lost {lost}, {standing.filters}")
        if self.is_tree and not self.moves and not self.disks:
            for publisher in self.publishers:
                order = [seq for name, seq in heard if name == f"{publisher.name}/1"]
                if order != sorted(order):
                    self._fail(f"{who} out of order: {order}")

    def _check_live(self) -> None:
        """In a calm network live events come once, in order, and to those who asked alone."""
        for listener in self.listeners:
            listener.live.clear()
        first = len(self.published)
        for _ in range(6):
            self._publish(durable=False)
            self.world.run(0.05)
        self.world.run(10.0)
        for listener in self.listeners:
            wanted = [
                parse_filter(each.filter) for each in listener.standing.values() if not each.durable
            ]
            expected = [
                (name, seq)
                for name, seq, event in self.published[first:]
                if any(filter.matches(event) for filter in wanted)
            ]
            durable = [
                parse_filter(each.filter) for each in listener.standing.values() if each.durable
            ]
            expected += [
                (name, seq)
                for name, seq, event in self.published[first:]
                for filter in durable
                if filter.matches(event)
            ]
            heard = [(name, seq) for name, seq, _ in listener.live]
            if sorted(heard) != sorted(expected):
                self._fail(f"{listener.name}: live {sorted(heard)}, not {sorted(expected)}")
