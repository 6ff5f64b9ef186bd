"""Limits of flows (docs/concepts/multicast.md, "On the network") and of plans in use, with reasons.

Memory limits are for a broker with 1 GiB (`limits.memory_bytes`) or more; with less they are a
share of it.
"""

from __future__ import annotations

from typing import Final

FIRST_WINDOW: Final = 128
"""Datagrams in flight at first: about as many as Linux's default socket buffer holds."""

LEAST_WINDOW: Final = 64
"""The least window after losses: a thousand datagrams a second where each repair takes 60 ms, and
half of what a socket's buffer holds."""

MOST_WINDOW: Final = 4_096
"""The greatest window, 40 ms at 100,000 datagrams a second: a greater one gains nothing."""

MAX_WAITING_BYTES: Final = 8 << 20
"""Events pending until the window opens; beyond, the receiver that keeps it shut is moved to links
at once."""

MAX_TOGETHER: Final = 512
"""Pending or held events that proceed together: 15 ms. Others follow in the next turn."""

SLOW_S: Final = 1.0
"""Seconds that a receiver may keep the window shut before it is moved to links."""

JUDGED: Final = 256
"""Events after which a receiver that lacked half of them is moved to links, too."""

BACKOFF_S: Final = 1.0
"""Seconds on links before datagrams are tried again; twice as long each time."""

MOST_BACKOFF_S: Final = 60.0
"""The longest such time. A receiver that keeps up for as long starts over."""

MAX_HISTORY_BYTES: Final = 64 << 20
"""Unacknowledged events of all flows; beyond, the flow with the oldest event loses its oldest."""

MAX_LOST: Final = 256
"""Events evicted before the next flow is chosen: 0.1 ms."""

MAX_HELD_BYTES: Final = 8 << 20
"""Early events held for one flow; those beyond are dropped and asked for again."""

MAX_ALL_HELD_BYTES: Final = 128 << 20
"""Early events held for all flows to a broker."""

ACK_EVENTS: Final = 64
"""Events after which a receiver sends an ack: half of the first window."""

ACK_S: Final = 0.2
"""Seconds after the first unacknowledged event that it sends one at the latest: at a hundred events
a second, one for every twentieth. A sender whose window is shut asks for one at once."""

LACK_S: Final = 0.02
"""The least wait in seconds before a receiver asks for a missing number, half of the greatest: a
datagram may overtake another, and a repair for one receiver may serve the next."""

LINK_S: Final = 0.5
"""Seconds without progress after which events are resent by links: a link loses events only when it
breaks, and a slow one would carry them many times."""

MOST_LACK_S: Final = 1.0
"""The longest wait in seconds; it doubles with each vain request."""

MAX_RANGES: Final = 64
"""Ranges of numbers in one request."""

MAX_REPAIRED: Final = 256
"""Events resent at once: 3 ms. Others that are missing are asked for again."""

TAIL_S: Final = 0.05
"""Seconds after the last event of a flow that its sender reports the last number, which asks for an
ack; twice as long each time."""

MOST_TAIL_S: Final = 1.0
"""The longest time between such reports."""

MAX_FLOWS: Final = 4_096
"""Flows from a broker, and flows to it: as many as a plan has brokers."""

MAX_ROUTES: Final = 65_536
"""Sets of brokers whose routes a sender caches."""

JOIN_S: Final = 5.0
"""Seconds that a sender waits for all brokers to join a new plan before it uses it with some."""

MAX_UNPACKED_BYTES: Final = 512 << 10
"""A plan in use as a document, which all brokers keep: reading the largest takes under 50 ms."""

MAX_PACKED_CHARS: Final = 704 << 10
"""The same as a text, a third longer if it cannot be compressed."""
