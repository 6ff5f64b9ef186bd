"""Define the limits that both ends of a connection share, each with its reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from palio.errors import InvalidInput

PROTOCOL_VERSION: Final = 1
"""Raised when an older version would misread messages; brokers reject any other version."""

MAX_FRAME_BYTES: Final = 16 << 20
"""One frame: a batch of 16,384 events of 64 numbers each fits, a mistaken length does not."""

MAX_BATCH_BYTES: Final = MAX_FRAME_BYTES - (MAX_FRAME_BYTES >> 4)
"""Bytes that a client publishes at once, numbers and times included. The rest of a frame is for the
broker's fields: a delivery in a larger frame would cost its receiver the connection."""

MAX_BATCH_ROWS: Final = 1 << 14
"""Events of one message. An event takes a broker about 1 us with 100 filters, so these delay others
by 16 ms. Clients publish more in slices; with more filters a broker processes a message in slices.
"""

MAX_BATCH_CELLS: Final = 1 << 20
"""Rows of a message times its columns, for the same reason: 64 columns of the most rows. Each cell
is an object of some 60 bytes for a subscriber by JSON."""

MAX_CHUNK_ROWS: Final = 1 << 20
"""Events that a front end accepts at once and publishes in slices. A batch without columns takes no
bytes, however many rows it claims."""

MAX_CHUNK_CELLS: Final = 1 << 22
"""Rows of those times their columns: a frame holds 134 million booleans."""

PORTION_BYTES: Final = 16 << 10
"""Bytes of brokers' tables in one frame, unless a single message is larger. Parsing filters takes
up to 3 ms a kilobyte, and other inputs have their turn between two frames."""

MAX_REQUEST_BYTES: Final = 2 << 20
"""One message of a client without a batch of events: a filter of MAX_TEXT_CHARS in any script fits,
with as many bytes of values."""

MAX_GREETING_BYTES: Final = 16 << 10
"""A frame of a connection before its handshake is complete: a token and a name fit."""

GREETING_S: Final = 2.0
"""The timeout of a handshake at the accepting broker."""

ANSWER_S: Final = 10.0
"""The timeout of a handshake at the dialling broker. A new attempt ends the pending one, so a
shorter timeout could keep an overloaded peer busy for ever."""

MAX_NUMBER: Final = 1 << 62
"""A number in a message. The sum of two is still an int64."""

DAMAGE_TRIES: Final = 10
"""Damaged messages are retransmitted unchanged. If the same one is damaged so often in a row, the
fault is not transient, and the session ends."""

MAX_BOOKMARK_BYTES: Final = 64 << 10
"""The progress of a durable subscription, in its owner's format: brokers hold it in memory."""

MAX_ACKED: Final = 1_024
"""Entries that one message acks by themselves: a few kilobytes."""

MAX_REASON_CHARS: Final = 200
"""The reason of a rejected event: one line of a log."""

MAX_NAME_BYTES: Final = 200
"""A client's, a broker's or a durable subscription's name."""

MAX_ADDRESSEES: Final = 4_096
"""Brokers to which one message addresses events: as many as a plan of groups has."""

MAX_URLS: Final = 8
"""Addresses of other brokers in one `Redirect`: the client tries them in turn."""

MAX_URL_CHARS: Final = 300
"""One address: the longest host name has 253 characters."""

MAX_DETOUR: Final = 100
"""Brokers on a detour round a broken link: the longest path of a large network."""

MAX_SECONDS: Final = 10 * 365 * 86_400.0
"""Any duration in a setting or request: ten years. Far beyond, clocks and timers overflow."""

MIN_SECONDS: Final = 0.001
"""The least duration in a broker's settings: shorter timers would keep it busy."""

MAX_SHAPES: Final = 1_024
"""Shapes (schemas) that one end of a connection may define; beyond, it starts over with none."""

WINDOW_BYTES: Final = 4 << 20
"""Bytes in flight to one receiver, sent and not yet acked."""

ACK_EVERY_BYTES: Final = 256 << 10
"""A receiver acks at least this often, and when it falls idle."""

ACK_EVERY_ROUTES: Final = 8
"""A broker also acks after this many messages of its peer's router."""

ROUTES_UNDER_WAY: Final = 32
"""With this many router messages in flight the link is busy: further updates wait, and are joined.
Several times `ACK_EVERY_ROUTES`, so that a link is busy only if the other end lags by a round trip
or by work. Few, so that a slow link has little queued before the last value."""

HEARTBEAT_S: Final = 5.0
"""A connection idle for this long is pinged."""

SILENT_BEATS: Final = 3
"""A connection idle for this many heartbeats has timed out."""

ACK_DELAY_S: Final = 0.01
"""The longest delay of a client's ack."""

DIAL_S: Final = 5.0
"""The timeout of a client's attempt to connect, including the handshake."""

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 5.0
"""The pause between a client's attempts doubles from the one to the other."""

CROSSING_S: Final = 0.5
"""A client that moves stays at both brokers for so long after its requests are in force at the new
one. Earlier events, and its own, may still be in flight over 24 links of 20 ms."""

OVERLAP_S: Final = 30.0
"""How long after a move the new broker may deliver events that the old one had delivered."""

MAX_PUBLISHERS: Final = 100_000
"""Publishers whose numbers are remembered; beyond, the one added first is evicted."""

WINDOW_BLOCKS: Final = 16
"""Blocks of numbers (see `dedup_window`) remembered for one publisher of durable events."""

UPDATES_UNDER_WAY: Final = 16
"""Updates of one subscription in flight; a client joins further ones until one is answered. So this
many take effect in each round trip, and links and brokers have no backlog of outdated values."""

MOST_TOGETHER: Final = 32
"""Subscriptions of one message: a broker needs 1 ms for them, 6 ms if each has its own shape."""

TOGETHER_CHARS: Final = 4 << 10
"""Characters of filters and values in those subscriptions (see `PORTION_BYTES`)."""

PORTION_FACTS: Final = 128
"""Facts of one message. Verifying a signature takes about 0.13 ms, and a fact may have two, so this
many keep a broker busy for at most 35 ms."""

MAX_SUBJECTS: Final = 100
"""Durable subscriptions of one home that share a transferred entry."""

MAX_PUBLISHER_CHARS: Final = 2 * MAX_NAME_BYTES + 1
"""A publisher's name: that of its client and the client's incarnation."""

MAX_DATAGRAM_BYTES: Final = 64 << 10
"""A datagram before it is sealed and fragmented. The loss of one fragment loses all of it, so
larger messages are better sent by links."""

MAX_COUNTS_BYTES: Final = 4 * 4_096
"""The numbers of flows in a datagram: four bytes for each of the most brokers of a plan."""

DATAGRAM_MTU: Final = 1_400
"""The payload bytes of a packet that most networks carry whole, even in tunnels."""

MIN_MTU: Final = 512
"""A packet of one fragment: with the longest name of a broker, half of it is still payload."""

MAX_MTU: Final = 65_507
"""The payload bytes of the largest UDP packet."""

MAX_PIECES: Final = 320
"""Packets of the longest datagram in the shortest packets."""

PIECES_BYTES: Final = 8 << 20
"""Memory for the incomplete datagrams of all senders."""

PIECES_OF_ONE_BYTES: Final = 1 << 20
"""Memory for those of one sender, so that it cannot evict the datagrams of others."""

PIECES_S: Final = 2.0
"""When an incomplete datagram expires: networks deliver its fragments together or lose some."""

REPLAY_WINDOW: Final = 2_048
"""How far behind its sender's newest a reordered packet may be; older ones count as replays."""

MAX_SENDERS: Final = 10_000
"""Brokers whose packets are remembered: to evict one would admit replays of its packets."""

MAX_STREAMS: Final = 2 * MAX_SENDERS
"""Cached keys, one for each sender and plan: two plans are in use while one supersedes the other.
An evicted key is derived again."""

SHAPES_BYTES: Final = 32 << 20
"""Memory for parsed shapes of datagrams; beyond, all are evicted and parsed again."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_YEARS: Final = round(MAX_SECONDS / (365 * 86_400))


def check_seconds(given: object, name: str, *, least: float = 0.0) -> float:
    """Return a duration as a float, or raise if it is not from `least` up; `what` names it.

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
            f"{name} is {given!r:.40}; it is a number of seconds from {least:g} to "
            f"{MAX_SECONDS:.0f} ({_YEARS} years, MAX_SECONDS)"
        )
    return float(given)  # type: ignore[arg-type]  # a number


def check_since(time: object) -> int:
    """Return the time of `since=` in microseconds since 1970; 0 for none.

    >>> check_since(datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC))
    7000000
    """
    if time is None:
        return 0
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidInput(f"since is {time!r:.60}; it is a datetime with a time zone")
    return max(1, (time - _EPOCH) // timedelta(microseconds=1))
