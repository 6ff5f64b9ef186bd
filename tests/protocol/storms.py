"""Storms over the client's end: what every client may rely on, whatever breaks.

A few clients at one to three brokers subscribe, change, publish, ask and move, while connections
break, frames are damaged, brokers restart and clients stall, stay away or deal with events late.
What is promised:

1. every request is answered once, or fails once when its client has ended;
2. every publication is answered once; what is called durable is heard by every durable subscription
   that wants it, and what is said to be refused or unknown is not said to be accepted;
3. nothing is heard twice under one durable subscription, but for what its publisher said again, nor
   live within one session or a move;
4. an event by itself is said to be for the subscriptions that want it, as they are at its client;
5. once all is calm, what is subscribed is in force, with the newest values, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from palio.errors import IllegalMessage
from palio.language.parsing import parse_filter
from palio.matching.protocol import RowMask
from palio.node.settings import Settings
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Advertise,
    Answer,
    Deliver,
    Done,
    Gaps,
    Message,
    Publish,
    Query,
    StoredAt,
    Subscribe,
    Update,
    Withdraw,
)
from palio.routing.general import General
from palio.simulation.agenda import TIMER, US
from palio.simulation.member import ClientWorld, Member, Publication
from palio.simulation.pipes import End
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import line
from palio.simulation.world import World

CALM_S: Final = 60.0
"""After this everything that was under way has come to rest: pauses grow to 7.5 s."""

EVENT_KINDS: Final = 3

DAMAGED: Final = (Publish, Deliver, Gaps, Done, Answer, Accepted, Subscribe, Update, Acknowledge)


class Checked(Publication):
    """A publication that sees whether its broker has said what it is told."""

    def __init__(self, client: Client, first: int, last: int, *, durable: StoredAt) -> None:
        super().__init__(first, last, durable=durable, now=lambda: client.world.now)
        self.client = client
        self.is_false = False

    def answer(self, level: str) -> None:
        super().answer(level)
        heard = self.client.heard_now
        is_said = isinstance(heard, Accepted) and heard.level == level and heard.seq >= self.last
        self.is_false |= bool(level) and not is_said


class Client(Member):
    """A client that notes what it heard by which subscription; a stalled one reads nothing."""

    def __init__(self, world: ClientWorld, name: str, broker: str) -> None:
        super().__init__(world, name, broker)
        self.durably: dict[int, list[tuple[str, int]]] = {}
        self.live: dict[int, list[tuple[str, int]]] = {}
        """By key, what came past custody since the session began, or since before a move."""
        self.misnamed: list[str] = []
        """Events that were said to be for others than want them."""
        self.said_again: set[tuple[str, int]] = set()
        """Durable events that it published again, perhaps at another broker that keeps them too."""
        self.heard_now: Message | None = None
        """What its broker is saying."""
        self.is_stalled = False
        self._held: list[Callable[[], None]] = []

    def record(self, message: Deliver, mask: RowMask) -> None:
        before = len(self.heard)
        super().record(message, mask)
        heard = [(publisher, seq) for publisher, seq, _ in self.heard[before:]]
        found = self.durably if message.entry else self.live
        found.setdefault(message.key, []).extend(heard)

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        super().deliver_named(message, keys, unconfirmed)
        event = message.parcel.rows[0]
        live = {key: each for key, each in self.core.table.standing.items() if not each.durable}
        wanted = {
            key
            for key, each in live.items()
            if parse_filter(each.filter).matches(event, each.values)
        }
        named = {key for key in keys if key in live and key not in unconfirmed}
        found = named | wanted & set(unconfirmed)
        if found != wanted:
            self.misnamed.append(f"{event} was for {found}, not {wanted}")

    def renewed(self, *, may_have_missed: bool) -> None:
        super().renewed(may_have_missed=may_have_missed)
        if may_have_missed:
            self.live.clear()
        for each in self.publications:
            if each.durable and each.error is None and not each.levels:
                numbers = range(each.first, each.last + 1)
                self.said_again.update((f"{self.name}/1", number) for number in numbers)

    def receive(self, end: End, message: Message) -> None:
        """A client that stalls reads nothing."""
        if self.is_stalled:
            self._held.append(partial(self._read, end, message))
        else:
            self._read(end, message)

    def _read(self, end: End, message: Message) -> None:
        self.heard_now = message
        super().receive(end, message)
        self.heard_now = None

    def published(self, first: int, last: int, *, durable: StoredAt) -> Checked:
        return Checked(self, first, last, durable=durable)

    def illegal(self, end: End, error: IllegalMessage) -> None:
        if self.is_stalled:
            self._held.append(partial(super().illegal, end, error))
        else:
            super().illegal(end, error)

    def acknowledge_all(self) -> None:
        """Acknowledge all received events."""
        for receipts in self.receipts.values():
            receipts.finish()

    def stall(self, seconds: float) -> None:
        """Read nothing for some time."""
        self.is_stalled = True
        self.world.agenda.at(self.world.agenda.now_us + round(seconds * US), TIMER, self._go_on)

    def _go_on(self) -> None:
        self.is_stalled = False
        held, self._held = self._held, []
        for each in held:
            each()


class Storm:
    """One random incarnation of a few clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Randomness(seed)
        size = random.between(1, 3)
        self.brokers = [f"b{number + 1}" for number in range(size)]
        is_tight = random.chance(0.3)
        settings = Settings(
            heartbeat_s=1.0,
            client_grace_s=random.choice([2.0, 8.0]),
            peer_grace_s=2.0,
            window_bytes=4_000 if is_tight else 1 << 20,
        )
        self.world = World.of(line(size), General, seed=seed, settings=settings)
        self.world.spoils = self._spoils
        self.damage = 0.0
        """Which share of the frames between clients and brokers is damaged on its way."""
        self.clients = [self._client(f"c{number}") for number in range(random.between(1, 3))]
        self.events: dict[tuple[str, int], dict[str, int]] = {}
        self.durable: set[tuple[str, int]] = set()
        self.killed: list[str] = []

    def _client(self, name: str) -> Client:
        client = Client(self.world, name, self.random.choice(self.brokers))
        self.world.clients[name] = client
        client.connect()
        return client

    def _spoils(self, who: str, message: Message) -> bool:
        """Damage messages on the wires of clients, by the way: they are sent again."""
        if isinstance(message, DAMAGED) and self.random.chance(self.damage):
            for client in [who] if who in self.world.clients else list(self.world.clients):
                for broker in [who] if who in self.brokers else self.brokers:
                    self.world.damage(who, broker if client == who else client)
        return False

    # --- what happens ---

    def run(self, steps: int = 25) -> None:
        """Let it rage, then calm down, then compare."""
        world, random = self.world, self.random
        for client in self.clients:
            for number in range(random.between(1, 2)):
                client.subscribe(self._text(), {"low": random.below(4)}, durable=f"d{number}")
            client.subscribe(self._text(), {"low": random.below(4)})
        world.run(3.0)
        answers = [(client, client.settle()) for client in self.clients]
        world.run(2.0)
        if any(client.answers.get(id) != Done(id) for client, id in answers):
            self._fail("not settled")
        self.damage = random.choice([0.0, 0.02, 0.05])
        for _ in range(steps):
            self._step(random.choice(self.clients))
            world.run(random.uniform() * 0.6)
        self._calm()
        self._check()

    def _text(self) -> str:
        return f"kind = {self.random.below(EVENT_KINDS)} AND x >= :low"

    def _step(self, client: Client) -> None:
        world, random = self.world, self.random
        match random.below(16):
            case 0 | 1:
                client.cut()
            case 2:
                broker = random.choice(self.brokers)
                if broker in world.nodes:
                    world.kill(broker)
                    self.killed.append(broker)
            case 3 | 4 if self.killed:
                world.start(self.killed.pop())
            case 5:
                client.move(random.choice(self.brokers))
            case 6 | 7:
                client.move_over(random.choice(self.brokers))
            case 8:
                client.stall(random.uniform() * 3.0)
                client.acknowledges = not client.acknowledges
                client.acknowledge_all()
            case 9:
                client.vanish()
                until = world.agenda.now_us + round(random.uniform() * 5 * US)
                world.agenda.at(until, TIMER, client.connect)
            case 10:
                key = random.choice(sorted(client.core.table.standing)[1:])
                client.update(key, low=random.below(4))
            case 11:
                self._replace_one(client)
            case 12:
                client.ask(lambda id: Query(id, "status"))
                client.settle()
                client.ask(lambda id: Advertise(id, 1, "x >= 0"))
                client.ask(lambda id: Withdraw(id, "EXISTS x"))
            case _:
                self._publish(client)

    def _replace_one(self, client: Client) -> None:
        """End a subscription and make another."""
        key = self.random.choice(sorted(client.core.table.standing)[1:])
        durable = client.core.table.standing[key].durable
        client.unsubscribe(key, forget=True)
        client.subscribe(self._text(), {"low": self.random.below(4)}, durable=durable)

    def _publish(self, client: Client) -> None:
        random = self.random
        if random.chance(0.5):  # one may be in memory before one is on a disk
            self._publish(client)
        events = [
            {"kind": random.below(EVENT_KINDS), "x": random.below(6)}
            for _ in range(random.between(1, 4))
        ]
        durable = random.chance(0.6)
        last = client.publish(*events, durable=durable)
        self.durable |= {(f"{client.name}/1", last - at) for at in range(len(events)) if durable}
        for seq, event in enumerate(events, last - len(events) + 1):
            self.events[f"{client.name}/1", seq] = event

    def _calm(self) -> None:
        self.damage = 0.0
        for client in self.clients:
            client.acknowledges = True
            client.acknowledge_all()
        for broker in self.killed:
            self.world.start(broker)
        self.world.run(CALM_S)

    # --- what must have come of it ---

    def _fail(self, what: str) -> None:
        raise AssertionError(f"seed {self.seed}: {what}")

    def _check(self) -> None:
        again = {each for client in self.clients for each in client.said_again}
        for client in self.clients:
            if not client.is_connected:
                self._fail(f"{client.name} is not connected: {client.errors[-2:]}")
            self._check_requests(client)
            self._check_receipts(client)
            for key, heard in client.durably.items():
                once = [each for each in heard if each not in again]
                self._check_once(f"{client.name} under key {key}", once)
            for key, heard in client.live.items():
                light = [each for each in heard if each not in self.durable]
                self._check_once(f"{client.name} live under key {key}", light)
            self._check_first(client)
            if client.misnamed:
                self._fail(f"{client.name}: {client.misnamed[0]}")
        self._check_in_force()
        sessions = sum(node.status()["sessions"] for node in self.world.nodes.values())
        if sessions != len(self.clients):
            self._fail(f"{len(self.clients)} clients have {sessions} sessions")
        for name, node in self.world.nodes.items():
            held = node.status()["custody_entries"]
            if held:
                self._fail(f"{name} still holds {held} entries")

    def _check_once(self, who: str, heard: list[tuple[str, int]]) -> None:
        twice = sorted({each for each in heard if heard.count(each) > 1})
        if twice:
            self._fail(f"{who} heard twice {twice}")

    def _check_first(self, client: Client) -> None:
        """Its first subscription is durable and never changes: it hears all that it wants."""
        key, first = next(iter(client.core.table.standing.items()))
        filter = parse_filter(first.filter)
        wanted = {each for each in self.durable if filter.matches(self.events[each], first.values)}
        lost = sorted(wanted - set(client.durably.get(key, [])))
        if lost:
            self._fail(f"{client.name} lost {lost}")

    def _check_requests(self, client: Client) -> None:
        for id in client.requested:
            outcomes = client.outcomes.get(id, [])
            if len(outcomes) != 1:
                self._fail(f"{client.name} asked {id} and was answered {outcomes}")

    def _check_receipts(self, client: Client) -> None:
        for each in client.publications:
            where = f"{client.name} published {each.first} to {each.last}"
            if len(each.levels) != 1:
                self._fail(f"{where}, answered {each.levels}")
            (level,) = each.levels
            if each.durable:
                is_true = level == "durable" and each.error is None and not each.refused
            else:
                is_true = level == ("" if each.error else "memory")
            if not is_true or (isinstance(each, Checked) and each.is_false):
                self._fail(f"{where} durable={each.durable}: {level!r}, {each.error}")

    def _check_in_force(self) -> None:
        """What is published now is heard by whom it is for, live and durable, once."""
        before = {client.name: len(client.heard) for client in self.clients}
        events: dict[tuple[str, int], dict[str, int]] = {}
        for kind in range(EVENT_KINDS):
            for x in range(4):
                for durable in (False, True):
                    client = self.random.choice(self.clients)
                    last = client.publish({"kind": kind, "x": x}, durable=durable)
                    events[f"{client.name}/1", last] = {"kind": kind, "x": x, "durable": durable}
                    self.world.run(0.05)
        self.world.run(5.0)
        for client in self.clients:
            heard = sorted((each[0], each[1]) for each in client.heard[before[client.name] :])
            wanted = sorted(
                each for each, event in events.items() for _ in range(_times(client, event))
            )
            if heard != wanted:
                self._fail(
                    f"{client.name} heard {heard}, not {wanted}: {client.core.table.standing}"
                )


def _times(client: Client, event: dict[str, Any]) -> int:
    """How often a client hears an event: once live, and once for each durable subscription."""
    matching = [
        each
        for each in client.core.table.standing.values()
        if parse_filter(each.filter).matches(event, each.values)
    ]
    durable = sum(bool(each.durable) for each in matching)
    live = any(not each.durable for each in matching)
    return live + durable
