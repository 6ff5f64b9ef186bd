"""Every limit of a broker and of the wire, in one place, each with its reason.

What a user may set is a field of `Settings` with one of these as its default; the others are
properties of the protocol. Each is tested on both sides.
"""

from __future__ import annotations

from typing import Final

from palio.model.limits import MAX_COMPARISONS
from palio.protocol.limits import SEEN_EVERY_BYTES

MAX_SUBSCRIPTIONS: Final = 100_000
"""Subscriptions of one principal, or of one session where nobody shows who he is; at about 4 KiB
each, 400 MB."""

MAX_PRINCIPAL_COST: Final = 32_768
"""Cost of all residuals of one principal, or of one session where nobody shows who he is, in units
of `MAX_RESIDUAL_COST`: 6,500 of `bid > ask * 1.01`, which one event is held against in 30 ms."""

MAX_ADVERTISEMENTS: Final = 1_000
"""Advertisements of an identity at one broker, or of a session without one: each event is held
against all of them, and each that is withdrawn by what covers it is looked for among them."""

MAX_WITHDRAW_COMPARISONS: Final = 8 * MAX_COMPARISONS
"""The most that finding out which of these a `Withdraw` covers may cost: 35 ms at the
worst."""

CANCEL_SLICE: Final = MAX_COMPARISONS
"""Comparisons after which a `Cancel` lets others have their turn: 256 plain subscriptions, 2 to 7
ms, or a few of the costliest."""

MAX_CANCELS: Final = 16
"""`Cancel` of one session that are under way: each has a list of what it has yet to look at."""

MAX_SESSIONS: Final = 100_000
"""Sessions of one broker, connected or waiting to be resumed."""

MAX_SESSIONS_OF_ONE: Final = 1_000
"""Sessions of a principal that shows who it is and whose grant says nothing of it: a hundred of
them are needed to take up all of a broker's."""

UNACKED_BYTES: Final = 16 << 20
"""Bytes that a client may have been sent, answers included, before it acknowledges any of them."""

ANSWERS_PART: Final = 4
"""Where all clients together have left more unseen than one part in so many of `MEMORY_BYTES`, not
counting events, each may leave a fair share..."""

LEAST_SHARE: Final = 2 * SEEN_EVERY_BYTES
"""...which is so many bytes at least: who acknowledges as it should has never more."""

QUEUE_BYTES: Final = 8 << 20
"""Bytes that wait for one slow receiver beyond the window; then the oldest events are dropped."""

CAST_BYTES: Final = 16 << 10
"""The largest events that go in datagrams, a batch together: of the 12 fragments that it takes one
is lost for one receiver in ten where a hundredth of all packets is. Larger ones go by links."""

MEMORY_BYTES: Final = 1 << 30
"""Bytes of all windows and queues of a broker together; the longest queue loses first."""

SHOWN_CHARS: Final = 80
"""Characters of a name from outside that are put into a log or an answer."""

REASON_CHARS: Final = 500
"""The same of what another broker gives as a reason."""

MAX_PROMISES: Final = 1 << 16
"""Publications of one session that wait until all homes have stored them: four times what a client
has under way that keeps to its window. Homes may be away for long, and each waits in memory."""

MAX_EARLY: Final = 1_000
"""Durable publications and subscriptions that wait while a new broker hears from its network: that
takes less than a second."""

QUEUES_PART: Final = 8
"""Queues may hold one part in so many of `MEMORY_BYTES`, however much is on its way."""

FEW_RECEIVERS: Final = 1_024
"""At most this many receivers are guaranteed an equal share of half of `MEMORY_BYTES`; with more
receivers each share is smaller."""

HELD_BYTES: Final = 64 << 20
"""Bytes of events that wait while the tree of a graph changes; from half of it on, publishers are
answered only when their events have gone, so that they slow down."""

HELD_BEATS: Final = 2
"""Heartbeats for which they wait. A change takes a few times as long as the longest way, and as
long as tables need to be told again."""

HELD_AT_ONCE: Final = 1_000
"""Events that go on at once when that is over: about 10 ms, then other inputs have their turn."""

MAX_GAPS: Final = 1_000
"""Publishers of whose lost events a receiver is informed one by one; others are counted
together."""

CLIENT_GRACE_S: Final = 30.0
"""Seconds that a client may be away and keep its session, its subscriptions and its queue."""

PEER_HEARTBEAT_S: Final = 1.0
"""A broker that says nothing for so long is asked; for three times as long, its connection is lost:
long enough for a loop that is held for a second or two."""

PEER_GRACE_S: Final = 10.0
"""Seconds that a broker to which no other way leads may be away and keep its place in the routing
tables: long enough for one that is started again."""

LEASE_S: Final = 7 * 86_400.0
"""How long a durable subscription keeps its events while nobody takes them."""

STALLED_S: Final = 2.0
"""A broker that goes waits for its clients to move; when none has gone for so long, those that are
left have nowhere to go."""

REDIRECT_AGAIN_S: Final = 10.0
"""Clients that are still here after so long are told again: others may be there by now."""

OFFER_AGAIN_S: Final = 5.0
"""A durable subscription that nobody has taken over after so long is offered to the next."""

QUIET_S: Final = 1.0
"""A broker is drained if nothing has come for so long: what was on its way when all others had
learned of it."""

ADOPTED_AT_ONCE: Final = 200
"""Durable subscriptions that are offered with one look round: each is written, told to all brokers,
and followed by what waits for it."""

MAX_RATE_LIMITERS: Final = 100_000
"""Principals without sessions whose rates are remembered; beyond, the one that left first begins a
second again."""

RELEASE_S: Final = 0.05
"""Seconds after which the journal forgets what it may, though nothing else is written: what was
acknowledged in the last of them before a crash is sent again."""

RIPE_S: Final = 0.01
"""Seconds after which it is written with whatever is written: more of it together is less work."""

MAX_RELEASES: Final = 1_024
"""Entries that the journal may forget, and that are worth a commit of their own."""

MAX_OWN_BOOKMARKS_BYTES: Final = 4 << 20
"""Bookmarks of one owner's durable subscriptions: 64 of the largest, or thousands as they are."""

MAX_BOOKMARKS_BYTES: Final = 256 << 20
"""Bookmarks of all: a broker holds them in memory."""

LINK_STATE_BURST: Final = 4
"""Lists of links that a broker sends at once: links that break, and those that replace them. More
come together where it has many neighbours, and each of these gets the whole list each time."""

LINK_STATE_INTERVAL_S: Final = 0.05
"""Seconds between them after that: far less than it takes to find out that a link is gone."""

FACTS_BURST: Final = 8
"""So often a broker passes on at once what others say of the network."""

FACTS_INTERVAL_S: Final = 0.1
"""Seconds between two times after that. A change of the network takes about a second to be found
out, and facts cross it in a few of these."""

ON_TIME_S: Final = 0.02
"""An alarm that rings so late is in time: a turn of the loop takes that."""

BEHIND_S: Final = 0.1
"""A broker whose alarms ring so late is behind with its work, and reports the network as seldom as
it ever does; between the two it waits longer in proportion."""

MAX_INTERVAL_S: Final = 2.0
"""Seconds between two times then. A change crosses a network in a few of them, before events that
wait for it (`HELD_BEATS`) go without."""

MANY_BROKERS: Final = 30
"""The number of brokers from which each waits as long as that; fewer wait in proportion."""

LOSS_REPORT_BURST: Final = 2
"""LossReports that a broker reports, one with each look round: that something was lost, and later
that all is well again."""

MAX_LOSS_REPORT_INTERVAL_S: Final = 5.0
"""Seconds between two more of them if it is behind."""

MAX_BROKERS: Final = 10_000
"""Brokers of one network: who names more of them has made some up."""

MAX_PEERS: Final = 100
"""Brokers that one may be linked to, or parted from, while it runs: the addresses are a fact."""

MAX_FACTS: Final = 1_000_000
"""Facts that one broker may state of itself, ended durable subscriptions among them."""

MAX_FACT_CHARS: Final = 1 << 20
"""One fact: a filter of the most characters fits several times, in canonical form."""

MAX_HOPS: Final = 100
"""Brokers that a trace may have passed: the longest way of a large network."""

MAX_PARTED: Final = 1_000
"""Neighbours whose last session is remembered after its end, for events that go round a link."""

MAX_PROBES: Final = 1_000
"""Traces that wait for answers of neighbours; beyond, the oldest is answered without them."""

PROBED_BYTES: Final = 1 << 20
"""Brokers in one neighbour's answer to a trace, itself and all beyond: it is passed on."""

AHEAD_US: Final = 10 * 365 * 86_400 * 1_000_000
"""Versions and claims are times of some wall. Clocks may be years wrong; what is further ahead was
made up, so that its origin could not outdo it. Numbers of claims are far below such times."""

TIME_AHEAD_US: Final = 86_400 * 1_000_000
"""A broker goes on above the last time of its earlier incarnation if that is a day ahead at most:
a zone that was set wrong is less."""

TIME_KEPT_S: Final = 10.0
"""How often the time of live publications is written down: that takes a sync."""

REPUBLISHED_PER_TICK: Final = 500
"""Facts that a broker which was outdone says again with one tick: to sign them takes 20 ms."""

RETRY_REJECTED_S: Final = 30.0
"""After so long a neighbour is asked again for the facts of an origin of which it said some that
were refused: it, or the keys here, may have been behind."""

MIN_DIGEST_INTERVAL_S: Final = 10.0
"""Seconds between two requests for the facts by one neighbour; an honest one asks less often."""
