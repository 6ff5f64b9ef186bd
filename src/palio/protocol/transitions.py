"""The legal messages of each sender and state of a connection, which both ends check.

A connection is in its *greeting* until `Welcome`, and *established* from then on. `ALLOWED` holds
for each speaker and state the types of messages that are legal. A `Node` and a `ClientSession`
check it before they read a message's fields. docs/concepts/protocol.md has the same table, and a
test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    AddPeer,
    Adopt,
    Advertise,
    Answer,
    Apply,
    Assembled,
    Blocked,
    Bookmarked,
    Bye,
    Cancel,
    Carry,
    Challenge,
    Deliver,
    Digest,
    Done,
    Drain,
    Ended,
    EntriesStored,
    Facts,
    Failed,
    FlowAcks,
    FlowStatus,
    Forward,
    Gaps,
    Hello,
    Nack,
    Ping,
    Pong,
    Probe,
    Probed,
    Publish,
    Query,
    Redirect,
    Refused,
    RemoveBroker,
    RemovePeer,
    Replace,
    Route,
    Seek,
    Settle,
    Sought,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Unadvertise,
    Unsubscribe,
    Update,
    Welcome,
    Withdraw,
    Withdrawn,
)


class State(Enum):
    """The state of a connection."""

    GREETING = "greeting"
    ESTABLISHED = "established"


class Speaker(Enum):
    """The sender of a message and, for brokers, its receiver."""

    CALLER = "a caller"
    CLIENT = "a client"
    BROKER = "a broker, to a client"
    NEIGHBOUR = "a broker, to a broker"


class Rule(NamedTuple):
    """Messages that the same speakers may send in the same states."""

    messages: tuple[type, ...]
    speakers: tuple[Speaker, ...]
    states: tuple[State, ...]
    when: str
    """Further conditions; the receiver of the message checks them."""


_GREETING: Final = (State.GREETING,)
_ESTABLISHED: Final = (State.ESTABLISHED,)
_CLIENT: Final = (Speaker.CLIENT,)
_BROKER: Final = (Speaker.BROKER,)
_NEIGHBOUR: Final = (Speaker.NEIGHBOUR,)
_KNOWN: Final = (Speaker.CLIENT, Speaker.BROKER, Speaker.NEIGHBOUR)

RULES: Final = (
    Rule((Hello,), (Speaker.CALLER,), _GREETING, "first; again with a proof after `Challenge`"),
    Rule((Challenge,), _NEIGHBOUR, _GREETING, "once, if the `Hello` shows a bound token"),
    Rule((Welcome,), (*_BROKER, *_NEIGHBOUR), _GREETING, "in answer to `Hello`"),
    Rule((Bye,), tuple(Speaker), tuple(State), "last: why the connection ends"),
    Rule((Ping, Pong), tuple(Speaker), tuple(State), "at any time"),
    Rule((StreamAck,), _KNOWN, _ESTABLISHED, "at any time"),
    Rule((Subscribe, SubscribeAll), _CLIENT, _ESTABLISHED, "under a new key"),
    Rule((Replace, Update), _CLIENT, _ESTABLISHED, "for a subscribed key"),
    Rule((Unsubscribe, Advertise, Unadvertise, Withdraw), _CLIENT, _ESTABLISHED, "at any time"),
    Rule((Cancel,), _CLIENT, _ESTABLISHED, "under an identity"),
    Rule((Settle, Query), _CLIENT, _ESTABLISHED, "at any time"),
    Rule((Publish,), _CLIENT, _ESTABLISHED, "numbers grow from event to event"),
    Rule((Acknowledge, Nack), _CLIENT, _ESTABLISHED, "for a delivered entry"),
    Rule((RemoveBroker,), _CLIENT, _ESTABLISHED, "of a lost broker, with the grant `operate`"),
    Rule((Apply,), _CLIENT, _ESTABLISHED, "a plan of groups, with the grant `operate`"),
    Rule((Drain,), _CLIENT, _ESTABLISHED, "with the grant `operate`"),
    Rule((AddPeer, RemovePeer), _CLIENT, _ESTABLISHED, "with the grant `operate`"),
    Rule((Done, Failed, Answer), _BROKER, _ESTABLISHED, "once for each request with an `id`"),
    Rule((Accepted, Refused), _BROKER, _ESTABLISHED, "for published events"),
    Rule((Deliver, Gaps), _BROKER, _ESTABLISHED, "at any time"),
    Rule((Assembled,), _BROKER, _ESTABLISHED, "for a subscribed pattern"),
    Rule((Bookmarked,), _BROKER, _ESTABLISHED, "before the events of a resumed subscription"),
    Rule((Blocked,), _BROKER, _ESTABLISHED, "for a durable subscription"),
    Rule((Withdrawn,), _BROKER, _ESTABLISHED, "for an advertisement"),
    Rule((Ended,), _BROKER, _ESTABLISHED, "for a subscription"),
    Rule((Redirect,), _BROKER, _ESTABLISHED, "at any time"),
    Rule((Route,), _NEIGHBOUR, _ESTABLISHED, "see `palio.routing.messages`"),
    Rule((Forward,), _NEIGHBOUR, _ESTABLISHED, "for subscribers at or beyond the receiver"),
    Rule((FlowStatus,), _NEIGHBOUR, _ESTABLISHED, "from the sender of a flow to its receiver"),
    Rule((FlowAcks,), _NEIGHBOUR, _ESTABLISHED, "from the receiver of a flow to its sender"),
    Rule((Carry,), _NEIGHBOUR, _ESTABLISHED, "from the origin of durable events to their home"),
    Rule(
        (EntriesStored,),
        _NEIGHBOUR,
        _ESTABLISHED,
        "from the home of durable events to their origin",
    ),
    Rule((Adopt,), _NEIGHBOUR, _ESTABLISHED, "of a durable subscription that is at home there"),
    Rule((Facts, Digest), _NEIGHBOUR, _ESTABLISHED, "see `palio.node.cluster_state`"),
    Rule((Probe, Probed), _NEIGHBOUR, _ESTABLISHED, "a query about an event, and its answer"),
    Rule((Seek, Sought), _NEIGHBOUR, _ESTABLISHED, "a query about a filter, and its answer"),
)

ALLOWED: Final[Mapping[tuple[Speaker, State], frozenset[type]]] = {
    (speaker, state): frozenset(
        message
        for rule in RULES
        if speaker in rule.speakers and state in rule.states
        for message in rule.messages
    )
    for speaker in Speaker
    for state in State
}
"""The messages that each speaker may send in each state.

>>> sorted(each.__name__ for each in ALLOWED[Speaker.BROKER, State.GREETING])
['Bye', 'Ping', 'Pong', 'Welcome']
"""
