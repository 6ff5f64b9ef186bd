"""Every limit of what both ends of a connection share, in one place, each with its reason."""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidInput

PROTOCOL_VERSION: Final = 1
"""Raised when messages of the version before would be misread; an end of another is refused."""

MAX_FRAME_BYTES: Final = 16 << 20
"""One frame: a batch of 16,384 events of 64 numbers each fits, a mistaken length does not."""

MAX_BATCH_BYTES: Final = MAX_FRAME_BYTES - (MAX_FRAME_BYTES >> 4)
"""Bytes that a client publishes at once, numbers and times included: the rest of a frame is for
what a broker writes before it. A larger frame would cost whoever hears it the connection."""

MAX_BATCH_ROWS: Final = 1 << 14
"""Events of one message. An event takes a broker about 1 us beside 100 filters, so that this many
keep others waiting for 16 ms. More are published in parts; where there are more filters a broker
takes a message part by part."""

MAX_BATCH_CELLS: Final = 1 << 20
"""Rows of a message times its columns, for the same reason: 64 columns of the most rows. Each is an
object of some 60 bytes to whoever hears it as JSON."""

MAX_CHUNK_ROWS: Final = 1 << 20
"""Events that a front takes at once and publishes in parts. A batch without columns takes no bytes,
however many rows it says it has."""

MAX_CHUNK_CELLS: Final = 1 << 22
"""Rows of those times their columns: a frame holds 134 million booleans."""

PORTION_BYTES: Final = 16 << 10
"""Bytes of brokers' tables that go in one frame, unless one thing is larger:
to read filters takes up to 3 ms a kilobyte, and others get their turn between two frames."""

MAX_REQUEST_BYTES: Final = 2 << 20
"""One message of a client without a batch of events: a filter of MAX_TEXT_CHARS in any script, and
as much of values, fit."""

MAX_GREETING_BYTES: Final = 16 << 10
"""A frame of a connection that has not shown who it is: a token and a name fit."""

GREETING_S: Final = 2.0
"""How long a connection may take to show who it is."""

ANSWER_S: Final = 10.0
"""How long a broker that was dialled may take to answer. It may have much else to do, and to be
dialled again meanwhile, which ends what it has begun, would keep it busy for ever."""

MAX_NUMBER: Final = 1 << 62
"""A number in a message. Added to another it is an int64 still."""

DAMAGE_TRIES: Final = 10
"""Damaged messages are sent again as they are; if one is damaged so often in a row at one place,
that is no accident, and the session ends."""

MAX_BOOKMARK_BYTES: Final = 64 << 10
"""How far a durable subscription has got, in its owner's words: brokers hold it in memory."""

MAX_NAME_BYTES: Final = 200
"""A client's, a broker's or a durable subscription's name."""

MAX_ADDRESSEES: Final = 4_096
"""Brokers to which events are addressed together: as many as a plan of groups has."""

MAX_URLS: Final = 8
"""Addresses of other brokers that a client is informed at once: it tries them in turn."""

MAX_URL_CHARS: Final = 300
"""One of them: the longest name of a machine has 253."""

MAX_DETOUR: Final = 100
"""Brokers that events pass on the way round a link that broke: the longest way of a large
network."""

MAX_SECONDS: Final = 10 * 365 * 86_400.0
"""Any time that somebody sets or asks for: ten years. Far beyond, clocks and timers overflow."""

MIN_SECONDS: Final = 0.001
"""The least of a broker's settings: timers that are shorter keep it busy with nothing else."""

MAX_SHAPES: Final = 1_024
"""Shapes (schemas) that one end of a connection may name; beyond, it starts over with none."""

WINDOW_BYTES: Final = 4 << 20
"""Bytes that may be on their way to one receiver before it has acknowledged them."""

SEEN_EVERY_BYTES: Final = 256 << 10
"""A receiver says what it has got at least this often, and when it falls idle."""

SEEN_EVERY_ROUTES: Final = 8
"""A broker says what it has got after so many messages of its neighbour's router, too..."""

ROUTES_UNDER_WAY: Final = 32
"""...and while so many are not seen, the link is busy: updates wait, and those that wait are
joined. Several times as many as are answered at once, so that a link is busy only if the other end
is behind by a round trip or by work; few, so that a slow link has little before the last value."""

HEARTBEAT_S: Final = 5.0
"""A connection that says nothing for so long is asked; for three times as long, it is lost."""

SILENT_BEATS: Final = 3
"""A connection on which nothing came for this many heartbeats is lost."""

SEEN_AFTER_S: Final = 0.01
"""A client tells its broker what has arrived after this at the latest."""

DIAL_S: Final = 5.0
"""How long a client's attempt to connect may take, the broker's answer to the greeting included."""

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 5.0
"""The pause between a client's attempts doubles from the one to the other."""

CROSSING_S: Final = 0.5
"""A client that moves is at both brokers for so long after all is in force at the new one: what was
published before that, and what it published itself, may be on its way over 24 links of 20 ms."""

OVERLAP_S: Final = 30.0
"""Events that a client's old broker had delivered may come from the new one for so long after a
move."""

MAX_PUBLISHERS: Final = 100_000
"""Publishers whose numbers are remembered; beyond, the one learned of longest ago is forgotten."""

WINDOW_BLOCKS: Final = 16
"""Blocks of numbers (see `dedup_window`) that are remembered of one publisher of durable events."""

UPDATES_UNDER_WAY: Final = 16
"""Updates of one subscription that a client has sent and its broker has not answered; those that
follow are joined until one is. So many take effect in each round trip, and no link nor broker has a
backlog of values that are outdated."""

MOST_TOGETHER: Final = 32
"""Subscriptions of one message: a broker takes 1 ms for them, 6 ms if each has its own shape..."""

TOGETHER_CHARS: Final = 4 << 10
"""...and so many characters of filters and values have they at the most (see `PORTION_BYTES`)."""

PORTION_FACTS: Final = 128
"""Facts of one message. To verify a signature takes about 0.13 ms, and a fact may need two: so many
keep a broker busy for 35 ms at the most."""

MAX_SUBJECTS: Final = 100
"""Durable subscriptions of one home that get something of an entry that is carried there."""

MAX_PUBLISHER_CHARS: Final = 2 * MAX_NAME_BYTES + 1
"""A publisher is called after its client and the incarnation of that."""

MAX_DATAGRAM_BYTES: Final = 64 << 10
"""A datagram before it is sealed and cut into pieces. One piece that is lost loses all of it, so
that what is larger is better off on links."""

MAX_COUNTS_BYTES: Final = 4 * 4_096
"""The numbers of flows in a datagram: four bytes for each of the most brokers of a plan."""

DATAGRAM_MTU: Final = 1_400
"""The bytes of a packet that most networks carry whole, tunnels too, without their own headers."""

MIN_MTU: Final = 512
"""A piece of a datagram: with the longest name of a broker half of it is still of use."""

MAX_MTU: Final = 65_507
"""Bytes that a packet of UDP holds."""

MAX_PIECES: Final = 320
"""Packets of the longest datagram in the shortest packets."""

PIECES_BYTES: Final = 8 << 20
"""Memory for datagrams of which pieces are still to come, those of all senders..."""

PIECES_OF_ONE_BYTES: Final = 1 << 20
"""...and those of one, which keeps no more than its own others waiting."""

PIECES_S: Final = 2.0
"""Pieces that the network did not bring together by now do not come any more."""

REPLAY_WINDOW: Final = 2_048
"""Packets of one sender that may be overtaken by its newest; what is older counts as a copy."""

MAX_SENDERS: Final = 10_000
"""Brokers of which it is remembered what they have sent: to forget one would let in copies."""

MAX_STREAMS: Final = 2 * MAX_SENDERS
"""Keys at hand, one for each sender and plan: two plans are in use while one follows another. A key
that was let go is derived again."""

SHAPES_BYTES: Final = 32 << 20
"""Memory for shapes that datagrams have described; beyond, they are read again."""


_YEARS: Final = round(MAX_SECONDS / (365 * 86_400))


def check_seconds(given: object, what: str, *, least: float = 0.0) -> float:
    """The time as a float, if it is one of at least `least`; `what` says which, for the error.

    >>> check_seconds(90, "lease_s")
    90.0
    >>> check_seconds(float("nan"), "lease_s")
    Traceback (most recent call last):
        ...
    palio.errors.InvalidInput: lease_s is nan; it is a number of seconds from 0 to 315360000 ...
    """
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not least <= given <= MAX_SECONDS:  # type: ignore[operator]  # a number
        raise InvalidInput(
            f"{what} is {given!r:.40}; it is a number of seconds from {least:g} to "
            f"{MAX_SECONDS:.0f} ({_YEARS} years, MAX_SECONDS)"
        )
    return float(given)  # type: ignore[arg-type]  # a number
