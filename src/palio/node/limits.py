"""Every limit of a broker and of the wire, in one place, each with its reason.

What a user may set is a field of `Settings` with one of these as its default; the others are
properties of the protocol. Each is tested on both sides.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 2
"""Raised when a broker could no longer speak with an older one."""

MAX_FRAME_BYTES: Final = 16 << 20
"""One frame: a batch of 16,384 events of 64 numbers each fits, a mistaken length does not."""

MAX_BATCH_BYTES: Final = MAX_FRAME_BYTES - (MAX_FRAME_BYTES >> 4)
"""What a client publishes at once, numbers and times included: the rest of a frame is for what a
broker writes before it. A larger frame would cost whoever hears it the connection."""

MAX_BATCH_ROWS: Final = 1 << 14
"""Events of one message. A message is never divided, and an event takes a broker about 1 us beside
100 filters, so that this many keep others waiting for 16 ms. More are published in parts."""

MAX_BATCH_CELLS: Final = 1 << 20
"""Rows of a message times its columns, for the same reason: 64 columns of the most rows. Each is an
object of some 60 bytes to whoever hears it as JSON."""

MAX_CHUNK_ROWS: Final = 1 << 20
"""Events that a front takes at once and publishes in parts. A batch without columns takes no bytes,
however many rows it says it has."""

MAX_CHUNK_CELLS: Final = 1 << 22
"""Rows of those times their columns: a frame holds 134 million booleans."""

PORTION_BYTES: Final = 16 << 10
"""Of the tables that brokers tell each other, what goes in one frame, unless one thing is larger:
to read filters takes up to 3 ms a kilobyte, and others get their turn between two frames."""

MAX_REQUEST_BYTES: Final = 2 << 20
"""One message of a client without a batch of events: a filter of MAX_TEXT_CHARS in any script, and
as much of values, fit."""

MAX_GREETING_BYTES: Final = 16 << 10
"""A frame of a connection that has not shown who it is: a token and a name fit."""

GREETING_S: Final = 2.0
"""How long a connection may take to show who it is."""

MAX_LONE_BYTES: Final = 64 << 10
"""An event that travels as its values; a larger one does as a batch, whose bytes nobody looks at on
their way."""

MAX_NUMBER: Final = 1 << 62
"""A number in a message. Added to another it is an int64 still."""

FRAME_TRIES: Final = 3
"""A counted message that the other end could not take is sent so often, since a bit may have
flipped on its way; then it is taken out of the session."""

DAMAGE_TRIES: Final = 10
"""What was damaged on its way goes again as it is; if it is damaged so often in a row at one place,
that is no accident, and it counts as what cannot be taken."""

SESSION_TRIES: Final = 3 * FRAME_TRIES
"""An end that goes on sending what cannot be taken loses its session after so many times: a table
is tried whole and then in parts, and what cannot go is replaced by something that arrives."""

MAX_REASON_CHARS: Final = 500
"""Of the reason for a refusal, what is told to the other end; it has to fit into a greeting."""

MAX_NAME_BYTES: Final = 200
"""A client's, a broker's or a durable subscription's name."""

MAX_SECONDS: Final = 10 * 365 * 86_400.0
"""Any time that somebody sets or asks for: ten years. Far beyond, clocks and timers overflow."""

MIN_SECONDS: Final = 0.001
"""The least of a broker's settings: timers that are shorter keep it busy with nothing else."""

MAX_SHAPES: Final = 1_024
"""Shapes (schemas) that one end of a connection may name; beyond, it starts over with none."""

MAX_SUBSCRIPTIONS: Final = 100_000
"""Subscriptions of one session; at about 4 KiB each, 400 MB."""

MAX_SESSIONS: Final = 100_000
"""Sessions of one broker, connected or waiting to be resumed."""

WINDOW_BYTES: Final = 4 << 20
"""What may be on its way to one receiver before it has said that it has got it."""

UNSEEN_BYTES: Final = 16 << 20
"""What a client may have been sent, answers among it, without having said that it got any of it."""

QUEUE_BYTES: Final = 8 << 20
"""What waits for one slow receiver beyond the window; then the oldest events are dropped."""

MEMORY_BYTES: Final = 1 << 30
"""What all windows and queues of a broker may hold together; the longest queue loses first."""

FEW_RECEIVERS: Final = 1_024
"""Of half of that each of so many may have an equal part under way whatever the others have; of
more, each has less."""

MAX_GAPS: Final = 1_000
"""Publishers of whose lost events a receiver is told one by one; others are counted together."""

SEEN_EVERY_BYTES: Final = 256 << 10
"""A receiver says what it has got at least this often, and when it falls idle."""

HEARTBEAT_S: Final = 5.0
"""A connection that says nothing for so long is asked; for three times as long, it is lost."""

CLIENT_GRACE_S: Final = 30.0
"""How long a client that is away keeps its session, its subscriptions and what waits for it."""

PEER_GRACE_S: Final = 10.0
"""How long a broker that is away keeps its place in the routing tables."""

LEASE_S: Final = 7 * 86_400.0
"""How long a durable subscription keeps its events while nobody takes them."""

MAX_ALLOWANCES: Final = 100_000
"""Principals whose rates are remembered; beyond, the one met first begins a second anew."""

MAX_PUBLISHERS: Final = 100_000
"""Publishers whose numbers are remembered; beyond, the one heard of longest ago is forgotten."""

WINDOW_BLOCKS: Final = 16
"""Blocks of numbers (see `windows`) that are remembered of one publisher of durable events."""

MAX_BROKERS: Final = 10_000
"""Brokers of one network: who names more of them has made some up."""

MAX_FACTS: Final = 1_000_000
"""What one broker may have said of itself, durable subscriptions that have ended among it."""

MAX_FACT_CHARS: Final = 1 << 20
"""One fact: a filter of the most characters fits several times, in canonical form."""

PORTION_FACTS: Final = 128
"""Facts of one message. To verify a signature takes about 0.13 ms, and a fact may need two: so many
keep a broker busy for 35 ms at the most."""

MAX_STRANGERS: Final = 16
"""Homes that nobody here has heard of and for which events are kept all the same: word of a new
broker may be late. More of them are made up, or for the neighbour to keep."""

MAX_HOPS: Final = 100
"""Brokers that a trace may have passed: the longest way of a large network."""

MAX_PROBES: Final = 1_000
"""Traces that wait for answers of neighbours; beyond, the oldest is answered without them."""

PROBED_BYTES: Final = 1 << 20
"""What one neighbour may answer to a trace, for itself and all beyond: it is passed on."""

MAX_PUBLISHER_CHARS: Final = 2 * MAX_NAME_BYTES + 1
"""A publisher is called after its client and the incarnation of that."""

MAX_HEARSAY: Final = 10_000
"""Facts of a neighbour that others passed on before it came round to say them itself."""

MAX_HEARSAY_CHARS: Final = 16 << 20
"""What of such facts is held of one that passed them on: the largest sixteen, or thousands as they
are."""

AHEAD_US: Final = 10 * 365 * 86_400 * 1_000_000
"""Versions and claims are times of some wall. Clocks may be years wrong; what is further ahead was
made up, so that its origin could not outdo it."""

TIME_AHEAD_US: Final = 86_400 * 1_000_000
"""A broker goes on above the last time of its earlier life if that is a day ahead at most: a zone
that was set wrong is less."""

TIME_KEPT_S: Final = 10.0
"""How often the time of live publications is written down: that takes a sync."""

REPEATED_AT_ONCE: Final = 500
"""Facts that a broker which was outdone says again with one tick: to sign them takes 20 ms."""

ASK_AGAIN_S: Final = 30.0
"""After so long a neighbour is asked again for the facts of an origin of which it said some that
were refused: it, or the keys here, may have been behind."""

KNOWN_AGAIN_S: Final = 10.0
"""Who asks more often wants to keep this broker busy."""
