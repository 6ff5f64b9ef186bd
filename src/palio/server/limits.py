"""Limits of the shell, each with its reason; those of the node are in `palio.node.limits`."""

from __future__ import annotations

from typing import Final

from palio.protocol.limits import MAX_FRAME_BYTES

MAX_CONNECTIONS: Final = 10_000
"""Connections of one server at once, at all ports together; at 30 KiB each, 300 MB."""

TLS_1_2_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2 that seal and check in one (AEAD), under keys of one connection, as all of TLS
1.3 do."""
MAX_STRANGERS: Final = 4_000
"""Of them, those that have not shown a principal, at 30 KiB each: 1,000 would be too few for a
crowd of honest clients that all come back at once, as a loop accepts so many in one turn."""

MAX_ASKING: Final = 64
"""Connections of a principal beyond its sessions, for those that only ask by HTTP and have none: a
browser opens six, a pool of clients some dozens."""

STRANGER_BYTES: Final = 32 << 20
"""What all strangers have sent of messages that are not whole: half a greeting each."""

SHARE_BYTES: Final = 4 * MAX_FRAME_BYTES
"""A principal's share of messages that are not whole or not dealt with: four frames."""

INTAKE_BYTES: Final = 256 << 20
"""The same of all principals together."""

MAX_WAITING: Final = 64
"""Messages of a principal that wait for its share, unread: a read, 256 KiB, of each is in
memory."""

YIELD_S: Final = 0.25
"""A message that takes longer to come gives way to others: a frame takes 10 ms on loopback."""

MAX_COMMAND_BYTES: Final = 65_536
"""A message of a client by WebSocket: values of parameters."""

PIECE_BYTES: Final = 4_096
"""Of a read by HTTP, what is parsed at once: 5 ms if it is 700 empty chunks or pings."""

HTTP_HEAD_S: Final = 10.0
"""Seconds that the head of an HTTP request may take: an honest client sends it in one packet."""

MAX_HEAD_BYTES: Final = 32 << 10
"""What may come of one without its end: a filter of some length fits, and 5,000 headers, which take
40 ms to parse."""

HTTP_BODY_S: Final = 60.0
"""Seconds that a body may take: at the largest, 4 MiB, over a line of half a megabit."""

HTTP_IDLE_S: Final = 5.0
"""Seconds that an HTTP connection is kept for another request."""

MAX_TAKEN: Final = 1_000
"""Events of a durable subscription in one answer by HTTP: their JSON is made within the answer."""

MAX_WAIT_S: Final = 60.0
"""How long such an answer may wait for a first event; proxies cut off what is silent for longer."""

MAX_BYTES: Final = 1 << 50
"""Any setting in bytes: a PiB, more than a machine has. Sums of some of them are int64 still."""

MAX_REORDER_S: Final = 60.0
"""What may be set as the time that patterns hold events back: they are in memory meanwhile."""

MAX_COUNT: Final = 1 << 31
"""Any setting that counts something: more sessions or connections than a machine has."""

LEAVE_S: Final = 5.0
"""The longest wait before that until routes avoid it; without another path it does not wait."""

GOODBYE_S: Final = 10.0
"""How long a server that stops waits for its connections to take what was sent."""

LINGER_S: Final = 1.0
"""How long a connection that is ended here waits for the other end to have read why."""

CLOSE_S: Final = 5.0
"""How long a closed connection may take to write its last words before it is cut."""

WRITE_HIGH_BYTES: Final = 1 << 20
"""A client with so much unwritten is not read from until most of it is gone."""

TURN_S: Final = 0.02
"""How long messages of connections may keep the loop in one turn: with one message that takes as
long as any may, it is held for no more than 50 ms."""

SLICE_S: Final = 0.005
"""How long one connection may keep it while others wait: 50 ordinary requests, or several batches
of a thousand events."""

FEW_ROWS: Final = 16
"""So many events of a message are taken in one step, whatever there is to match them with, if that
computes nothing..."""

RESIDUALS: Final = 20_000
"""...and of those that residuals look at as many as cost so much: about 20 ms."""

COMPILED_PAIRS: Final = 1 << 26
"""Events of a message, times filters, that are taken in one step: 10 ms where filters compare, and
0.1 s where each of 5,000 has a LIKE of its own..."""

PLAIN_PAIRS: Final = 1 << 18
"""...and so many in plain Python: about 5 ms."""

COUNT_AGAIN_S: Final = 0.05
"""How long a count of all filters is taken to be true."""

PLAIN_VALUES: Final = 8_192
"""Values for clients without Arrow that are encoded in the loop, about 5 ms; a batch of more is
encoded in a thread."""

LAG_CHECK_S: Final = 0.02
"""How often it is measured whether a loop at work is on time."""

IDLE_LAG_CHECK_S: Final = 0.25
"""How often while no message comes: 50 looks a second would be over half of what an idle broker
takes of a processor."""

HELD_S: Final = 0.05
"""A loop that was held for longer is reported in the log..."""

HELD_EVERY_S: Final = 10.0
"""...once in so long."""

GC_THRESHOLDS: Final = (20_000, 2, 1_250)
"""How often Python looks for garbage that refers to itself, of which a broker makes next to none:
by default it spends a quarter of the time that many subscriptions take on that. A look holds the
loop, for about 5 ms at 60,000 young objects, which are the most here; at all objects it looks only
once 50 million more have come than gone."""

MAX_CALLS: Final = 256
"""Calls of webhooks under way at once; each has a connection."""

MAX_CALLS_OF_ONE: Final = 32
"""Calls under way for one principal: eight with sinks that never answer leave turns for others."""

CALL_S: Final = 30.0
"""How long one call of a webhook may take, from the look-up of its name to the answer's head."""

MAX_ANSWER_BYTES: Final = 65_536
"""Of a sink's answer no more is read: status, headers, and a short body that is thrown away."""

MAX_SINK_CHARS: Final = 2_048
"""The address of a sink; servers and proxies take no longer ones."""

MAX_SINK_HEADERS: Final = 32
"""Headers that an owner adds to the calls of a sink: keys and tags."""

MAX_SINK_HEADERS_BYTES: Final = 8_192
"""All of them: what common servers take as a head."""

WATERMARK_BYTES: Final = 1 << 20
"""A journal's mark is rewritten when it has grown by so much: ten thousand transactions and
more, of which the newer half stays. The log of a journal holds fewer."""

MAX_MARKED_NAMES: Final = 10_000
"""Durable subscriptions whose names a mark holds, 4 MB at most: of those beyond, one that was lost
with the journal starts over without a gap."""

BUFFER_BYTES: Final = 8 << 20
"""What the system is asked to keep of datagrams until they are read: a tenth of a second at 80
MB/s, longer than anything holds the loop. It gives less where it must (net.core.rmem_max)."""
