"""Define the messages between a client and its broker, and between two brokers.

Each connection begins with `Hello` and `Welcome`. Then both ends count the messages that arrive in
this *session*. To resume a session each end states its count, and the other retransmits the rest.
`UNCOUNTED` messages concern the connection itself. `palio.protocol.transitions` has the table of
senders and phases in which each message is legal.

Exactly one of `Done`, `Failed` and `Answer` answers a request with an `id`. A refusal never ends
the connection; an illegal message ends the session and changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.model.printing import shown_without
from palio.model.values import NO_VALUES
from palio.multicast.limits import MAX_PACKED_CHARS, MAX_RANGES
from palio.protocol.limits import (
    MAX_ACKED,
    MAX_ADDRESSEES,
    MAX_BATCH_ROWS,
    MAX_BOOKMARK_BYTES,
    MAX_DETOUR,
    MAX_NAME_BYTES,
    MAX_NUMBER,
    MAX_REASON_CHARS,
    MAX_SECONDS,
    MAX_SUBJECTS,
    MAX_URL_CHARS,
    MAX_URLS,
    MOST_TOGETHER,
)
from palio.routing.messages import PORTION, Control, Values
from palio.routing.patterns.messages import Parts

__all__ = [
    "LEVELS",
    "NO_CLAIM",
    "NO_SESSION_EPOCH",
    "UNCOUNTED",
    "Accepted",
    "Acknowledge",
    "AddPeer",
    "Addressed",
    "Adopt",
    "Advertise",
    "Answer",
    "Apply",
    "Assembled",
    "Blocked",
    "Bookmark",
    "Bookmarked",
    "Bye",
    "Cancel",
    "Carry",
    "Challenge",
    "ClaimNumbers",
    "Deliver",
    "Detour",
    "Digest",
    "Done",
    "Drain",
    "Ended",
    "EntriesStored",
    "EventMessage",
    "Fact",
    "Facts",
    "Failed",
    "Failure",
    "FlowAcks",
    "FlowStatus",
    "Forward",
    "Gap",
    "Gaps",
    "Hello",
    "Message",
    "Nack",
    "Parcel",
    "Ping",
    "Pong",
    "Probe",
    "Probed",
    "Publish",
    "Query",
    "Redirect",
    "Refused",
    "RemoveBroker",
    "RemovePeer",
    "Replace",
    "Route",
    "Seek",
    "SessionEpoch",
    "Settle",
    "Share",
    "Sought",
    "StoredAt",
    "StreamAck",
    "Subscribe",
    "SubscribeAll",
    "Unadvertise",
    "Unsubscribe",
    "Update",
    "Welcome",
    "Withdraw",
    "Withdrawn",
]


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""A number within the limits; the codec refuses any other, so calculations need no check."""


Subject: TypeAlias = Annotated[str, msgspec.Meta(max_length=2 * MAX_NAME_BYTES + 1)]
"""The network-wide name of a durable subscription: its owner and its own name."""

Seqs: TypeAlias = Annotated[tuple[Number, ...], msgspec.Meta(max_length=MAX_BATCH_ROWS)]
"""Events of one entry, by the numbers of their publisher."""

Bookmark: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_BOOKMARK_BYTES)]
"""The progress of a durable subscription's owner, in a format that only the owner reads."""


Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS)]
"""A duration within the limits; the codec refuses any other."""


# --- the connection ---


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Open a connection: identify the sender, and name the session to resume, if any."""

    role: str
    """`client` or `broker`."""
    name: str
    version: Number
    token: str = ""
    incarnation: str = ""
    """A client's random id, drawn at its start. It numbers its publications under
    `name/incarnation`, across all its sessions."""
    session: str = ""
    """The session to resume; empty for a new one."""
    received: Number = 0
    """The count of that session's messages that arrived here."""
    nonce: str = ""
    """A broker's nonce, drawn for this `Hello`; the answering broker signs it."""
    proof: bytes = b""
    """A broker's signature in reply to `Challenge` (`palio.node.peer_authentication`)."""
    routing: str = ""
    """The algorithm by which a broker routes on this link."""
    identity: str = ""
    """The identity that a client shares with other clients; empty if it shares none."""
    seeks: bool = False
    """True of a broker that lost peers and dials to repair the network. It needs this link only if
    it has no other path to the receiver."""
    parents: tuple[str, ...] = ()
    """The ancestors of a broker, on either side of a gateway."""
    plain: bool = False
    """True of a client without Arrow: all events are sent to it as plain values."""

    def __repr__(self) -> str:
        return shown_without(self, "token")


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """Demand proof that the token is the sender's: a second `Hello`, which signs this nonce."""

    name: str
    nonce: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Answer `Hello`. Unless `resumed`, the session is new and nothing of an older one is kept."""

    name: str
    session: str
    resumed: bool
    received: Number
    """The count of the resumed session's messages that arrived here."""
    publisher: str = ""
    """The publisher's name on events of this session."""
    heartbeat_s: Seconds = 0.0
    grace_s: Seconds = 0.0
    token: str = ""
    """To brokers: the answering broker's bound token..."""
    proof: bytes = b""
    """...and its signature over the nonces of this handshake."""
    routing: str = ""
    """To brokers: as in `Hello`."""
    parents: tuple[str, ...] = ()
    """To brokers: as in `Hello`."""

    def __repr__(self) -> str:
        return shown_without(self, "token")


class Bye(msgspec.Struct, frozen=True, tag=True):
    """Close the connection. `code` is an error's class name, `closed` or `suspended`."""

    code: str
    reason: str = ""
    in_order: bool = False
    """True of a broker whose paths were rerouted before: its session ends without event loss."""


class StreamAck(msgspec.Struct, frozen=True, tag=True):
    """Ack the first `count` messages of this session, so that their sender may drop them."""

    count: Number


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Ask an idle peer for a `Pong`."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Answer a `Ping`."""


# --- from clients ---


class Subscribe(msgspec.Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Subscribe to a filter, or to the events of any step of a pattern. `durable` names a
    subscription that outlives its session.

    Its values hold no references to containers, so the garbage collector need not track it.
    """

    id: Number
    key: Number
    filter: str
    values: Values = NO_VALUES
    durable: str = ""
    lease_s: float = 0.0
    """How long it outlasts a disconnected owner; 0 for the broker's default."""
    session_epoch: Number = 0
    """If durable, the number of the client's session that sends this; see `SessionEpoch`."""
    assembled: bool = False
    """True if brokers assemble the pattern; else the client receives the events of every step."""
    ack_timeout_s: Seconds = 0.0
    """If durable, the deadline of an ack for the oldest entry without one; 0 for none."""
    max_attempts: Number = 0
    """If durable, the attempts until an event becomes a dead letter; 0 for any number."""
    group: bool = False
    """True if other sessions of the owner may subscribe beside this one; each event is for one."""
    order_by: str = ""
    """Of a group, the attribute whose value orders events: those of one value come one by one."""
    since_us: Number = 0
    """If durable and new, the time of the first event that it receives; 0 for those from now on."""


class SubscribeAll(msgspec.Struct, frozen=True, tag=True):
    """Subscribe several times in one message; each is accepted or refused on its own."""

    requests: Annotated[tuple[Subscribe, ...], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)]


class Replace(msgspec.Struct, frozen=True, tag=True):
    """Replace the filter under a key; the subscription keeps its identity, position and grants."""

    id: Number
    key: Number
    filter: str
    values: Values = NO_VALUES
    assembled: bool = False
    """As in `Subscribe`."""


class Update(msgspec.Struct, frozen=True, tag=True):
    """Set new values for some parameters of a subscription."""

    id: Number
    key: Number
    values: Values


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    """Unsubscribe. A durable subscription persists for its owner, unless `forget` deletes it."""

    id: Number
    key: Number
    forget: bool = False


class Advertise(msgspec.Struct, frozen=True, tag=True):
    """Advertise the events that this session will publish."""

    id: Number
    key: Number
    filter: str


class Unadvertise(msgspec.Struct, frozen=True, tag=True):
    """Withdraw the advertisement under a key."""

    id: Number
    key: Number


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """Withdraw the advertisements that `filter` covers, of all sessions of the identity."""

    id: Number
    filter: str


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End the subscriptions of the identity's other sessions that a filter or pattern covers.

    `Answer` has their number.
    """

    id: Number
    filter: str
    forget: bool = False
    """True to delete the durable ones; else they persist for their owners."""


class Settle(msgspec.Struct, frozen=True, tag=True):
    """Request an answer once this session's requests are in force at every possible publisher.

    `Done` names the brokers that were not reached.
    """

    id: Number


StoredAt: TypeAlias = bool | Literal["home"]
"""Where events are stored before their publisher gets `Accepted`: nowhere, at the accepting broker,
or there and at the home of each matching durable subscription."""

LEVELS: Final[dict[StoredAt, str]] = {False: "memory", True: "durable", "home": "home"}
"""The name of each level in `Accepted`."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Publish events with consecutive numbers from `first_seq`, without system columns."""

    parcel: Parcel
    first_seq: Number
    durable: StoredAt = False


class Acknowledge(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Ack a durable subscription's entries up to `entry`; 0 acks none.

    Entries that were sent again, behind later ones, are not among these unless `entry` is one. A
    pattern finishes events out of order, so it states its progress in `bookmark`.
    """

    key: Number
    entry: Number
    held: Number = 0
    """The client has buffered all entries up to this one and can take more."""
    bookmark: Bookmark = b""
    """The state for the next owner of the subscription; empty if nothing has changed."""
    others: Annotated[tuple[Number, ...], msgspec.Meta(max_length=MAX_ACKED)] = ()
    """Entries to ack by themselves: some before them are not acked, or they were sent again."""
    seqs: Seqs = ()
    """If not empty, only these events of `others`, by the numbers of their publisher."""


class Nack(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Reject an entry of a durable subscription, or some of its events: they are sent again."""

    key: Number
    entry: Number
    seqs: Seqs = ()
    """The events, by the numbers of their publisher; empty for all that were delivered."""
    delay_s: Seconds = 0.0
    """The least time until they are sent again."""
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


class Query(msgspec.Struct, frozen=True, tag=True):
    """Query the broker: `topology`, `status`, `trace`, `catalogue`, `waiting`, `latest` or
    `source`.
    """

    id: Number
    what: str
    about: Any = None


class RemoveBroker(msgspec.Struct, frozen=True, tag=True):
    """Remove a broker for good: no broker needs to keep anything or wait for it."""

    id: Number
    broker: str


class AddPeer(msgspec.Struct, frozen=True, tag=True):
    """Link the broker to another, now and after a restart.

    `Answer` names the new peer once the link is up.
    """

    id: Number
    url: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)]


class RemovePeer(msgspec.Struct, frozen=True, tag=True):
    """Drain and close the link to a peer. `Answer` comes once paths avoid it and it is closed."""

    id: Number
    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]


class Apply(msgspec.Struct, frozen=True, tag=True):
    """Apply a plan of multicast groups, which supersedes any earlier one."""

    id: Number
    plan: Annotated[str, msgspec.Meta(max_length=MAX_PACKED_CHARS)]
    """The plan as `palio.multicast.documents` writes it; empty to remove the plan."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Hand over everything the broker owns while this session lasts, and keep it empty after that.

    `undo` ends a drain. `Answer` has the remaining work.
    """

    id: Number
    broker: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    """The expected name, as the client may have connected to another broker."""
    undo: bool = False


# --- to clients ---


class Failure(msgspec.Struct, frozen=True):
    """Encode an error: its class in `palio.errors`, its message, and its attributes."""

    kind: str
    message: str
    details: dict[str, Any] = {}


class Done(msgspec.Struct, frozen=True, tag=True):
    """Confirm that a request is in force here (for `Settle`: everywhere but at `unreached`)."""

    id: Number
    unreached: tuple[str, ...] = ()
    others: tuple[Number, ...] = ()
    """Further requests of the same message that are in force."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Refuse a request, which has changed nothing."""

    id: Number
    failure: Failure


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Answer a `Query`, or another request that returns data."""

    id: Number
    data: Any


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Ack a level's publications up to a number: held in `memory`, on this broker's disk
    (`durable`), or also on the disks of all homes (`home`).
    """

    seq: int
    level: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Refuse to publish some events, and give the reason."""

    first_seq: Number
    last_seq: int
    failure: Failure


class Deliver(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Deliver events to a session. A single event lists its matching `subscriptions`, as the broker
    knows them; the receiver matches batches by its own filters.

    With a `key`, the events are for that durable subscription alone. With an `entry`, they come
    from its queue, and the client acks that entry; without one, they are live. An entry without
    events has become unreadable; the gap before it reports its content.
    """

    parcel: Parcel
    rows: bytes | None = None
    key: int = -1
    entry: Number = 0
    subscriptions: tuple[Number, ...] | None = None
    """Their keys; None if the broker did not match them, or if an answer to a change of one of them
    may precede this message. The receiver itself matches subscriptions with unanswered changes."""
    attempt: Number = 1
    """How often the entry was tried, this time included."""
    part: bool = False
    """True if other events of the entry are delivered apart. Its acks and rejections name events,
    except an ack of all entries up to one."""


class Assembled(msgspec.Struct, frozen=True, tag=True):
    """Deliver one occurrence of the pattern under a key: its events, in order."""

    key: Number
    parts: Parts

    @property
    def gap(self) -> Gap:
        """The gap that reports the loss of this occurrence."""
        last = self.parts[-1]
        return Gap(last.publisher, last.seq, last.seq, 1, self.key)


class Blocked(msgspec.Struct, frozen=True, tag=True):
    """Report that entries of a durable subscription wait for acks of those delivered, or do no
    longer.
    """

    key: Number
    is_blocked: bool


class Bookmarked(msgspec.Struct, frozen=True, tag=True):
    """Return the bookmark of a resumed durable subscription, ahead of its first event."""

    key: Number
    bookmark: Bookmark


class Gap(msgspec.Struct, frozen=True):
    """Describe events of one publisher that a session lost."""

    publisher: str
    first_seq: Number
    last_seq: int
    count: Number
    key: int = -1
    """The key of the durable subscription or pattern that lost them; else -1."""
    is_late: bool = False
    """True if they arrived too late for the pattern."""
    reason: str = ""
    """Why events of any publisher may be lost, and the broker that reports it."""


class Gaps(msgspec.Struct, frozen=True, tag=True):
    """Report the events lost since the last message."""

    gaps: tuple[Gap, ...]


class Withdrawn(msgspec.Struct, frozen=True, tag=True):
    """Report that a `Withdraw` withdrew this session's advertisements under these keys."""

    keys: tuple[Number, ...]


class Redirect(msgspec.Struct, frozen=True, tag=True):
    """Announce a shutdown: the client moves to one of these addresses, or to one of its own."""

    urls: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)], ...],
        msgspec.Meta(max_length=MAX_URLS),
    ] = ()


class Ended(msgspec.Struct, frozen=True, tag=True):
    """End the subscriptions of this session under these keys, and give the reason."""

    keys: tuple[Number, ...]
    failure: Failure


# --- between brokers ---


class Route(msgspec.Struct, frozen=True, tag=True):
    """Carry a message of one router to another."""

    control: Control


class Detour(msgspec.Struct, frozen=True):
    """Route events round a broken link."""

    path: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_DETOUR)]
    """The remaining brokers after the receiver; the last is at the broken link's other end."""
    session: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    """The session on that link, which both ends remember."""


Addressee: TypeAlias = tuple[str, Number]
"""A broker, and the events' number in its flow; 0 outside any flow."""


class Addressed(msgspec.Struct, frozen=True):
    """List the brokers that events are for; brokers on the path add none."""

    to: Annotated[tuple[Addressee, ...], msgspec.Meta(min_length=1, max_length=MAX_ADDRESSEES)]
    incarnation: Number
    """The incarnation of the publishing broker that numbered them."""
    hops: Number = 0
    """The number of brokers that they have passed."""


class Forward(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Forward events toward subscribers at or beyond the receiver."""

    parcel: Parcel
    rows: bytes | None = None
    durable: bool = False
    """True if they are also stored for durable subscriptions, which take none from this message."""
    source: str = ""
    """The publishing broker, if the routing algorithm needs it."""
    detour: Detour | None = None
    addressed: Addressed | None = None


class FlowStatus(msgspec.Struct, frozen=True, tag=True):
    """Report a flow's state to its receiver (`palio.multicast.outflow.FlowState`)."""

    sender: str
    incarnation: Number
    receiver: str
    receiver_life: Number
    stage: Annotated[int, msgspec.Meta(ge=0, le=2)]
    number: Number
    gone: Number
    is_cast: bool
    hops: Number = 0
    """As in `Addressed`."""


Range: TypeAlias = tuple[Number, Number]
"""The first and the last number of a range."""


class FlowAcks(msgspec.Struct, frozen=True, tag=True):
    """Ack a flow's events to its sender (`palio.multicast.inflows.FlowAck`)."""

    receiver: str
    receiver_life: Number
    sender: str
    incarnation: Number
    stage: Annotated[int, msgspec.Meta(ge=0, le=2)]
    number: Number
    lacking: Annotated[tuple[Range, ...], msgspec.Meta(max_length=MAX_RANGES)] = ()
    hops: Number = 0
    """As in `Addressed`."""


class Share(NamedTuple):
    """Select the rows of an entry for one durable subscription."""

    subject: Subject
    number: Number
    """The number of the claim that the origin knew: 3 in `ann/orders#3`."""
    rows: bytes | None
    """None for all; empty if the origin cannot read the filter, so that the home matches."""


class Carry(msgspec.Struct, frozen=True, tag=True):
    """Transfer an entry of durable events from its origin to a home; the message may be lost."""

    parcel: Parcel
    origin: str
    log: Number
    """The number of the origin's log; a broker that lost its disk starts a greater one."""
    home: str
    home_log: Number
    """The number of the home's log, as the origin knows it."""
    offset: Number
    previous: Number
    """The offset before this entry. The home takes the entry only if its cursor is there."""
    shares: Annotated[tuple[Share, ...], msgspec.Meta(max_length=MAX_SUBJECTS)]


class EntriesStored(msgspec.Struct, frozen=True, tag=True):
    """Ack to the origin that a home has stored its stream up to an offset."""

    home: str
    home_log: Number
    origin: str
    log: Number
    offset: Number
    is_asking: bool = False
    """True if a later entry arrived first: the home requests the entries between."""


class SessionEpoch(NamedTuple):
    """Order a client's sessions: a fencing token for its durable subscriptions.

    By it, a broker decides which of two sessions at different brokers was the later one.
    """

    publisher: str = ""
    """The publisher's name on its events, which is unique to this incarnation of the client."""
    number: Number = 0
    """From 1 on; 0 of a client that does not count its sessions."""

    def follows(self, other: SessionEpoch) -> bool | None:
        """Return whether this session is the later one; None if unknown.

        >>> (
        ...     SessionEpoch("ann/1", 3).follows(SessionEpoch("ann/1", 2)),
        ...     SessionEpoch("ann/1", 3).follows(SessionEpoch("bob/1")),
        ... )
        (True, None)
        """
        numbers = {self.number, other.number}
        if self.publisher != other.publisher or len(numbers - {0}) < 2:
            return None
        return self.number > other.number


NO_SESSION_EPOCH: Final = SessionEpoch()


class ClaimNumbers(NamedTuple):
    """Order the claims to a durable subscription; the greatest wins."""

    number: Number = 0
    """Greater than the number of every claim that the claiming broker knew."""
    revision: Number = 0
    """The number of filter changes since this claim."""
    since: Number = 0
    """The first claim since it was created; entries for an earlier claim had another owner."""


NO_CLAIM: Final = ClaimNumbers()


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """Hand off a durable subscription, whose owner is disconnected, to the receiving broker.

    The receiver answers with a fact, its claim, or not at all.
    """

    subject: Subject
    lease_s: Seconds
    session_epoch: SessionEpoch
    """The owner's session that brought it to the sender."""
    bookmark: Bookmark = b""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """State one fact about a broker to all others; the newest version wins."""

    origin: str
    version: Number
    subject: str
    """`links`, the name of a durable subscription or of a removed broker, or one of `/token`,
    `/lapse`, `/log`, `/plan` and `/traffic`."""
    links: tuple[str, ...] = ()
    """The peers; or the token."""
    filter: str = ""
    """A durable subscription's filter with its values; empty once it has ended. Or a plan of
    multicast groups; empty if there is none."""
    claimed_us: Number = 0
    """When a durable subscription came here. Of a removed broker, the last version of its facts
    that is void. Of a plan, its epoch. Of links, the first version since their broker began with
    an empty disk: it has its own facts from that version on. Of a log, its number."""
    session_epoch: SessionEpoch = NO_SESSION_EPOCH
    """The owner's session that brought it here or ended it."""
    claim: ClaimNumbers = NO_CLAIM
    """The order of this claim among those to the durable subscription."""
    signature: bytes = b""
    """The origin's signature over all other fields (`palio.node.fact_verifier`)."""

    @property
    def chars(self) -> int:
        """The size of its content, in characters."""
        return sum(map(len, (self.subject, self.filter, self.session_epoch.publisher, *self.links)))


class Facts(msgspec.Struct, frozen=True, tag=True):
    """Gossip facts, in the order of their versions."""

    facts: Annotated[tuple[Fact, ...], msgspec.Meta(max_length=PORTION)]


class Digest(msgspec.Struct, frozen=True, tag=True):
    """Advertise the newest version held of each origin; the peer sends the newer facts."""

    versions: dict[str, Number]
    incarnation: Number = 0
    """The sender's incarnation: another number after each start."""


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Trace the path of an event from here; no subscriber receives it."""

    id: Number
    parcel: Parcel
    path: tuple[str, ...]


class Probed(msgspec.Struct, frozen=True, tag=True):
    """Answer a `Probe`: its fate at one broker and beyond."""

    id: Number
    hops: tuple[dict[str, Any], ...]


class Seek(msgspec.Struct, frozen=True, tag=True):
    """Ask the parent broker whether any publisher offers events for a filter."""

    id: Number
    filter: Filter


class Sought(msgspec.Struct, frozen=True, tag=True):
    """Answer a `Seek`."""

    id: Number
    has_source: bool


EventMessage: TypeAlias = Publish | Deliver | Forward | Carry | Probe

Message: TypeAlias = (
    Hello
    | Challenge
    | Welcome
    | Bye
    | StreamAck
    | Ping
    | Pong
    | Subscribe
    | SubscribeAll
    | Replace
    | Update
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Withdraw
    | Cancel
    | Settle
    | Publish
    | Acknowledge
    | Nack
    | Query
    | RemoveBroker
    | Apply
    | Drain
    | AddPeer
    | RemovePeer
    | Done
    | Failed
    | Answer
    | Accepted
    | Refused
    | Deliver
    | Assembled
    | Gaps
    | Blocked
    | Bookmarked
    | Withdrawn
    | Redirect
    | Ended
    | Route
    | Forward
    | FlowStatus
    | FlowAcks
    | Carry
    | EntriesStored
    | Adopt
    | Facts
    | Digest
    | Probe
    | Probed
    | Seek
    | Sought
)

UNCOUNTED: Final = frozenset((Hello, Challenge, Welcome, Bye, StreamAck, Ping, Pong))
"""Message types that concern the connection itself; retransmission excludes them."""
