"""What the log of a broker keeps, and `fold`: durable state after one more operation (L2).

It is the vocabulary of `tests.models.durable`, which says who appends what, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

BROKERS: Final = range(3)
NAMES: Final = "abc"


class Claim(NamedTuple):
    """An incarnation of the subscription: `S#number` is the queue at its home. Greater wins."""

    number: int
    home: int

    def __repr__(self) -> str:
        return "the other" if self == OTHER else f"S#{self.number}@{NAMES[self.home]}"


UNKNOWN: Final = Claim(0, 0)
"""What a broker without its disk knows until it has caught up with a neighbour."""

OTHER: Final = Claim(-1, 1)
"""A second subscription, which stays at b, and whose client takes everything at once."""


class Entry(NamedTuple):
    """An event in a stream. A negative number is no event: it tells that a disk was lost."""

    offset: int
    event: int
    claim: Claim


class Stream(NamedTuple):
    """What an origin has for one home, in the order of its log."""

    base: int = 0
    """The last offset that the home has stored."""
    entries: tuple[Entry, ...] = ()


class Cursor(NamedTuple):
    """What a home has of an origin: everything up to an offset of one log."""

    log: int
    offset: int


class Disk(NamedTuple):
    """Durable state: what `fold` makes of the operations that were stored."""

    log: int
    """Which log this is: a broker that has lost its disk begins a greater one."""
    offset: int
    claim: Claim
    """The newest that is known (Keep)."""
    logs: tuple[int, ...]
    """Of each broker the newest log that is known (Keep)."""
    queue: tuple[int, ...]
    """Events that wait here for the consumer."""
    streams: tuple[Stream, ...]
    """For each home."""
    cursors: tuple[Cursor, ...]
    """For each origin."""


# Named tuples of two classes may be equal; two operations never are.


@dataclass(frozen=True)
class Put:
    """An event was published here, for the subscription or for the other one."""

    event: int
    is_for_other: bool = False


@dataclass(frozen=True)
class Take:
    """An entry of another origin has come: Put and Cursor as one append (D2)."""

    origin: int
    log: int
    entry: Entry


@dataclass(frozen=True)
class CursorAlone:
    """A planted error: a Cursor, without the entry."""

    origin: int
    cursor: Cursor


@dataclass(frozen=True)
class Ack:
    """The consumer has acknowledged an event."""

    event: int


@dataclass(frozen=True)
class Release:
    """A home has stored everything up to an offset: the Ack of a stream."""

    home: int
    offset: int


@dataclass(frozen=True)
class Open:
    """Keep a claim, Close and Retarget the queue of an older one: one append (D5)."""

    claim: Claim
    sent: tuple[int, ...]
    """Up to which offset entries of each stream may have been sent: those stay (D4)."""


@dataclass(frozen=True)
class Log:
    """Keep that a broker has a new log: the stream to it begins anew (D7)."""

    broker: int
    log: int


@dataclass(frozen=True)
class CatchUp:
    """Keep what a neighbour knows, and Put that a former log of this broker is lost (D7)."""

    claim: Claim
    logs: tuple[int, ...]


Operation: TypeAlias = Put | Take | CursorAlone | Ack | Release | Open | Log | CatchUp

ERRORS: Final[Mapping[str, str]] = {
    "takes early": "D1: a home takes whatever is above its cursor",
    "takes again": "D1: a home takes what is at or below its cursor",
    "two appends": "D2: a home appends the cursor first, then the entry",
    "lets go when sent": "D2: an origin lets go of what it has sent",
    "retargets sent": "D4: an origin retargets what it has sent to the old home",
    "restart forgets": "D4: after a restart nothing counts as sent",
    "sends what moves": "D4: an origin sends an entry while its Retarget is under way",
    "old offset": "D4: a retargeted entry keeps the offset of its Put",
    "closed queue": "D5: an entry for a closed queue goes into that queue",
    "last heard wins": "D5: of two claims the one counts that was heard last",
    "any number": "D5: a process without a number claims once, and never again",
    "old queue stays": "D5: what waits at the old home stays there",
    "ack in memory": "D6: an ack is confirmed before it is stored",
    "any home log": "D7: Stored does not name the log of the home",
    "no new stream": "D7: the stream to a home without its disk goes on where it was",
    "home tells": "D7: a home tells a loss when an entry of a new log comes",
    "nobody tells": "D7: nobody tells a loss",
    "too early": "D7: a broker without its disk takes publications at once",
    "spotty": "L1: after a refused append the next one is stored",
    "acts ahead": "L2: an origin sends entries that are under way",
    "keeps cursor": "L3: when an entry is refused its cursor stays",
    "receipt first": "L4: the publisher has the receipt before the event is stored",
    "answers first": "L4: a home answers Stored before the entry is stored",
}
"""Errors that tests plant, each with the invariant that it breaks."""


def empty_disk(at: int, log: int) -> Disk:
    """A broker that has nothing, and knows of nobody."""
    logs = tuple(log if each == at else 0 for each in BROKERS)
    return Disk(log, 0, UNKNOWN, logs, (), (Stream(),) * 3, (Cursor(0, 0),) * 3)


def waiting(disk: Disk) -> tuple[int, ...]:
    """All events that a disk keeps."""
    return disk.queue + tuple(e.event for stream in disk.streams for e in stream.entries)


def changed(whole: tuple[T, ...], index: int, part: T) -> tuple[T, ...]:
    """A tuple with another part."""
    return (*whole[:index], part, *whole[index + 1 :])


def fold_all(disk: Disk, at: int, operations: tuple[Operation, ...], error: str) -> Disk:
    """What the disk will be if nothing is refused: the overlay (L3)."""
    return reduce(lambda before, each: fold(before, at, each, error), operations, disk)


@lru_cache(maxsize=100_000)
def fold(disk: Disk, at: int, operation: Operation, error: str = "") -> Disk:
    """Durable state after one more operation (L2); `error` is a planted one."""
    match operation:
        case Put(event, is_for_other):
            claim = OTHER if is_for_other else disk.claim
            # Without a claim there is no queue: nobody is known who wants the event.
            return disk if claim == UNKNOWN else routed(disk, at, event, claim)
        case Take(origin, log, entry):
            return taken(disk, at, origin, log, entry, error)
        case CursorAlone(origin, cursor):
            return disk._replace(cursors=changed(disk.cursors, origin, cursor))
        case Ack(event):
            return disk._replace(queue=tuple(each for each in disk.queue if each != event))
        case Release(home, offset):
            stream = disk.streams[home]
            kept = tuple(entry for entry in stream.entries if entry.offset > offset)
            stream = Stream(max(stream.base, offset), kept)
            return disk._replace(streams=changed(disk.streams, home, stream))
        case Open(claim, sent):
            return retargeted(disk._replace(claim=claim), at, sent, error)
        case Log(broker, log):
            disk = disk._replace(logs=changed(disk.logs, broker, log))
            if error == "no new stream":
                return disk
            stream = disk.streams[broker]._replace(base=0)
            return disk._replace(streams=changed(disk.streams, broker, stream))
        case CatchUp(claim, logs):
            disk = disk._replace(claim=claim, logs=changed(logs, at, disk.log))
            if logs[at] == disk.log or error in ("home tells", "nobody tells"):
                return disk
            return routed(disk, at, -1 - at, claim)


def taken(disk: Disk, at: int, origin: int, log: int, entry: Entry, error: str) -> Disk:
    """An entry goes into its queue, or on the way to the newest claim; its cursor moves (D2)."""
    known = disk.cursors[origin]
    if error == "home tells" and log > known.log and known.offset:
        disk = routed(disk, at, -1 - origin, disk.claim)
    if error != "two appends":
        disk = disk._replace(cursors=changed(disk.cursors, origin, Cursor(log, entry.offset)))
    if entry.claim == OTHER:
        return disk
    if error == "closed queue" and entry.claim < disk.claim:
        return disk._replace(queue=(*disk.queue, entry.event))
    # A home that has lost its disk learns from an entry that it is one.
    disk = disk._replace(claim=max(disk.claim, entry.claim))
    return routed(disk, at, entry.event, disk.claim)


def routed(disk: Disk, at: int, event: int, claim: Claim) -> Disk:
    """Put an event into the queue of a claim if that is here, else into the stream to its home."""
    if claim.home == at:
        return disk if claim == OTHER else disk._replace(queue=(*disk.queue, event))
    return in_stream(disk, event, claim, disk.offset + 1)


def in_stream(disk: Disk, event: int, claim: Claim, offset: int) -> Disk:
    """Put an event into the stream to the home of a claim."""
    stream = disk.streams[claim.home]
    entries = tuple(sorted((*stream.entries, Entry(offset, event, claim))))
    streams = changed(disk.streams, claim.home, stream._replace(entries=entries))
    return disk._replace(offset=max(disk.offset, offset), streams=streams)


def retargeted(disk: Disk, at: int, sent: tuple[int, ...], error: str) -> Disk:
    """What waits for an older claim, and no other broker may have, follows the newest (D4)."""
    claim = disk.claim
    moves: list[int] = []
    if claim.home != at and error != "old queue stays":
        moves += disk.queue
        disk = disk._replace(queue=())
    for home in BROKERS:
        if home == claim.home:
            continue
        stream = disk.streams[home]
        goes = [
            entry
            for entry in stream.entries
            if entry.claim != OTHER and (entry.offset > sent[home] or error == "retargets sent")
        ]
        moves += [entry.event for entry in goes]
        stays = tuple(entry for entry in stream.entries if entry not in goes)
        streams = changed(disk.streams, home, stream._replace(entries=stays))
        disk = disk._replace(streams=streams)
    for event in moves:
        if claim.home == at:
            disk = disk._replace(queue=(*disk.queue, event))
        else:  # with a new offset; the planted error takes that of the first Put for its own
            offset = 1 if error == "old offset" else disk.offset + 1
            disk = in_stream(disk, event, claim, offset)
    return disk
