"""Durable events from origin to home: the streams, the queues and the log (D1 to D6, L1 to L4).

Brokers a, b and c; one durable subscription S, which its client takes from one to the next (each
visit is a claim with a greater number); events that are published anywhere. Between any
two brokers lies a network in which a `Carry` or a `Stored`, once sent, may arrive at any later
time, any number of times, or never: that is every path through every graph, with brokers on it
that drop, and every retransmission. Facts of the map (claims, and the log of each broker) spread
from any broker to any.

What a broker does is written down here once, as the node has to do it:

- what comes in is judged by the *overlay*, `fold(under way, disk)`: `Broker.ahead()`;
- what goes out is read from the *disk*, `fold(stored operations)`: `Broker.disk` (L2, L4);
- a refused append, and a crash, throw away all that is under way (L1, L3), acknowledgements but.

The invariants, as the code names them:

D1  A home takes an entry only if `previous` is its cursor for that origin's log.
D2  Entry and cursor are one append; `Stored` says what the disk has.
D3  The network may lose, double and reorder; the origin sends again.
D4  What a home may have is that home's to hand on; all else follows the newest claim.
D5  A greater claim closes the queue and retargets it in one append, and no smaller one reopens it.
D6  What was acknowledged is never delivered again.
D7  A broker that finds out that it had another log tells every durable queue that it is lost.
L1  What is on the disk is a prefix of what was appended, acknowledgements but.
L2  Durable state changes on `stored` and nowhere else.
L3  What is under way is thrown away as a whole.
L4  Receipts, and `Stored`, are said after `stored`.

What the search found missing in the first wording of D1 to D6, each with the error of
`tests.models.log.ERRORS` that shows it. The model has the repair.

restart forgets
    What was sent is not on the disk, so after a restart everything in a stream counts as sent.
    Else the origin retargets what the old home hands on as well, and it comes again.
sends what moves
    While a Retarget is under way its entries are not sent: an entry goes out only if it is in the
    stream on the disk *and* in the overlay.
old offset
    A retargeted entry takes a new offset, that of its Retarget. With the offset of its Put it
    stands behind what the stream has carried for others meanwhile, passes for a duplicate, and is
    lost.
closed queue
    A Carry for a closed queue is taken, and put on the way to the newest claim in the same append.
    So a home remembers the newest claim of every subscription that it was home of.
any home log, no new stream
    `Carry` and `Stored` name the log of the *home*, too. A home without its disk has no cursor:
    the origin begins its stream anew (`previous` is 0) when it learns of the new log, and a late
    `Stored` of the lost log lets nothing go.
home tells
    By D1 a home tells the loss when it sees a new log of an origin. A home that has taken nothing
    of that origin, or that has itself lost what others handed to it, sees nothing. So D7: the
    broker itself learns of its former log from a neighbour, and puts the notice as an entry of its
    new log for every durable queue that it knows; it travels as any entry does. A broker that
    never comes back is removed, and who removes it puts the notice.
too early
    A broker without its disk knows no durable subscription, so it takes durable publications,
    claims and entries only when it has caught up with a neighbour.
any number
    A process that starts anew has no session number. Its broker opens the claim above the greatest
    that it knows, and once more above whatever outdoes it while the client is there. Else the
    client waits at a queue that was closed.

Not told apart here: a notice names the broker, and so all that its former log had for the
subscription; the home adds its cursor for that log, from which on events may lack. And nobody can
know that a lost disk had nothing: a loss of a disk is told to every durable queue, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tests.models.log import (
    BROKERS,
    NAMES,
    OTHER,
    UNKNOWN,
    Ack,
    CatchUp,
    Claim,
    Cursor,
    CursorAlone,
    Disk,
    Entry,
    Log,
    Open,
    Operation,
    Put,
    Release,
    Stream,
    Take,
    changed,
    empty_disk,
    fold,
    fold_all,
    waiting,
)

MOST_UNDER_WAY: Final = 2
"""Appends of a broker that are not stored yet: that one is behind another is all that matters."""


class Carry(NamedTuple):
    """An entry on its way from its origin to its home."""

    origin: int
    log: int
    home: int
    home_log: int
    previous: int
    entry: Entry

    def __repr__(self) -> str:
        event, claim = words(self.entry.event), self.entry.claim
        return (
            f"{event} for {claim} from {NAMES[self.origin]} to {NAMES[self.home]}, "
            f"offset {self.entry.offset} after {self.previous}"
        )


class Stored(NamedTuple):
    """A home has stored everything up to an offset of a log."""

    home: int
    home_log: int
    origin: int
    log: int
    offset: int

    def __repr__(self) -> str:
        return f"{NAMES[self.home]} has all from {NAMES[self.origin]} up to {self.offset}"


class Broker(NamedTuple):
    """One broker: its disk, what is under way to it, and how far it has sent each stream."""

    disk: Disk
    under_way: tuple[Operation, ...] = ()
    is_refusing: bool = False
    sent: tuple[int, ...] = (0, 0, 0)


class Event(NamedTuple):
    """What is known of an event to its publisher, and to those who judge."""

    origin: int
    claim: Claim
    """The newest that its origin knew."""
    is_stored: bool = False
    """The publisher has the receipt."""
    is_late: bool = False
    """Published after a disk was lost: that loss is no excuse if the event is missing."""


OVER: Final = Event(-1, UNKNOWN, is_stored=True)
"""Any event that the client has acknowledged."""


class State(NamedTuple):
    """All brokers, the network between them, and the client."""

    brokers: tuple[Broker, ...]
    network: frozenset[Carry | Stored]
    session_epoch: int
    claim: Claim
    """That of the client's session_epoch."""
    seen: tuple[int, ...]
    """Delivered to the client since it came to its broker."""
    heard: frozenset[int]
    """Delivered at any time."""
    acked: frozenset[int]
    """Acknowledged by the client, which knows that this is stored."""
    events: tuple[Event, ...]
    crashes: int
    refusals: int
    losses: int
    """How many of each may still come."""
    lost: int
    """The broker that has lost its disk; -1 if none has."""
    wrong: str
    """The property that the last step has broken."""


Step: TypeAlias = tuple[tuple[object, ...], State]
"""What happens, in words that are joined when a story is told, and the state after it."""


@dataclass(frozen=True)
class Durable:
    """The model, within bounds: a `Model[State]`."""

    path: tuple[int, ...] = (0, 1, 2)
    """The brokers that the client visits."""
    events: int = 2
    origins: tuple[int, ...] = (0, 1, 2)
    """The brokers at which they may be published."""
    crashes: int = 0
    refusals: int = 0
    losses: int = 0
    is_slow: bool = False
    """Anything may happen before an append is stored; else it is stored at once."""
    forgets: bool = False
    """In its last session the client is a new process, which has no number."""
    other: bool = False
    """Every second event is for the other subscription."""
    error: str = ""
    """One of `tests.models.log.ERRORS`."""

    def initial(self) -> State:
        """The subscription is settled at its first home: every broker knows of it."""
        claim = Claim(1, self.path[0])
        brokers = (
            Broker(
                empty_disk(at, 1)._replace(claim=claim, logs=(1,) * 3, cursors=(Cursor(1, 0),) * 3)
            )
            for at in BROKERS
        )
        return State(
            brokers=tuple(brokers),
            network=frozenset(),
            session_epoch=0,
            claim=claim,
            seen=(),
            heard=frozenset(),
            acked=frozenset(),
            events=(),
            crashes=self.crashes,
            refusals=self.refusals,
            losses=self.losses,
            lost=-1,
            wrong="",
        )

    # What is looked for

    def broken(self, state: State) -> str:
        """An event with a receipt is on a disk until its consumer has acknowledged it."""
        if not state.wrong and state.lost < 0:
            kept = {event for broker in state.brokers for event in waiting(broker.disk)}
            if any(len(set(each.disk.queue)) < len(each.disk.queue) for each in state.brokers):
                return "an event is in a queue twice"
            for number, event in enumerate(state.events, 1):
                if event.is_stored and number not in kept and number not in state.acked:
                    return f"event {number} has a receipt, and is lost"
        return state.wrong

    def is_quiet(self, state: State) -> bool:
        """Nothing waits, all know where the client is, and all was delivered or told as lost."""
        for broker in state.brokers:
            if broker.under_way or broker.is_refusing or waiting(broker.disk):
                return False
            if broker.disk.claim != state.claim:
                return False
        is_told = loss_of(state.lost) in state.acked
        return state.session_epoch == len(self.path) - 1 and all(
            number in state.acked or not event.is_stored or (is_told and not event.is_late)
            for number, event in enumerate(state.events, 1)
        )

    def wrong_to_deliver(self, state: State, event: int) -> str:
        """The property that a delivery breaks."""
        if event < 0:
            return "" if event == loss_of(state.lost) else "a loss is told that was none"
        if not state.events[event - 1].is_stored:
            return f"event {event} comes, and its publisher has no receipt"
        if state.lost >= 0:
            return ""
        if event in state.acked:
            return f"event {event} comes again after its acknowledgement"
        this = state.events[event - 1]
        for number, other in enumerate(state.events[: event - 1], 1):
            nobody_moved = other.claim == this.claim == state.claim
            is_missing = other.is_stored and number not in state.heard | state.acked
            if other.origin == this.origin and nobody_moved and is_missing:
                return f"event {event} comes before event {number}"
        return ""

    def describe(self, state: State) -> str:
        """What each broker has, and the client."""
        lines = []
        for name, broker in zip(NAMES, state.brokers, strict=True):
            disk = broker.disk
            streams = [
                f"{NAMES[home]} {[(e.event, e.offset, e.claim) for e in stream.entries]}"
                for home, stream in enumerate(disk.streams)
                if stream.entries
            ]
            cursors = [f"{NAMES[at]}{c.log}@{c.offset}" for at, c in enumerate(disk.cursors)]
            lines.append(
                f"{name}: log {disk.log}, knows {disk.claim}, queue {list(disk.queue)}, streams to "
                f"{', '.join(streams) or 'nobody'}, cursors {' '.join(cursors)}, "
                f"under way {list(broker.under_way)}"
            )
        lines.append(
            f"client: at {NAMES[self.path[state.session_epoch]]} with {state.claim}, heard "
            f"{sorted(state.heard)}, acknowledged {sorted(state.acked)}"
        )
        return "\n    ".join(lines)

    # What may happen

    def actions(self, state: State) -> Iterator[Step]:
        """Everything that may happen in a state."""
        if not state.wrong:
            for words, after in self.steps(state):
                yield words, after if self.error else folded(after)

    def steps(self, state: State) -> Iterator[Step]:
        """The actions, with states as they come."""
        for at in BROKERS:
            if state.brokers[at].disk.claim == UNKNOWN:
                yield from self.uncork(state, at)
            else:
                yield from self.open(state, at)
                yield from self.facts(state, at)
                yield from self.carry(state, at)
                yield from self.deliver(state, at)
            yield from self.publish(state, at)
            yield from self.disk_works(state, at)
            yield from self.faults(state, at)
        for message in state.network:
            if isinstance(message, Carry):
                yield from self.carry_arrives(state, message)
            else:
                yield from self.stored_arrives(state, message)
        if state.network:
            yield ("the network loses all that is in it",), state._replace(network=frozenset())
        if state.session_epoch + 1 < len(self.path):
            session_epoch = state.session_epoch + 1
            claim = Claim(session_epoch + 1, self.path[session_epoch])
            if self.is_forgetful(session_epoch):
                claim = UNKNOWN
            after = state._replace(session_epoch=session_epoch, claim=claim, seen=())
            yield ("the client goes to", NAMES[self.path[session_epoch]]), after

    def publish(self, state: State, at: int) -> Iterator[Step]:
        """Put an event; one that is refused was none for its publisher."""
        broker = state.brokers[at]
        number = len(state.events) + 1
        if number > self.events or at not in self.origins or not can_append(broker):
            return
        if broker.disk.claim == UNKNOWN and self.error != "too early":
            return
        claim = self.overlay(state, at).claim
        event = Event(at, claim, self.error == "receipt first", state.lost >= 0)
        operation = Put(number, self.other and number % 2 == 0)
        state = state._replace(events=(*state.events, event))
        target = OTHER if operation.is_for_other else claim
        yield (
            ("Put: event", number, "for", target, "at", NAMES[at]),
            self.append(state, at, operation),
        )

    def open(self, state: State, at: int) -> Iterator[Step]:
        """A broker opens a queue for its client, whose request may come late."""
        broker = state.brokers[at]
        known = self.overlay(state, at).claim
        if not can_append(broker):
            return
        for session_epoch in range(1, state.session_epoch + 1):
            claim = Claim(session_epoch + 1, self.path[session_epoch])
            if claim.home != at:
                continue
            if self.is_forgetful(session_epoch):
                if known == state.claim or (state.claim and self.error == "any number"):
                    continue
                claim = Claim(known.number + 1, at)
                state = state._replace(claim=claim)
            elif claim <= known:
                continue
            yield ("Open:", claim), self.append(state, at, Open(claim, broker.sent))

    def facts(self, state: State, at: int) -> Iterator[Step]:
        """A broker learns what another has stored: a claim, or a new log."""
        broker = state.brokers[at]
        if not can_append(broker):
            return
        known = self.overlay(state, at)
        others = [each.disk for each in state.brokers if each.disk.claim != UNKNOWN]
        for claim in {disk.claim for disk in others}:
            if claim > known.claim or (self.error == "last heard wins" and claim != known.claim):
                after = self.append(state, at, Open(claim, broker.sent))
                yield ("Facts, Close, Retarget:", NAMES[at], "learns of", claim), after
        for about in BROKERS if state.lost >= 0 else ():
            log = max(disk.logs[about] for disk in others)
            if log > known.logs[about]:
                after = self.append(state, at, Log(about, log))
                yield ("Facts:", NAMES[at], "learns of log", log, "of", NAMES[about]), after

    def uncork(self, state: State, at: int) -> Iterator[Step]:
        """A broker without its disk learns what there is, and that it was there before."""
        if not can_append(state.brokers[at]) or state.brokers[at].under_way:
            return
        for other in BROKERS:
            known = state.brokers[other].disk
            if known.claim != UNKNOWN:
                after = self.append(state, at, CatchUp(known.claim, known.logs))
                yield ("Digest, Facts:", NAMES[at], "catches up with", NAMES[other]), after

    def carry(self, state: State, at: int) -> Iterator[Step]:
        """An origin sends the next entry of a stream, or one that it has sent before (D3)."""
        broker = state.brokers[at]
        overlay = self.overlay(state, at)
        disk = overlay if self.error == "acts ahead" else broker.disk
        for home in BROKERS:
            previous = disk.streams[home].base
            for entry in disk.streams[home].entries:
                is_moving = entry not in overlay.streams[home].entries
                if is_moving and self.error != "sends what moves":
                    break
                message = Carry(at, disk.log, home, disk.logs[home], previous, entry)
                is_new = entry.offset > broker.sent[home]
                after = state._replace(network=state.network | {message})
                if is_new:
                    sent = changed(broker.sent, home, entry.offset)
                    after = put(after, at, broker._replace(sent=sent))
                if self.error == "lets go when sent":
                    after = self.append(after, at, Release(home, entry.offset))
                if is_new or message not in state.network:
                    yield ("Carry:", message), after
                if is_new:
                    break
                previous = entry.offset

    def carry_arrives(self, state: State, message: Carry) -> Iterator[Step]:
        """A home takes an entry if that is the next one (D1)."""
        at = message.home
        home = state.brokers[at]
        overlay = self.overlay(state, at)
        cursor = overlay.cursors[message.origin]
        if home.disk.claim == UNKNOWN or message.log < cursor.log:
            return
        if message.home_log != overlay.log:
            return
        known = cursor.offset if message.log == cursor.log else 0
        offset = message.entry.offset
        is_next = offset > known == message.previous
        if self.error == "takes early":
            is_next = offset > known
        elif self.error == "takes again":
            is_next = message.previous <= known
        if is_next and can_append(home):
            if self.error == "two appends":
                alone = CursorAlone(message.origin, Cursor(message.log, offset))
                state = self.append(state, at, alone)
            taken = self.append(state, at, Take(message.origin, message.log, message.entry))
            yield ("Carry arrives:", message), taken
        elif offset <= known and cursor == home.disk.cursors[message.origin]:
            again = Stored(at, home.disk.log, message.origin, message.log, known)
            after = state._replace(network=state.network | {again})
            yield ("Stored:", NAMES[at], "has already", message), after

    def stored_arrives(self, state: State, message: Stored) -> Iterator[Step]:
        """The origin lets go of what its home has (D2)."""
        at = message.origin
        overlay = self.overlay(state, at)
        if overlay.claim == UNKNOWN or message.log != overlay.log:
            return
        if message.home_log != overlay.logs[message.home] and self.error != "any home log":
            return
        if message.offset > overlay.streams[message.home].base:
            after = self.append(state, at, Release(message.home, message.offset))
            yield ("Stored arrives:", message), after

    def deliver(self, state: State, at: int) -> Iterator[Step]:
        """Deliver what waits, in order; store what the client acknowledges (D6)."""
        broker = state.brokers[at]
        disk = broker.disk
        if state.claim != disk.claim or disk.claim.home != at:
            return
        unseen = next((event for event in disk.queue if event not in state.seen), 0)
        if unseen:
            after = state._replace(
                seen=(*state.seen, unseen),
                heard=state.heard | {unseen},
                wrong=self.wrong_to_deliver(state, unseen),
            )
            yield (NAMES[at], "delivers", words(unseen)), after
        for event in state.seen:
            if event in self.overlay(state, at).queue:
                after = self.append(state, at, Ack(event))
                if self.error == "ack in memory":
                    after = after._replace(acked=after.acked | {event})
                yield ("Ack:", words(event), "at", NAMES[at]), after

    # Disks and faults

    def overlay(self, state: State, at: int) -> Disk:
        """The disk of a broker as it will be if nothing is refused (L3)."""
        broker = state.brokers[at]
        if not broker.under_way:
            return broker.disk
        return fold_all(broker.disk, at, broker.under_way, self.error)

    def append(self, state: State, at: int, operation: Operation) -> State:
        """Hand an operation to the disk. What follows from it follows once it is stored (L4)."""
        if not self.is_slow:
            return self.stored(state, at, operation)
        broker = state.brokers[at]
        if self.error == "answers first" and isinstance(operation, Take):
            state = state._replace(network=state.network | {answer(broker.disk, at, operation)})
        return put(state, at, broker._replace(under_way=(*broker.under_way, operation)))

    def disk_works(self, state: State, at: int) -> Iterator[Step]:
        """The first operation is stored; or it is refused, and all behind it with it (L1, L3)."""
        broker = state.brokers[at]
        if broker.is_refusing:
            taking = broker._replace(is_refusing=False)
            yield ("the disk of", NAMES[at], "takes writes again"), put(state, at, taking)
        if not broker.under_way:
            return
        first, *behind = broker.under_way
        shorter = put(state, at, broker._replace(under_way=tuple(behind)))
        yield ("stored by", NAMES[at], first), self.stored(shorter, at, first)
        if not state.refusals or isinstance(first, RELEASING):
            return
        disk = broker.disk
        kept: tuple[Operation, ...] = tuple(each for each in behind if isinstance(each, RELEASING))
        if self.error == "spotty":
            kept = tuple(behind)
        elif self.error == "keeps cursor" and isinstance(first, Take):
            cursor = Cursor(first.log, first.entry.offset)
            disk = disk._replace(cursors=changed(disk.cursors, first.origin, cursor))
        refused = Broker(disk, kept, self.error != "spotty", broker.sent)
        after = put(state._replace(refusals=state.refusals - 1), at, refused)
        yield ("refused by", NAMES[at], first, "and behind it", len(behind) - len(kept)), after

    def stored(self, state: State, at: int, operation: Operation) -> State:
        """An operation is on the disk: durable state changes, and what follows is said (L2, L4)."""
        broker = state.brokers[at]
        disk = fold(broker.disk, at, operation, self.error)
        state = put(state, at, broker._replace(disk=disk))
        if disk.claim < broker.disk.claim:
            return state._replace(wrong="a smaller claim outdoes a greater one")
        match operation:
            case Put(number, is_for_other):
                event = state.events[number - 1]._replace(is_stored=True)
                state = state._replace(events=changed(state.events, number - 1, event))
                if is_for_other and at == OTHER.home:
                    state = state._replace(acked=state.acked | {number})
            case Take(_, _, entry):
                said = state.network | {answer(disk, at, operation)}
                state = state._replace(network=said)
                if entry.claim == OTHER:
                    wrong = "the other hears it twice" if entry.event in state.acked else ""
                    state = state._replace(acked=state.acked | {entry.event}, wrong=wrong)
            case Ack(event):
                state = state._replace(acked=state.acked | {event})
            case _:
                pass
        return state

    def faults(self, state: State, at: int) -> Iterator[Step]:
        """A broker stops dead, with its disk or without, and starts."""
        broker = state.brokers[at]
        if state.crashes:
            after = state._replace(crashes=state.crashes - 1)
            yield (NAMES[at], "crashes, and starts"), self.started(after, at, broker.disk)
        if state.losses:
            after = state._replace(losses=state.losses - 1, lost=at)
            empty = empty_disk(at, broker.disk.log + 1)
            yield (NAMES[at], "loses its disk, and starts"), self.started(after, at, empty)

    def started(self, state: State, at: int, disk: Disk) -> State:
        """A broker has only its disk, which does not say what was sent: so all may have been."""
        sent = tuple(stream.entries[-1].offset if stream.entries else 0 for stream in disk.streams)
        if self.error == "restart forgets":
            sent = (0, 0, 0)
        seen = () if self.path[state.session_epoch] == at else state.seen
        return put(state._replace(seen=seen), at, Broker(disk, sent=sent))

    def is_forgetful(self, session_epoch: int) -> bool:
        """Whether the client of a session is a new process, which has no number."""
        return self.forgets and session_epoch == len(self.path) - 1


RELEASING: Final = (Ack, Release)
"""Operations that only let go: they commute with all others, and go from a reserve (L1)."""


def can_append(broker: Broker) -> bool:
    """Whether the disk takes what grows."""
    return not broker.is_refusing and len(broker.under_way) < MOST_UNDER_WAY


def put(state: State, at: int, broker: Broker) -> State:
    """The state with another broker; how far it has sent is said of what it still has."""
    if any(broker.sent):
        sent = tuple(
            max((entry.offset for entry in stream.entries if entry.offset <= limit), default=0)
            for stream, limit in zip(broker.disk.streams, broker.sent, strict=True)
        )
        broker = broker._replace(sent=sent)
    return state._replace(brokers=changed(state.brokers, at, broker))


def answer(disk: Disk, at: int, operation: Take) -> Stored:
    """What a home says once it has stored an entry."""
    return Stored(at, disk.log, operation.origin, operation.log, operation.entry.offset)


def is_alive(state: State, message: Carry | Stored) -> bool:
    """Whether a message may do anything, now or later."""
    home = state.brokers[message.home].disk
    origin = state.brokers[message.origin].disk
    if isinstance(message, Carry):
        if home.log != message.home_log:
            return False
        is_new = home.cursors[message.origin] < Cursor(message.log, message.entry.offset)
        return is_new or (
            origin.log == message.log and message.entry.offset > origin.streams[message.home].base
        )
    if origin.log != message.log or origin.logs[message.home] > message.home_log:
        return False
    return message.offset > origin.streams[message.home].base


def folded(state: State) -> State:
    """The one of several states that nothing to come can tell apart.

    Messages that do nothing whenever they arrive are gone; what was acknowledged is nobody's any
    more; an origin has let go of what a home has stored, if that home cannot lose its disk; and an
    origin of which nothing is on its way counts anew. A planted error may break the argument for
    each of these: then states stay as they are.
    """
    acked = state.acked
    if acked:
        again = {event for broker in state.brokers for event in broker.disk.queue}
        state = state._replace(
            seen=tuple(event for event in state.seen if event not in acked or event in again),
            heard=state.heard - acked,
            events=tuple(
                OVER if number in acked else event for number, event in enumerate(state.events, 1)
            ),
        )
    origins = [at for at in BROKERS if state.brokers[at].disk.offset]
    if not state.losses:
        for at in origins:
            state = released(state, at)
    network = frozenset(each for each in state.network if is_alive(state, each))
    if len(network) < len(state.network):
        state = state._replace(network=network)
    for at in origins:
        state = counted_anew(state, at)
    return state


def released(state: State, at: int) -> State:
    """An origin has let go of what its homes have stored."""
    disk = state.brokers[at].disk
    for home in BROKERS:
        there = state.brokers[home].disk
        log, offset = there.cursors[at]
        if (disk.logs[home], disk.log) == (there.log, log) and offset > disk.streams[home].base:
            disk = fold(disk, at, Release(home, offset))
    if disk is state.brokers[at].disk:
        return state
    return put(state, at, state.brokers[at]._replace(disk=disk))


def counted_anew(state: State, at: int) -> State:
    """If nothing of an origin is on its way, its log may as well begin with the next entry."""
    disks = [broker.disk for broker in state.brokers]
    streams, log = disks[at].streams, disks[at].log
    for home in BROKERS:
        if home != at and (
            streams[home].entries or disks[home].cursors[at] != (log, streams[home].base)
        ):
            return state
    if any(broker.under_way for broker in state.brokers):
        return state
    if any(each.origin == at for each in state.network):
        return state
    for home in BROKERS:
        cursor = disks[home].cursors[at]._replace(offset=0)
        disks[home] = disks[home]._replace(cursors=changed(disks[home].cursors, at, cursor))
    disks[at] = disks[at]._replace(offset=0, streams=(Stream(),) * 3)
    brokers = zip(state.brokers, disks, strict=True)
    return state._replace(brokers=tuple(broker._replace(disk=disk) for broker, disk in brokers))


def loss_of(broker: int) -> int:
    """The entry that tells the loss of a disk; 0 for none."""
    return -1 - broker


def words(event: int) -> str:
    """An event, or a loss that is told."""
    return f"event {event}" if event > 0 else f"the loss of {NAMES[-1 - event]}'s disk"
