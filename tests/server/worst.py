"""The worst inputs known: what each sends, and a broker process that says how long it was held.

`INPUTS` are functions of a `Target`. Each sends its input and returns once the broker is done with
it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from palio.client.connection import connect
from palio.model.events import to_batch
from palio.model.limits import MAX_COMPUTED_CHARS, MAX_JSON_PARTS
from palio.protocol.limits import (
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MOST_TOGETHER,
    PROTOCOL_VERSION,
    TOGETHER_CHARS,
)
from palio.protocol.messages import (
    Bye,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Query,
    Settle,
    StreamAck,
    Subscribe,
    SubscribeAll,
    Unsubscribe,
    Update,
    Welcome,
)
from palio.protocol.wire import Decoder, Encoder
from palio.server.http.access import MAX_BODY_BYTES

PATIENCE_S: Final = 300.0
CHUNK_BYTES: Final = 1 << 16


NOTING: Final = """
import sys
from palio.__main__ import run
from palio.server.loop_lag import LoopLagMonitor

beat, noted = LoopLagMonitor.beat, open(sys.argv.pop(1), "w", buffering=1)

def note(monitor, late_s, computed_s):
    print(late_s, min(late_s, computed_s), file=noted)
    beat(monitor, late_s, computed_s)

LoopLagMonitor.beat = note
run()
"""
"""`palio serve` that writes each delay of its loop to a file: no metric has the worst one."""


class Held(NamedTuple):
    """How long the loop was held at worst, and how much of it was its own computing."""

    seconds: float
    computing_s: float


class Target:
    """A broker process."""

    def __init__(
        self, process: Process, host: str, port: int, http: int, delays: Iterable[str]
    ) -> None:
        self.process, self.host, self.port, self.http = process, host, port, http
        self._delays = delays

    @property
    def url(self) -> str:
        return f"palio://{self.host}:{self.port}"

    async def held(self) -> Held:
        """Since it was last asked."""
        await self.request(b"GET", b"/healthz")  # the loop was late, if it was, before it answered
        delays = [Held(*map(float, line.split())) for line in self._delays]
        return max(delays, default=Held(0.0, 0.0))

    async def request(
        self, method: bytes, path: bytes, body: bytes = b"", content_type: bytes = b"text/plain"
    ) -> bytes:
        """The answer's body, whatever its status."""
        reader, writer = await asyncio.open_connection(self.host, self.http)
        writer.write(
            b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: %s\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (method, path, content_type, len(body), body)
        )
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        writer.close()
        return answer

    def most_bytes(self) -> int:
        """The most that it had in memory so far."""
        return self._memory("VmHWM")

    def resident_bytes(self) -> int:
        """What it has in memory now."""
        return self._memory("VmRSS")

    def _memory(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = [each for each in text.splitlines() if each.startswith(f"{name}:")]
        return int(line.split()[1]) * 1024


@asynccontextmanager
async def target(
    folder: Path, *arguments: str, stderr: BinaryIO | None = None
) -> AsyncIterator[Target]:
    """A broker of its own, for as long as the block runs; its log goes to `stderr`."""
    delays = folder / "delays"
    delays.touch()
    command = [sys.executable, "-c", NOTING, str(delays), "serve", "--name", "b1", "--json"]
    command += ["--listen", "127.0.0.1:0", "--http", "0", "--data", str(folder / "b1")]
    environment = {**os.environ, "PALIO__LIMITS__HANDSHAKE_TIMEOUT_S": "60"}
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=stderr,
        env=environment,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            listening = json.loads(await process.stdout.readline())["listening"]
        host, _, port = listening["palio"].removeprefix("palio://").rpartition(":")
        http = int(listening["http"].rpartition(":")[2].strip("/"))
        with delays.open(encoding="ascii") as lines:
            yield Target(process, host, int(port), http, lines)
    finally:
        process.kill()
        await process.wait()


# --- an end of frames ---


def frames(messages: Iterable[Message], encoder: Encoder | None = None) -> bytes:
    """Messages as they travel."""
    encoder = encoder or Encoder()
    return b"".join(bytes(part) for each in messages for part in encoder.encode(each))


class Attacker:
    """A connection that sends bytes and counts what comes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, role: str
    ) -> None:
        self.decoder, self.encoder = Decoder("the broker"), Encoder()
        self.reader, self.writer, self.role = reader, writer, role
        self.got = 0
        self.last: Message | None = None

    @classmethod
    async def connect(cls, target: Target, role: str = "client", name: str = "eve") -> Attacker:
        end = cls(*await asyncio.open_connection(target.host, target.port), role)
        await end.send(Hello(role, name, PROTOCOL_VERSION))
        await end.until(Welcome)
        return end

    async def send(self, *messages: Message) -> None:
        await self.send_bytes(frames(messages, self.encoder))

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, kind: type[Message]) -> Message | None:
        """Read until such a message comes, or the connection ends."""
        async with asyncio.timeout(PATIENCE_S):
            while data := await self.reader.read(CHUNK_BYTES):
                found = None
                before = self.got
                for message in self.decoder.feed(data):
                    if not isinstance(message, Welcome | Bye | Ping | Pong | StreamAck):
                        self.got += 1
                    self.last = message
                    if isinstance(message, kind):
                        found = message
                if self.got > before:
                    await self.send(StreamAck(self.got))
                if found is not None:
                    return found
        return None

    async def done(self) -> None:
        """The broker has dealt with all that was sent."""
        asking = asyncio.ensure_future(self.send(Ping()))
        await self.until(Pong)
        await asking

    async def does(self, data: bytes) -> None:
        """Send, and read the answers meanwhile, until all is dealt with."""
        sending = asyncio.ensure_future(self.send_bytes(data + frames([Ping()])))
        try:
            await self.until(Pong)
            await sending
        except ConnectionError:
            sending.cancel()

    def close(self) -> None:
        self.writer.transport.abort()


# --- the inputs ---


def cloud_events(events: int, names: int, each: int) -> bytes:
    """A batch of events that have few of many attributes."""
    documents = []
    for at in range(events):
        own = {f"n{(at * each + part) % names}": at for part in range(each)}
        documents.append({"specversion": "1.0", "id": str(at), "source": "/s", "type": "t", **own})
    return json.dumps(documents).encode()


async def http_batch_of_many_names(target: Target) -> None:
    body = cloud_events(10_000, 4_000, 3)
    await target.request(b"POST", b"/events", body, b"application/cloudevents-batch+json")


DENSE: Final = (b"[],", b"{},", b"1,", b'"",', b"[[],[]],", b'{"specversion":1},')
"""Four megabytes of each are up to a million objects."""


def dense(part: bytes) -> bytes:
    """The longest body of such parts."""
    return b"[" + part * ((MAX_BODY_BYTES - 100) // len(part)) + b"1]"


async def http_of_many_values(target: Target) -> None:
    event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":%s}'
    kind = b"application/cloudevents%s+json"
    for part in DENSE:
        await target.request(b"POST", b"/events", dense(part), kind % b"-batch")
        await target.request(b"POST", b"/events", event % dense(part), kind % b"")
        await target.request(b"POST", b"/subscriptions", dense(part), b"application/json")
        parameters = b'{"filters":[{"palio":"x = 1"}],"parameters":{"x":%s}}' % dense(part)
        await target.request(b"POST", b"/subscriptions", parameters, b"application/json")


async def http_of_the_most_values(target: Target) -> None:
    event = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":%s}'
    kind = b"application/cloudevents%s+json"
    for part in DENSE:
        each = sum(part.count(mark) for mark in (b",", b"[", b"{"))
        data = b"[" + part * ((MAX_JSON_PARTS - 100) // each) + b"1]"
        await target.request(b"POST", b"/events", event % data, kind % b"")


def numbered(count: int, first: int = 0) -> bytes:
    """Subscriptions of which none covers another."""
    return frames(Subscribe(at, at, f"number = {at}") for at in range(first, first + count))


async def subscriptions_at_once(target: Target) -> None:
    end = await Attacker.connect(target)
    await end.does(numbered(10_000))
    await end.does(frames(Unsubscribe(at, at) for at in range(10_000)))
    end.close()


async def filters_of_new_shapes_then_an_event(target: Target) -> None:
    end = await Attacker.connect(target)
    texts = [f"number IN ({at}, {at + 7}) AND s LIKE '%{at}%'" for at in range(12_000)]
    await end.does(frames(Subscribe(at, at, text) for at, text in enumerate(texts)))
    await end.does(publications(pa.record_batch({"number": np.arange(3)})))
    end.close()


async def new_shapes_that_come_together(target: Target) -> None:
    end = await Attacker.connect(target)
    for first in range(0, 40 * MOST_TOGETHER, MOST_TOGETHER):
        numbers = range(first, first + MOST_TOGETHER)
        texts = [f"n{number} = 1" for number in numbers]
        room, at = TOGETHER_CHARS - sum(map(len, texts)), 0
        while room > 40:
            more = f" OR n{first + at} LIKE '%{at}%_' AND m{at} != {at}"
            texts[at % MOST_TOGETHER] += more
            room, at = room - len(more), at + 1
        keys = [*numbers[:-1], first]  # the last is refused, and so all are read a second time
        made = map(Subscribe, numbers, keys, texts)
        await end.does(frames([SubscribeAll(tuple(made))]))
    end.close()


async def long_lists_then_an_event(target: Target) -> None:
    end = await Attacker.connect(target)
    for at in range(12):
        numbers = ", ".join(str(at + 7 * each) for each in range(10_000))
        texts = ", ".join(f"'{at + 7 * each}'" for each in range(5_000))
        filter = f"number IN ({numbers}) AND s IN ({texts})"
        await end.does(frames([Subscribe(at, at, filter)]))
    await end.does(publications(pa.record_batch({"number": np.arange(3)})))
    end.close()


async def updates_at_once(target: Target) -> None:
    end = await Attacker.connect(target)
    await end.send(Subscribe(1, 1, "x > :y AND s LIKE 'a%'", {"y": 0}))
    await end.does(frames(Update(at + 2, 1, {"y": at}) for at in range(20_000)))
    end.close()


async def pings_at_once(target: Target) -> None:
    end = await Attacker.connect(target)
    await end.does(frames(Ping() for _ in range(100_000)))
    end.close()


async def questions_at_once(target: Target) -> None:
    end = await Attacker.connect(target)
    await end.does(numbered(5_000))
    for what in ("status", "topology", "catalogue"):
        await end.does(frames(Query(at, what) for at in range(200)))
    await end.does(frames(Query(at, "trace", {"number": at}) for at in range(200)))
    end.close()


async def settles_at_once(target: Target) -> None:
    end = await Attacker.connect(target)
    await end.does(frames(Settle(at) for at in range(20_000)))
    end.close()


def publications(*batches: pa.RecordBatch) -> bytes:
    numbers = accumulate((len(each) for each in batches), initial=1)
    return frames(
        Publish(Parcel("", each), first) for each, first in zip(batches, numbers, strict=False)
    )


async def a_batch_of_many_columns(target: Target) -> None:
    values = pa.array(np.ones(60_000, np.bool_))
    batch = pa.RecordBatch.from_arrays([values] * 2_000, names=[f"c{at}" for at in range(2_000)])
    await published(target, batch)


async def a_batch_of_many_rows(target: Target) -> None:
    await published(target, pa.record_batch({"number": np.arange(2_000_000)}))


async def batches_of_the_most_rows(target: Target) -> None:
    batch = pa.record_batch({"number": np.arange(MAX_BATCH_ROWS)})
    await published(target, *(batch,) * 20)


async def batches_of_the_most_cells(target: Target) -> None:
    for columns in (MAX_BATCH_CELLS // MAX_BATCH_ROWS, 1_024):
        rows = np.arange(MAX_BATCH_CELLS // columns)
        names = ["number", *(f"c{at}" for at in range(1, columns))]
        others = [pa.array(rows % 2 == 0)] * (columns - 1)
        batch = pa.RecordBatch.from_arrays([pa.array(rows), *others], names=names)
        await published(target, *(batch,) * 5)


async def batches_of_the_most_rows_beside_many_filters(target: Target) -> None:
    hears = await Attacker.connect(target, name="hears")
    made = (f"number = {at} AND s LIKE '%{at}%'" for at in range(5_000))
    await hears.send(*(Subscribe(at, at, text) for at, text in enumerate(made)))
    await hears.done()
    end = await Attacker.connect(target)
    batch = pa.record_batch({"number": np.arange(MAX_BATCH_ROWS)})
    await end.does(publications(*(batch,) * 4))
    await hears.done()
    hears.close()
    end.close()


async def a_large_batch_of_an_honest_client(target: Target) -> None:
    async with connect(target.url, name="bulk") as bulk:
        hears = await Attacker.connect(target, name="hears")
        await hears.send(*(Subscribe(at, at, f"number = {at}") for at in range(100)))
        await hears.done()
        receipt = await bulk.publish(pa.record_batch({"number": np.arange(900_000)}))
        assert receipt.last_seq - receipt.first_seq == 899_999
        hears.close()


async def published(target: Target, *batches: pa.RecordBatch) -> None:
    hears = await Attacker.connect(target, name="hears")
    await hears.send(Subscribe(1, 1, "number < 10 OR c1 = TRUE"))
    for at in range(100):
        await hears.send(Subscribe(at + 2, at + 2, f"number = {at} AND s LIKE '%{at}%'"))
    await hears.done()
    end = await Attacker.connect(target)
    await end.does(publications(*batches))
    await hears.done()
    hears.close()
    end.close()


async def durable_events_at_once(target: Target) -> None:
    hears = await Attacker.connect(target, name="hears")
    await hears.send(*(Subscribe(at, at, f"x >= {at}", durable=f"d{at}") for at in range(20)))
    await hears.done()
    hears.close()
    end = await Attacker.connect(target)
    lone = [
        Publish(Parcel.of("", to_batch({"x": at})), at + 1, durable=True) for at in range(3_000)
    ]
    await end.does(frames([*lone, Settle(1)]))
    end.close()


async def a_crowd_that_floods(target: Target) -> None:
    ends = [await Attacker.connect(target, name=f"e{at}") for at in range(100)]
    await asyncio.gather(*(end.does(numbered(200)) for end in ends))
    for end in ends:
        end.close()


async def a_frame_of_numbers(target: Target) -> None:
    end = await Attacker.connect(target)
    values = {f"v{at}": at for at in range(600_000)}
    await end.does(frames([Query(1, "trace", values)]))
    end.close()


async def a_trace_of_costly_subscriptions(target: Target) -> None:
    end = await Attacker.connect(target)
    names = range(7)
    for at in range(100):
        costly = " AND ".join(f"(a{name} = {at} OR b{name} = {at})" for name in names)
        await end.does(frames([Subscribe(at, at, costly, durable=f"d{at}")]))
    await end.does(frames([Query(1, "trace", {f"a{name}": 5 for name in names})]))
    end.close()


async def long_texts_beside_residuals(target: Target) -> None:
    """Texts as long as residuals compute with and longer, beside as many as a session may have."""
    once = f"CONCAT({', '.join(['t'] * 29)})"
    concats = f"CONCAT({', '.join([once] * 6)}) = 'x{{0}}'"
    others = (
        "TRIM(t) = 'x{0}'",
        "SUBSTRING(t, {0}) = 'x'",
        "CONCAT(t, '{0}') CONTAINS 'ab'",
        "TRIM(t) LIKE '%" + "a_" * 60 + "b{0}%'",
        "CESQL 'TRIM(t) LIKE ''%" + "a_" * 60 + "{0}%'''",
        "t > u AND n < {0}",
    )
    texts = [concats.format(at) for at in range(40)]
    texts += [others[at % len(others)].format(at) for at in range(1_500)]
    await published_texts(target, texts, "a", " ", "\xe9", "\U0001d7d8")


async def texts_that_are_looked_for_everywhere(target: Target) -> None:
    """As many tests as a session may have, of which each is tried at each place of a text."""
    kinds = (
        "t CONTAINS u AND n < {0}",
        "TRIM(t) LIKE '%" + "aaaaaaa_" * 30 + "{0}%'",
        "TRIM(t) CONTAINS '" + "a" * 40 + "b{0}'",
    )
    await published_texts(target, [kinds[at % 3].format(at) for at in range(300)], "a")


async def comparisons_of_long_texts(target: Target) -> None:
    await published_texts(target, [f"t > u AND n < {at}" for at in range(11_000)], "\ufb03")


async def slow_letters_beside_residuals(target: Target) -> None:
    """Nothing takes a letter as long as another case of these, twice."""
    kinds = "LOWER(t) = 'x{0}'", "UPPER(t) = 'x{0}'", "t = u IGNORE CASE AND n < {0}"
    texts = [kinds[at % len(kinds)].format(at) for at in range(4_000)]
    await published_texts(target, texts, "\u03a3", "\u0390")


async def published_texts(target: Target, filters: list[str], *letters: str) -> None:
    """Texts of these letters, alone and together, for as many of some filters as may be had."""
    hears = await Attacker.connect(target, name="hears")
    await hears.does(frames(Subscribe(at, at, text) for at, text in enumerate(filters)))
    end = await Attacker.connect(target)
    number = 1
    for letter in letters:
        longest = 1_000_000 // len(letter.encode())
        for length in (2_499, MAX_COMPUTED_CHARS - 8, MAX_COMPUTED_CHARS + 1, longest):
            text = letter * length
            looked_for = text[: 600 if length == 2_499 else MAX_COMPUTED_CHARS - 9]
            event = {"t": text, "u": looked_for + "x" + looked_for[:600], "n": -1}
            batch = to_batch(event)
            several = pa.Table.from_batches([batch] * 4).combine_chunks().to_batches()[0]
            for parcel in (
                Parcel.of("", batch),
                Parcel("", batch),
                *([Parcel("", several)] if length < 10_000 else ()),
            ):
                await end.does(frames([Publish(parcel, number)]))
                number += len(parcel)
    assert isinstance(end.last, Pong), "it was refused"
    hears.close()
    end.close()


TINY_BYTES: Final = 585 << 10
"""What an attacker sends at once of the smallest things that there are, over each connection."""


async def flooded(target: Target, head: bytes, part: bytes, first: bytes = b"") -> None:
    """Send tiny parts over several connections, and wait until the broker has done with them."""

    async def flood() -> None:
        reader, writer = await asyncio.open_connection(target.host, target.http)
        writer.write(head)
        if b"upgrade" in head:
            await reader.readuntil(b"\r\n\r\n")
        taking = asyncio.ensure_future(reader.read())
        writer.write(first + part * (TINY_BYTES // len(part)))
        writer.write_eof()
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                await taking
        writer.transport.abort()

    await asyncio.gather(*(flood() for _ in range(10)))


UPGRADE: Final = (
    b"GET /events?filter=%s HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
EMPTY_PING: Final = b"\x89\x80\0\0\0\0"
EMPTY_START: Final = b"\x01\x80\0\0\0\0"
EMPTY_FRAGMENT: Final = b"\x00\x80\0\0\0\0"


async def socket_pings_of_strangers(target: Target) -> None:
    await flooded(target, UPGRADE % b"no+filter", EMPTY_PING)


async def socket_pings(target: Target) -> None:
    await flooded(target, UPGRADE % b"TRUE", EMPTY_PING)


async def socket_fragments(target: Target) -> None:
    await flooded(target, UPGRADE % b"TRUE", EMPTY_FRAGMENT, first=EMPTY_START)


async def http_chunks(target: Target) -> None:
    head = b"POST /events HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    await flooded(target, head, b"1\r\nx\r\n")


Input = Callable[[Target], Awaitable[None]]

INPUTS: Final[dict[str, Input]] = {
    each.__name__: each
    for each in (
        http_batch_of_many_names,
        http_of_many_values,
        http_of_the_most_values,
        subscriptions_at_once,
        filters_of_new_shapes_then_an_event,
        new_shapes_that_come_together,
        long_lists_then_an_event,
        updates_at_once,
        questions_at_once,
        settles_at_once,
        a_batch_of_many_columns,
        a_batch_of_many_rows,
        batches_of_the_most_rows,
        batches_of_the_most_cells,
        batches_of_the_most_rows_beside_many_filters,
        a_large_batch_of_an_honest_client,
        a_crowd_that_floods,
        a_frame_of_numbers,
        durable_events_at_once,
        pings_at_once,
        a_trace_of_costly_subscriptions,
        long_texts_beside_residuals,
        slow_letters_beside_residuals,
        texts_that_are_looked_for_everywhere,
        comparisons_of_long_texts,
        socket_pings_of_strangers,
        socket_pings,
        socket_fragments,
        http_chunks,
    )
}
