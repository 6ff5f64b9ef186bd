"""Limits of flows (docs/concepts/multicast.md, "On the network") and of plans in use, each with its
reason. Those of memory are for a broker that has 1 GiB (`limits.memory_bytes`) or more; of less
they are a share.
"""

from __future__ import annotations

from typing import Final

FIRST_WINDOW: Final = 128
"""Datagrams that a sender has under way at first: about what a socket's buffer holds as Linux has
it by default."""

LEAST_WINDOW: Final = 64
"""Fewer are not sent ahead, even if a receiver lacks some: a thousand a second where each repair
takes 60 ms, and half of what a socket's buffer holds."""

MOST_WINDOW: Final = 4_096
"""More would not make a network faster: 40 ms at 100,000 datagrams a second."""

MAX_WAITING_BYTES: Final = 8 << 20
"""Events that wait for the window; beyond, the receiver that keeps it shut is moved to links at
once.
"""

MAX_TOGETHER: Final = 512
"""Events that waited and proceed together: 15 ms. Others follow in the next turn."""

SLOW_S: Final = 1.0
"""Seconds for which the window may stay shut before the receiver that keeps it so is moved to
links.
"""

JUDGED: Final = 256
"""Events after which a receiver that lacked half of them is moved to links too."""

AWAY_S: Final = 1.0
"""Seconds before it may come back; twice as long each time..."""

MOST_AWAY_S: Final = 60.0
"""...up to so many. Who keeps up for as long starts over."""

MAX_HISTORY_BYTES: Final = 64 << 20
"""Events of all flows that were sent and not received; beyond, the one whose oldest has waited
longest loses its oldest."""

MAX_LOST: Final = 256
"""Events that it loses before it is looked who is next: 0.1 ms."""

MAX_HELD_BYTES: Final = 8 << 20
"""Events of one flow that came before their turn; what comes beyond is asked for again..."""

MAX_ALL_HELD_BYTES: Final = 128 << 20
"""...and of all flows to a broker."""

HEARD_EVENTS: Final = 64
"""A receiver reports how far it has got after so many events, half of the first window..."""

HEARD_S: Final = 0.2
"""...and seconds after the first of them, or when it is asked: of a hundred events a second each
receiver answers every twentieth. A sender whose window is shut asks at once."""

LACK_S: Final = 0.02
"""Seconds that a receiver waits for a number that it lacks before it asks, at least, and twice that
at most: a datagram may overtake another, and who asks later may find it repaired."""

LINK_S: Final = 0.5
"""Seconds without progress after which events that went by links are sent again: links lose
nothing but where they break, and what waits at a slow one would come many times."""

MOST_LACK_S: Final = 1.0
"""Longest wait in seconds; a receiver that asks in vain waits twice as long each time."""

MAX_RANGES: Final = 64
"""Ranges of numbers that are asked for at once."""

MAX_REPAIRED: Final = 256
"""Events that are sent again at once: 3 ms. What else is lacking is asked for again."""

TAIL_S: Final = 0.05
"""Seconds after its last event that a sender reports how far a flow has got, which asks the
receiver for the same, if that was not sent by then; twice as long each time..."""

MOST_TAIL_S: Final = 1.0
"""...up to so many."""

MAX_FLOWS: Final = 4_096
"""Brokers to which one sends, and from which one receives: as many as a plan has."""

MAX_ROUTES: Final = 65_536
"""Sets of brokers of which a sender remembers which groups carry an event for them."""

JOIN_S: Final = 5.0
"""Seconds that a sender waits for all to join a new plan before it uses it for those who have."""

MAX_UNPACKED_BYTES: Final = 512 << 10
"""A plan in use as a document, which all brokers keep: to read the largest holds one of them for
less than 50 ms."""

MAX_PACKED_CHARS: Final = 704 << 10
"""The same as a text: what cannot be compressed is a third longer."""
