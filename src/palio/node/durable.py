"""`DurableEvents`: durable events from the broker that accepts them to the homes, end to end.

The broker that accepts an event is its *origin*: it keeps it with its targets. The *home* of a
durable subscription keeps it until its owner has dealt with it. Brokers between only forward, and
may drop what they like.

```
origin  publish > Put ... stored > Carry >                             EntriesStored > Release
home                                            Put, Cursor ... stored > QueueReady > Ack
D1  a home takes an entry only if `previous` is its cursor for that origin's log
D2  entry and cursor are one append; EntriesStored says what the disk has
D4  what a home may have is that home's to hand on; all else follows the newest claim
D5  a greater claim closes the queue and retargets it in one append
D7  a broker that had another log tells every durable queue that it is lost
```

What comes in is judged by what is under way (the overlay); what goes out is read from what is
stored. Each method returns what follows from it. The model is `tests.models.durable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf
from typing import Any, Final, NamedTuple

from palio.node.claims import KnownClaims
from palio.node.effects import Heading, Store
from palio.node.log import Log, Overlay, Pending
from palio.node.operations import (
    Ack,
    Action,
    Append,
    CaughtUp,
    Claim,
    ClaimStored,
    Close,
    Cursor,
    Delivery,
    Discard,
    DropSubscription,
    Forgotten,
    Impossible,
    Kept,
    NotKept,
    Numbered,
    Open,
    Operation,
    Put,
    PutSubscription,
    QueueReady,
    Renew,
    Retarget,
    Target,
    Transmit,
    last_offset_of,
)
from palio.node.queues import Line, Queued, Queues
from palio.node.streams import EntryReader, Streams
from palio.protocol.limits import MAX_PUBLISHERS, MAX_SUBJECTS
from palio.protocol.messages import Carry, EntriesStored, Parcel, Share

UNREADY: Final = "this broker has yet to hear from its network; try again soon"


class PendingHomes:
    """A publication whose publisher waits until every home has stored it, too."""

    def __init__(self, token: Any, *, is_retransmit: bool = False) -> None:
        self.token = token
        self.is_retransmit = is_retransmit
        """True if it was published before: what waits for any home by now may be of it."""
        self.open: dict[str, int] = {}
        """By home, up to which offset it is yet to store its stream."""


class _Loss(NamedTuple):
    """Entries reported as lost, until that is on the disk."""

    parcel: Parcel
    wall_us: int


class DurableEvents:
    """The part of one broker that keeps durable events and brings them to their homes."""

    def __init__(
        self,
        name: str,
        log: int,
        operations: Iterable[Operation],
        store: Store,
        *,
        last_offset: int = 0,
        records: Iterable[PutSubscription] = (),
    ) -> None:
        self.name = name
        self.claims = KnownClaims(name)
        self.queues = Queues(name)
        self.records = {each.subject: each for each in records}
        """The durable subscriptions that live here, as the disk has them."""
        self._reader = EntryReader(name, store)
        self._asked: dict[str, tuple[int, int]] = {}
        """The cursor from which on each origin was asked, once."""
        self._missed: dict[str, int] = {}
        """Origins of which something came that the disk refused, with their logs."""
        self._unlearned: dict[str, Claim] = {}
        """Claims of others that the disk refused."""
        self._relearning = 0
        """The append of the last of these, once the disk takes it: others believe that they are
        known here, so nothing is published without them."""
        self._unrenewed: dict[str, int] = {}
        """Logs of others that it refused."""
        self._losses: list[_Loss] = []
        """Reports of lost entries that the disk refused."""
        self._gone: dict[str, None] = {}
        """Brokers that are gone for good."""
        self._at_homes: dict[str, deque[PendingHomes]] = {}
        """By home, those who wait for it, in the order of the offsets that they wait for."""
        self._refusal = ""
        """Why the disk refused the last time."""
        self.is_ready = False
        """True if it knows what durable subscriptions there are: a broker without its disk does not
        before it has caught up, and takes nothing durable until then."""
        left_over: dict[int, None] = {}
        for operation in operations:
            last_offset = max(last_offset, last_offset_of(operation))
            left_over.update(dict.fromkeys(self._load(operation)))
            if isinstance(operation, CaughtUp):
                self.is_ready, log = True, max(log, operation.log)
            elif isinstance(operation, Discard):
                for entry in operation.entries:
                    left_over.pop(entry, None)
        self.log = Log(last_offset)
        self.streams = Streams(name, log, self.queues, self.log, self._reader)
        if left_over:  # the broker stopped before that was written
            self.log.release(-inf, Discard(tuple(left_over)))

    def _load(self, operation: Operation) -> list[int]:
        """One of the operations that the disk has; entries that nobody needs any more."""
        match operation:
            case Open(claim):
                self.claims.apply(claim)
            case Put(entry, _, _, ()):
                return [entry]
            case _:
                return self.queues.apply(operation)
        return []

    @property
    def gone(self) -> list[str]:
        """Brokers that are gone for good."""
        return list(self._gone)

    @property
    def overlay(self) -> Overlay:
        """The operations under way to the disk."""
        return self.log.overlay

    # --- publishing ---

    def publish(
        self,
        now: float,
        wall_us: int,
        parcel: Parcel,
        wanted: Mapping[str, bytes | None],
        token: Any,
        beside: Sequence[Operation] = (),
    ) -> list[Action]:
        """Keep events for the durable subscriptions that want them, with the rows for each."""
        if not self.is_ready:
            return [_not_kept(token, UNREADY)]
        if self._relearning:
            return [_not_kept(token, self._refusal)]
        put = self._put(parcel, wall_us, self._shares(wanted, {}), {})
        if not put:
            return self.barrier(token)
        if isinstance(token, PendingHomes):
            token.open = {to.home: to.offset for to in put[0].targets if to.home != self.name}
        publisher, last = parcel.publisher, parcel.seqs[-1]
        most = max(0, len(self.queues.published) - MAX_PUBLISHERS)
        if most:
            self.log.release(now, Forgotten(tuple(islice(self.queues.published, most))))
        return self.append(now, [*put, Numbered(publisher, last), *beside], token)

    def last_published(self, publisher: str) -> int:
        """Up to this number a publisher has sent before what it says now: that is not published
        again, but answered behind all that is under way; -1 if it has announced nothing.
        """
        return max(self.overlay.published(publisher), self.queues.published.get(publisher, -1))

    def barrier(self, token: Any) -> list[Action]:
        """Answer once all that is under way is on the disk."""
        if self.log.is_refusing:
            return [_not_kept(token, self._refusal)]
        write = self.log.barrier(token)
        return list(self._kept(token)) if write is None else [write]

    def _shares(
        self, wanted: Mapping[str, bytes | None], opening: Mapping[str, Claim]
    ) -> list[Share]:
        """Return the shares that are not over, by their newest claims."""
        shares = []
        for subject, rows in wanted.items():
            claim = opening.get(subject) or self.claims.newest(subject, self.overlay)
            if claim is not None and not claim.is_over and claim.home not in self._gone:
                shares.append(Share(subject, claim.number, rows))
        return shares

    def _put(
        self,
        parcel: Parcel,
        wall_us: int,
        shares: Iterable[Share],
        opening: Mapping[str, Claim],
    ) -> list[Put]:
        """Keep events for the homes of some durable subscriptions, some of which are claimed in
        the same append; nothing if there are none.
        """
        homes: dict[str, list[Share]] = {}
        for share in shares:
            claim = opening.get(share.subject) or self.claims.newest(share.subject, self.overlay)
            assert claim is not None, f"{share.subject} is put for, and nobody has claimed it"
            homes.setdefault(claim.home, []).append(share)
        targets = tuple(
            Target(home, self.log.offsets(), tuple(some))
            for home, those in homes.items()
            for some in _chunks(those, MAX_SUBJECTS)
        )
        return [Put(targets[0].offset, parcel, wall_us, targets)] if targets else []

    # --- claims ---

    def open(
        self, now: float, asked: Claim, record: PutSubscription | None, token: Any
    ) -> list[Action]:
        """An owner is here: its durable subscription lives here from now on (D5)."""
        if not self.is_ready:
            return [NotKept(token, UNREADY)]
        claim = self.claims.next(asked, self.overlay)
        return self._claim(now, claim, token, () if record is None else (record,))

    def change(self, now: float, record: PutSubscription, filter: str, token: Any) -> list[Action]:
        """A durable subscription that lives here has another filter."""
        claim = self.claims.changed(record.subject, filter, self.overlay)
        return self._claim(now, claim, token, (record,))

    def end(self, now: float, asked: Claim, token: Any) -> list[Action]:
        """A durable subscription is over, wherever it lives, by a session of its owner."""
        claim = self.claims.over(asked, self.overlay)
        return [Kept(token)] if claim is None else self._claim(now, claim, token)

    def learn(self, now: float, claims: Iterable[Claim]) -> list[Action]:
        """Claims that others have stored; those that are news count here once they are stored."""
        actions: list[Action] = []
        for said in claims:
            if not self.claims.is_news(said, self.overlay):
                continue
            claim = self.claims.believed(said, self.overlay)
            if self.log.is_refusing or not self.is_ready:
                self._postpone(claim)
            else:
                actions += self._claim(now, claim, None)
        return actions

    def _claim(
        self, now: float, claim: Claim, token: Any, beside: Sequence[Operation] = ()
    ) -> list[Action]:
        """A claim, and all that waits for an older one, in one append."""
        return self.append(now, [*self._opening(claim), *beside], token)

    def _opening(self, claim: Claim) -> list[Operation]:
        before = self.claims.newest(claim.subject, self.overlay)
        operations: list[Operation] = [Open(claim)]
        begins_anew = before is not None and before.number < claim.since
        stays = before is None or before.home == claim.home or claim.home in self._gone
        if stays and not begins_anew:
            return operations
        sent = self.streams.sent
        if before is not None and before.home == self.name:
            operations.append(DropSubscription(claim.subject))
        if claim.is_over or begins_anew:
            operations.append(Close(claim.subject, sent))
        else:
            operations.append(self._retarget(claim, sent))
        return operations

    def _retarget(self, claim: Claim, sent: tuple[tuple[str, int], ...]) -> Retarget:
        subject = claim.subject
        count = self.queues.count(subject) + self.overlay.shares[subject]
        first = self.log.offsets(count) if count else 0
        return Retarget(subject, claim.number, claim.home, first, count, sent)

    def _postpone(self, claim: Claim) -> None:
        known = self._unlearned.get(claim.subject)
        if known is None or claim.rank > known.rank:
            self._unlearned[claim.subject] = claim

    # --- logs of brokers, and brokers that are gone ---

    def renew(self, now: float, home: str, log: int) -> list[Action]:
        """Another broker has this log: the stream to it starts over if that is news (D7)."""
        known = max(self.streams.log_of(home), self._unrenewed.get(home, 0))
        if home == self.name or log <= known:
            return []
        if self.log.is_refusing:
            self._unrenewed[home] = log
            return []
        return self.append(now, [Renew(home, log)], None)

    def catch_up(
        self,
        now: float,
        wall_us: int,
        claims: Iterable[Claim],
        log: int,
        loss: Parcel | None,
        token: Any = None,
    ) -> list[Action]:
        """A broker without its disk knows its network now, and which log it is to have. If that
        knows of a former one, the `loss` is put for every durable subscription (D7): all of it is
        one append, as a broker that stops between would have told nobody.
        """
        assert not self.is_ready, "a broker that has a disk has nothing to catch up with"
        for claim in claims:
            self._postpone(claim)
        opening = {claim.subject: claim for claim in self._take_unlearned()}
        operations: list[Operation] = [Open(claim) for claim in opening.values()]
        if loss is not None:
            shares = self._shares(dict.fromkeys(opening), opening)
            operations += self._put(loss, wall_us, shares, opening)
        return self.append(now, [*operations, CaughtUp(log)], token)

    def begin_log(
        self, now: float, wall_us: int, log: int, loss: Parcel, token: Any
    ) -> list[Action]:
        """A broker begins another log, as an earlier one of it had a greater number."""
        put = self._put(loss, wall_us, self._everybody(), {})
        return self.append(now, [*put, CaughtUp(log)], token)

    def report_loss(self, now: float, wall_us: int, loss: Parcel) -> list[Action]:
        """The disk of a broker that was removed is lost for good: every durable subscription is
        told.
        """
        put = self._put(loss, wall_us, self._everybody(), {})
        return self.append(now, put, _Loss(loss, wall_us)) if put else []

    def _everybody(self) -> list[Share]:
        """A share for each durable subscription, also where its claim is under way."""
        return self._shares(self.claims.subjects(self.overlay), {})

    def reinstate(self, home: str) -> None:
        """A broker that was thought to be gone for good is there."""
        self._gone.pop(home, None)

    def remove(self, now: float, home: str) -> list[Action]:
        """A broker is gone for good: what it was to have follows the newest claims, also if it may
        have been sent; what has none that counts is over.
        """
        self._gone[home] = None
        stream = self.queues.streams.get(home)
        if stream is None:
            return []
        sent = tuple(each for each in self.streams.sent if each[0] != home)
        operations: list[Operation] = []
        for subject in stream.subjects:
            claim = self.claims.newest(subject, self.overlay)
            if claim is None or claim.is_over or claim.home in self._gone:
                operations.append(Close(subject, sent))
            else:
                operations.append(self._retarget(claim, sent))
        return self.append(now, operations, None) if operations else []

    # --- streams ---

    def carry(self, now: float, wall_us: int, message: Carry) -> list[Action]:
        """An entry of another origin has come: take it if it is the next one (D1)."""
        origin, log, offset, previous = (
            message.origin,
            message.log,
            message.offset,
            message.previous,
        )
        if self.log.is_refusing:
            self._missed[origin] = log
            return []
        stored = self.queues.cursors.get(origin, Cursor(origin, 0, 0))
        cursor = self.overlay.cursor(origin) or stored
        if not self.is_ready or message.home_log != self.streams.log_number or log < cursor.log:
            return []
        known = cursor.offset if log == cursor.log else 0
        if (offset <= known or previous != known) and cursor != stored:
            return []  # what is answered is on the disk (L4): it comes again
        if offset <= known:
            return [self._say_stored(cursor)]
        if previous != known:
            return self._ask(Cursor(origin, log, known), offset, previous)
        opening, operations = self._unheard(message.shares)
        alive = [share for share in message.shares if self._is_for(share, opening)]
        alive = self._shares({share.subject: share.rows for share in alive}, opening)
        operations += self._put(message.parcel, wall_us, alive, opening)
        operations.append(Cursor(origin, log, offset))
        return self.append(now, operations, None)

    def _unheard(self, shares: Iterable[Share]) -> tuple[dict[str, Claim], list[Operation]]:
        """A home that has not learned of a claim learns from an entry that it is one."""
        opening: dict[str, Claim] = {}
        operations: list[Operation] = []
        for share in shares:
            claim = self.claims.newest(share.subject, self.overlay)
            if claim is None or share.number > claim.number:
                since = 0 if claim is None else claim.since
                opening[share.subject] = Claim(share.subject, share.number, self.name, since=since)
                operations += self._opening(opening[share.subject])
        return opening, operations

    def _is_for(self, share: Share, opening: Mapping[str, Claim]) -> bool:
        """Return whether what was put for a claim is for the newest one: another may have begun
        since.
        """
        claim = opening.get(share.subject) or self.claims.newest(share.subject, self.overlay)
        return claim is not None and share.number >= claim.since

    def _ask(self, cursor: Cursor, offset: int, previous: int) -> list[Action]:
        """Something came early: ask for what lies before it, once."""
        if previous < cursor.offset:
            return [Impossible(cursor.origin, f"{offset} after {previous}, beside {cursor.offset}")]
        if self._asked.get(cursor.origin) == (cursor.log, cursor.offset):
            return []
        self._asked[cursor.origin] = cursor.log, cursor.offset
        return [self._say_stored(cursor, is_asking=True)]

    def _cursor(self, origin: str, log: int) -> Cursor:
        """How far this broker has the stream of an origin from such a log of it."""
        stored = self.queues.cursors.get(origin)
        return Cursor(origin, log, 0) if stored is None or stored.log != log else stored

    def _say_stored(self, cursor: Cursor, *, is_asking: bool = False) -> Transmit:
        origin, log, offset = cursor
        message = EntriesStored(self.name, self.streams.log_number, origin, log, offset, is_asking)
        return Transmit(origin, message)

    def has_stored(self, now: float, message: EntriesStored) -> list[Action]:
        """A home has stored its stream up to an offset (D2)."""
        return [*self.streams.has_stored(now, message), *self._are_at_homes()]

    # --- queues here ---

    def delivery(self, subject: str, after: int) -> Delivery | None:
        """Return the first entry behind an offset in the queue of a durable subscription."""
        claim, line = self.claims.stored(subject), self.queues.here.get(subject)
        found = None if line is None else line.next(after)
        if line is None or found is None or claim is None or claim.home != self.name:
            return None
        offset, held = found
        parcel = self._reader.read(line, offset, held.entry)
        if parcel is None:
            lost = self._reader.lost(held.entry, held.rows).parcel
            return Delivery(offset, held.entry, lost, None, is_damaged=True)
        return Delivery(offset, held.entry, parcel, held.rows or None)

    def heading(self, entry: int) -> Heading:
        """Whose events an entry holds that cannot be read, if that can be."""
        return self._reader.heading(entry)

    def waits(self, subject: str) -> Line[Queued]:
        """Return the entries that wait for a durable subscription that lives here, in order."""
        return self.queues.here.get(subject) or Line()

    def acknowledge(
        self, now: float, subject: str, upto: int, others: tuple[int, ...], bookmark: bytes
    ) -> list[Action]:
        """An owner has dealt with some (D6). What is about to follow it elsewhere it has there."""
        if not self.claims.is_here(subject, self.overlay) or subject in self.overlay.moving:
            return []
        last = max(upto, *others, 0)
        if last > self.log.last_offset:
            return [Impossible(subject, f"{last} is acknowledged, and nothing has it")]
        self.log.release(now, Ack(subject, upto, others, bookmark))
        write = self.log.flush(now)
        return [] if write is None else [write]

    # --- the disk, and the clock ---

    def flush(self) -> list[Action]:
        """Write what is let go at once: somebody waits for that, or the broker stops."""
        write = self.log.flush(inf)
        return [] if write is None else [write]

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min(self.log.due_at, self.streams.wake_at)

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        write = self.log.flush(now)
        actions = self.streams.tick(now)
        return actions if write is None else [write, *actions]

    def stored(self, now: float, ticket: int) -> list[Action]:
        """An append is on the disk: durable state changes, and what follows is said (L2, L4)."""
        pending = self.log.stored(ticket)
        if ticket == self._relearning:
            self._relearning = 0
        actions: list[Action] = []
        touched: dict[str, None] = {}
        for operation in (*pending.released, *pending.operations):
            actions += self._apply(now, operation, touched)
        if pending.token is not None and not isinstance(pending.token, _Loss):
            actions += self._kept(pending.token)
        actions += self._are_at_homes()
        if any(isinstance(each, CaughtUp) for each in pending.operations):
            actions += self.learn(now, self._take_unlearned())  # what has come meanwhile
        for home in self.streams.homes if self._has_moved(pending) else touched:
            actions += self.streams.pump(now, home)
        for home in touched:
            if home in self._gone:  # it was under way when that was said
                actions += self.remove(now, home)
        return actions

    def _kept(self, token: Any) -> Iterator[Action]:
        """Something is on the disk here: whoever waits for no more is informed."""
        if not isinstance(token, PendingHomes):
            yield Kept(token)
            return
        if token.is_retransmit:
            token.open |= self.streams.ends
        token.open = {home: at for home, at in token.open.items() if self.streams.owes(home, at)}
        for home in token.open:
            self._at_homes.setdefault(home, deque()).append(token)
        if not token.open:
            yield Kept(token.token)

    def _are_at_homes(self) -> Iterator[Action]:
        """Homes have stored more, or what was for them goes elsewhere: who waited for that is
        told.
        """
        for home, waiting in list(self._at_homes.items()):
            while waiting and not self.streams.owes(home, waiting[0].open[home]):
                token = waiting.popleft()
                del token.open[home]
                if not token.open:
                    yield Kept(token.token)
            if not waiting:
                del self._at_homes[home]

    def _follow_elsewhere(self, what: Retarget) -> None:
        """Move the publishers that wait for some homes along with the entries, which wait for
        another now.
        """
        if what.to == self.name or not what.reserved:
            return
        last = what.first + what.reserved - 1
        for token in dict.fromkeys(chain.from_iterable(self._at_homes.values())):
            if what.to not in token.open:
                self._at_homes.setdefault(what.to, deque()).append(token)
            assert token.open.get(what.to, 0) < last, "Q2: what is retargeted comes behind all"
            token.open[what.to] = last

    @staticmethod
    def _has_moved(pending: Pending) -> bool:
        """Return whether what was held back in any stream may go on."""
        return any(isinstance(each, Retarget | Close) for each in pending.operations)

    def _apply(
        self, now: float, operation: Operation, touched: dict[str, None]
    ) -> Iterator[Action]:
        over = self.queues.apply(operation)
        if over:
            self.log.release(now, Discard(tuple(over)))
            for entry in over:
                self._reader.cache.drop(entry)
        match operation:
            case Put(entry, _, _, targets):
                self._reader.cache.written(entry)
                for home, _, shares in targets:
                    yield from self._put_for(home, shares, touched)
            case Cursor():
                yield self._say_stored(operation)
            case Retarget(subject, number, to):
                self._follow_elsewhere(operation)
                yield from self._put_for(to, (Share(subject, number, None),), touched)
            case Renew(home):
                self.streams.renew(home)
                touched[home] = None
            case Open(claim):
                yield ClaimStored(self.claims.apply(claim), claim)
            case CaughtUp(log):
                self.is_ready = True
                self.streams.begin(log)
                touched.update(dict.fromkeys(self.streams.homes))
            case PutSubscription(subject):
                self.records[subject] = operation
            case DropSubscription(subject):
                self.records.pop(subject, None)
            case _:
                pass

    def _put_for(
        self, home: str, shares: Iterable[Share], touched: dict[str, None]
    ) -> Iterator[Action]:
        """Something waits for some durable subscriptions, at their home or for it."""
        if home == self.name:
            yield from (QueueReady(share.subject) for share in shares)
        elif home:
            self.streams.touch(home)
            touched[home] = None

    def refused(self, now: float, ticket: int, reason: str) -> list[Action]:
        """An append is not on the disk, and nothing behind it: all that was under way is none."""
        actions: list[Action] = []
        self._relearning = 0
        self._refusal = reason
        for pending in self.log.refused(now, ticket):
            for operation in pending.operations:
                match operation:
                    case Put(entry):
                        self._reader.cache.drop(entry)
                    case Open(claim) if claim.home != self.name and pending.token is None:
                        self._postpone(claim)
                    case Cursor(origin, log):
                        self._missed[origin] = log
                    case Renew(home, log):
                        self._unrenewed[home] = max(log, self._unrenewed.get(home, 0))
                    case _:
                        pass
            if isinstance(pending.token, _Loss):
                self._losses.append(pending.token)
            elif pending.token is not None:
                actions.append(_not_kept(pending.token, reason))
        return actions

    def writable(self, now: float) -> list[Action]:
        """The disk takes writes again: what others have announced meanwhile counts."""
        self.log.writable()
        logs, self._unrenewed = self._unrenewed, {}
        actions = self.learn(now, self._take_unlearned())
        appends = [each.ticket for each in actions if isinstance(each, Append)]
        self._relearning = max(appends, default=0)
        for home, log in logs.items():
            actions += self.renew(now, home, log)
        for home in list(self._gone):
            actions += self.remove(now, home)
        missed, self._missed = self._missed, {}
        for origin, log in missed.items():
            actions.append(self._say_stored(self._cursor(origin, log), is_asking=True))
        losses, self._losses = self._losses, []
        for loss, wall_us in losses:
            actions += self.report_loss(now, wall_us, loss)
        return actions

    def _take_unlearned(self) -> list[Claim]:
        claims, self._unlearned = list(self._unlearned.values()), {}
        return claims

    def append(self, now: float, operations: Sequence[Operation], token: Any) -> list[Action]:
        """Write operations, and answer whoever waits: with a refusal while the disk refuses."""
        write = self.log.append(now, operations, token)
        if write is None:
            if isinstance(token, _Loss):
                self._losses.append(token)
                return []
            return [] if token is None else [_not_kept(token, self._refusal)]
        for operation in operations:
            if isinstance(operation, Put) and operation.parcel is not None:
                self._reader.cache.hold(operation.entry, operation.parcel)
        return [write]


def _not_kept(token: Any, reason: str) -> NotKept:
    return NotKept(token.token if isinstance(token, PendingHomes) else token, reason)


def _chunks(shares: list[Share], most: int) -> Iterator[list[Share]]:
    return (shares[first : first + most] for first in range(0, len(shares), most))
