"""Hold the state of sessions: `Session` with a client, `Neighbour` with a broker.

Both are a `PeerSession`: a stream of sequenced messages that outlives its connection, and a queue
of events for a slow or disconnected receiver. The queue is bounded, and drops the oldest events.
Every dropped event is counted, and a client receives a `Gap` for it ahead of any later event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from math import inf
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec

from palio.model.filters import Filter
from palio.model.masks import unpack_mask
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.node.authority import Principal
from palio.node.deliveries import ConsumerState, Deliveries
from palio.node.effects import Effect, Send
from palio.node.limits import ANSWERS_PART, FEW_RECEIVERS, MAX_GAPS, QUEUES_PART
from palio.node.operations import Claim
from palio.node.rate_limiters import RateLimiter
from palio.protocol.limits import PORTION_BYTES, ROUTES_UNDER_WAY
from palio.protocol.messages import (
    NO_SESSION_EPOCH,
    Assembled,
    Carry,
    Deliver,
    Forward,
    Gap,
    Gaps,
    Message,
    Route,
    StoredAt,
    StreamAck,
)
from palio.protocol.portions import weight
from palio.protocol.streams import EVENTS, Stream, size_of
from palio.protocol.transitions import ALLOWED, Speaker, State
from palio.routing.messages import Batch, Control, Join, Leave, Reached
from palio.routing.parameters import WaitingBatch
from palio.routing.patterns.messages import Composite, Ready, TooLate
from palio.routing.protocol import Peer

_LAST: Final = (Reached, Ready)
"""Messages that a router sends after all events that it has sent."""

_Events: TypeAlias = Deliver | Assembled | Forward | Carry
"""Messages that may wait in a queue, and be dropped there."""


class Budget:
    """Bound the memory of all windows and queues together."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        """Bytes in queues."""
        self.under_way = 0
        """Bytes in flight, which cannot be dropped."""
        self.answers = 0
        """Those of them that are not events: clients cause as many as they send requests."""
        self.receivers = 0
        self.queued: dict[PeerSession, None] = {}
        """Sessions whose queue is not empty."""

    @property
    def room(self) -> int:
        """Bytes that one receiver may have in flight: the unused part of half the budget, and at
        least a fair share. So stalled receivers, however many, leave some to the others.
        """
        return max(self.maximum // 2 - self.under_way, self.fair_share)

    @property
    def fair_share(self) -> int:
        """Bytes that each receiver may have in flight, however much the others have."""
        return self.maximum // 2 // max(FEW_RECEIVERS, self.receivers)

    @property
    def is_strained(self) -> bool:
        """True if unacked answers take a large share of the budget (`ANSWERS_PART`)."""
        return self.answers > self.maximum // ANSWERS_PART

    def relieve(self) -> None:
        """Bring the sum under the maximum: halve the longest queue until it is. Queues keep an
        eighth of the budget, so clients that do not ack cannot take all of it from the others.
        """
        least = self.maximum // QUEUES_PART
        while self.queued and self.used > max(self.maximum - self.under_way, least):
            longest = max(self.queued, key=lambda session: session.queued_bytes)
            longest.shed(longest.queued_bytes // 2)


class PeerSession:
    """One end of a session. `link` is its connection, or None while it is disconnected."""

    MAY_SAY: ClassVar[frozenset[type]]
    """The messages that are legal from the other end."""

    def __init__(
        self, id: str, peer: Peer, principal: Principal, link: int, stream: Stream, budget: Budget
    ) -> None:
        self.id = id
        self.name = peer.name
        """Its name in logs; for a neighbour, the broker's name."""
        self.peer = peer
        self.principal = principal
        self.link: int | None = link
        self.disconnected_at = 0.0
        self.stream = stream
        self.queued_bytes = 0
        self.dropped = 0
        """Events that were dropped because the receiver fell behind."""
        self._queue: deque[tuple[Message, int]] = deque()
        """Events that wait for room, and messages behind them, which have no size."""
        self._behind = 0
        """How many messages wait behind events."""
        self._budget = budget
        self._gaps: dict[tuple[str, int], Gap] = {}
        """Losses yet to be reported, by publisher and key of a durable subscription (or -1)."""
        self._possible_loss = ""
        """Why more events may be lost, until it is reported."""
        budget.receivers += 1

    @property
    def has_room(self) -> bool:
        """True if more events may be sent now; always if none is in flight, as one may be large."""
        unseen = self.stream.unseen_bytes
        return not unseen or (self.stream.has_room and unseen < self._budget.room)

    def resumes(self, session: str, received: int) -> bool:
        """Return whether this is that session, and it can resume after `received` messages."""
        return self.id == session and self.stream.knows(received)

    def send(self, out: list[Effect], message: Message) -> None:
        """Send a sequenced message now, or once the other end has reconnected."""
        size = self.stream.send(message)
        self._budget.under_way += size
        if type(message) not in EVENTS:
            self._budget.answers += size
        if self.link is not None:
            out.append(Send(self.link, message))

    def offer(self, out: list[Effect], message: _Events, limit: int) -> None:
        """Send events, or queue them; a queue of more than `limit` bytes drops the oldest."""
        if self.has_room and not self._queue:
            self.send(out, message)
            return
        if isinstance(message, Deliver) and message.subscriptions is not None:
            # Answers overtake queued events: by then the subscriptions may have changed.
            message = Deliver(message.parcel, message.rows, message.key, message.entry)
        size = size_of(message)
        self._queue.append((message, size))
        self._account(size)
        if self.queued_bytes > limit:
            self.shed(limit)
        self._budget.relieve()

    def shed(self, target: int) -> None:
        """Drop the oldest events until at most `target` bytes are queued."""
        kept = []
        while self.queued_bytes > target:
            message, size = self._take()
            if isinstance(message, _Events):
                self._lose(message)
            else:
                kept.append((message, size))
        self._queue.extendleft(reversed(kept))

    def send_waiting(self, out: list[Effect]) -> None:
        """Send queued events as far as the window allows, and report earlier losses first.
        A message behind events waits for those only: later events must not hold it up for ever.
        """
        while self._queue and (self.has_room or not self._queue[0][1]):
            self._report_gaps(out)
            message, size = self._take()
            if size:
                self.send(out, message)
            else:
                self._behind -= 1
                PeerSession.send(self, out, message)  # `unsent` is later
        if not self._queue and self.has_room:
            self._report_gaps(out)

    def _take(self) -> tuple[Message, int]:
        """Remove and return the first message of the queue, and its size."""
        message, size = self._queue.popleft()
        self._account(-size)
        return message, size

    def seen(self, count: int) -> None:
        """Take the other end's ack of its first `count` messages."""
        before, answers = self.stream.unseen_bytes, self.stream.unseen_answers
        self.stream.seen(count)
        self._budget.under_way += self.stream.unseen_bytes - before
        self._budget.answers += self.stream.unseen_answers - answers

    def arrived(self, out: list[Effect], message: Message) -> None:
        """Count a sequenced message that was processed, and ack it if an ack is due."""
        if self.stream.arrive(message):
            self.send_ack(out)

    def send_ack(self, out: list[Effect]) -> None:
        """Ack all messages that arrived, unless that was done."""
        if self.link is not None:
            ack: StreamAck | None = self.stream.ack()
            if ack is not None:
                out.append(Send(self.link, ack))

    def forget(self) -> None:
        """End the session: return its bytes to the budget."""
        self._budget.under_way -= self.stream.unseen_bytes
        self._budget.answers -= self.stream.unseen_answers
        self._budget.receivers -= 1
        self._queue.clear()
        self._behind = 0
        self._account(-self.queued_bytes)
        # Messages to an ended session must not count: nothing would subtract them any more.
        self._budget = Budget(self._budget.maximum)

    def _account(self, size: int) -> None:
        self.queued_bytes += size
        self._budget.used += size
        if self.queued_bytes:
            self._budget.queued[self] = None
        else:
            self._budget.queued.pop(self, None)

    def _lose(self, message: _Events) -> None:
        if isinstance(message, Carry):
            return  # its origin retransmits it
        key = -1 if isinstance(message, Forward) else message.key
        if isinstance(message, Assembled):
            publisher, first, last, count, *_ = msgspec.structs.astuple(message.gap)
        else:
            parcel = message.parcel
            numbers = parcel.numbers[unpack_mask(message.rows, len(parcel))]
            publisher, first, last = parcel.publisher, int(numbers[0]), int(numbers[-1])
            count = len(numbers)
        self.dropped += count
        if (publisher, key) not in self._gaps and len(self._gaps) >= MAX_GAPS:
            publisher, first, last = "*", 0, 0  # one gap for all further publishers
        earlier = self._gaps.get((publisher, key))
        if earlier is not None:
            first = earlier.first_seq
            count += earlier.count
        self._gaps[publisher, key] = Gap(publisher, first, last, count, key)

    def _report_gaps(self, out: list[Effect]) -> None:
        if self._gaps or self._possible_loss:
            reason = self._possible_loss
            possible = (Gap("*", 0, 0, 0, reason=reason),) if reason else ()
            gaps = Gaps((*possible, *self._gaps.values()))
            self._gaps, self._possible_loss = {}, ""
            if self.peer.is_client:
                self.send(out, gaps)


class Subscription(msgspec.Struct):
    """A session's subscription under one key. `what` is the requested filter, before grants."""

    what: Filter | Pattern
    values: Bindings
    version: int = 0
    durable: str = ""
    assembled: bool = False
    """True if it is a pattern that brokers assemble."""
    costed: tuple[Filter | Pattern, Bindings, int] | None = None
    """The filter and values of which the cost was last calculated, and that cost."""

    @property
    def filter(self) -> Filter:
        """The filter that brokers match: for a pattern, the union of its steps."""
        what = self.what
        return what if isinstance(what, Filter) else what.any_step

    @property
    def cost(self) -> int:
        """The cost of all its residuals, with its values bound."""
        costed = self.costed
        if costed is None or costed[0] is not self.what or costed[1] is not self.values:
            cost = sum(
                residual.substitute(self.values).cost
                for conjunction in self.filter.conjunctions
                for residual in conjunction.residuals
            )
            costed = self.costed = self.what, self.values, cost
        return costed[2]


STORED: Final = 0
"""The ticket of a publication that is stored, and whose receipt waits for those before it."""


class PendingReceipt(NamedTuple):
    """A durable publication without an answer yet: its last number, and its ticket or `STORED`."""

    last_seq: int
    ticket: int


class Session(PeerSession):
    """Hold a client's session: its subscriptions, its durables and its publications."""

    MAY_SAY = ALLOWED[Speaker.CLIENT, State.ESTABLISHED]

    def __init__(
        self,
        id: str,
        peer: Peer,
        principal: Principal,
        link: int,
        stream: Stream,
        budget: Budget,
        *,
        owner: str,
        publisher: str,
    ) -> None:
        super().__init__(id, peer, principal, link, stream, budget)
        self.limiter = RateLimiter(principal.name)
        """The counts of its principal, which all sessions of it share."""
        self.owner = owner
        """The owner of its durable subscriptions."""
        self.name = f"client {owner}"
        self.identity = ""
        """Sessions of one identity may withdraw and cancel for each other; empty for none."""
        self.publisher = publisher
        self._subscriptions: dict[int, Subscription] = {}
        self.subscriptions: Final[Mapping[int, Subscription]] = self._subscriptions
        """Only `take_up`, `change` and `let_go` change it, as they keep the counts of the
        principal."""
        self.cost = 0
        """The sum of its subscriptions' costs."""
        self.durables: dict[int, Durable] = {}
        """Durable subscriptions, by key; `subscriptions` has them too."""
        self.stalled: dict[Durable, None] = {}
        """Those that filled the window and may have a backlog. They are served in turn."""
        self.is_waiting = False
        """True if one of its requests waits for the broker to finish its start."""
        self.last_seq = -1
        self.endpoint: Peer | None = None
        """The endpoint from which it publishes, once it has (`PublisherEndpoints`)."""
        self.waves: dict[int, None] = {}
        """Waves through the network that answer its `Settle` requests once they return."""
        self.pending_receipts: dict[StoredAt, deque[PendingReceipt]] = {
            True: deque(),
            "home": deque(),
        }
        """Durable publications without an answer yet, in order."""

    def take_up(self, subscriptions: Mapping[int, Subscription]) -> None:
        """Add subscriptions under unused keys."""
        assert self.subscriptions.keys().isdisjoint(subscriptions)
        self._subscriptions.update(subscriptions)
        self._count(len(subscriptions), sum(new.cost for new in subscriptions.values()))

    def change(self, key: int, what: Filter | Pattern, values: Bindings) -> None:
        """Replace the filter and the values under a key."""
        subscription = self._subscriptions[key]
        before = subscription.cost
        subscription.what, subscription.values = what, values
        self._count(0, subscription.cost - before)

    def let_go(self, key: int) -> Subscription | None:
        """Remove and return the subscription under a key, if there is one."""
        subscription = self._subscriptions.pop(key, None)
        if subscription is not None:
            self._count(-1, -subscription.cost)
        return subscription

    def _count(self, subscriptions: int, cost: int) -> None:
        self.limiter.subscriptions += subscriptions
        self.limiter.cost += cost
        self.cost += cost

    def forget(self) -> None:
        """End the session, and free its quota."""
        super().forget()
        # The tables drop a large session step by step (`Peers.let_go`), its quota is free at once.
        count, cost = len(self.subscriptions), self.cost
        self._count(-count, -cost)
        self.limiter = RateLimiter(self.principal.name)
        self._count(count, cost)

    def deliver_pattern(self, out: list[Effect], news: Composite | TooLate, limit: int) -> None:
        """Deliver an occurrence of a pattern, or report events that were too late for it."""
        if isinstance(news, Composite):
            self.offer(out, Assembled(news.key, news.parts), limit)
        else:
            late = (news.publisher, news.first_seq, news.last_seq, news.count, news.key)
            self.send(out, Gaps((Gap(*late, is_late=True),)))

    def lapse(self, out: list[Effect], reason: str) -> None:
        """Report that events of any publisher may be lost, now or once the window allows it."""
        self._possible_loss = self._possible_loss or reason
        if self.link is not None and self.has_room and not self._queue:
            self._report_gaps(out)


class Neighbour(PeerSession):
    """Hold the session with a broker at the other end of a link, and the order of its messages.

    Table updates are sent in portions between other work (`unsent`); later messages wait behind
    them. A message that states that all events have come waits behind those queued (`_behind`).
    """

    MAY_SAY = ALLOWED[Speaker.NEIGHBOUR, State.ESTABLISHED]

    before: Callable[[], None] | None = None
    """Called before each message to it that is not its router's."""

    is_taken_in = False
    """True if the routing tables use the link."""

    is_joining = True
    """True until its session's tables are in force; until then `Absences` accounts for losses."""

    def __init__(
        self, id: str, peer: Peer, principal: Principal, link: int, stream: Stream, budget: Budget
    ) -> None:
        super().__init__(id, peer, principal, link, stream, budget)
        self.unsent: deque[Iterator[Message] | WaitingBatch] = deque()
        """Messages yet to be sent to it, portion by portion, in order."""
        self._entries: set[Hashable] = set()
        """The durable entries in the queue."""
        self._open: WaitingBatch | None = None
        """The batch in `unsent` that further batches may join."""
        self.uses = 0
        """How often, on a graph, this link has left the tree by a message of either end."""
        self._reported_drops = 0

    def changes_tree(self, control: Control) -> bool:
        """Return whether this link joins or leaves a graph's tree with events in flight."""
        if isinstance(control, Join):
            return not control.calm
        return isinstance(control, Leave) and not control.calm

    def send_portion(self, out: list[Effect], portion: Message) -> None:
        """Send a portion; `_LAST`, and messages of the router after it, wait behind events."""
        is_last = isinstance(portion, Route) and isinstance(portion.control, _LAST)
        if isinstance(portion, Route) and (self._behind or (is_last and self._queue)):
            self._put_behind(portion)
        else:
            super().send(out, portion)

    def send_behind(self, out: list[Effect], message: Message) -> None:
        """Send a message after the queued events."""
        if self._queue:
            self._put_behind(message)
        else:
            self.send(out, message)

    def _put_behind(self, message: Message) -> None:
        self._behind += 1
        self._queue.append((message, 0))

    def carry(self, out: list[Effect], message: Carry, limit: int) -> None:
        """Send or queue an entry on its path to another broker. Drop it if the queue is half full,
        before it displaces live events: its origin retransmits it, and they come only once.
        Drop it if a copy is queued, too: a link slower than retransmission would fill with copies.
        """
        if self.queued_bytes > limit // 2:
            return
        if self._queue or not self.has_room:
            identity = _identity(message)
            if identity in self._entries:
                return
            self._entries.add(identity)
        self.offer(out, message, limit)

    def _take(self) -> tuple[Message, int]:
        message, size = super()._take()
        if isinstance(message, Carry):
            self._entries.discard(_identity(message))
        return message, size

    def has_dropped(self) -> bool:
        """Return whether events for it were dropped since the last call."""
        before, self._reported_drops = self._reported_drops, self.dropped
        return self.dropped > before

    @property
    def has_room(self) -> bool:
        """True if its own window allows more: clients that stall must not stall links."""
        return self.stream.has_room and not self.unsent

    def send(self, out: list[Effect], message: Message) -> None:
        """Send a message after those in `unsent`, so that tables and messages keep their order."""
        if self.before is not None:
            self.before()
        if self.unsent:
            self.unsent.append(iter((message,)))
        else:
            super().send(out, message)

    @property
    def unseen(self) -> list[Forward]:
        """Events without an ack, in order: those in flight, then those in the queue."""
        sent = [message for message in self.stream.unseen() if isinstance(message, Forward)]
        return sent + [message for message, _ in self._queue if isinstance(message, Forward)]

    @property
    def is_busy(self) -> bool:
        """True if too many messages of this broker's router are in flight on the link."""
        return self.stream.unseen_routes >= ROUTES_UNDER_WAY

    def join(self, batch: Batch) -> bool:
        """Append a batch to a waiting one, or to `unsent`; return False if it is too long."""
        if self._open is not None and self._open.add(batch):
            return True
        waiting = WaitingBatch(PORTION_BYTES, weight)
        if not waiting.add(batch):
            self.close_batch()
            return False
        self._open = waiting
        self.unsent.append(waiting)
        return True

    def close_batch(self) -> None:
        """Close the open batch: later batches must not overtake the messages in `unsent`."""
        self._open = None

    def next_portion(self) -> Message | None:
        """Remove and return the next portion; None if there is none, or the link is busy."""
        while self.unsent:
            first = self.unsent[0]
            if isinstance(first, WaitingBatch):
                if self.is_busy:
                    return None
                self.unsent.popleft()
                if first is self._open:
                    self.close_batch()
                return Route(first.batch)
            portion = next(first, None)
            if portion is not None:
                return portion
            self.unsent.popleft()
        return None

    def forget(self) -> None:
        """End the session, and drop its messages."""
        super().forget()
        self._entries.clear()
        self.unsent.clear()
        self.close_batch()


def _identity(entry: Carry) -> Hashable:
    """Return all of an entry's fields but its events, which equal copies share."""
    return msgspec.structs.astuple(entry)[1:]


class SessionConsumer(ConsumerState):
    """A session that takes entries of a durable subscription."""

    def __init__(self, session: Session, key: int) -> None:
        super().__init__()
        self.session = session
        self.key = key


class Durable:
    """Hold the state of a durable subscription whose home is this broker."""

    def __init__(
        self, subject: str, owner: str, filter: Filter, values: Mapping[str, Any], lease_s: float
    ) -> None:
        self.subject = subject
        self.owner = owner
        self.filter = filter
        self.values = dict(values)
        self.lease_s = lease_s
        self.consumers: dict[Session, SessionConsumer] = {}
        """The sessions that take its entries."""
        self.deliveries = Deliveries()
        self.alarm_at = inf
        """When its deadlines and delays are looked at again."""
        self.disconnected_at = 0.0
        self.stuck_at = inf
        """Since when its backlog waits for acks."""
        self.is_blocked = False
        """True if it has done so for long, and its consumers know."""
        self.was_blocked = False
        """True once that was logged: a slow pipeline that catches up is blocked again and again."""
        self.session_epoch = NO_SESSION_EPOCH
        """The session of its owner that subscribed or resumed it."""
        self.claim: Claim | None = None
        """This broker's last claim that is on the disk. Entries from before the first claim belong
        to an earlier subscription of the same name."""

    @property
    def peer(self) -> Peer:
        """Its endpoint in the routing table, while its owner is here."""
        return Peer.session(f"durable {self.subject}")

    @property
    def bound(self) -> Filter:
        """Its filter with its current values."""
        return self.filter.bind(self.values)
