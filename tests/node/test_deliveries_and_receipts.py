"""`Deliveries` at the broker and `Receipts` at its clients: what is acknowledged was handled.

Entries of one or several events go to clients that handle each event by itself, in any order,
reject some, are late, die and come back, while messages are on their way in both directions.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest

from palio.node.deliveries import ConsumerState, Deliveries, Flight, Policy
from palio.protocol.messages import Acknowledge, Nack
from palio.protocol.receipts import Receipt, Receipts
from tests.conftest import seeds

ENTRIES = 6
STEPS = 120


class Client:
    """A process that handles what comes, and both directions of its connection."""

    def __init__(self) -> None:
        self.consumer = ConsumerState()
        self.down: deque[tuple[int, tuple[int, ...], int, bool]] = deque()
        self.up: deque[Acknowledge | Nack] = deque()
        self.receipts = Receipts(self.up.append, key=1)
        self.open: list[tuple[int, Receipt]] = []
        """The events that its application has."""

    def read(self) -> None:
        """Take the next delivery."""
        offset, seqs, attempt, is_part = self.down.popleft()
        entry = self.receipts.came(offset, "p", seqs, attempt, is_part=is_part)
        fresh = [seq for seq, is_fresh in zip(seqs, entry.fresh, strict=True) if is_fresh]
        self.receipts.expect(entry, len(fresh))
        self.open += [(seq, self.receipts.make(entry, 1, seq)) for seq in fresh]


def key_of(seq: int) -> int | None:
    """The key of an event in an ordered group: every second one has none."""
    return seq % 4 if seq % 2 else None


class Storm:
    """One durable subscription, and the clients of its group."""

    def __init__(self, seed: int, clients: int, *, is_ordered: bool = False) -> None:
        self.random = random.Random(seed)
        self.is_ordered = is_ordered
        self.home = Deliveries()
        self.home.policy = Policy(is_group=clients > 1)
        self.entries: dict[int, tuple[int, ...]] = {}
        for offset in range(1, ENTRIES + 1):
            first = 10 * offset
            self.entries[offset] = tuple(range(first, first + self.random.choice((1, 1, 2, 4))))
        self.handled = Counter[int]()
        self.repeats = 0
        """How often an event may be handled again: with a client that was late, or lost."""
        self.settled: set[int] = set()
        self.clients = [Client() for _ in range(clients)]
        for client in self.clients:
            self.home.join(client.consumer)

    def run(self) -> None:
        """Do anything, then handle all that is left."""
        for _ in range(STEPS):
            client = self.random.choice(self.clients)
            self.random.choice(
                (self.send, self.read, self.handle, self.handle, self.arrive, self.go)
            )(client)
        for _ in range(STEPS):
            for client in self.clients:
                self.send(client)
                self.read(client)
                self.finish(client)
                self.arrive(client)
        assert self.settled == self.entries.keys(), "something is open for ever"
        assert not self.home._open
        events = sum(map(len, self.entries.values()))
        assert len(self.handled) == events
        assert self.handled.total() <= events + self.repeats

    def send(self, client: Client) -> None:
        """The home sends the next entry, or events of it."""
        flight = self.home.next_returned(0.0)
        if flight is None:
            if self.home.sent == ENTRIES:
                return
            offset = self.home.sent + 1
            keys = {seq: key_of(seq) for seq in self.entries[offset]} if self.is_ordered else {}
            flight = self.home.begin(offset, keys)
            if flight is None:
                return
        self.home.send(0.0, client.consumer, flight, 1)
        seqs = self._events_of(flight)
        client.down.append((flight.offset, seqs, flight.attempt, flight.is_part))

    def _events_of(self, flight: Flight) -> tuple[int, ...]:
        every = self.entries[flight.offset]
        return every if flight.seqs is None else tuple(sorted(flight.seqs))

    def read(self, client: Client) -> None:
        """A client takes a delivery."""
        if client.down:
            client.read()

    def handle(self, client: Client) -> None:
        """Its application is done with an event, or rejects it."""
        if not client.open:
            return
        seq, receipt = client.open.pop(self.random.randrange(len(client.open)))
        if self.random.random() < 0.3:
            receipt.reject(0.0, "")
        else:
            self._done(seq, receipt)

    def _done(self, seq: int, receipt: Receipt) -> None:
        if self.is_ordered:
            earlier = [each for those in self.entries.values() for each in those if each < seq]
            same = {each for each in earlier if key_of(each) == key_of(seq) is not None}
            assert same <= self.handled.keys(), f"{seq} is handled before {same}"
        self.handled[seq] += 1
        receipt.give()

    def finish(self, client: Client) -> None:
        """Its application is done with all that it has."""
        while client.open:
            self._done(*client.open.pop(0))

    def arrive(self, client: Client) -> None:
        """What a client has sent comes to the home."""
        if not client.up:
            return
        message = client.up.popleft()
        if message.seqs:
            offsets = message.others if isinstance(message, Acknowledge) else (message.entry,)
            for offset in offsets:
                self.home.narrow(offset, self.entries[offset])
        if isinstance(message, Nack):
            self.home.reject(0.0, client.consumer, message.entry, message.seqs)
            return
        settled = self.home.acknowledge(
            0.0, client.consumer, message.entry, message.others, message.seqs
        )
        for offset in settled:
            assert offset not in self.settled
            unhandled = set(self.entries[offset]) - set(self.handled)
            assert not unhandled, f"of entry {offset} nobody has handled {unhandled}"
        self.settled.update(settled)

    def go(self, client: Client) -> None:
        """Rarely, a deadline is over; or a session is lost, and with it perhaps its process."""
        if self.random.random() > 0.2:
            return
        self.repeats += sum(len(self._events_of(flight)) for flight in client.consumer.flights)
        if self.random.random() < 0.5:
            client.consumer.since = -100.0
            self.home.policy = self.home.policy._replace(ack_timeout_s=50.0)
            self.home.expire(0.0)
            self.home.policy = self.home.policy._replace(ack_timeout_s=0.0)
            client.consumer.since = 0.0
            return
        # What it has handled and not reported is done again, and so is what is on its way.
        self.repeats += sum(map(len, self.entries.values()))
        self.home.leave(0.0, client.consumer)
        if self.random.random() < 0.5:
            client.down.clear()
            client.up.clear()
            client.receipts.renew()
            client.consumer = ConsumerState()
            self.home.join(client.consumer)
            return
        self.clients[self.clients.index(client)] = fresh = Client()
        self.home.join(fresh.consumer)


@pytest.mark.parametrize(("clients", "is_ordered"), [(1, False), (2, False), (3, False), (3, True)])
def test_what_is_acknowledged_was_handled_and_all_of_it_is(clients: int, is_ordered: bool) -> None:
    for seed in seeds(200, nightly=10_000):
        try:
            Storm(seed, clients, is_ordered=is_ordered).run()
        except AssertionError as error:
            error.add_note(f"Storm({seed}, {clients}, is_ordered={is_ordered}).run()")
            raise
