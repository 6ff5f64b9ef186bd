"""The consumers of a durable subscription, its home and its disk: C1 to C4 of `Deliveries`.

The home is the very class, not another description of it: between two steps its state is a tuple
(`frozen`). Events are 1 to `events`; two clients take them. A client's message arrives at once or
late: a client answers for what it was sent long after its home gave that to another one, unless
its session is lost. An append to the disk is stored or refused at any later time, and the home may
be killed at each point, which leaves it the disk alone.

What must hold: two clients have an event at the same time only if the first was late, rejected it
or left; the disk forgets an event only once a client has acknowledged it, or together with the dead
letter for it; and each event gets there. With `keys`, event n has the key n % keys: an event is
sent only once all earlier ones of its key are done (C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from palio.node.deliveries import AT_ONCE, ConsumerState, Deliveries, Flight, Policy

LATER: Final = 5.0
"""When an event that was rejected with a delay is due; now is 0."""

ERRORS: Final = (
    "acknowledges what was rejected",
    "covers what others had",
    "buries before it is stored",
    "a refused letter is forgotten",
    "a returned event frees its key",
)
"""What the home might do wrong. The search found the second in the first version of the class."""


class Client(NamedTuple):
    """One consumer: what it was sent and has not answered, in order."""

    is_here: bool = True
    has: tuple[int, ...] = ()
    in_order: frozenset[int] = frozenset()
    """Those of them that came in order."""
    last: int = 0
    """The last event that came in order."""


class Append(NamedTuple):
    """What is on its way to the disk: an acknowledgement, or a dead letter with it."""

    floor: int
    others: frozenset[int]
    letter: int = 0


class State(NamedTuple):
    """The home, the disk, and both clients."""

    home: Any
    """None while it is down."""
    clients: tuple[Client, ...]
    done: frozenset[int]
    """The events that the disk has forgotten."""
    letters: tuple[int, ...]
    """The dead letters on the disk."""
    acked: frozenset[int]
    """The events that a client has acknowledged."""
    on_their_way: tuple[Append, ...]
    entitled: tuple[int, ...]
    """For each event, the client that may have it alone; -1 for none."""
    kills: int
    refusals: int
    leaves: int
    """How many of each may still come."""
    wrong: str = ""


Step: TypeAlias = tuple[tuple[object, ...], State]


def frozen(home: Deliveries, consumers: list[ConsumerState]) -> Any:
    """The state of a home as a value."""
    numbers = {consumer: number for number, consumer in enumerate(consumers)}
    flights = tuple(
        (
            each.offset,
            each.attempt,
            -1 if each.consumer is None else numbers[each.consumer],
            each.due,
            each.in_order,
            each.rejected,
            tuple(each.keys.items()),
            tuple(consumer in each.had for consumer in consumers),
        )
        for those in home._open.values()
        for each in those
    )
    orders = tuple(tuple(each.offset for each in consumer.flights) for consumer in consumers)
    present = tuple(consumer in home.consumers for consumer in consumers)
    lines = tuple((key, tuple(each.offset for each in line)) for key, line in home._lines.items())
    return home.sent, flights, orders, present, tuple(each.last for each in consumers), lines


def thawed(state: Any, policy: Policy) -> tuple[Deliveries, list[ConsumerState]]:
    """The home again."""
    sent, flights, orders, present, lasts, lines = state
    home, consumers = Deliveries(), [ConsumerState() for _ in orders]
    home.policy, home.sent = policy, sent
    for consumer, is_present, last in zip(consumers, present, lasts, strict=True):
        consumer.last = last
        if is_present:
            home.join(consumer)
    by_offset: dict[int, Flight] = {}
    for offset, attempt, number, due, in_order, rejected, keys, had in flights:
        flight = by_offset[offset] = Flight(offset, attempt, dict(keys))
        flight.had = {consumer for consumer, was in zip(consumers, had, strict=True) if was}
        flight.in_order, flight.rejected = in_order, rejected
        home._open[offset] = [flight]
        if number >= 0:
            flight.consumer = consumers[number]
        else:
            home.retry(flight, due)
            if not rejected:
                home._passed[flight] = None
    for key, line in lines:
        home._lines[key] = deque(by_offset[offset] for offset in line)
        home.held += len(line)
    for consumer, order in zip(consumers, orders, strict=True):
        consumer.flights = {by_offset[offset]: None for offset in order}
    return home, consumers


@dataclass(frozen=True)
class Consumers:
    """The model, within bounds: a `Model[State]`."""

    events: int = 3
    clients: int = 2
    most_attempts: int = 2
    kills: int = 0
    refusals: int = 0
    leaves: int = 0
    with_delays: bool = False
    keys: int = 0
    """The number of keys of an ordered group; 0 if there is no order."""
    error: str = ""

    @property
    def policy(self) -> Policy:
        """The options of the subscription."""
        is_group = self.clients > 1 and self.error != "covers what others had"
        return Policy(1.0, self.most_attempts, is_group)

    def initial(self) -> State:
        """All events wait, and both clients are there."""
        return State(
            home=self._started(),
            clients=(Client(),) * self.clients,
            done=frozenset(),
            letters=(),
            acked=frozenset(),
            on_their_way=(),
            entitled=(-1,) * (self.events + 1),
            kills=self.kills,
            refusals=self.refusals,
            leaves=self.leaves,
        )

    def _started(self) -> Any:
        consumers = [ConsumerState() for _ in range(self.clients)]
        home = Deliveries()
        for each in consumers:
            home.join(each)
        return frozen(home, consumers)

    # What is looked for

    def broken(self, state: State) -> str:
        """Whether the last step was wrong, or the disk has forgotten too much."""
        if state.wrong:
            return state.wrong
        if len(set(state.letters)) < len(state.letters):
            return "an event has two dead letters"
        lost = state.done - state.acked - frozenset(state.letters)
        return f"event {min(lost)} is lost" if lost else ""

    def is_quiet(self, state: State) -> bool:
        """All is done."""
        return len(state.done) == self.events and not state.on_their_way

    def describe(self, state: State) -> str:
        """The state in words."""
        return str(state._asdict())

    # What may happen

    def actions(self, state: State) -> Iterator[Step]:
        """Everything that may happen in a state."""
        if state.wrong:
            return
        if state.home is None:
            clients = tuple(Client() for _ in state.clients)
            yield (
                ("the home starts",),
                state._replace(
                    home=self._started(), clients=clients, entitled=(-1,) * (self.events + 1)
                ),
            )
            return
        yield from self.sends(state)
        for number in range(self.clients):
            yield from self.answers(state, number)
            yield from self.comes_and_goes(state, number)
        yield from self.disk(state)
        if state.kills:
            yield (
                ("the home is killed",),
                state._replace(home=None, on_their_way=(), kills=state.kills - 1),
            )

    def sends(self, state: State) -> Iterator[Step]:
        """The home sends what is next to any client that is there."""
        for number, client in enumerate(state.clients):
            if not client.is_here:
                continue
            home, consumers = thawed(state.home, self.policy)
            flight = home.next_returned(0.0)
            if flight is None:
                flight = self._begun(state, home)
            if flight is None:
                return
            offset = flight.offset
            home.send(0.0, consumers[number], flight, 1)
            earlier = [each for each in home._open if self._is_before(each, offset)]
            after = self._with(state, home, consumers)
            if earlier:
                after = after._replace(wrong=f"event {offset} does not wait for its key")
            owner = state.entitled[offset]
            if owner >= 0:
                after = after._replace(wrong=f"event {offset} is with two clients at once")
            has = tuple(each for each in client.has if each != offset)
            in_order = client.in_order - {offset} | {offset for _ in range(offset > client.last)}
            sent = Client(True, (*has, offset), in_order, max(client.last, offset))
            after = self._entitle(_put(after, number, sent), offset, number)
            yield (f"event {offset} is sent to {number}",), after

    def _begun(self, state: State, home: Deliveries) -> Flight | None:
        """The next event that was never sent and need not wait, if there is one."""
        for offset in range(home.sent + 1, self.events + 1):
            if offset in state.done:
                continue
            flight = home.begin(offset, {offset: offset % self.keys} if self.keys else {})
            if flight is not None:
                return flight
        return None

    def _is_before(self, one: int, other: int) -> bool:
        """Whether an event precedes another one of its key."""
        return bool(self.keys) and one < other and one % self.keys == other % self.keys

    def answers(self, state: State, number: int) -> Iterator[Step]:
        """A client acknowledges or rejects what it has, or is late with the oldest of it."""
        client = state.clients[number]
        for offset in client.has:
            yield from self.acknowledges(state, number, 0, offset)
            for delay in (0.0, LATER) if self.with_delays else (0.0,):
                home, consumers = thawed(state.home, self.policy)
                over = home.reject(0.0, consumers[number], offset, delay_s=delay)
                if self.error == "a returned event frees its key" and offset in home._open:
                    home._free_keys(home._open[offset][0], ())
                after = self._without(state, number, (offset,))
                if state.entitled[offset] == number:
                    after = self._entitle(after, offset, -1)
                after = self._bury(self._with(after, home, consumers), over)
                yield (f"{number} rejects {offset}",), after
        for offset in client.in_order:
            yield from self.acknowledges(state, number, offset, 0)
        home, consumers = thawed(state.home, self.policy)
        for consumer in consumers:
            consumer.since = inf
        oldest = next(iter(consumers[number].flights), None)
        if oldest is not None:
            consumers[number].since = -inf
            after = self._entitle(state, oldest.offset, -1)
            if len(home.consumers) > 1:  # the others get all that it has
                for offset in range(1, self.events + 1):
                    if state.entitled[offset] == number:
                        after = self._entitle(after, offset, -1)
            over = home.expire(0.0)
            yield (
                (f"{number} is late with {oldest.offset}",),
                self._bury(self._with(after, home, consumers), over),
            )
        due = [each for those in home._open.values() for each in those if each.due == LATER]
        for flight in due:
            home, consumers = thawed(state.home, self.policy)
            home.retry(home._open[flight.offset][0], AT_ONCE)
            yield ("a delay is over",), self._with(state, home, consumers)

    def acknowledges(self, state: State, number: int, upto: int, other: int) -> Iterator[Step]:
        """A client acknowledges one event, or all that came in order."""
        client = state.clients[number]
        home, consumers = thawed(state.home, self.policy)
        acked = {offset for offset in client.in_order if offset <= upto} if upto else {other}
        if self.error == "acknowledges what was rejected":
            for those in home._open.values():
                for each in those:
                    each.rejected = False
        settled = home.acknowledge(0.0, consumers[number], upto, (other,) if other else ())
        after = self._without(state, number, tuple(acked))
        after = after._replace(acked=after.acked | acked)
        for offset in acked:
            if state.entitled[offset] == number:
                after = self._entitle(after, offset, -1)
        floor = home.floor
        append = Append(floor, frozenset(offset for offset in settled if offset > floor))
        if append.floor or append.others:
            after = after._replace(on_their_way=(*after.on_their_way, append))
        words = f"{number} acknowledges {'up to ' + str(upto) if upto else other}"
        yield (words,), self._with(after, home, consumers)

    def comes_and_goes(self, state: State, number: int) -> Iterator[Step]:
        """A client leaves or is lost, or a new one takes its place."""
        client = state.clients[number]
        home, consumers = thawed(state.home, self.policy)
        if not client.is_here:
            consumers[number].last = 0
            home.join(consumers[number])
            yield (f"{number} comes",), _put(self._with(state, home, consumers), number, Client())
        elif state.leaves:
            over = home.leave(0.0, consumers[number])
            after = state._replace(leaves=state.leaves - 1)
            for offset in range(1, self.events + 1):
                if state.entitled[offset] == number:
                    after = self._entitle(after, offset, -1)
            after = _put(self._with(after, home, consumers), number, Client(False))
            yield (f"{number} leaves",), self._bury(after, over)

    def disk(self, state: State) -> Iterator[Step]:
        """The first append is stored, or refused with all behind it."""
        if not state.on_their_way:
            return
        first, *others = state.on_their_way
        home, consumers = thawed(state.home, self.policy)
        done = state.done | first.others | frozenset(range(1, first.floor + 1))
        letters = state.letters
        if first.letter:
            done |= {first.letter}
            letters = (*letters, first.letter)
            if first.letter in home._open:
                home.forget(0.0, home._open[first.letter][0])
        after = state._replace(done=done, letters=letters, on_their_way=tuple(others))
        yield ("stored",), self._with(after, home, consumers)
        if state.refusals:
            home, consumers = thawed(state.home, self.policy)
            kept = tuple(each for each in state.on_their_way if not each.letter)  # releases go on
            for each in state.on_their_way:
                if each.letter in home._open and self.error != "a refused letter is forgotten":
                    home.retry(home._open[each.letter][0], AT_ONCE)
                    home._open[each.letter][0].rejected = True
            after = state._replace(on_their_way=kept, refusals=state.refusals - 1)
            yield ("refused",), self._with(after, home, consumers)

    # The steps' parts

    def _bury(self, state: State, over: list[Flight]) -> State:
        """Dead letters are put on their way to the disk."""
        for flight in over:
            append = Append(0, frozenset(), flight.offset)
            if self.error == "buries before it is stored":
                home, consumers = thawed(state.home, self.policy)
                home.forget(0.0, home._open[flight.offset][0])
                state = self._with(state, home, consumers)
            state = state._replace(on_their_way=(*state.on_their_way, append))
        return state

    def _with(self, state: State, home: Deliveries, consumers: list[ConsumerState]) -> State:
        return state._replace(home=frozen(home, consumers))

    @staticmethod
    def _entitle(state: State, offset: int, number: int) -> State:
        entitled = list(state.entitled)
        entitled[offset] = number
        return state._replace(entitled=tuple(entitled))

    @staticmethod
    def _without(state: State, number: int, offsets: tuple[int, ...]) -> State:
        client = state.clients[number]
        has = tuple(each for each in client.has if each not in offsets)
        in_order = client.in_order.difference(offsets)
        return _put(state, number, client._replace(has=has, in_order=in_order))


def _put(state: State, number: int, client: Client) -> State:
    clients = list(state.clients)
    clients[number] = client
    return state._replace(clients=tuple(clients))
