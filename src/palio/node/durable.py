"""`DurableEvents`: durable events from the broker that accepts them to the homes, end to end.

The broker that accepts an event is its *origin*; it stores the event with its targets. The *home*
of a durable subscription stores it until the owner has acknowledged it. Brokers between them only
forward, and may drop any message: the origin retransmits.

```
origin  publish > Put ... stored > Carry >                             EntriesStored > Release
home                                            Put, Cursor ... stored > QueueReady > Ack
D1  a home takes an entry only if `previous` is its cursor for that origin's log
D2  entry and cursor are one append; EntriesStored acks only entries on the disk
D4  an entry that a home may have is handed on by that home; all others follow the newest claim
D5  a greater claim closes the queue and retargets it in one append
D7  a broker that had another log reports the loss to every durable queue
```

Inputs are judged by stored state and the overlay of appends in flight. Outputs are read from stored
state alone. Each method returns the actions to be carried out. The model is `tests.models.durable`.
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
    Place,
    Put,
    PutSubscription,
    QueueReady,
    Renew,
    Retarget,
    Target,
    Transmit,
    last_offset_of,
)
from palio.node.queues import OffsetQueue, Queued, Queues
from palio.node.streams import EntryReader, Streams
from palio.protocol.limits import MAX_PUBLISHERS, MAX_SUBJECTS
from palio.protocol.messages import Carry, EntriesStored, Parcel, Share

UNREADY: Final = "this broker has not yet received its network's subscriptions; retry soon"


class PendingHomes:
    """A publication whose publisher waits until every home has stored it, and those homes."""

    def __init__(self, token: Any, *, is_retransmit: bool = False) -> None:
        self.token = token
        self.is_retransmit = is_retransmit
        """True if it was published before. Its entries are then not known, and may be any of those
        in the streams: it waits for all of them."""
        self.open: dict[str, int] = {}
        """By home, the offset up to which it must store its stream."""


class _Loss(NamedTuple):
    """A loss marker for all durable subscriptions, until it is on the disk."""

    parcel: Parcel
    wall_us: int


class DurableEvents:
    """Stores the durable events of one broker, and transfers them to their homes."""

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
        """The durable subscriptions that live here, as on the disk."""
        self._reader = EntryReader(name, store)
        self._gap_requests: dict[str, tuple[int, int]] = {}
        """By origin, the cursor (log and offset) of the last request for missing entries."""
        self._refused_origins: dict[str, int] = {}
        """Origins whose entries the disk refused, with their logs."""
        self._postponed_claims: dict[str, Claim] = {}
        """Claims of other brokers that the disk refused."""
        self._relearn_ticket = 0
        """The append of the last postponed claim, while in flight. Other brokers count on these
        claims here, so publications are refused until it is stored."""
        self._postponed_logs: dict[str, int] = {}
        """Logs of other brokers that the disk refused."""
        self._postponed_losses: list[_Loss] = []
        self._gone: dict[str, None] = {}
        self._awaiting: dict[str, deque[PendingHomes]] = {}
        """By home, the publications that wait for it, in the order of their offsets there."""
        self._refusal = ""
        """The last reason of the disk."""
        self.is_ready = False
        """True once all durable subscriptions are known. A broker without its disk must catch up
        with its network first, and refuses durable requests until then."""
        unneeded: dict[int, None] = {}
        for operation in operations:
            last_offset = max(last_offset, last_offset_of(operation))
            unneeded.update(dict.fromkeys(self._load(operation)))
            if isinstance(operation, CaughtUp):
                self.is_ready, log = True, max(log, operation.log)
            elif isinstance(operation, Discard):
                for entry in operation.entries:
                    unneeded.pop(entry, None)
        self.log = Log(last_offset)
        self.streams = Streams(name, log, self.queues, self.log, self._reader)
        if unneeded:  # the broker stopped before their Discard was written
            self.log.release(-inf, Discard(tuple(unneeded)))

    def _load(self, operation: Operation) -> list[int]:
        """Apply an operation of the disk, and return the entries that are no longer needed."""
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
        """Brokers that were removed."""
        return list(self._gone)

    @property
    def overlay(self) -> Overlay:
        """The operations in flight to the disk."""
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
        """Store events for the durable subscriptions that match, with the rows for each."""
        if not self.is_ready:
            return [_not_kept(token, UNREADY)]
        if self._relearn_ticket:
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
        """Return the last number that a publisher has sent here; -1 for none. Events up to it are
        retransmits: they are not stored twice, but answered behind all appends in flight.
        """
        return max(self.overlay.published(publisher), self.queues.published.get(publisher, -1))

    def barrier(self, token: Any) -> list[Action]:
        """Answer once all appends in flight are on the disk."""
        if self.log.is_refusing:
            return [_not_kept(token, self._refusal)]
        write = self.log.barrier(token)
        return list(self._kept(token)) if write is None else [write]

    def _shares(
        self, wanted: Mapping[str, bytes | None], opening: Mapping[str, Claim]
    ) -> list[Share]:
        """Return shares by the newest claims, without subscriptions that are over."""
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
        """Return the `Put` of events for the homes of shares; `opening` are claims of the same
        append. A home with more than MAX_SUBJECTS shares gets several offsets.
        """
        homes: dict[str, list[Share]] = {}
        for share in shares:
            claim = opening.get(share.subject) or self.claims.newest(share.subject, self.overlay)
            assert claim is not None, f"{share.subject} has a share but no claim"
            homes.setdefault(claim.home, []).append(share)
        targets = tuple(
            Target(home, self.log.offsets(), tuple(some))
            for home, those in homes.items()
            for some in _chunks(those, MAX_SUBJECTS)
        )
        return [Put(targets[0].offset, parcel, wall_us, targets)] if targets else []

    # --- claims ---

    def open(
        self,
        now: float,
        asked: Claim,
        record: PutSubscription | None,
        token: Any,
        backlog: Sequence[Place] = (),
    ) -> list[Action]:
        """Claim a durable subscription whose owner is here (D5), with the backlog of a new one."""
        if not self.is_ready:
            return [NotKept(token, UNREADY)]
        claim = self.claims.next(asked, self.overlay)
        return self._claim(now, claim, token, (*(() if record is None else (record,)), *backlog))

    def change(self, now: float, record: PutSubscription, filter: str, token: Any) -> list[Action]:
        """Change the filter of a durable subscription whose home is here."""
        claim = self.claims.changed(record.subject, filter, self.overlay)
        return self._claim(now, claim, token, (record,))

    def end(self, now: float, asked: Claim, token: Any) -> list[Action]:
        """End a durable subscription, wherever its home is, for a session of its owner."""
        claim = self.claims.over(asked, self.overlay)
        return [Kept(token)] if claim is None else self._claim(now, claim, token)

    def learn(self, now: float, claims: Iterable[Claim]) -> list[Action]:
        """Store claims that other brokers have stored, as far as they are new here."""
        actions: list[Action] = []
        for stated in claims:
            if not self.claims.is_news(stated, self.overlay):
                continue
            claim = self.claims.resolve(stated, self.overlay)
            if self.log.is_refusing or not self.is_ready:
                self._postpone(claim)
            else:
                actions += self._claim(now, claim, None)
        return actions

    def _claim(
        self, now: float, claim: Claim, token: Any, beside: Sequence[Operation] = ()
    ) -> list[Action]:
        """Append a claim together with the retargeting of the backlog of the one before (D5)."""
        return self.append(now, [*self._opening(claim), *beside], token)

    def _opening(self, claim: Claim) -> list[Operation]:
        before = self.claims.newest(claim.subject, self.overlay)
        operations: list[Operation] = [Open(claim)]
        # Another subscription of the same name: the backlog belonged to another owner.
        is_another = before is not None and before.number < claim.since
        stays = before is None or before.home == claim.home or claim.home in self._gone
        if stays and not is_another:
            return operations
        sent = self.streams.sent
        if before is not None and before.home == self.name:
            operations.append(DropSubscription(claim.subject))
        if claim.is_over or is_another:
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
        postponed = self._postponed_claims.get(claim.subject)
        if postponed is None or claim.rank > postponed.rank:
            self._postponed_claims[claim.subject] = claim

    # --- logs of brokers, and brokers that were removed ---

    def renew(self, now: float, home: str, log: int) -> list[Action]:
        """Restart the stream to a home that has another log than before (D7)."""
        newest = max(self.streams.log_of(home), self._postponed_logs.get(home, 0))
        if home == self.name or log <= newest:
            return []
        if self.log.is_refusing:
            self._postponed_logs[home] = log
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
        """Begin durable service with the claims of the network, and with this log. If a former log
        was lost, its `loss` marker is put for every durable subscription (D7). All is one append: a
        broker that stopped between two would never report the loss.
        """
        assert not self.is_ready, "only a broker without its disk catches up"
        for claim in claims:
            self._postpone(claim)
        opening = {claim.subject: claim for claim in self._take_postponed_claims()}
        operations: list[Operation] = [Open(claim) for claim in opening.values()]
        if loss is not None:
            shares = self._shares(dict.fromkeys(opening), opening)
            operations += self._put(loss, wall_us, shares, opening)
        return self.append(now, [*operations, CaughtUp(log)], token)

    def begin_log(
        self, now: float, wall_us: int, log: int, loss: Parcel, token: Any
    ) -> list[Action]:
        """Begin another log, above the number of an earlier one that was lost."""
        put = self._put(loss, wall_us, self._all_shares(), {})
        return self.append(now, [*put, CaughtUp(log)], token)

    def report_loss(self, now: float, wall_us: int, loss: Parcel) -> list[Action]:
        """Put a loss marker for every durable subscription: a broker's disk is lost for good."""
        put = self._put(loss, wall_us, self._all_shares(), {})
        return self.append(now, put, _Loss(loss, wall_us)) if put else []

    def _all_shares(self) -> list[Share]:
        """Return a share of all rows for each durable subscription, claims in flight included."""
        return self._shares(self.claims.subjects(self.overlay), {})

    def reinstate(self, home: str) -> None:
        """Take back the removal of a broker, which is up."""
        self._gone.pop(home, None)

    def remove(self, now: float, home: str) -> list[Action]:
        """Remove a broker. Entries of its stream follow the newest claims even if they may have
        been sent there, as it hands on nothing any more. Without a valid claim they are dropped.
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
        """Store an entry of another origin if it is the next one of its stream (D1)."""
        origin, log = message.origin, message.log
        offset, previous = message.offset, message.previous
        if self.log.is_refusing:
            self._refused_origins[origin] = log
            return []
        stored = self.queues.cursors.get(origin, Cursor(origin, 0, 0))
        cursor = self.overlay.cursor(origin) or stored
        if not self.is_ready or message.home_log != self.streams.log_number or log < cursor.log:
            return []
        expected = cursor.offset if log == cursor.log else 0
        if (offset <= expected or previous != expected) and cursor != stored:
            return []  # only stored entries are acked (L4); the origin retransmits
        if offset <= expected:
            return [self._ack(cursor)]
        if previous != expected:
            return self._request_gap(Cursor(origin, log, expected), offset, previous)
        opening, operations = self._claims_in(message.shares)
        current = [share for share in message.shares if self._is_current(share, opening)]
        current = self._shares({share.subject: share.rows for share in current}, opening)
        operations += self._put(message.parcel, wall_us, current, opening)
        operations.append(Cursor(origin, log, offset))
        return self.append(now, operations, None)

    def _claims_in(self, shares: Iterable[Share]) -> tuple[dict[str, Claim], list[Operation]]:
        """Return claims on this broker that its entries prove, though their facts have not come."""
        opening: dict[str, Claim] = {}
        operations: list[Operation] = []
        for share in shares:
            claim = self.claims.newest(share.subject, self.overlay)
            if claim is None or share.number > claim.number:
                since = 0 if claim is None else claim.since
                opening[share.subject] = Claim(share.subject, share.number, self.name, since=since)
                operations += self._opening(opening[share.subject])
        return opening, operations

    def _is_current(self, share: Share, opening: Mapping[str, Claim]) -> bool:
        """Return if a share is of the present subscription of that name, not an earlier one."""
        claim = opening.get(share.subject) or self.claims.newest(share.subject, self.overlay)
        return claim is not None and share.number >= claim.since

    def _request_gap(self, cursor: Cursor, offset: int, previous: int) -> list[Action]:
        """Request the entries missing before one that came early, once per cursor."""
        if previous < cursor.offset:
            reason = f"offset {offset} after {previous}; expected after {cursor.offset}"
            return [Impossible(cursor.origin, reason)]
        if self._gap_requests.get(cursor.origin) == (cursor.log, cursor.offset):
            return []
        self._gap_requests[cursor.origin] = cursor.log, cursor.offset
        return [self._ack(cursor, is_asking=True)]

    def _cursor(self, origin: str, log: int) -> Cursor:
        """Return the stored cursor of an origin's log; offset 0 if that log is new here."""
        stored = self.queues.cursors.get(origin)
        return Cursor(origin, log, 0) if stored is None or stored.log != log else stored

    def _ack(self, cursor: Cursor, *, is_asking: bool = False) -> Transmit:
        origin, log, offset = cursor
        message = EntriesStored(self.name, self.streams.log_number, origin, log, offset, is_asking)
        return Transmit(origin, message)

    def has_stored(self, now: float, message: EntriesStored) -> list[Action]:
        """Handle the ack of a home for its stream up to an offset (D2)."""
        return [*self.streams.has_stored(now, message), *self._completed()]

    # --- queues here ---

    def delivery(self, subject: str, after: int) -> Delivery | None:
        """Return the first entry behind an offset in the queue of a durable subscription."""
        claim, queue = self.claims.stored(subject), self.queues.here.get(subject)
        item = None if queue is None else queue.next(after)
        if queue is None or item is None or claim is None or claim.home != self.name:
            return None
        offset, held = item
        parcel = self._reader.read(queue, offset, held.entry)
        if parcel is None:
            lost = self._reader.lost(held.entry, held.rows).parcel
            return Delivery(offset, held.entry, lost, None, is_damaged=True)
        return Delivery(offset, held.entry, parcel, held.rows or None)

    def heading(self, entry: int) -> Heading:
        """Return the heading of an entry that cannot be read."""
        return self._reader.heading(entry)

    def backlog(self, subject: str) -> OffsetQueue[Queued]:
        """Return the queue of a durable subscription whose home is here."""
        return self.queues.here.get(subject) or OffsetQueue()

    def acknowledge(
        self, now: float, subject: str, upto: int, others: tuple[int, ...], bookmark: bytes
    ) -> list[Action]:
        """Record an owner's acknowledgement (D6). It is ignored while the backlog is moving to
        another home, where the owner gets these entries and acknowledges them there.
        """
        if not self.claims.is_here(subject, self.overlay) or subject in self.overlay.moving:
            return []
        self.log.release(now, Ack(subject, upto, others, bookmark))
        write = self.log.flush(now)
        return [] if write is None else [write]

    def was_assigned(self, offset: int) -> bool:
        """Return whether an offset may be that of an entry."""
        return offset <= self.log.last_offset

    def bury(
        self,
        now: float,
        wall_us: int,
        subject: str,
        entry: int,
        letter: Parcel,
        wanted: Mapping[str, bytes | None],
        token: Any,
    ) -> list[Action]:
        """Store a dead letter and acknowledge the entry that it stands for (0: other events of that
        are open), in one append: a kill neither loses nor doubles it.
        """
        if not self.claims.is_here(subject, self.overlay) or subject in self.overlay.moving:
            return [_not_kept(token, f"{subject} is moving to another broker")]
        put = self._put(letter, wall_us, self._shares(wanted, {}), {})
        acks = [Ack(subject, 0, (entry,))] if entry else []
        return self.append(now, [*put, *acks], token) if put or acks else [Kept(token)]

    # --- the disk, and the clock ---

    def flush(self) -> list[Action]:
        """Write the releases at once: a caller waits for them, or the broker stops."""
        write = self.log.flush(inf)
        return [] if write is None else [write]

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min(self.log.due_at, self.streams.wake_at)

    def tick(self, now: float) -> list[Action]:
        """Write releases and retransmit entries, as far as they are due."""
        write = self.log.flush(now)
        actions = self.streams.tick(now)
        return actions if write is None else [write, *actions]

    def stored(self, now: float, ticket: int) -> list[Action]:
        """Apply an append that is on the disk, and notify those that wait for it (L2, L4)."""
        pending = self.log.stored(ticket)
        if ticket == self._relearn_ticket:
            self._relearn_ticket = 0
        actions: list[Action] = []
        touched: dict[str, None] = {}
        for operation in (*pending.released, *pending.operations):
            actions += self._apply(now, operation, touched)
        if pending.token is not None and not isinstance(pending.token, _Loss):
            actions += self._kept(pending.token)
        actions += self._completed()
        if any(isinstance(each, CaughtUp) for each in pending.operations):
            actions += self.learn(now, self._take_postponed_claims())
        for home in self.streams.homes if self._moves_any(pending) else touched:
            actions += self.streams.pump(now, home)
        for home in touched:
            if home in self._gone:  # the append was in flight when the broker was removed
                actions += self.remove(now, home)
        return actions

    def _kept(self, token: Any) -> Iterator[Action]:
        """Notify a caller whose append is on the disk, unless it waits for homes as well."""
        if not isinstance(token, PendingHomes):
            yield Kept(token)
            return
        if token.is_retransmit:
            token.open |= self.streams.ends
        token.open = {
            home: at for home, at in token.open.items() if self.streams.has_unacked(home, at)
        }
        for home in token.open:
            self._awaiting.setdefault(home, deque()).append(token)
        if not token.open:
            yield Kept(token.token)

    def _completed(self) -> Iterator[Action]:
        """Notify callers whose last home has stored their entries, or has them no longer."""
        for home, waiting in list(self._awaiting.items()):
            while waiting and not self.streams.has_unacked(home, waiting[0].open[home]):
                token = waiting.popleft()
                del token.open[home]
                if not token.open:
                    yield Kept(token.token)
            if not waiting:
                del self._awaiting[home]

    def _retarget_publications(self, retarget: Retarget) -> None:
        """Have pending publications wait for the new home of retargeted entries, too. Which of them
        own such entries is not known, so all do: this may delay a receipt, but never forges one.
        """
        home = retarget.to
        if home == self.name or not retarget.reserved:
            return
        last = retarget.first + retarget.reserved - 1
        for token in dict.fromkeys(chain.from_iterable(self._awaiting.values())):
            if home not in token.open:
                self._awaiting.setdefault(home, deque()).append(token)
            assert token.open.get(home, 0) < last, "Q2: retargeted entries come behind all others"
            token.open[home] = last

    @staticmethod
    def _moves_any(pending: Pending) -> bool:
        """Return whether a move has ended, so that entries held back for it may be sent."""
        return any(isinstance(each, Retarget | Close) for each in pending.operations)

    def _apply(
        self, now: float, operation: Operation, touched: dict[str, None]
    ) -> Iterator[Action]:
        unneeded = self.queues.apply(operation)
        if unneeded:
            self.log.release(now, Discard(tuple(unneeded)))
            for entry in unneeded:
                self._reader.cache.drop(entry)
        match operation:
            case Put(entry, _, _, targets):
                self._reader.cache.written(entry)
                for home, _, shares in targets:
                    yield from self._put_for(home, shares, touched)
            case Cursor():
                yield self._ack(operation)
            case Retarget(subject, number, to):
                self._retarget_publications(operation)
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
        """Announce new entries: to queues here, or to the stream of another home."""
        if home == self.name:
            yield from (QueueReady(share.subject) for share in shares)
        elif home:
            self.streams.touch(home)
            touched[home] = None

    def refused(self, now: float, ticket: int, reason: str) -> list[Action]:
        """Discard all appends in flight after a refusal. Facts of other brokers are postponed, as
        their senders do not repeat them; callers get the reason, and may retry.
        """
        actions: list[Action] = []
        self._relearn_ticket = 0
        self._refusal = reason
        for pending in self.log.refused(now, ticket):
            for operation in pending.operations:
                match operation:
                    case Put(entry):
                        self._reader.cache.drop(entry)
                    case Open(claim) if claim.home != self.name and pending.token is None:
                        self._postpone(claim)
                    case Cursor(origin, log):
                        self._refused_origins[origin] = log
                    case Renew(home, log):
                        self._postponed_logs[home] = max(log, self._postponed_logs.get(home, 0))
                    case _:
                        pass
            if isinstance(pending.token, _Loss):
                self._postponed_losses.append(pending.token)
            elif pending.token is not None:
                actions.append(_not_kept(pending.token, reason))
        return actions

    def writable(self, now: float) -> list[Action]:
        """Append what was postponed: the disk accepts writes. Origins are asked to retransmit."""
        self.log.writable()
        logs, self._postponed_logs = self._postponed_logs, {}
        actions = self.learn(now, self._take_postponed_claims())
        appends = [each.ticket for each in actions if isinstance(each, Append)]
        self._relearn_ticket = max(appends, default=0)
        for home, log in logs.items():
            actions += self.renew(now, home, log)
        for home in list(self._gone):
            actions += self.remove(now, home)
        missed, self._refused_origins = self._refused_origins, {}
        for origin, log in missed.items():
            actions.append(self._ack(self._cursor(origin, log), is_asking=True))
        losses, self._postponed_losses = self._postponed_losses, []
        for loss, wall_us in losses:
            actions += self.report_loss(now, wall_us, loss)
        return actions

    def _take_postponed_claims(self) -> list[Claim]:
        claims, self._postponed_claims = list(self._postponed_claims.values()), {}
        return claims

    def append(self, now: float, operations: Sequence[Operation], token: Any) -> list[Action]:
        """Append operations for a caller; while the disk refuses, return its refusal."""
        write = self.log.append(now, operations, token)
        if write is None:
            if isinstance(token, _Loss):
                self._postponed_losses.append(token)
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
