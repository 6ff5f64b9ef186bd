"""A world of `DurableEvents` alone: brokers, their disks, a bag of messages, owners that move.

Any message may arrive at any time, several times or never; a disk refuses, a broker crashes amid
its appends, a disk is lost. The world judges what the parts promise together (the properties of
`tests.models.durable`), beside the assertions in them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from palio.errors import Closed
from palio.node.durable import DurableEvents, PendingHomes
from palio.node.effects import ANYBODY, Entry, Heading, Stored
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    Ack,
    Action,
    Append,
    CaughtUp,
    Claim,
    ClaimStored,
    Cursor,
    Discard,
    Impossible,
    Kept,
    NotKept,
    Operation,
    Put,
    Transmit,
)
from palio.protocol.messages import Carry, EntriesStored, Parcel
from tests.node.events import parcel

STEP_S: Final = 0.004

ROUNDS: Final = 12
"""Of gossip, writes, messages and acknowledgements: after so many nothing is owed any more."""


class Disk:
    """What was written; a `Store`. It refuses what grows while it is full (L1)."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.parcels: dict[int, Parcel] = {}
        self.written: dict[int, Parcel] = {}
        """All that ever were there."""
        self.ends: list[int] = []
        """How many operations there were after each append."""
        self.term = 0
        self.is_full = False

    def write(self, write: Append) -> bool:
        """Whether these operations are written."""
        if write.term < self.term:
            return False
        if self.is_full and write.operations:
            self.term += 1
            return False
        for each in (*write.released, *write.operations):
            if isinstance(each, Put):
                assert each.parcel is not None
                self.parcels[each.entry] = self.written[each.entry] = each.parcel
                self.operations.append(each._replace(parcel=None))
                continue
            if isinstance(each, Discard):
                for entry in each.entries:
                    del self.parcels[entry]
            self.operations.append(each)
        self.ends.append(len(self.operations))
        return True

    def start(self, name: str) -> DurableEvents:
        """A broker that starts with it."""
        return DurableEvents(name, 1, self.operations, self)

    def load(self) -> Stored:
        """See `Store`: the operations are handed over instead."""
        raise NotImplementedError

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        found = [each for each in numbers if each in self.parcels]
        return [Entry(each, self.parcels[each], 0) for each in sorted(set(found))]

    def heading(self, entry: int) -> Heading | None:  # noqa: ARG002
        """See `Store`."""
        return None


class Broker:
    """One broker, and the appends that its disk has not answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.writes: list[Append] = []
        self.term = 0
        self.events = self.disk.start(name)


class Came(NamedTuple):
    """An owner waits for an answer: it is here."""

    subject: str
    session_epoch: int


@dataclass
class Owner:
    """Whoever hears one durable subscription."""

    subject: str
    at: str = ""
    """The broker that it is at, once that has opened a queue for it."""
    asks: str = ""
    """The broker that it has asked."""
    session_epoch: int = 0
    after: int = 0
    seen: set[int] = field(default_factory=set)
    """Since it came there."""
    places: dict[tuple[str, int], int] = field(default_factory=dict)
    """Which event was delivered at an offset of a broker."""
    acked: set[int] = field(default_factory=set)
    """Its acknowledgement is on a disk."""
    number: int = 0
    """Of the last claim that it was told of."""
    ended: int = 0
    """The session in which it ended its subscription last, or asked for it, answered or
    not."""
    wanted: dict[int, str] = field(default_factory=dict)
    """Events with a receipt that it is to have, with their origin."""
    order: list[int] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    """Events that were published when it was told of a loss."""


class World:
    """Some brokers and owners, and one random number generator."""

    def __init__(self, seed: int, names: str = "abc", subjects: int = 2) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.brokers = {name: Broker(name) for name in names}
        self.owners = {f"o{n}/d": Owner(f"o{n}/d") for n in range(subjects)}
        self.bag: list[tuple[str, Carry | EntriesStored]] = []
        self.published = 0
        self.origins: dict[int, str] = {}
        self.pending: dict[int, tuple[str, list[str]]] = {}
        self.entries: defaultdict[int, set[int]] = defaultdict(set)
        """Under which numbers of its origin an event was kept."""
        self.again: dict[int, tuple[str, list[str]]] = {}
        """Of whom no publisher knows whether it was kept, as its broker has stopped."""
        self.visits: dict[tuple[int, str], int] = {}
        """By which session of each owner there was the claim that an event was put for."""
        self.is_lossy = self.moves = True
        self.lost: set[str] = set()
        self.told: list[Impossible] = []
        for broker in self.brokers.values():
            self.follow(broker, broker.events.catch_up(0.0, 0, (), 1, None))
        self.settle()

    # --- what follows ---

    def follow(self, broker: Broker, follows: Sequence[Action]) -> None:
        """Carry out what follows."""
        for each in follows:
            match each:
                case Kept() | NotKept():
                    self.answer(broker, each)
                case Append():
                    broker.writes.append(each)
                case Transmit(to, message) if to in self.brokers:
                    self.bag.append((to, message))
                case ClaimStored(before, claim):
                    owner = self.owners[claim.subject]
                    if claim.home == broker.name:
                        if owner.session_epoch == claim.session_epoch:
                            owner.number = claim.number
                    elif before and before.home == owner.at == broker.name:
                        owner.at = owner.asks = ""
                case Impossible():
                    self.told.append(each)
                case _:
                    pass

    def answer(self, broker: Broker, answer: Kept | NotKept) -> None:
        """A publisher, or an owner who has come, is answered."""
        match answer:
            case Kept(int() as number):
                if self.waits_for_homes(number):
                    self.check_homes(broker, number)
                origin, subjects = self.pending.pop(number)
                for owner in (self.owners[subject] for subject in subjects):
                    if self.visits[number, owner.subject] > owner.ended:
                        owner.wanted[number] = origin
            case NotKept(int() as number):
                del self.pending[number]
            case Kept(Came(subject, session_epoch)):
                owner = self.owners[subject]
                if owner.session_epoch == session_epoch:
                    owner.at, owner.after, owner.seen = broker.name, 0, set()
            case NotKept(Came(subject, session_epoch)):
                owner = self.owners[subject]
                if owner.session_epoch == session_epoch:
                    owner.asks = ""
            case _:
                pass

    @staticmethod
    def waits_for_homes(number: int) -> bool:
        """Whether the publisher of an event wants to know that all homes have it."""
        return number % 2 == 0

    def token(self, number: int, *, is_retransmit: bool = False) -> object:
        """Whom to answer."""
        return (
            PendingHomes(number, is_retransmit=is_retransmit)
            if self.waits_for_homes(number)
            else number
        )

    def check_homes(self, origin: Broker, number: int) -> None:
        """The disk of each home to which its origin is to bring an event is past it. Not so what
        comes back to the origin, by a home from which its owner has moved meanwhile.
        """
        for home, stream in origin.events.queues.streams.items():
            if home in self.lost or origin.name in self.lost:
                continue
            stored = [
                each.offset
                for each in self.brokers[home].disk.operations
                if isinstance(each, Cursor) and each.origin == origin.name
            ]
            for offset, item in stream.entries:
                # A number may be used again after a crash, if nothing had it on the disk.
                event = origin.disk.parcels[item.entry].rows[0].get("n")
                is_it = event == number and item.entry in self.entries[number]
                is_stored = offset <= max(stored, default=0)
                assert not is_it or is_stored, f"{home} is yet to store event {number}"

    # --- what happens ---

    def write(self, broker: Broker) -> None:
        """The disk answers for the first append, and for those behind it if it refuses."""
        if not broker.writes:
            return
        if broker.disk.write(broker.writes[0]):
            write = broker.writes.pop(0)
            self.note_acks(broker, write)
            self.follow(broker, broker.events.stored(self.now, write.ticket))
            return
        refused, broker.writes = broker.writes, []
        for write in refused:
            assert not broker.disk.write(write), "L1: it is written behind a refused one"
            self.follow(broker, broker.events.refused(self.now, write.ticket, "full"))

    def note_acks(self, broker: Broker, write: Append) -> None:
        """What an owner has dealt with is never to come again from here on (D6)."""
        for each in write.released:
            if isinstance(each, Ack):
                owner = self.owners[each.subject]
                line = broker.events.queues.here.get(each.subject, ())
                for offset, _ in line:
                    if offset <= each.upto or offset in each.others:
                        owner.acked.add(owner.places.get((broker.name, offset), 0))

    def crash(self, broker: Broker) -> None:
        """It stops dead: some of what is under way is on its disk."""
        written = self.random.randint(0, len(broker.writes))
        for write in broker.writes[:written]:
            if not broker.disk.write(write):
                break
            self.note_acks(broker, write)
        self.start(broker)

    def start(self, broker: Broker) -> None:
        """It starts with what its disk has."""
        broker.writes = []
        broker.disk.term = 0
        broker.disk.is_full = False
        broker.events = broker.disk.start(broker.name)
        for number in [n for n, (origin, _) in self.pending.items() if origin == broker.name]:
            self.again[number] = self.pending.pop(number)
        for owner in self.owners.values():
            if broker.name in (owner.at, owner.asks):
                owner.at = owner.asks = ""
        for gone in sorted(self.lost - self.brokers.keys()):
            self.follow(broker, broker.events.remove(self.now, gone))

    def lose(self, broker: Broker) -> None:
        """It loses its disk, and starts."""
        broker.disk = Disk()
        self.lost.add(broker.name)
        self.start(broker)

    def truncate(self, broker: Broker) -> None:
        """Its journal has lost its last transactions, and tells so as it starts."""
        former = broker.events.streams.log_number
        disk = broker.disk
        disk.ends = disk.ends[: self.random.randint(len(disk.ends) * 3 // 4, len(disk.ends))]
        disk.operations = disk.operations[: disk.ends[-1] if disk.ends else 0]
        disk.parcels = {}
        for each in disk.operations:
            if isinstance(each, Put):
                disk.parcels[each.entry] = disk.written[each.entry]
            elif isinstance(each, Discard):
                for entry in each.entries:
                    del disk.parcels[entry]
        disk.operations.append(CaughtUp(former + 1))
        self.lost.add(broker.name)
        self.start(broker)

    def ways(self, broker: Broker) -> None:
        """The map says that there are ways to all."""
        self.follow(broker, broker.events.streams.paths_changed(self.now, self.brokers.get))

    def gossip(self, teller: Broker, hearer: Broker) -> None:
        """Facts go from one broker to another: claims, and what log it has, or its own map said."""
        if teller is hearer or not teller.events.is_ready:
            return
        claims = list(teller.events.claims)
        if not hearer.events.is_ready:
            if not hearer.writes and not hearer.events.log.is_refusing:
                self.uncork(teller, hearer, claims)
            return
        self.follow(hearer, hearer.events.learn(self.now, claims))
        log = teller.events.streams.log_number
        self.follow(hearer, hearer.events.renew(self.now, teller.name, log))
        self.ways(hearer)

    def uncork(self, teller: Broker, hearer: Broker, claims: list[Claim]) -> None:
        """A broker without its disk hears of its network, and which log it had."""
        stream = teller.events.queues.streams.get(hearer.name)
        log = 1 if stream is None else stream.log
        loss = LossMarker(f"{hearer.name} log {log}", 0, ANYBODY, 0, 0, 0).parcel
        follows = hearer.events.catch_up(self.now, 0, claims, log + 1, loss)
        self.follow(hearer, follows)

    def arrive(self) -> None:
        """A message of the bag arrives, perhaps again and again; or it does not."""
        if not self.bag:
            return
        place = self.random.randrange(len(self.bag)) if self.is_lossy else 0
        to, message = self.bag[place]
        chance = self.random.random() if self.is_lossy else 1.0
        if chance > 0.1:
            del self.bag[place]
        if 0.1 < chance < 0.2:
            return
        events = self.brokers[to].events
        if isinstance(message, Carry):
            follows = events.carry(self.now, 0, message)
        else:
            follows = events.has_stored(self.now, message)
        self.follow(self.brokers[to], follows)

    def publish(self, broker: Broker) -> None:
        """An event for all owners of whom its origin knows."""
        if not broker.events.is_ready:
            return
        if self.say_again(broker):
            return
        number = self.published = self.published + 1
        self.origins[number] = broker.name
        self.say(broker, number)

    def say_again(self, broker: Broker) -> bool:
        """A publisher begins with what was not answered."""
        mine = [number for number, (origin, _) in self.again.items() if origin == broker.name]
        if not mine:
            return False
        number = min(mine)
        self.pending[number] = self.again.pop(number)
        if number <= broker.events.last_published(f"p/{broker.name}"):
            self.follow(broker, broker.events.barrier(self.token(number, is_retransmit=True)))
        else:
            self.say(broker, number)
        return True

    def say(self, broker: Broker, number: int) -> None:
        """What a publisher says, for all of whom its broker knows."""
        wanted: dict[str, bytes | None] = {}
        for subject in self.owners:
            claim = broker.events.claims.newest(subject, broker.events.overlay)
            if claim is not None and not claim.is_over:
                wanted[subject] = None
                self.visits[number, subject] = claim.session_epoch
        self.pending[number] = broker.name, list(wanted)
        events = parcel({"n": number}, publisher=f"p/{broker.name}", first_seq=number)
        token = self.token(number)
        follows = broker.events.publish(self.now, 0, events, wanted, token)
        written = [
            each for write in follows if isinstance(write, Append) for each in write.operations
        ]
        self.entries[number] |= {each.entry for each in written if isinstance(each, Put)}
        self.follow(broker, follows)

    def session_epoch(self, owner: Owner, broker: Broker) -> None:
        """An owner comes to a broker."""
        if not broker.events.is_ready:
            return
        owner.session_epoch += 1
        owner.at, owner.asks = "", broker.name
        asked = Claim(owner.subject, owner.number, "", owner.subject, owner.session_epoch)
        try:
            came = Came(owner.subject, owner.session_epoch)
            self.follow(broker, broker.events.open(self.now, asked, None, came))
        except Closed:
            owner.asks = ""

    def end(self, owner: Owner) -> None:
        """An owner ends its subscription."""
        if owner.at:
            broker = self.brokers[owner.at]
            asked = Claim(owner.subject, owner.number, "", owner.subject, owner.session_epoch)
            owner.ended = owner.session_epoch
            for number in list(owner.wanted):
                if self.visits[number, owner.subject] <= owner.ended:
                    del owner.wanted[number]
            self.follow(broker, broker.events.end(self.now, asked, "end"))

    def hear(self, owner: Owner) -> None:
        """An owner gets the next event, or acknowledges some."""
        if not owner.at:
            return
        broker = self.brokers[owner.at]
        delivery = broker.events.delivery(owner.subject, owner.after)
        if delivery is not None and (not self.is_lossy or self.random.random() < 0.7):
            owner.after = delivery.offset
            if LossMarker.of(delivery.parcel) is not None:
                owner.losses.append(self.published)
                return
            event = delivery.parcel.rows[0]["n"]
            owner.places[owner.at, delivery.offset] = event
            self.judge(owner, event)
            owner.order.append(event)
            owner.seen.add(event)
        elif owner.after:
            upto, others = owner.after, tuple[int, ...]()
            here = [offset for name, offset in owner.places if name == owner.at]
            if self.is_lossy and here and self.random.random() < 0.3:
                upto, others = 0, (self.random.choice(here),)
            follows = broker.events.acknowledge(self.now, owner.subject, upto, others, b"")
            self.follow(broker, follows)

    def judge(self, owner: Owner, event: int) -> None:
        """What is promised of a delivery."""
        if self.lost:
            return
        assert event not in owner.acked, f"event {event} comes again after its acknowledgement"
        assert event not in owner.seen, f"event {event} comes twice in one session_epoch"
        if not self.moves:
            origin = self.origins[event]
            before = {n for n, where in owner.wanted.items() if where == origin and n < event}
            missing = before - set(owner.order) - owner.acked
            assert not missing, f"event {event} comes before {sorted(missing)}"
            after = [n for n in owner.seen if self.origins[n] == origin and n > event]
            assert not after, f"event {event} comes after {after}"

    # --- plays ---

    def step(self) -> None:
        """Something happens."""
        self.now += STEP_S * self.random.random()
        some = self.random.choice(list(self.brokers.values()))
        other = self.random.choice(list(self.brokers.values()))
        owner = self.random.choice(list(self.owners.values()))
        chance = self.random.random()
        if chance < 0.15:
            self.publish(some)
        elif chance < 0.45:
            self.write(some)
        elif chance < 0.70:
            self.arrive()
        elif chance < 0.85:
            self.hear(owner)
        elif chance < 0.92:
            self.gossip(some, other)
        elif chance < 0.95:
            self.follow(some, some.events.tick(self.now))
        elif chance < 0.951:
            if self.moves:
                self.end(owner)
        elif chance < 0.97:
            if self.moves or not (owner.at or owner.asks):
                self.session_epoch(owner, some if self.moves else self.home(owner))
        else:
            self.fault(some, chance)

    def fault(self, some: Broker, chance: float) -> None:
        """A disk refuses or takes again, or a broker crashes."""
        if chance < 0.98:
            some.disk.is_full = True
        elif chance < 0.99:
            self.free(some)
        else:
            self.crash(some)

    def free(self, some: Broker) -> None:
        """A disk takes writes again."""
        some.disk.is_full = False
        if some.events.log.is_refusing:
            self.follow(some, some.events.writable(self.now))

    def home(self, owner: Owner) -> Broker:
        """The broker at which it always is."""
        place = list(self.owners).index(owner.subject) % len(self.brokers)
        return list(self.brokers.values())[place]

    def settle(self) -> None:
        """No fault any more: all that is owed gets where it goes."""
        self.is_lossy = False
        for _ in range(ROUNDS):
            self.now += 40.0
            for broker in self.brokers.values():
                self.free(broker)
                for other in self.brokers.values():
                    self.gossip(other, broker)
                self.follow(broker, broker.events.tick(self.now))
                while broker.events.is_ready and self.say_again(broker):
                    pass
            while self.bag or any(broker.writes for broker in self.brokers.values()):
                for broker in self.brokers.values():
                    while broker.writes:
                        self.write(broker)
                self.arrive()
            for owner in self.owners.values():
                if not owner.at or owner.ended == owner.session_epoch:
                    self.session_epoch(owner, self.home(owner))
                for _ in range(self.published + 2):
                    self.hear(owner)
        self.is_lossy = True

    def remove(self, gone: Broker) -> None:
        """A broker is gone for good, and its disk with it: the others are told, and tell owners."""
        del self.brokers[gone.name]
        self.lost.add(gone.name)
        self.bag = [each for each in self.bag if each[0] != gone.name]
        for number in [n for n, (origin, _) in self.pending.items() if origin == gone.name]:
            del self.pending[number]
        for owner in self.owners.values():
            if gone.name in (owner.at, owner.asks):
                owner.at = owner.asks = ""
        loss = LossMarker(f"{gone.name} log 1", 0, ANYBODY, 0, 0, 0).parcel
        for place, broker in enumerate(self.brokers.values()):
            self.follow(broker, broker.events.remove(self.now, gone.name))
            if not place:
                self.follow(broker, broker.events.report_loss(self.now, 0, loss))

    def check(self) -> None:
        """Everything with a receipt was dealt with, and nothing is left."""
        assert not self.told, self.told
        assert not self.pending, f"nobody has answered for {sorted(self.pending)}"
        for broker in self.brokers.values():
            assert not broker.events.queues.entries, f"{broker.name} keeps entries"
            assert not broker.disk.parcels, f"the disk of {broker.name} keeps parcels"
            assert not broker.events.overlay.moving
        for owner in self.owners.values():
            missing = owner.wanted.keys() - owner.acked
            assert not missing, f"{owner.subject} never had {sorted(missing)}"
