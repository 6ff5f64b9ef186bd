"""Messages between a client and its broker, and between two brokers: who may send what, when.

Each connection begins with `Hello` and `Welcome`. From then on both ends count the messages that
the other sent in this *session*; one that is broken off is resumed by saying how many arrived, and
the rest is sent again. `UNCOUNTED` messages are about the connection itself. Which message is legal
from whom and when is a table, `palio.protocol.transitions`.

A request with an `id` is answered by exactly one of `Done`, `Failed` and `Answer`. A refusal never
ends the connection; a message that is not legal ends the session, and changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from palio.model.filters import Filter
from palio.model.parcels import Parcel, pack_mask, unpack_mask
from palio.model.printing import shown_without
from palio.model.values import NO_VALUES
from palio.multicast.limits import MAX_PACKED_CHARS, MAX_RANGES
from palio.protocol.limits import (
    MAX_ADDRESSEES,
    MAX_BOOKMARK_BYTES,
    MAX_DETOUR,
    MAX_NAME_BYTES,
    MAX_NUMBER,
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
    "FlowStands",
    "Forward",
    "Gap",
    "Gaps",
    "Heard",
    "Hello",
    "Message",
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
    "pack_mask",
    "unpack_mask",
]


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""A number that came from outside may be reckoned with: what is none is refused by the codec."""


Subject: TypeAlias = Annotated[str, msgspec.Meta(max_length=2 * MAX_NAME_BYTES + 1)]
"""A durable subscription, as the network knows it: its owner and its name."""

Bookmark: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_BOOKMARK_BYTES)]
"""How far the owner of a durable subscription has got, in its own words."""


Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS)]
"""A time that comes from a broker: what is none is refused by the codec."""


# --- the connection ---


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A greeting: who connects, and what it remembers of an earlier connection that it wants to
    resume.
    """

    role: str
    """`client` or `broker`."""
    name: str
    version: Number
    token: str = ""
    incarnation: str = ""
    """Drawn by a client once in its incarnation: its publications are numbered under
    `name/incarnation`, whatever becomes of its sessions."""
    session: str = ""
    """The session to resume; empty for a new one."""
    received: Number = 0
    """Counted messages of that session that arrived here."""
    nonce: str = ""
    """A broker's nonce, drawn for this greeting, to be signed by the answering party."""
    proof: bytes = b""
    """A broker's signature, once it was asked for (`palio.node.peer_authentication`)."""
    routing: str = ""
    """The algorithm by which a broker routes on this link."""
    identity: str = ""
    """The name under which a client acts, with others who do; empty for nobody's but its own."""
    seeks: bool = False
    """True of a broker that has lost others and looks for them. It needs this link only if there is
    no other way to whom it dials."""
    parents: tuple[str, ...] = ()
    """The brokers above a broker, on either side of a gateway."""

    def __repr__(self) -> str:
        return shown_without(self, "token")


class Challenge(msgspec.Struct, frozen=True, tag=True):
    """Prove that the token in `Hello` is yours: say that again, with a proof over this nonce."""

    name: str
    nonce: str


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The answer to a greeting. Not `resumed`: the session is new, and all before is forgotten."""

    name: str
    session: str
    resumed: bool
    received: Number
    """Counted messages of the resumed session that arrived here."""
    publisher: str = ""
    """The name that events published in this session bear."""
    heartbeat_s: Seconds = 0.0
    grace_s: Seconds = 0.0
    token: str = ""
    """To brokers: the bound token of who answers..."""
    proof: bytes = b""
    """...and its signature over the nonces of this greeting."""
    routing: str = ""
    """To brokers: as in `Hello`..."""
    parents: tuple[str, ...] = ()
    """...and so is this."""

    def __repr__(self) -> str:
        return shown_without(self, "token")


class Bye(msgspec.Struct, frozen=True, tag=True):
    """The last word on a connection: an error by its class name, or `closed` or `suspended`."""

    code: str
    reason: str = ""
    in_order: bool = False
    """True of a broker with whose session no event is lost, as ways led round it before."""


class StreamAck(msgspec.Struct, frozen=True, tag=True):
    """So many counted messages have arrived in this session: they need not be kept any longer."""

    count: Number


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Are you there?"""


class Pong(msgspec.Struct, frozen=True, tag=True):
    """I am."""


# --- from clients ---


class Subscribe(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Hear what matches, or what any step of a pattern wants. `durable` names a subscription that
    outlives its session.

    Its values are plain and lead nowhere: the garbage collector need not visit it.
    """

    id: Number
    key: Number
    filter: str
    values: Values = NO_VALUES
    durable: str = ""
    lease_s: float = 0.0
    """How long it waits for its owner; 0 for as long as the broker likes."""
    session_epoch: Number = 0
    """The how many-th session of its client this is said in, if it is durable; see
    `SessionEpoch`."""
    assembled: bool = False
    """True if brokers assemble the pattern; else the client hears what any step wants."""


class SubscribeAll(msgspec.Struct, frozen=True, tag=True):
    """Subscriptions that are said together: each is in force or refused as if it came by itself."""

    requests: Annotated[tuple[Subscribe, ...], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)]


class Replace(msgspec.Struct, frozen=True, tag=True):
    """Another filter under the same key: identity, position and grants stay."""

    id: Number
    key: Number
    filter: str
    values: Values = NO_VALUES
    assembled: bool = False
    """As in `Subscribe`."""


class Update(msgspec.Struct, frozen=True, tag=True):
    """New values for some variables."""

    id: Number
    key: Number
    values: Values


class Unsubscribe(msgspec.Struct, frozen=True, tag=True):
    """Unsubscribe. A durable subscription waits for its owner, unless `forget` ends it."""

    id: Number
    key: Number
    forget: bool = False


class Advertise(msgspec.Struct, frozen=True, tag=True):
    """Announce what will be published."""

    id: Number
    key: Number
    filter: str


class Unadvertise(msgspec.Struct, frozen=True, tag=True):
    """Withdraw an announcement."""

    id: Number
    key: Number


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """Withdraw all that `filter` covers, whichever session of the identity has announced it."""

    id: Number
    filter: str


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End what the other sessions of the identity hear and `filter` covers, a filter or a pattern.

    Answered by `Answer`: how many subscriptions that were.
    """

    id: Number
    filter: str
    forget: bool = False
    """True if durable ones end for good; else they wait for their owners."""


class Settle(msgspec.Struct, frozen=True, tag=True):
    """Answer when all this session has asked for is in force wherever a publisher may be.

    Answered by `Done`, which names brokers that could not be told.
    """

    id: Number


StoredAt: TypeAlias = bool | Literal["home"]
"""Where events are stored before their publisher is informed that they are published: nowhere,
at the broker that accepts them, or there and at the home of each durable subscription that wants
them."""

LEVELS: Final[dict[StoredAt, str]] = {False: "memory", True: "durable", "home": "home"}
"""The level that `Accepted` names of each."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Events numbered on from `first_seq`, without system columns."""

    parcel: Parcel
    first_seq: Number
    durable: StoredAt = False


class Acknowledge(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The durable subscription has dealt with everything up to an entry, 0 for nothing new.

    A pattern does not deal with events in the order in which they come: it says how far it has got.
    """

    key: Number
    entry: Number
    held: Number = 0
    """The receiver holds all up to this entry, and there is room for more."""
    bookmark: Bookmark = b""
    """The state for the next owner of the subscription; empty if nothing has changed."""


class Query(msgspec.Struct, frozen=True, tag=True):
    """A question about the broker: `topology`, `status`, `trace`, `catalogue`, `waiting`,
    `source`.
    """

    id: Number
    what: str
    about: Any = None


class RemoveBroker(msgspec.Struct, frozen=True, tag=True):
    """A broker is gone for good: nobody needs to keep anything for it or wait for it."""

    id: Number
    broker: str


class AddPeer(msgspec.Struct, frozen=True, tag=True):
    """The broker is to be linked to another, now and after a restart. Answered by `Answer` once it
    is: who that is.
    """

    id: Number
    url: Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)]


class RemovePeer(msgspec.Struct, frozen=True, tag=True):
    """The broker is to part from a neighbour. Answered by `Answer` once ways lead round it and the
    link is gone.
    """

    id: Number
    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]


class Apply(msgspec.Struct, frozen=True, tag=True):
    """A plan of multicast groups is to be in use, instead of any before it."""

    id: Number
    plan: Annotated[str, msgspec.Meta(max_length=MAX_PACKED_CHARS)]
    """The plan as `palio.multicast.documents` writes it; empty if there is to be none."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """The broker is to hand over all it has to others, as long as this session lasts, and to stay
    empty once that is done; `undo` ends it. Answered by `Answer`: what is left.
    """

    id: Number
    broker: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    """Its name: a client may have come to another one."""
    undo: bool = False


# --- to clients ---


class Failure(msgspec.Struct, frozen=True):
    """An error as data: the class of `palio.errors`, its message, and its attributes."""

    kind: str
    message: str
    details: dict[str, Any] = {}


class Done(msgspec.Struct, frozen=True, tag=True):
    """The request is in force at this broker (for `Settle`: everywhere but at `unreached`)."""

    id: Number
    unreached: tuple[str, ...] = ()
    others: tuple[Number, ...] = ()
    """Further requests of the same message that are in force."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request was refused and changed nothing."""

    id: Number
    failure: Failure


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The answer to an `Query`."""

    id: Number
    data: Any


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Everything published at a level up to a number is held: in `memory`, on the disk of this
    broker (`durable`), or on those of all homes, too (`home`).
    """

    seq: int
    level: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Events that were not published, and why."""

    first_seq: Number
    last_seq: int
    failure: Failure


class Deliver(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Events for a session. An event by itself names the `subscriptions` that it is for, as the
    broker knows them; of others the receiver finds that out by its own filters.

    With a `key` they are for that durable subscription alone. With an `entry` they come out of its
    queue, and it is what to acknowledge; without, they were published for those who are here. An
    entry without events cannot be read any more: the gap before it tells what was in it.
    """

    parcel: Parcel
    rows: bytes | None = None
    key: int = -1
    entry: Number = 0
    subscriptions: tuple[Number, ...] | None = None
    """Their keys; None if the broker has not found out, or an answer to a change of one of them
    may have come before. What the receiver has changed and has no answer for it looks at itself."""


class Assembled(msgspec.Struct, frozen=True, tag=True):
    """One occurrence of a pattern that a session subscribed under a key: its events, in order."""

    key: Number
    parts: Parts

    @property
    def gap(self) -> Gap:
        """The events that are lost with it."""
        last = self.parts[-1]
        return Gap(last.publisher, last.seq, last.seq, 1, self.key)


class Bookmarked(msgspec.Struct, frozen=True, tag=True):
    """The bookmark of a durable subscription that was taken up, before anything of it comes."""

    key: Number
    bookmark: Bookmark


class Gap(msgspec.Struct, frozen=True):
    """Events of one publisher that a session lost."""

    publisher: str
    first_seq: Number
    last_seq: int
    count: Number
    key: int = -1
    """The durable subscription, or the pattern, that lost them; or -1."""
    is_late: bool = False
    """True if they came, and too late for the pattern."""
    reason: str = ""
    """Why events of anybody may have been lost, and which broker says so."""


class Gaps(msgspec.Struct, frozen=True, tag=True):
    """Events were lost since the last message."""

    gaps: tuple[Gap, ...]


class Withdrawn(msgspec.Struct, frozen=True, tag=True):
    """Advertisements of this session under these keys were withdrawn by a `Withdraw`."""

    keys: tuple[Number, ...]


class Redirect(msgspec.Struct, frozen=True, tag=True):
    """This broker is about to go: move to one at these addresses, or to another that you know."""

    urls: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)], ...],
        msgspec.Meta(max_length=MAX_URLS),
    ] = ()


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The subscriptions of this session under these keys are over, and why."""

    keys: tuple[Number, ...]
    failure: Failure


# --- between brokers ---


class Route(msgspec.Struct, frozen=True, tag=True):
    """A message of one router to another."""

    control: Control


class Detour(msgspec.Struct, frozen=True):
    """That events go round a link that broke."""

    path: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_DETOUR)]
    """The brokers that they are yet to pass after the receiver; the last is at its other end."""
    session: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    """The session on it, which both ends remember."""


Addressee: TypeAlias = tuple[str, Number]
"""A broker, and the number of the events in its flow; 0 if they are of none."""


class Addressed(msgspec.Struct, frozen=True):
    """For which brokers events are; nobody on the way looks for others."""

    to: Annotated[tuple[Addressee, ...], msgspec.Meta(min_length=1, max_length=MAX_ADDRESSEES)]
    incarnation: Number
    """Which incarnation of the broker where they were published has numbered them."""
    hops: Number = 0
    """Brokers that they have passed."""


class Forward(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Events that someone beyond the receiver listens to."""

    parcel: Parcel
    rows: bytes | None = None
    durable: bool = False
    """They are kept, too, for durable subscriptions, which do not get them from here."""
    source: str = ""
    """The broker where they were published, if the routing follows that."""
    detour: Detour | None = None
    addressed: Addressed | None = None


class FlowStands(msgspec.Struct, frozen=True, tag=True):
    """How a flow stands, from its sender to its receiver (`palio.multicast.outflow.FlowState`)."""

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
"""Numbers from the first to the last."""


class Heard(msgspec.Struct, frozen=True, tag=True):
    """How far the receiver of a flow has got, to its sender (`palio.multicast.inflows.FlowAck`)."""

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
    """The share of an entry that a durable subscription gets."""

    subject: Subject
    number: Number
    """The claim that its origin knew: `ann/orders#3`."""
    rows: bytes | None
    """None for all; empty if its origin cannot read its filter, and its home is to look."""


class Carry(msgspec.Struct, frozen=True, tag=True):
    """An entry of durable events on its way from its origin to a home; it may be lost."""

    parcel: Parcel
    origin: str
    log: Number
    """Which log of the origin: one that has lost its disk begins a greater one."""
    home: str
    home_log: Number
    """Which log the origin believes the home to have."""
    offset: Number
    previous: Number
    """The offset that the home has before that: its cursor, or the entry is not taken."""
    shares: Annotated[tuple[Share, ...], msgspec.Meta(max_length=MAX_SUBJECTS)]


class EntriesStored(msgspec.Struct, frozen=True, tag=True):
    """A home has stored an origin's stream up to an offset; on its way to the origin."""

    home: str
    home_log: Number
    origin: str
    log: Number
    offset: Number
    is_asking: bool = False
    """Something after it came early, so what lies between is missed."""


class SessionEpoch(NamedTuple):
    """In which session a client has spoken of a durable subscription: with it, of two brokers that
    the client has been at, each knows whether it came there after it had been at the other.
    """

    publisher: str = ""
    """The name that what it publishes bears: no other client has it, and no later incarnation of
    it."""
    number: Number = 0
    """From 1 on; 0 of a client that does not count."""

    def follows(self, other: SessionEpoch) -> bool | None:
        """Return whether it is the later one; None if that is not known.

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
    """Which claim of a durable subscription a fact states; the greatest counts."""

    number: Number = 0
    """Each claim has a greater one than all that its broker knew."""
    revision: Number = 0
    """How often its filter was changed since."""
    since: Number = 0
    """The first claim since it began: what was put for an earlier one had another owner."""


NO_CLAIM: Final = ClaimNumbers()


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """A durable subscription of the sender, whose owner is away, is to live with the receiver from
    now on. That answers with a fact, its claim, or not at all.
    """

    subject: Subject
    lease_s: Seconds
    session_epoch: SessionEpoch
    """By which session of its owner it came to live with the sender."""
    bookmark: Bookmark = b""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a broker tells all others about itself; the newest version counts."""

    origin: str
    version: Number
    subject: str
    """`links`, the name of a durable subscription, or that of a broker that is gone for good; or
    `/token`, `/lapse`, `/log` or `/plan`."""
    links: tuple[str, ...] = ()
    """The neighbours; or the token."""
    filter: str = ""
    """A durable subscription's filter with its values; empty once it has ended. Or a plan of groups
    for multicast; empty where there is to be none."""
    claimed_us: Number = 0
    """When a durable subscription came to live here. Of a broker that is gone, up to which version
    what it had announced is over. Of a plan its epoch. Of links, from which version on their broker
    remembers what it said: since it began with an empty disk. Of a log its number."""
    session_epoch: SessionEpoch = NO_SESSION_EPOCH
    """By which session of its owner it came to live here, or was ended."""
    claim: ClaimNumbers = NO_CLAIM
    """The number of this claim among those of a durable subscription."""
    signature: bytes = b""
    """The signature of all that, by the key of its origin (`palio.node.fact_verifier`)."""

    @property
    def chars(self) -> int:
        """The size of its content, in characters."""
        return sum(map(len, (self.subject, self.filter, self.session_epoch.publisher, *self.links)))


class Facts(msgspec.Struct, frozen=True, tag=True):
    """Facts, in the order of their versions."""

    facts: Annotated[tuple[Fact, ...], msgspec.Meta(max_length=PORTION)]


class Digest(msgspec.Struct, frozen=True, tag=True):
    """By origin, the newest version that the sender has: what it lacks is sent to it."""

    versions: dict[str, Number]
    incarnation: Number = 0
    """In which incarnation the sender is: another number after each start."""


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Where would this event go from here? Nobody receives it."""

    id: Number
    parcel: Parcel
    path: tuple[str, ...]


class Probed(msgspec.Struct, frozen=True, tag=True):
    """The fate of a probe at one broker and beyond it."""

    id: Number
    hops: tuple[dict[str, Any], ...]


class Seek(msgspec.Struct, frozen=True, tag=True):
    """Does anybody offer what this wants? Asked of the broker above."""

    id: Number
    filter: Filter


class Sought(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `Seek`."""

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
    | Bookmarked
    | Withdrawn
    | Redirect
    | Ended
    | Route
    | Forward
    | FlowStands
    | Heard
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
"""The types of messages about the connection itself."""
