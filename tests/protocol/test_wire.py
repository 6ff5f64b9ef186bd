"""Frames: what goes in comes out, and what is no message is refused."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import DamagedFrame, IllegalMessage
from palio.language.parsing import parse_advertisement, parse_filter, parse_pattern
from palio.model.events import to_batch
from palio.model.patterns import Occurrence, place_of
from palio.multicast.limits import MAX_PACKED_CHARS
from palio.protocol.limits import (
    MAX_ACKED,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_BOOKMARK_BYTES,
    MAX_FRAME_BYTES,
    MAX_NAME_BYTES,
    MAX_REASON_CHARS,
    MAX_SECONDS,
    MAX_SHAPES,
    MAX_SUBJECTS,
    MAX_URL_CHARS,
    MAX_URLS,
    MOST_TOGETHER,
    PORTION_BYTES,
    PROTOCOL_VERSION,
)
from palio.protocol.messages import (
    Acknowledge,
    AddPeer,
    Addressed,
    Adopt,
    Apply,
    Assembled,
    Blocked,
    Bookmarked,
    Bye,
    Cancel,
    Carry,
    ClaimNumbers,
    Deliver,
    Detour,
    Drain,
    Ended,
    EntriesStored,
    Fact,
    Facts,
    Failure,
    FlowAcks,
    FlowStatus,
    Forward,
    Hello,
    Message,
    Nack,
    Parcel,
    Ping,
    Probe,
    Publish,
    Redirect,
    RemovePeer,
    Route,
    SessionEpoch,
    Share,
    Subscribe,
    SubscribeAll,
    Withdraw,
    Withdrawn,
)
from palio.protocol.portions import portions
from palio.protocol.wire import CONTROL, HEAD, Decoder, Encoder, framed, write
from palio.routing import messages as routing
from palio.routing.patterns import messages as patterns
from tests.model.test_ipc import LONG, messages, overlapping
from tests.node.events import parcel
from tests.strategies import shown, values


def sent(encoder: Encoder, *messages: Message) -> bytes:
    return b"".join(bytes(part) for each in messages for part in encoder.encode(each))


def flat(message: Message) -> Any:
    """A message with its parcel as plain data, since parcels are compared by identity."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    held = fields.get("parcel")
    if isinstance(held, Parcel):
        fields["parcel"] = (held.publisher, held.batch.to_pylist(), held.batch.schema)
    return type(message), fields


ROWS = [
    {
        "b": True,
        "i": 2**63 - 1,
        "f": float("inf"),
        "s": "é",
        "y": b"\0",
        "t": datetime(2026, 1, 1, tzinfo=UTC),
    },
    {"i": -(2**63), "s": ""},
]

PARTS = tuple(
    Occurrence(
        datetime(2026, 1, 1, microsecond=seq, tzinfo=UTC),
        "p",
        seq,
        {**row, "$seq": seq, "$time": datetime(2026, 1, 1, microsecond=seq, tzinfo=UTC)},
    )
    for seq, row in enumerate(ROWS)
)

MESSAGES: list[Message] = [
    Hello("client", "alice", PROTOCOL_VERSION, "token", "x", "session", 3),
    Ping(),
    Withdraw(1, "x > 0"),
    Withdrawn((1, 2)),
    Cancel(1, "x > 0 THEN y = 1", forget=True),
    Ended((1, 2), Failure("SubscriptionEnded", "no")),
    Assembled(7, PARTS),
    Acknowledge(1, 2),
    Acknowledge(1, 0, 2, b"here"),
    Acknowledge(1, 0, others=(3,), seqs=(7, 9)),
    Nack(1, 3, (8,), 2.5, "busy"),
    Blocked(1, is_blocked=True),
    Bookmarked(1, b"here"),
    Redirect(("palio://b2:7400", "palios://[::1]:7400")),
    Drain(1, "b1", undo=True),
    AddPeer(1, "palio://b2"),
    RemovePeer(1, "b2"),
    Adopt("ann/orders", 60.0, SessionEpoch("ann/1", 3), b"here"),
    Bye("closed", "because"),
    Subscribe(1, 2, "x > :y", {"y": 2**60, "z": b"\xff", "w": [1, 2], "t": ROWS[0]["t"]}),
    Publish(parcel(*ROWS), 7, durable=True),
    Deliver(parcel(*ROWS), b"\1", 3, 4),
    Forward(parcel(*ROWS), None, durable=True),
    Forward(parcel(*ROWS), detour=Detour(("b1", "b2"), "s")),
    Forward(parcel(*ROWS), source="b1", addressed=Addressed((("b2", 7), ("b3", 0)), 5, 2)),
    FlowStatus("b1", 5, "b2", 6, 1, 9, 3, is_cast=True, hops=4),
    FlowAcks("b2", 6, "b1", 5, 2, 7, ((8, 8), (10, 12))),
    Route(routing.TreePlan("b1", 3, (("b1", "b2"),), calm=True)),
    Route(routing.TreePlan("b1", 3, (("b1", "b2"),), root="b2")),
    Route(routing.Join(calm=True, upward=False)),
    Route(routing.Leave(calm=True)),
    Route(routing.Reached("b1", 3, 1)),
    Carry(
        parcel(*ROWS), "b2", 9, "b1", 1, 7, 5, (Share("ann/d", 3, b"\x01"), Share("b/d", 1, None))
    ),
    EntriesStored("b1", 1, "b2", 9, 7, is_asking=True),
    Facts(
        (Fact("b1", 4, "ann/a", (), "x = 1", 9, SessionEpoch("ann/1", 3), ClaimNumbers(3, 2, 1)),)
    ),
    Probe(1, parcel(*ROWS), ("b1",)),
    Route(
        routing.Batch(
            (
                routing.Subscribe(0, parse_filter("x > :y AND s LIKE 'a%'"), {"y": 1}),
                routing.Update(0, {"y": 2.5}, 3),
                routing.Advertise(1, parse_advertisement("x = 1 OR x = 1 AND LENGTH(s) > 3")),
            ),
            fresh=True,
            wave=3,
        )
    ),
    Route(routing.LinkState("b1", 3, ("b2",))),
    Route(routing.LinkState("b1", 3, ("b2",), has_parent=True)),
    Route(routing.LinkTable((routing.LinkState("b1", 3, ("b2",)), routing.LinkState("b2", 1, ())))),
    Route(patterns.SubscribePattern(7, parse_pattern("x = 1 THEN s LIKE 'a%' WITHIN 1500ms"))),
    Route(patterns.UnsubscribePattern(7)),
    Route(patterns.Ready(7)),
    Route(patterns.Resume(7, patterns.AssemblyProgress(PARTS[:1], PARTS, place_of(PARTS[1])))),
    Route(patterns.HeldBack(7, PARTS, is_back=True)),
    Route(patterns.TooLate(7, "p", 1, 3, 2)),
    Route(patterns.Recall(7)),
    Route(patterns.Returned(7, patterns.AssemblyProgress())),
    Route(patterns.Composite(7, PARTS)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_messages_travel(message: Message) -> None:
    (came,) = Decoder("peer").feed(sent(Encoder(), message))
    assert flat(came) == flat(message)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_frames_come_in_pieces(step: int) -> None:
    data = sent(Encoder(), *MESSAGES)
    decoder = Decoder("peer")
    came = [
        message
        for start in range(0, len(data), step)
        for message in decoder.feed(data[start : start + step])
    ]
    assert [flat(each) for each in came] == [flat(each) for each in MESSAGES]
    assert decoder.waiting == 0


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_entry_is_for_so_many_durable_subscriptions_of_a_home(more: int) -> None:
    shares = tuple(Share(f"ann/{each}", 1, None) for each in range(MAX_SUBJECTS + more))
    data = sent(Encoder(), Carry(parcel(*ROWS), "b1", 9, "b2", 8, 7, 5, shares))
    if more > 0:
        with pytest.raises(IllegalMessage):
            list(Decoder("peer").feed(data))
    else:
        assert len(list(Decoder("peer").feed(data))) == 1


def test_a_shape_is_described_once() -> None:
    encoder = Encoder()
    first = sent(encoder, Forward(parcel({"x": 1})))
    second = sent(encoder, Forward(parcel({"x": 2})))
    assert len(second) < len(first)
    assert len(list(Decoder("peer").feed(first + second))) == 2


@pytest.mark.parametrize("shapes", [MAX_SHAPES - 1, MAX_SHAPES, MAX_SHAPES + 1])
def test_shapes_begin_anew_beyond_their_limit(shapes: int) -> None:
    encoder, decoder = Encoder(), Decoder("peer")
    for number in range(shapes):
        (came,) = decoder.feed(sent(encoder, Forward(parcel({f"x{number}": number}))))
        assert isinstance(came, Forward)
        assert came.parcel.batch.column(0).to_pylist() == [number]


def test_the_very_bytes_are_passed_on() -> None:
    (came,) = Decoder("peer").feed(sent(Encoder(), Forward(parcel(*ROWS))))
    assert isinstance(came, Forward)
    assert sent(Encoder(), came) == sent(Encoder(), Forward(parcel(*ROWS)))


@given(st.data())
def test_of_bytes_that_were_damaged_on_their_way_nothing_is_read(data: st.DataObject) -> None:
    """Bits flip, bytes are lost or come twice: what is read is what was sent, up to the damage."""
    messages = data.draw(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6))
    whole = sent(Encoder(), *messages)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    match data.draw(st.sampled_from(["flip", "lose", "twice"])):
        case "flip":
            damaged[place] ^= 1 << data.draw(st.integers(0, 7))
        case "lose":
            del damaged[place : place + data.draw(st.integers(1, 50))]
        case _:
            less_than_a_frame = data.draw(st.integers(1, len(sent(Encoder(), Ping())) - 1))
            damaged[place:place] = damaged[place : place + less_than_a_frame]
    came: list[Message] = []
    with suppress(DamagedFrame):
        for message in Decoder("peer").feed(damaged):
            came.append(message)  # noqa: PERF402  # what came before the error counts
    assert [flat(each) for each in came] == [flat(each) for each in messages[: len(came)]]


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_frame_has_a_largest_size(extra: int) -> None:
    data = HEAD.pack(MAX_FRAME_BYTES + extra, CONTROL, 0)
    if extra > 0:
        with pytest.raises(IllegalMessage, match="MAX_FRAME_BYTES"):
            list(Decoder("peer").feed(data))
    else:
        assert list(Decoder("peer").feed(data)) == []


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_message_without_events_may_have_a_largest_size_of_its_own(extra: int) -> None:
    data = sent(Encoder(), Subscribe(1, 1, "x" * (100 + extra)))
    most = len(sent(Encoder(), Subscribe(1, 1, "x" * 100))) - HEAD.size
    decoder = Decoder("peer", max_control=most)
    if extra > 0:
        with pytest.raises(IllegalMessage, match="MAX_REQUEST_BYTES"):
            list(decoder.feed(data))
    else:
        assert len(list(decoder.feed(data))) == 1
    events = sent(Encoder(), Publish(Parcel("", pa.record_batch({"x": range(100)})), 1))
    assert len(list(Decoder("peer", max_control=most).feed(events))) == 1


def bounded(beyond: int) -> list[tuple[Message, str | None]]:
    """Messages that go so far beyond a bound of theirs, and what is said of that."""
    url, subject = "x" * MAX_URL_CHARS, "x" * (2 * MAX_NAME_BYTES + 1)
    bookmark = b"x" * (MAX_BOOKMARK_BYTES + beyond)
    names = tuple(f"b{number}" for number in range(routing.MOST_LINKS + beyond))
    together = tuple(Subscribe(key, key, "x = 1") for key in range(MOST_TOGETHER + beyond))
    requests = tuple(routing.Unsubscribe(key) for key in range(routing.PORTION + beyond))
    edges = tuple(("b", name) for name in names)
    of_portion, of_links = str(routing.PORTION), str(routing.MOST_LINKS)
    return [
        (Acknowledge(1, 0, bookmark=bookmark), None),
        (Acknowledge(1, 0, others=(1,) * (MAX_ACKED + beyond)), None),
        (Acknowledge(1, 0, seqs=(1,) * (MAX_BATCH_ROWS + beyond)), None),
        (Nack(1, 1, (1,) * (MAX_BATCH_ROWS + beyond)), None),
        (Nack(1, 1, delay_s=MAX_SECONDS + beyond), None),
        (Nack(1, 1, reason="x" * (MAX_REASON_CHARS + beyond)), None),
        (Bookmarked(1, bookmark), None),
        (Redirect(("x",) * (MAX_URLS + beyond)), None),
        (Redirect((url[1:] + "x" * (1 + beyond),)), None),
        (Drain(1, "x" * (MAX_NAME_BYTES + beyond)), None),
        (AddPeer(1, "x" * (MAX_URL_CHARS + beyond)), None),
        (RemovePeer(1, "x" * (MAX_NAME_BYTES + beyond)), None),
        (Adopt(subject[1:] + "x" * (1 + beyond), 1.0, SessionEpoch()), None),
        (Adopt("x", MAX_SECONDS + beyond, SessionEpoch()), None),
        (Adopt("x", 1.0, SessionEpoch(), bookmark), None),
        (Apply(1, "x" * (MAX_PACKED_CHARS + beyond)), None),
        (SubscribeAll(together), None),
        (Route(routing.Batch(requests)), of_portion),
        (Facts(tuple(Fact("b1", at, "links") for at in range(len(requests)))), of_portion),
        (Route(routing.LinkState("b", 1, names)), of_links),
        (Route(routing.LinkState("b", 1, ("b1",), (1,) * len(names))), of_links),
        (Route(routing.TreePlan("b", 1, edges)), of_links),
    ]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_what_is_in_a_message_has_bounds_and_is_refused_before_it_is_read(beyond: int) -> None:
    for message, reason in bounded(beyond):
        data = sent(Encoder(), message)
        if beyond <= 0:
            assert list(Decoder("peer").feed(data)) == [message]
        else:
            with pytest.raises(IllegalMessage, match=reason):
                list(Decoder("peer").feed(data))


def test_no_subscriptions_do_not_come_together() -> None:
    with pytest.raises(IllegalMessage):
        list(Decoder("peer").feed(sent(Encoder(), SubscribeAll(()))))


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_several_link_states_have_so_many_links_together_and_no_more(over: int) -> None:
    def state(count: int) -> dict[str, object]:
        return {"type": "LinkState", "origin": "b", "version": 1, "neighbours": ["n"] * count}

    for states, most in (
        ([state(0)] * (routing.MOST_STATES + over), routing.MOST_STATES),
        ([state(routing.MOST_LINKS + over), state(0)], routing.MOST_LINKS),
        ([state(1), state(routing.MOST_LINKS - 1 + over)], routing.MOST_LINKS),
    ):
        if over > 0:
            with pytest.raises(msgspec.ValidationError, match=str(most)):
                msgspec.convert({"states": states}, routing.LinkTable)
        else:
            table = msgspec.convert({"states": states}, routing.LinkTable)
            assert len(table.states) == len(states)


def shape(letters: str, *names: str, number: int = 0) -> bytes:
    return framed(0, struct.pack("<I", number) + msgspec.msgpack.encode([letters, *names]))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(7, b""), "kind 7"),
        (framed(1, b"\xc1"), "cannot be read"),
        (framed(1, b"\x81\xa4type\xa5Bogus"), "cannot be read"),
        (framed(2, b"\0"), "cannot be read"),
        (framed(2, struct.pack("<I", 99) + b"x"), "shorter than its header"),
        (framed(0, b"\0"), "cannot be read"),
        (framed(0, struct.pack("<I", 0) + b"no schema"), "cannot be read"),
        (shape("z", "x"), "events cannot have"),
        (shape("ii", "x"), "events cannot have"),
        (shape("", number=MAX_SHAPES), "MAX_SHAPES"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(IllegalMessage, match=reason):
        list(Decoder("peer").feed(data))


def crafted(schema: pa.Schema, payload: bytes) -> bytes:
    """A publication whose batch is what somebody else wrote."""
    whole = Parcel("", _empty(schema), pa.py_buffer(payload))
    return sent(Encoder(), Publish(whole, 1))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_batch_is_refused_before_it_is_inflated(codec: str) -> None:
    batch = pa.record_batch({"s": ["a" * 1_000_000] * 40})
    data = crafted(batch.schema, messages(batch, codec)[1])
    assert len(data) < 1_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(IllegalMessage, match="compressed"):
        list(Decoder("peer").feed(data))
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_batch_whose_buffers_overlap_is_refused() -> None:
    with pytest.raises(IllegalMessage, match="overlap"):
        list(Decoder("peer").feed(crafted(LONG.schema, overlapping(LONG))))


@pytest.mark.parametrize("extra", [0, 1])
def test_rows_without_columns_have_a_limit(extra: int) -> None:
    count = MAX_BATCH_ROWS + extra
    kind: Any = pa.struct([])
    structs: Any = pa.Array.from_buffers(kind, count, [None])
    batch = pa.RecordBatch.from_struct_array(structs)
    data = crafted(batch.schema, batch.serialize().to_pybytes())
    assert len(data) < 1_000
    if extra:
        with pytest.raises(IllegalMessage, match="MAX_BATCH_ROWS"):
            list(Decoder("peer").feed(data))
    else:
        (message,) = Decoder("peer").feed(data)
        assert isinstance(message, Publish)
        assert len(message.parcel) == count


@pytest.mark.parametrize("extra", [0, 1])
def test_cells_have_a_limit_to_which_a_broker_adds_two_columns(extra: int) -> None:
    rows = MAX_BATCH_ROWS
    columns = MAX_BATCH_CELLS // rows + extra
    values = pa.array([True] * rows)
    batch = pa.record_batch({f"c{place}": values for place in range(columns)})
    data = sent(Encoder(), Forward(Parcel("", batch).stamped("p", 1, 1)))
    if extra:
        with pytest.raises(IllegalMessage, match="MAX_BATCH_CELLS"):
            list(Decoder("peer").feed(data))
    else:
        (message,) = Decoder("peer").feed(data)
        assert isinstance(message, Forward)
        assert len(message.parcel) == rows


@given(st.dictionaries(st.sampled_from("abcd"), values(), min_size=1))
def test_a_lone_event_travels_as_its_values(event: dict[str, Any]) -> None:
    lone = Parcel.of("p", to_batch(event)).stamped("p", 1, 2)
    encoder, decoder = Encoder(), Decoder("peer")
    for message in (Publish(lone, 7), Deliver(lone), Forward(lone, None, durable=True)):
        (came,) = decoder.feed(sent(encoder, message))
        assert flat(came) == flat(message)
        assert isinstance(came, Publish | Deliver | Forward)
        assert came.parcel.values == lone.values


def test_a_lone_event_and_a_batch_share_their_shape() -> None:
    batch = pa.record_batch({"x": [1]})
    for first, second in ((Parcel.of, Parcel), (Parcel, Parcel.of)):
        encoder, decoder = Encoder(), Decoder("peer")
        data = sent(encoder, Publish(first("p", batch), 1))
        assert data[4] == 0  # a shape, and then the event
        again = sent(encoder, Publish(second("p", batch), 2))
        assert again[4] != 0
        came = [*decoder.feed(data), *decoder.feed(again)]
        assert [each.parcel.batch for each in came if isinstance(each, Publish)] == [batch] * 2


@pytest.mark.parametrize(
    "parcel",
    [
        *(["p", 0, each] for each in ([1.5], ["x"], [2**63], [], [1, 2], {"x": 1}, 1)),
        ["p", 1, [1]],
        [7, 0, [1]],
        ["p", "0", [1]],
        ["p", 0, [1], 1],
        ["p"],
        "p",
        None,
    ],
    ids=shown,
)
def test_an_event_that_is_none_of_its_shape_is_refused(parcel: Any) -> None:
    decoder = Decoder("peer")
    list(decoder.feed(shape("i", "x")))
    good = {"type": "Publish", "parcel": ["p", 0, [1]], "first_seq": 1}
    (came,) = decoder.feed(framed(1, msgspec.msgpack.encode(good)))
    assert isinstance(came, Publish)
    assert came.parcel.event == {"x": 1}
    with pytest.raises(IllegalMessage, match="cannot be read"):
        list(decoder.feed(framed(1, msgspec.msgpack.encode({**good, "parcel": parcel}))))


def test_values_beside_a_batch_are_refused() -> None:
    decoder = Decoder("peer")
    list(decoder.feed(shape("i", "x")))
    head = msgspec.msgpack.encode({"type": "Forward", "parcel": ["p", 0, [1]]})
    payload = pa.record_batch({"x": [1]}).serialize().to_pybytes()
    with pytest.raises(IllegalMessage, match="both as values and as a batch"):
        list(decoder.feed(framed(2, struct.pack("<I", len(head)) + head + payload)))


@pytest.mark.parametrize("before", range(8))
def test_batches_begin_where_words_may(before: int) -> None:
    """Kernels read eight bytes at a time, wherever in a read of the socket a frame began."""
    data = sent(Encoder(), Forward(parcel({"x": 1}, publisher="p" * before)))
    (came,) = Decoder("peer").feed(data)
    assert isinstance(came, Forward)
    assert all(
        buffer.address % 8 == 0
        for column in came.parcel.batch.columns
        for buffer in column.buffers()
        if buffer is not None
    )


def test_events_of_an_unknown_shape_are_refused() -> None:
    encoder = Encoder()
    sent(encoder, Forward(parcel({"x": 1})))
    with pytest.raises(IllegalMessage, match="never described"):
        list(Decoder("peer").feed(sent(encoder, Forward(parcel({"x": 1})))))


def test_events_without_their_frame_are_refused() -> None:
    encoder = Encoder()
    data = sent(encoder, Forward(parcel({"x": 1})))
    decoder = Decoder("peer")
    list(decoder.feed(data))
    head = msgspec.msgpack.encode({"type": "Forward", "parcel": ["p", 0]})
    with pytest.raises(IllegalMessage, match="without its values"):
        list(decoder.feed(framed(1, head)))


@given(st.binary(max_size=200), st.integers(0, 3))
def test_no_bytes_break_the_decoder(body: bytes, kind: int) -> None:
    with suppress(IllegalMessage):
        list(Decoder("peer").feed(framed(kind, body)))


@given(st.data())
def test_no_change_of_a_byte_breaks_the_decoder(data: st.DataObject) -> None:
    good = bytearray(sent(Encoder(), Forward(parcel(*ROWS), b"\1")))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(5, len(good) - 1))
        good[place] = data.draw(st.integers(0, 255))
    with suppress(IllegalMessage):
        for message in Decoder("peer").feed(bytes(good)):
            if isinstance(message, Forward):
                message.parcel.batch.validate(full=True)


def table_of(*lengths: int) -> routing.Batch:
    """Subscriptions whose filters have so many characters."""
    filters = [parse_filter("s = '" + "x" * (length - 6) + "'") for length in lengths]
    return routing.Batch(tuple(routing.Subscribe(*each) for each in enumerate(filters)))


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_filters_of_one_frame_are_as_many_as_are_read_at_once(more: int) -> None:
    """A frame is read in one turn: one of the costliest filters held a neighbour for seconds."""
    message = Route(table_of(100, PORTION_BYTES - 100 + more))
    data = sent(Encoder(), message)
    if more <= 0:
        assert list(Decoder("peer").feed(data)) == [message]
    else:
        with pytest.raises(IllegalMessage, match=r"\(PORTION_BYTES\)"):
            list(Decoder("peer").feed(data))


def test_one_filter_alone_may_be_longer_and_every_portion_is_read() -> None:
    lengths = (PORTION_BYTES + 100, 50, PORTION_BYTES - 30, 9_000, 9_000, 40_000, 100)
    encoder, decoder = Encoder(), Decoder("peer")
    came: list[routing.Request] = []
    for each in portions(Route(table_of(*lengths))):
        (message,) = decoder.feed(sent(encoder, each))
        assert isinstance(message, Route)
        assert isinstance(message.control, routing.Batch)
        came += message.control.requests
    assert tuple(came) == table_of(*lengths).requests


class Note:
    """A transport that notes how it was called."""

    def __init__(self, *, is_closed: bool) -> None:
        self.calls: list[tuple[str, object]] = []
        self._is_closed = is_closed

    def is_closing(self) -> bool:
        return self._is_closed

    def write(self, data: object) -> None:
        self.calls.append(("write", data))

    def writelines(self, list_of_data: object) -> None:
        self.calls.append(("writelines", list_of_data))


@pytest.mark.parametrize(
    ("buffers", "call"),
    [([b"a"], ("write", b"a")), ([b"a", b"b"], ("writelines", [b"a", b"b"]))],
)
def test_buffers_are_written_in_one_call(buffers: list[bytes], call: tuple[str, object]) -> None:
    transport = Note(is_closed=False)
    assert write(transport, buffers)
    assert transport.calls == [call]


def test_what_is_closing_takes_nothing() -> None:
    transport = Note(is_closed=True)
    assert not write(transport, [b"a"])
    assert transport.calls == []
    assert not write(None, [b"a"])
