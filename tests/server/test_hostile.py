"""Whatever comes over a socket: an answer with a type, an end, and nothing for anybody else.

A broker runs in this process. Beside those that mean it harm it has a healthy client, which goes on
to hear what it asked for and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest

import palio.errors
from palio import connect
from palio.client.connection import Client
from palio.client.subscription import Subscription
from palio.language.parsing import parse_filter
from palio.model.events import stamped, to_batch
from palio.model.patterns import Occurrence
from palio.protocol.limits import MAX_FRAME_BYTES, MAX_GREETING_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    AddPeer,
    Addressed,
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
    Deliver,
    Digest,
    Done,
    Drain,
    Ended,
    EntriesStored,
    Fact,
    Facts,
    Failed,
    Failure,
    FlowAcks,
    FlowStatus,
    Forward,
    Gap,
    Gaps,
    Hello,
    Message,
    Nack,
    Parcel,
    Ping,
    Pong,
    Probe,
    Probed,
    Publish,
    Query,
    Redirect,
    Refused,
    RemovePeer,
    Replace,
    Route,
    Seek,
    SessionEpoch,
    Settle,
    Share,
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
from palio.protocol.wire import CONTROL, HEAD, Decoder, Encoder, framed
from palio.routing import messages as routing
from palio.server.run import Running, running
from palio.server.settings import Broker, Configuration, Limits, Listen
from tests.model.test_ipc import LONG, overlapping
from tests.model.test_ipc import messages as arrow_messages
from tests.server.helpers import until

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
CASES: Final = 2_000 if NIGHTLY else 40
PATIENCE_S: Final = 60.0

EVENTS: Final = Parcel("p", stamped(to_batch({"x": 1, "s": "a"}), 1, 1_000))
TRACED: Final = Parcel("$probe/evil/1", stamped(to_batch({"x": 1}), 1, 1_000))
MANY: Final = Parcel("p", stamped(pa.record_batch({"x": [1, 2], "s": ["a", None]}), 2, 1_000))
PLAIN: Final = Parcel("", pa.record_batch({"x": [1, 2, 3], "s": ["a", None, "b"]}))

FROM_CLIENTS: Final[tuple[Message, ...]] = (
    Subscribe(1, 1, "x > :y AND s LIKE 'a%'", {"y": 0}),
    Subscribe(2, 2, "x >= 0", durable="d", lease_s=60.0),
    SubscribeAll((Subscribe(11, 3, "x > 8"), Subscribe(12, 4, "x > 9"))),
    Update(3, 1, {"y": 3}),
    Replace(4, 1, "x < 5 OR EXISTS s"),
    Advertise(5, 1, "x >= 0"),
    Publish(PLAIN, 1),
    Publish(Parcel.of("", to_batch({"x": 4})), 4, durable=True),
    Acknowledge(2, 1),
    Acknowledge(2, 0, held=1, bookmark=b"here"),
    Acknowledge(2, 0, others=(1,), seqs=(3,)),
    Nack(2, 1, (3,), 1.0, "no"),
    Query(6, "status"),
    Query(7, "trace", {"x": 1}),
    Settle(8),
    Unadvertise(9, 1),
    Withdraw(13, "x > 0"),
    Cancel(14, "x > 0", forget=True),
    Apply(15, ""),
    Drain(16, "b9"),
    AddPeer(17, "palio://127.0.0.1:1"),
    RemovePeer(18, "b9"),
    Unsubscribe(10, 2, forget=True),
)

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
OCCURRED: Final = Occurrence(NOON, "p", 1, {"x": 1, "$seq": 1, "$time": NOON})
FROM_BROKERS: Final[tuple[Message, ...]] = (
    Digest({"evil": 1}),
    Route(routing.LinkState("evil", 3, ("b1",))),
    Route(routing.Join()),
    Route(
        routing.Batch(
            (
                routing.Subscribe(0, parse_filter("x > :y"), {"y": 1}),
                routing.Update(0, {"y": 2.5}, 3),
            ),
            fresh=True,
            wave=3,
        )
    ),
    Facts((Fact("evil", 2, "links", ("b1",)), Fact("evil", 3, "o/d", (), "x > 1", 5))),
    Route(routing.Settled(0, ("b7", "b7/b1"))),
    Forward(EVENTS),
    Forward(MANY, b"\1", durable=True),
    Forward(EVENTS, source="evil", addressed=Addressed((("b1", 0), ("b1", 3), ("b7", 1)), 1)),
    FlowStatus("evil", 1, "b1", 1, 0, 5, 2, is_cast=True),
    FlowAcks("evil", 1, "b1", 1, 2, 5, ((7, 9),)),
    Carry(MANY, "evil", 1, "b1", 1, 2, 1, (Share("ann/d", 1, None),)),
    EntriesStored("b1", 1, "evil", 1, 2),
    Adopt("o/d", 60.0, SessionEpoch("o/1", 3), b"here"),
    Probe(1, TRACED, ("evil",)),
    Probed(1, ({"broker": "evil"},)),
    Seek(1, parse_filter("x > 1")),
    Sought(1, has_source=True),
    Route(routing.Leave()),
)

FROM_SERVERS: Final[tuple[Message, ...]] = (
    Welcome("b9", "s", resumed=False, received=0),
    Done(1),
    Failed(1, Failure("Error", "no")),
    Answer(1, {}),
    Accepted(1, "durable"),
    Refused(1, 1, Failure("Error", "no")),
    Deliver(MANY),
    Gaps((Gap("p", 1, 2, 2),)),
    Assembled(1, (OCCURRED, OCCURRED)),
    Blocked(2, is_blocked=True),
    Bookmarked(2, b"here"),
    Withdrawn((1, 2)),
    Ended((1, 2), Failure("SubscriptionEnded", "no")),
    Redirect(("palio://b9:7400",)),
)

ABOUT_CONNECTIONS: Final[tuple[Message, ...]] = (Ping(), Pong(), StreamAck(0), Bye("closed"))

ANSWERED: Final = sum(
    hasattr(each, "id") or isinstance(each, SubscribeAll) for each in FROM_CLIENTS
)

AS_CLIENT: Final = Hello("client", "mallory", PROTOCOL_VERSION, incarnation="1", identity="ann")
AS_BROKER: Final = Hello("broker", "evil", PROTOCOL_VERSION)


def frames(*messages: Message) -> list[bytes]:
    """Messages as they travel, a frame each."""
    encoder = Encoder()
    data = b"".join(bytes(part) for each in messages for part in encoder.encode(each))
    found = []
    while data:
        size = HEAD.size + struct.unpack_from("<I", data)[0]
        found.append(data[:size])
        data = data[size:]
    return found


class House:
    """A broker, and somebody in it who wants to be left in peace."""

    def __init__(self, found: Running, client: Client, peace: Subscription) -> None:
        self.address = (found.host, found.port)
        self._found = found
        self._client = client
        self._peace = peace
        self._number = 0

    async def is_at_peace(self) -> None:
        """What is published for the healthy client comes, next and alone."""
        self._number += 1
        async with asyncio.timeout(PATIENCE_S):
            await self._client.publish({"peace": self._number})
            assert (await self._peace.receive())["peace"] == self._number

    async def is_empty_but_for_us(self) -> None:
        """Nothing is kept of connections that have ended."""
        await until(lambda: self._found.server.connections == 1)
        assert len(self._found.server.links) == 1

    async def suffers(self, data: bytes) -> list[Message]:
        """Send something, and no more; everything that the broker says until it hangs up."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            writer.write_eof()
            return await answers(reader)
        finally:
            writer.transport.abort()


async def answers(reader: asyncio.StreamReader) -> list[Message]:
    """What comes until the other end hangs up. All of it is messages."""
    decoder, found = Decoder("the broker"), list[Message]()
    async with asyncio.timeout(PATIENCE_S):
        try:
            while data := await reader.read(1 << 16):
                found += decoder.feed(data)
        except ConnectionError:  # it hung up while we were still sending
            pass
    for message in found:
        if isinstance(message, Bye) and message.code != "closed":
            assert issubclass(getattr(palio.errors, message.code), palio.errors.PalioError)
            assert message.reason
    return found


@asynccontextmanager
async def house(
    data_dir: str = "", limits: Limits | None = None, caplog: pytest.LogCaptureFixture | None = None
) -> AsyncIterator[House]:
    """A broker with a healthy client. Nothing may reach the loop's handler of errors."""
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    configuration = Configuration(
        broker=Broker(name="b1", data_dir=data_dir),
        listen=Listen(host="127.0.0.1", port=0),
        limits=limits or Limits(),
    )
    async with (
        running(configuration) as found,
        connect(f"palio://{found.host}:{found.port}", name="healthy") as client,
    ):
        peace = await client.subscribe("EXISTS peace")
        at_home = House(found, client, peace)
        await at_home.is_at_peace()
        yield at_home
        await at_home.is_at_peace()
        await at_home.is_empty_but_for_us()
    assert failures == []
    if caplog is not None:
        assert [each for each in caplog.records if each.exc_info] == []


def said(answered: list[Message]) -> Bye:
    """The last word, which tells what was wrong."""
    assert isinstance(answered[-1], Bye)
    return answered[-1]


async def test_the_conversations_are_sound_before_they_are_spoilt(tmp_path: Path) -> None:
    async with house(str(tmp_path)) as at_home:
        reader, writer = await asyncio.open_connection(*at_home.address)
        decoder, answered = Decoder("the broker"), list[Message]()
        try:
            writer.write(b"".join(frames(AS_CLIENT, *FROM_CLIENTS)))
            async with asyncio.timeout(PATIENCE_S):
                while sum(isinstance(each, Done | Failed | Answer) for each in answered) < ANSWERED:
                    came = await reader.read(1 << 16)
                    assert came, f"it was closed after {answered}"
                    answered += decoder.feed(came)
        finally:  # else the next test is told of a connection that was left open
            writer.transport.abort()
        refused = [each for each in answered if isinstance(each, Failed)]  # this is no such routing
        kinds = ["NotSupported", "NotSupported", "InvalidInput", "InvalidInput", "Unreachable"]
        assert sorted(each.failure.kind for each in refused) == sorted(kinds)
        assert not [each for each in answered if isinstance(each, Refused | Bye)]
        heard = await at_home.suffers(b"".join(frames(AS_BROKER, *FROM_BROKERS)))
        assert not [each for each in heard if isinstance(each, Bye)]
        assert [each for each in heard if isinstance(each, Probed)]


# --- bytes ---


async def test_noise_is_nothing(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(seed)
    async with house(caplog=caplog) as at_home:
        for _ in range(CASES):
            noise = draw.randbytes(draw.choice((1, 4, 5, 64, 1_000, 70_000)))
            before = draw.choice((b"", frames(AS_CLIENT)[0], frames(AS_BROKER)[0]))
            heard = await at_home.suffers(before + noise)
            known = Welcome | Route | Digest | Ping | Bye
            assert all(isinstance(each, known) for each in heard), heard


def mutated(draw: random.Random, parts: list[bytes]) -> bytes:
    """A conversation with something wrong in its bytes."""
    kind = draw.randrange(6)
    if kind == 0:
        draw.shuffle(parts)
    elif kind == 1:
        parts.insert(draw.randrange(len(parts)), draw.choice(parts))
    elif kind == 2:
        del parts[draw.randrange(len(parts))]
    data = bytearray(b"".join(parts))
    for _ in range(draw.choice((0, 1, 1, 2, 8)) if kind < 3 else 1 + draw.randrange(8)):
        place = draw.randrange(len(data))
        if kind == 3:
            del data[place : place + draw.choice((1, 4, 100))]
        elif kind == 4:
            data[place:place] = draw.randbytes(draw.choice((1, 4, 100)))
        else:
            data[place] ^= 1 << draw.randrange(8)
        if not data:
            break
    return bytes(data[: draw.randrange(len(data))]) if draw.random() < 0.2 else bytes(data)


@pytest.mark.parametrize("greeting", [AS_CLIENT, AS_BROKER], ids=["client", "broker"])
async def test_what_was_changed_on_the_way_harms_nobody(
    seed: int, greeting: Hello, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(seed)
    script = FROM_CLIENTS if greeting is AS_CLIENT else FROM_BROKERS
    async with house(str(tmp_path), caplog=caplog) as at_home:
        for number in range(CASES):
            parts = frames(*script)
            await at_home.suffers(frames(greeting)[0] + mutated(draw, parts))
            if number % 10 == 0:
                await at_home.is_at_peace()


NASTY: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 2**31, 2**62, 2**62 + 1, 2**63, 1.5, float("nan"), "", "\n", "/", "\0"),
    *("b1", "links", "x" * 300, "x >", "(" * 100, b"", b"\xff", [], [[]], {}, {"x": {}}, ["b1"]),
)


def twisted(draw: random.Random, value: Any) -> Any:
    """Something in a message, exchanged for what does not belong there."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice([each for each in value if each != "type"] or list(value))
        return value | {name: twisted(draw, value[name])}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        return [*value[:place], twisted(draw, value[place]), *value[place + 1 :]]
    return draw.choice(NASTY)


@pytest.mark.parametrize("greeting", [AS_CLIENT, AS_BROKER], ids=["client", "broker"])
async def test_a_message_that_says_something_else_harms_nobody(
    seed: int, greeting: Hello, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(seed)
    script = FROM_CLIENTS if greeting is AS_CLIENT else FROM_BROKERS
    async with house(str(tmp_path), caplog=caplog) as at_home:
        for number in range(CASES * 2):
            parts = frames(greeting, *script)
            wrong = draw.choice([at for at, each in enumerate(parts) if each[4] == 1])
            body = msgspec.msgpack.encode(
                twisted(draw, msgspec.msgpack.decode(parts[wrong][HEAD.size :]))
            )
            parts[wrong] = framed(CONTROL, body)
            await at_home.suffers(b"".join(parts))
            if number % 10 == 0:
                await at_home.is_at_peace()


# --- sizes and times ---


@pytest.mark.parametrize("size", [MAX_GREETING_BYTES + 1, MAX_FRAME_BYTES + 1, 2**32 - 1])
async def test_a_length_beyond_all_measure_is_refused_before_it_comes(size: int) -> None:
    async with house() as at_home:
        heard = await at_home.suffers(HEAD.pack(size, CONTROL, 0))
        assert said(heard).code == "IllegalMessage"
        if size > MAX_FRAME_BYTES:
            heard = await at_home.suffers(frames(AS_CLIENT)[0] + HEAD.pack(size, CONTROL, 0))
            assert said(heard).code == "DamagedFrame"
            assert "MAX_FRAME_BYTES" in said(heard).reason


def grown() -> list[tuple[pa.RecordBatch, bytes]]:
    """Batches that would become much more than they are, each as somebody else wrote it."""
    texts = pa.record_batch({"s": ["a" * 100_000] * 100})
    kind: Any = pa.struct([])
    structs: Any = pa.Array.from_buffers(kind, 10**9, [None])
    rows = pa.RecordBatch.from_struct_array(structs)
    return [
        (texts, arrow_messages(texts, "zstd")[1]),
        (LONG, overlapping(LONG)),
        (rows, rows.serialize().to_pybytes()),
    ]


async def test_a_batch_that_would_grow_is_refused_before_it_does() -> None:
    async with house() as at_home:
        for batch, payload in grown():
            parcel = Parcel("", batch.slice(0, 0), pa.py_buffer(payload))
            heard = await at_home.suffers(b"".join(frames(AS_CLIENT, Publish(parcel, 1))))
            assert not [each for each in heard if isinstance(each, Accepted)]
            await at_home.is_at_peace()


async def trickle(writer: asyncio.StreamWriter, data: bytes, pause_s: float) -> None:
    for byte in data:
        writer.write(bytes((byte,)))
        await asyncio.sleep(pause_s)


async def test_a_greeting_that_comes_byte_by_byte_does_not_come_in_time() -> None:
    async with house(limits=Limits(handshake_timeout_s=0.3)) as at_home:
        reader, writer = await asyncio.open_connection(*at_home.address)
        sending = asyncio.create_task(trickle(writer, frames(AS_CLIENT)[0], 0.05))
        assert said(await answers(reader)).code == "NotAuthenticated"
        sending.cancel()
        writer.transport.abort()


async def test_a_frame_that_never_ends_is_silence() -> None:
    async with house(limits=Limits(heartbeat_s=0.5)) as at_home:
        reader, writer = await asyncio.open_connection(*at_home.address)
        writer.write(frames(AS_CLIENT)[0] + HEAD.pack(1_000_000, CONTROL, 0))
        sending = asyncio.create_task(trickle(writer, bytes(1_000_000), 0.01))
        heard = await answers(reader)
        assert isinstance(heard[0], Welcome)
        assert all(isinstance(each, Ping) for each in heard[1:])
        sending.cancel()
        writer.transport.abort()


# --- messages out of place ---

EVERYTHING: Final = (*FROM_CLIENTS, *FROM_BROKERS, *FROM_SERVERS, *ABOUT_CONNECTIONS)


async def test_a_stranger_is_heard_on_nothing_but_its_greeting() -> None:
    async with house() as at_home:
        for message in EVERYTHING:
            heard = await at_home.suffers(b"".join(frames(message, AS_CLIENT)))
            if isinstance(message, Ping):
                assert heard[0] == Pong()
            elif not isinstance(message, Pong | Bye):
                assert said(heard).code == "IllegalMessage", message
                assert len(heard) == 1


@pytest.mark.parametrize(
    ("greeting", "others"),
    [(AS_CLIENT, (*FROM_BROKERS, *FROM_SERVERS)), (AS_BROKER, (*FROM_CLIENTS, *FROM_SERVERS))],
    ids=["client", "broker"],
)
async def test_nobody_says_what_is_for_others_to_say(
    greeting: Hello, others: tuple[Message, ...]
) -> None:
    async with house() as at_home:
        for message in (*others, AS_CLIENT, AS_BROKER):
            heard = await at_home.suffers(b"".join(frames(greeting, message)))
            assert isinstance(heard[0], Welcome)
            assert said(heard).code == "IllegalMessage", message


@pytest.mark.parametrize(
    "messages",
    [
        (Publish(PLAIN, 5), Publish(PLAIN, 5)),
        (Publish(PLAIN, 5), Publish(PLAIN, 7)),
        (StreamAck(5),),
        (StreamAck(1), StreamAck(0)),
    ],
    ids=["the same numbers", "numbers that overlap", "seen too much", "seen less"],
)
async def test_numbers_that_cannot_be_end_the_connection(messages: tuple[Message, ...]) -> None:
    async with house() as at_home:
        known = (AS_CLIENT, Subscribe(1, 1, "y = 1"))
        heard = await at_home.suffers(b"".join(frames(*known, *messages)))
        assert said(heard).code == "IllegalMessage"


@pytest.mark.parametrize(
    "request_",
    [
        Subscribe(1, 1, "x >"),
        Subscribe(1, 1, "(" * 10_000),
        Subscribe(1, 1, "x > :y"),
        Subscribe(1, 1, "BOGUS(x) = 1"),
        Subscribe(1, 1, "x = 1", durable="d" * 1_000),
        Query(1, "secrets"),
        Query(1, "trace", [1]),
        Query(1, "trace", {"x": [1]}),
    ],
    ids=lambda each: f"{type(each).__name__} {str(each)[:40]}",
)
async def test_a_request_that_makes_no_sense_is_refused_and_no_more(request_: Message) -> None:
    async with house() as at_home:
        heard = await at_home.suffers(b"".join(frames(AS_CLIENT, request_, Query(2, "status"))))
        failed, answer = (each for each in heard if isinstance(each, Failed | Answer))
        assert isinstance(failed, Failed)
        assert issubclass(getattr(palio.errors, failed.failure.kind), palio.errors.PalioError)
        assert isinstance(answer, Answer)


async def test_many_connections_that_come_and_go_leave_nothing_behind() -> None:
    async with house() as at_home:
        for _ in range(CASES):
            ends = [await asyncio.open_connection(*at_home.address) for _ in range(10)]
            for at, (_, writer) in enumerate(ends):
                if at % 2:
                    writer.write(frames(AS_CLIENT)[0][: 5 * at])
                writer.transport.abort()
