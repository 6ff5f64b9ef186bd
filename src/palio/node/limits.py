"""The limits of a broker, in one place, each with its reason.

A limit that a user may set is the default of a field of `Settings`; the others belong to the
protocol. Each is tested on both sides.
"""

from __future__ import annotations

from typing import Final

from palio.model.limits import MAX_COMPARISONS
from palio.protocol.limits import ACK_EVERY_BYTES

MAX_SUBSCRIPTIONS: Final = 100_000
"""Subscriptions of one principal, or of one anonymous session; at about 4 KiB each, 400 MB."""

MAX_PRINCIPAL_COST: Final = 32_768
"""Cost of all residuals of one principal, or of one anonymous session, in units of
`MAX_RESIDUAL_COST`: 6,500 of `bid > ask * 1.01`, which one event is matched against in 30 ms."""

MAX_ADVERTISEMENTS: Final = 1_000
"""Advertisements of an identity at one broker, or of an anonymous session: each event is checked
against all of them, and each withdrawal searches them."""

MAX_WITHDRAW_COMPARISONS: Final = 8 * MAX_COMPARISONS
"""Comparisons to find the advertisements that a `Withdraw` covers: 35 ms at worst."""

CANCEL_SLICE: Final = MAX_COMPARISONS
"""Comparisons after which a `Cancel` yields to other inputs: 256 plain subscriptions, 2 to 7 ms, or
a few of the costliest."""

MAX_CANCELS: Final = 16
"""Pending `Cancel` requests of one session: each holds a list of subscriptions to compare."""

MAX_SESSIONS: Final = 100_000
"""Sessions of one broker, connected or waiting to be resumed."""

MAX_SESSIONS_OF_ONE: Final = 1_000
"""Sessions of an authenticated principal whose grant sets no limit: it takes a hundred such
principals to fill a broker."""

UNACKED_BYTES: Final = 16 << 20
"""Bytes in flight to one client, replies included, that it has not acknowledged."""

ANSWERS_PART: Final = 4
"""Where all clients together leave more unacknowledged than one part in so many of `MEMORY_BYTES`,
not counting events, each may leave a fair share..."""

LEAST_SHARE: Final = 2 * ACK_EVERY_BYTES
"""...which is at least this many bytes: a client that acknowledges in time never exceeds it."""

QUEUE_BYTES: Final = 8 << 20
"""Bytes queued for one slow receiver beyond the window; then the oldest events are dropped."""

CAST_BYTES: Final = 16 << 10
"""The largest events that are sent in datagrams, a batch together. Of the 12 fragments that it
takes, at 1% packet loss one is lost for one receiver in ten. Larger ones are sent over links."""

MEMORY_BYTES: Final = 1 << 30
"""Bytes of all windows and queues of a broker together; the longest queue loses first."""

SHOWN_CHARS: Final = 80
"""Characters of a name from outside that appear in a log or an answer."""

REASON_CHARS: Final = 500
"""The same for a reason that another broker gives."""

MAX_PENDING_RECEIPTS: Final = 1 << 16
"""Unacknowledged publications of one session: four times what a client within its window has in
flight. Brokers that have to store them may be down for long, and each is held in memory."""

MAX_EARLY: Final = 1_000
"""Durable publications and subscriptions that wait while a new broker synchronizes with its
network, which takes less than a second."""

QUEUES_PART: Final = 8
"""Queues may hold one part in so many of `MEMORY_BYTES`, however much is in flight."""

FEW_RECEIVERS: Final = 1_024
"""At most this many receivers are guaranteed an equal share of half of `MEMORY_BYTES`; with more
receivers each share is smaller."""

HELD_BYTES: Final = 64 << 20
"""Bytes of events held while the tree of a graph changes. From half of it on, publishers are
acknowledged only when their events were sent, so that they slow down."""

HELD_BEATS: Final = 2
"""Heartbeats for which they are held. A change takes a few times as long as the longest path, and
as long as tables take to be resent."""

HELD_AT_ONCE: Final = 1_000
"""Events sent at once after that: about 10 ms, then other inputs have their turn."""

MAX_GAPS: Final = 1_000
"""Publishers whose lost events a receiver gets one by one; others are counted together."""

CLIENT_GRACE_S: Final = 30.0
"""Seconds that a disconnected client keeps its session, its subscriptions and its queue."""

PEER_HEARTBEAT_S: Final = 1.0
"""A peer that is idle for so long is pinged. After three times as long its connection is lost: long
enough for an event loop that is blocked for a second or two."""

PEER_GRACE_S: Final = 10.0
"""Seconds that a disconnected peer keeps its entries in the routing tables if no other path leads
to it: long enough for a restart."""

LEASE_S: Final = 7 * 86_400.0
"""How long a durable subscription keeps events while nobody receives them."""

MAX_HISTORY: Final = 20_000
"""Entries of a history. A subscription that begins in it matches them all in one input, which takes
about 15 microseconds each."""

LATEST_BYTES: Final = 8 << 20
"""Memory for last values: some 20,000 small events. All of them fit into the frame of one answer,
as their text is no longer than their memory."""

STALLED_S: Final = 2.0
"""A leaving broker waits for its clients to move. When none has left for so long, the rest have no
broker to move to."""

REDIRECT_AGAIN_S: Final = 10.0
"""Clients that are still here after so long are redirected once more: other brokers may be up by
now."""

OFFER_AGAIN_S: Final = 5.0
"""A durable subscription that no peer has adopted after so long is offered to the next."""

QUIET_S: Final = 1.0
"""A broker is drained if nothing has arrived for so long: events in flight when all others had
learned of it."""

ADOPTED_AT_ONCE: Final = 200
"""Durable subscriptions offered in one sweep: each is written, announced to all brokers, and
followed by its backlog."""

MAX_RATE_LIMITERS: Final = 100_000
"""Principals without sessions whose rates are remembered. Beyond, the one that left first starts
with a full allowance."""

RELEASE_S: Final = 0.05
"""Seconds after which the journal deletes entries though nothing else is written: entries
acknowledged in that time before a crash are redelivered."""

RIPE_S: Final = 0.01
"""Seconds after which deletes join any other write: larger batches are less work."""

MAX_RELEASES: Final = 1_024
"""Deletable entries that are worth a commit of their own."""

MAX_OWN_BOOKMARKS_BYTES: Final = 4 << 20
"""Bookmarks of one owner's durable subscriptions: 64 of the largest, or thousands of usual ones."""

GROUP_PREFETCH: Final = 16
"""Entries without an ack that one consumer of a group has. Few, so that a slow consumer keeps few
from the others; a round trip of 1 ms still allows it 16,000 a second."""

BLOCKED_S: Final = 10.0
"""How long no consumer of a durable subscription with a backlog may acknowledge anything until that
is reported: the time of slow work, well below that of a human who wonders."""

MAX_HELD_EVENTS: Final = 10_000
"""Events of an ordered group that wait behind open ones of their keys, some megabytes. Beyond, the
group waits as a whole: one key that fails for long must not fill the memory."""

MAX_BOOKMARKS_BYTES: Final = 256 << 20
"""Bookmarks of all owners: a broker holds them in memory."""

LINK_STATE_BURST: Final = 4
"""Lists of links that a broker sends at once: links that break, and those that replace them. A
broker with many peers has more changes together, and sends each of the peers the whole list each
time."""

LINK_STATE_INTERVAL_S: Final = 0.05
"""Seconds between them after that: far less than it takes to detect a lost link."""

FACTS_BURST: Final = 8
"""Messages with facts of others that a broker forwards at once."""

FACTS_INTERVAL_S: Final = 0.1
"""Seconds between them after that. A change of the network takes about a second to detect, and
facts cross the network in a few intervals."""

ON_TIME_S: Final = 0.02
"""An alarm that rings so late is on time: an iteration of the event loop takes that."""

BEHIND_S: Final = 0.1
"""A broker whose alarms ring so late is overloaded, and reports the network as seldom as it ever
does. Between the two the interval grows in proportion."""

MAX_INTERVAL_S: Final = 2.0
"""Seconds between two reports then. A change crosses a network in a few of them, before held events
(`HELD_BEATS`) are sent regardless."""

MANY_BROKERS: Final = 30
"""The number of brokers from which the interval grows that long; with fewer it grows in
proportion."""

LOSS_REPORT_BURST: Final = 2
"""Loss reports that a broker sends at once, one a sweep: for a loss, and later for the recovery."""

MAX_LOSS_REPORT_INTERVAL_S: Final = 5.0
"""Seconds between two more of them if it is overloaded."""

MAX_BROKERS: Final = 10_000
"""Brokers of one network: a broker that names more has forged some."""

MAX_PEERS: Final = 100
"""Peers that are added or removed at run time: the addresses are one fact."""

MAX_FACTS: Final = 1_000_000
"""Facts that one broker may publish about itself, ended durable subscriptions among them."""

MAX_FACT_CHARS: Final = 1 << 20
"""Characters of one fact: a filter of the most characters fits several times, in canonical form."""

MAX_HOPS: Final = 100
"""Brokers that a trace may cross: the longest path of a large network."""

MAX_PARTED: Final = 1_000
"""Peers whose last session is remembered after its end, for rerouted events."""

MAX_PROBES: Final = 1_000
"""Traces that await answers of peers; beyond, the oldest is answered without them."""

PROBED_BYTES: Final = 1 << 20
"""Bytes of one peer's answer to a trace, itself and all brokers beyond: it is forwarded."""

AHEAD_US: Final = 10 * 365 * 86_400 * 1_000_000
"""Versions and claims are wall-clock times. Clocks may be years wrong; a time further ahead is
forged, so that its origin could not supersede it. Numbers of claims are far below such times."""

TIME_AHEAD_US: Final = 86_400 * 1_000_000
"""A broker continues above the last time of its earlier incarnation if that is at most a day ahead:
a wrong time zone is less."""

TIME_KEPT_S: Final = 10.0
"""How often the time of live publications is stored: that takes a sync."""

REPUBLISHED_PER_TICK: Final = 500
"""Superseded facts that a broker republishes in one tick: signing them takes 20 ms."""

RETRY_REJECTED_S: Final = 30.0
"""After so long a peer is asked once more for the facts of an origin of which some were rejected:
that peer, or the keys here, may have been outdated."""

MIN_DIGEST_INTERVAL_S: Final = 10.0
"""Seconds between two digests of one peer; an honest one sends them less often."""
