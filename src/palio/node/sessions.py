"""The parties at the other end: `Session`, a client, and `Neighbour`, a broker.

Both are a `PeerSession`: a stream of counted messages that outlives a connection, and a queue of
events for when the receiver is slow or away. The queue is bounded; what it drops is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.node.authority import Principal
from palio.node.effects import Effect, Send
from palio.node.limits import ANSWERS_PART, FEW_RECEIVERS, MAX_GAPS, QUEUES_PART
from palio.node.operations import Claim
from palio.node.rate_limiters import RateLimiter
from palio.protocol.limits import PORTION_BYTES, ROUTES_UNDER_WAY, WINDOW_BYTES
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
    unpack_mask,
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
    """An account of all windows and queues together, and of whose queue holds most."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        """In queues."""
        self.under_way = 0
        """In windows: sent, and not yet seen. It cannot be dropped."""
        self.answers = 0
        """Among that, what is no events: there is as much of it as is asked for."""
        self.receivers = 0
        self.parties: dict[PeerSession, None] = {}
        """Those whose queue is not empty."""

    @property
    def room(self) -> int:
        """Bytes that one receiver may have under way: as much as is left of a half for all
        together, so that however many stall there is some left for one that does not; and at least
        a fair share.
        """
        return max(self.maximum // 2 - self.under_way, self.fair_share)

    @property
    def fair_share(self) -> int:
        """Bytes that each receiver may have under way, whatever others have."""
        return self.maximum // 2 // max(FEW_RECEIVERS, self.receivers)

    @property
    def is_strained(self) -> bool:
        """True if answers that nobody has seen take much of it."""
        return self.answers > self.maximum // ANSWERS_PART

    def relieve(self) -> None:
        """Bring the sum under the maximum: the longest queue loses half of what it holds. Whatever
        is under way, queues have an eighth: what some clients do not see costs others no more.
        """
        least = self.maximum // QUEUES_PART
        while self.parties and self.used > max(self.maximum - self.under_way, least):
            longest = max(self.parties, key=lambda party: party.queued_bytes)
            longest.shed(longest.queued_bytes // 2)


class PeerSession:
    """One end of a session: `link` is its connection, or None while it is away."""

    MAY_SAY: ClassVar[frozenset[type]]
    """The messages that are legal from the other end."""

    def __init__(
        self, id: str, peer: Peer, principal: Principal, link: int, stream: Stream, budget: Budget
    ) -> None:
        self.id = id
        self.name = peer.name
        """Its name for people; of a neighbour the broker's name."""
        self.peer = peer
        self.principal = principal
        self.link: int | None = link
        self.disconnected_at = 0.0
        self.stream = stream
        self.queued_bytes = 0
        self.dropped = 0
        """Events that were dropped because the receiver fell behind."""
        self._queue: deque[tuple[_Events, int]] = deque()
        self._budget = budget
        self._gaps: dict[tuple[str, int], Gap] = {}
        """By publisher and durable subscription (or -1), what was lost and is yet to be told."""
        self._owed_lapse = ""
        """Why more may have been lost, if it is yet to be told that."""
        budget.receivers += 1

    @property
    def has_room(self) -> bool:
        """True if more events may be sent now; always, if it has seen all."""
        unseen = self.stream.unseen_bytes
        return not unseen or (self.stream.has_room and unseen < self._budget.room)

    def resumes(self, session: str, received: int) -> bool:
        """Return whether this is the session that goes on after so many messages of it."""
        return self.id == session and self.stream.knows(received)

    def say(self, out: list[Effect], message: Message) -> None:
        """Send a counted message now, or when the party is back."""
        size = self.stream.send(message)
        self._budget.under_way += size
        if type(message) not in EVENTS:
            self._budget.answers += size
        if self.link is not None:
            out.append(Send(self.link, message))

    def offer(self, out: list[Effect], message: _Events, limit: int) -> None:
        """Send events, or queue them behind others; the oldest go where there are too many."""
        if self.has_room and not self._queue:
            self.say(out, message)
            return
        if isinstance(message, Deliver) and message.subscriptions is not None:
            # Answers overtake what waits: by then the receiver may have changed them.
            message = Deliver(message.parcel, message.rows, message.key, message.entry)
        size = size_of(message)
        self._queue.append((message, size))
        self._account(size)
        if self.queued_bytes > limit:
            self.shed(limit)
        self._budget.relieve()

    def shed(self, target: int) -> None:
        """Drop the oldest events until no more than `target` bytes wait."""
        while self.queued_bytes > target:
            message, size = self._queue.popleft()
            self._account(-size)
            self._lose(message)

    def send_waiting(self, out: list[Effect]) -> None:
        """Send what waits, as far as the window allows; what was lost before it is told first."""
        while self._queue and self.has_room:
            self._tell_gaps(out)
            message, size = self._queue.popleft()
            self._account(-size)
            self.say(out, message)
        if not self._queue and self.has_room:
            self._tell_gaps(out)

    def seen(self, count: int) -> None:
        """The other end has got so many messages."""
        before, answers = self.stream.unseen_bytes, self.stream.unseen_answers
        self.stream.seen(count)
        self._budget.under_way += self.stream.unseen_bytes - before
        self._budget.answers += self.stream.unseen_answers - answers

    def arrived(self, out: list[Effect], message: Message) -> None:
        """A counted message was taken: the other end is told so, if that is due."""
        if self.stream.arrive(message):
            self.send_ack(out)

    def send_ack(self, out: list[Effect]) -> None:
        """Acknowledge what arrived, unless that was done."""
        if self.link is not None:
            ack: StreamAck | None = self.stream.ack()
            if ack is not None:
                out.append(Send(self.link, ack))

    def forget(self) -> None:
        """The session is over."""
        self._budget.under_way -= self.stream.unseen_bytes
        self._budget.answers -= self.stream.unseen_answers
        self._budget.receivers -= 1
        self._queue.clear()
        self._account(-self.queued_bytes)
        self._budget = Budget(self._budget.maximum)  # what is still said to it is on no account

    def _account(self, size: int) -> None:
        self.queued_bytes += size
        self._budget.used += size
        if self._queue:
            self._budget.parties[self] = None
        else:
            self._budget.parties.pop(self, None)

    def _lose(self, message: _Events) -> None:
        if isinstance(message, Carry):
            return  # its origin sends it again
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
            publisher, first, last = "*", 0, 0
        known = self._gaps.get((publisher, key))
        if known is not None:
            first = known.first_seq
            count += known.count
        self._gaps[publisher, key] = Gap(publisher, first, last, count, key)

    def _tell_gaps(self, out: list[Effect]) -> None:
        if self._gaps or self._owed_lapse:
            reason = self._owed_lapse
            perhaps = (Gap("*", 0, 0, 0, reason=reason),) if reason else ()
            gaps = Gaps((*perhaps, *self._gaps.values()))
            self._gaps, self._owed_lapse = {}, ""
            if self.peer.is_client:
                self.say(out, gaps)


class Subscription(msgspec.Struct):
    """A subscription of a session under one key; `what` was asked for, before grants."""

    what: Filter | Pattern
    values: Bindings
    version: int = 0
    durable: str = ""
    assembled: bool = False
    """True if brokers assemble it, a pattern."""
    costed: tuple[Filter | Pattern, Bindings, int] | None = None
    """The filter of which its cost was last worked out, and the cost."""

    @property
    def filter(self) -> Filter:
        """The filter that brokers look for: of a pattern what any of its steps wants."""
        what = self.what
        return what if isinstance(what, Filter) else what.any_step

    @property
    def cost(self) -> int:
        """The cost of all its residuals, with the values in them."""
        costed = self.costed
        if costed is None or costed[0] is not self.what or costed[1] is not self.values:
            cost = sum(
                residual.substitute(self.values).cost
                for conjunction in self.filter.conjunctions
                for residual in conjunction.residuals
            )
            costed = self.costed = self.what, self.values, cost
        return costed[2]


class Session(PeerSession):
    """A client."""

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
        """The account of its principal, once it has begun."""
        self.owner = owner
        """Whose durable subscriptions these are."""
        self.name = f"client {owner}"
        self.identity = ""
        """With whose other sessions it shares what they advertise; empty for nobody's."""
        self.publisher = publisher
        self._subscriptions: dict[int, Subscription] = {}
        self.subscriptions: Final[Mapping[int, Subscription]] = self._subscriptions
        """Changed by `take_up`, `change` and `let_go` alone, which count them on the principal's
        account, too."""
        self.cost = 0
        """The sum of the costs of all their residuals."""
        self.durables: dict[int, Durable] = {}
        """Durable subscriptions, by key; `subscriptions` has them too."""
        self.stalled: dict[Durable, None] = {}
        """Those for which more may wait than there was room for. They are served in turn."""
        self.is_waiting = False
        """True if something that it asked waits for its broker, which has just started."""
        self.last_seq = -1
        self.endpoint: Peer | None = None
        """The place in the routing table from which it publishes, once it has
        (`PublisherEndpoints`)."""
        self.waves: dict[int, None] = {}
        """Those by which it is to learn that all is in force everywhere."""
        self.promises: dict[StoredAt, deque[tuple[int, int]]] = {True: deque(), "home": deque()}
        """Durable publications not yet answered: (last number, ticket or 0 when stored)."""

    def take_up(self, subscriptions: Mapping[int, Subscription]) -> None:
        """Hear something under keys that are not in use."""
        assert self.subscriptions.keys().isdisjoint(subscriptions)
        self._subscriptions.update(subscriptions)
        self._count(len(subscriptions), sum(each.cost for each in subscriptions.values()))

    def change(self, key: int, what: Filter | Pattern, values: Bindings) -> None:
        """Hear something else under a key."""
        known = self._subscriptions[key]
        before = known.cost
        known.what, known.values = what, values
        self._count(0, known.cost - before)

    def let_go(self, key: int) -> Subscription | None:
        """Unsubscribe under a key; what it was, if anything."""
        known = self._subscriptions.pop(key, None)
        if known is not None:
            self._count(-1, -known.cost)
        return known

    def _count(self, subscriptions: int, cost: int) -> None:
        self.limiter.subscriptions += subscriptions
        self.limiter.cost += cost
        self.cost += cost

    def forget(self) -> None:
        """The session is over."""
        super().forget()
        # What is left leaves the tables piece by piece, and is on the principal's account no more.
        count, cost = len(self.subscriptions), self.cost
        self._count(-count, -cost)
        self.limiter = RateLimiter(self.principal.name)
        self._count(count, cost)

    def hear_pattern(self, out: list[Effect], said: Composite | TooLate, limit: int) -> None:
        """A pattern of this session has occurred, or events were too late for it."""
        if isinstance(said, Composite):
            self.offer(out, Assembled(said.key, said.parts), limit)
        else:
            late = (said.publisher, said.first_seq, said.last_seq, said.count, said.key)
            self.say(out, Gaps((Gap(*late, is_late=True),)))

    def lapse(self, out: list[Effect], reason: str) -> None:
        """Events of anybody may have been lost on their way: told now, or when there is room."""
        self._owed_lapse = self._owed_lapse or reason
        if self.link is not None and self.has_room and not self._queue:
            self._tell_gaps(out)


class Neighbour(PeerSession):
    """A broker at the other end of a link."""

    MAY_SAY = ALLOWED[Speaker.NEIGHBOUR, State.ESTABLISHED]

    before: Callable[[], None] | None = None
    """Called before anything is said to it but what its router says."""

    is_taken_in = False
    """The routing tables use the link."""

    is_joining = True
    """Tables were not in force since its session began: who has missed its part by then is for
    `Absences` to say."""

    def __init__(
        self, id: str, peer: Peer, principal: Principal, link: int, stream: Stream, budget: Budget
    ) -> None:
        super().__init__(id, peer, principal, link, stream, budget)
        self.untold: deque[Iterator[Message] | WaitingBatch] = deque()
        """Messages yet to be sent to it, portion by portion, in order."""
        self._behind: deque[Message] = deque()
        """Messages that it may not get before the events that wait for it."""
        self._open: WaitingBatch | None = None
        """That among it which other batches may be joined to."""
        self.uses = 0
        """How often, on a graph, this link has left the tree, as either end said."""
        self._told = 0

    def changes_tree(self, control: Control) -> bool:
        """Whether, on a graph, this link comes into the tree or leaves it, and that matters."""
        if isinstance(control, Join):
            return not control.calm
        return isinstance(control, Leave) and not control.calm

    def tell(self, out: list[Effect], portion: Message) -> None:
        """Say a portion of what is told. That all events have come (`_LAST`) is said behind those
        that wait, and what its router says after that, behind it.
        """
        is_last = isinstance(portion, Route) and isinstance(portion.control, _LAST)
        if isinstance(portion, Route) and (self._behind or (is_last and self._queue)):
            self._behind.append(portion)
        else:
            super().say(out, portion)

    def say_behind(self, out: list[Effect], message: Message) -> None:
        """Say something behind the events that wait for it."""
        if self._behind or self._queue:
            self._behind.append(message)
        else:
            self.say(out, message)

    def send_waiting(self, out: list[Effect]) -> None:
        """See `PeerSession.send_waiting`."""
        super().send_waiting(out)
        while self._behind and not self._queue:
            super().say(out, self._behind.popleft())

    def carry(self, out: list[Effect], message: Carry, limit: int) -> None:
        """Send on what goes to another broker, or queue it; or drop it, as it is sent again, before
        it takes the place of live events.
        """
        if self.queued_bytes <= limit // 2:
            self.offer(out, message, limit)

    def has_dropped(self) -> bool:
        """Return whether events for it were dropped since this was asked last."""
        before, self._told = self._told, self.dropped
        return self.dropped > before

    @property
    def has_room(self) -> bool:
        """Brokers are few and their links are not to stand still for clients that do."""
        return self.stream.has_room and not self.untold

    def say(self, out: list[Effect], message: Message) -> None:
        """After messages that wait in `untold`; see `PeerSession.say`."""
        if self.before is not None:
            self.before()
        if self.untold:
            self.untold.append(iter((message,)))
        else:
            super().say(out, message)

    @property
    def unseen(self) -> list[Forward]:
        """Events that it has perhaps not seen, in order."""
        sent = [each for each in self.stream.unseen() if isinstance(each, Forward)]
        return sent + [each for each, _ in self._queue if isinstance(each, Forward)]

    @property
    def is_busy(self) -> bool:
        """True if the link or the other end is behind with what this broker's router said."""
        return self.stream.unseen_routes >= ROUTES_UNDER_WAY

    def join(self, batch: Batch) -> bool:
        """Say a batch with one that is untold, or after all that is. False: it is too long."""
        if self._open is not None and self._open.add(batch):
            return True
        waiting = WaitingBatch(PORTION_BYTES, weight)
        if not waiting.add(batch):
            self.part()
            return False
        self._open = waiting
        self.untold.append(waiting)
        return True

    def part(self) -> None:
        """No batch that comes later may be said before what is untold now."""
        self._open = None

    def next_portion(self) -> Message | None:
        """Take out the next of what is untold; None if that is nothing, or waits."""
        while self.untold:
            first = self.untold[0]
            if isinstance(first, WaitingBatch):
                if self.is_busy:
                    return None
                self.untold.popleft()
                if first is self._open:
                    self.part()
                return Route(first.batch)
            portion = next(first, None)
            if portion is not None:
                return portion
            self.untold.popleft()
        return None

    def forget(self) -> None:
        """The session is over."""
        super().forget()
        self._behind.clear()
        self.untold.clear()
        self.part()


class Durable:
    """A durable subscription that lives at this broker."""

    def __init__(
        self, subject: str, owner: str, filter: Filter, values: Mapping[str, Any], lease_s: float
    ) -> None:
        self.subject = subject
        self.owner = owner
        self.filter = filter
        self.values = dict(values)
        self.lease_s = lease_s
        self.session: Session | None = None
        self.key = -1
        self.disconnected_at = 0.0
        self.session_epoch = NO_SESSION_EPOCH
        """In which session its owner took it up."""
        self.claim: Claim | None = None
        """The last one of this broker that is on the disk. What waits before there is one was for
        an earlier one of its name."""
        self.acknowledged = 0
        """Up to which offset its owner has dealt with its queue, written or not."""
        self.sent = 0
        """Up to which offset that was sent to it..."""
        self._sizes: deque[tuple[int, int]] = deque()
        """...and how large what is on its way is."""
        self._in_flight = 0

    def follow(self, before: Durable) -> None:
        """Its owner is here again: what was not acknowledged is sent again."""
        self.acknowledged = self.sent = before.acknowledged

    @property
    def has_room(self) -> bool:
        """True if more may be on its way to its owner."""
        return self._in_flight < WINDOW_BYTES

    def send(self, offset: int, size: int) -> None:
        """The next of its queue goes to its owner."""
        self.sent = offset
        self._sizes.append((offset, size))
        self._in_flight += size

    def held(self, offset: int) -> None:
        """Its owner has what was sent up to an offset, and there is room for more."""
        while self._sizes and self._sizes[0][0] <= offset:
            self._in_flight -= self._sizes.popleft()[1]

    @property
    def peer(self) -> Peer:
        """Its place in the routing table, while its owner is here."""
        return Peer.session(f"durable {self.subject}")

    @property
    def bound(self) -> Filter:
        """The filter of what it gets now."""
        return self.filter.bind(self.values)
