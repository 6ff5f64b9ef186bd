"""An event that comes by itself goes the very way of a batch of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.model.events import STAMP_BYTES, to_batch
from palio.model.filters import Filter
from palio.node.authority import Limits, NamedAuthority, Principal
from palio.node.effects import Close, Effect, Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.batches import check_size
from palio.protocol.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CELLS,
    MAX_BATCH_ROWS,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
)
from palio.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Forward,
    Hello,
    Message,
    Parcel,
    Publish,
    Refused,
    Route,
    Subscribe,
    Welcome,
    pack_mask,
    unpack_mask,
)
from palio.protocol.wire import Encoder
from palio.routing import messages as routing
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Matching, SelectorFactory
from palio.routing.reference_selector import ReferenceSelector
from tests.strategies import SEEDS, examples, filters, nearby

AT = Moment(1.0, 1_000_000)

SELECTORS: list[SelectorFactory] = [ReferenceSelector, lambda: Matching(Index())]


class Place:
    """A broker with three clients and a neighbour, all of whom hear something."""

    def __init__(self, selector: SelectorFactory, asked: list[str]) -> None:
        self.node = Node("b1", Acyclic("b1", selector), MemoryStore())
        self.node.start(AT)
        for link, (role, name) in enumerate(
            [("client", "p"), ("client", "a"), ("client", "b"), ("broker", "b2")]
        ):
            self.node.accept(link, AT)
            incarnation = "x" if role == "client" else ""
            said = self.say(link, Hello(role, name, PROTOCOL_VERSION, incarnation=incarnation))
            if name == "p":
                (self.welcome,) = [
                    each.message
                    for each in said
                    if isinstance(each, Send) and isinstance(each.message, Welcome)
                ]
        for key, text in enumerate(asked):
            self.say(1 + key % 2, Subscribe(key, key, text))
        beyond = tuple(
            routing.Subscribe(key, parse_filter(each)) for key, each in enumerate(asked[:2])
        )
        self.say(3, Route(routing.Batch(beyond, fresh=True)))
        self.seq = 0

    def say(self, link: int, message: Message) -> list[Effect]:
        return self.node.receive(link, message, AT)

    def publish(self, parcel: Parcel) -> list[Any]:
        """What follows from a publication, as plain data."""
        self.seq += 1
        return [plain(each) for each in self.say(0, Publish(parcel, self.seq))]


def plain(effect: Effect) -> Any:
    assert isinstance(effect, Send)
    message = effect.message
    if isinstance(message, Deliver | Forward):
        parcel = message.parcel
        events = parcel.batch.to_pylist()
        assert len(parcel) == len(events)
        return effect.link, type(message), parcel.publisher, events, parcel.batch.schema
    return effect.link, message


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@given(st.lists(filters(), min_size=2, max_size=6), SEEDS)
@examples(40)
def test_by_itself_or_as_a_batch_it_goes_the_same_way(
    selector: SelectorFactory, asked: list[Filter], seed: int
) -> None:
    texts = [str(each) for each in asked]
    alone, together = Place(selector, texts), Place(selector, texts)
    for event in nearby(*asked, seed=seed, count=8):
        batch = to_batch(event)
        expected = together.publish(Parcel("", batch))
        found = alone.publish(Parcel.of("", batch))
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
    for count in ("published", "routed", "delivered"):
        assert alone.node.status()[count] == together.node.status()[count]


def test_what_a_publisher_may_not_publish_is_refused_by_itself_too() -> None:
    granted = Principal("p", parse_filter("x > 0"), parse_filter("x > 0"))
    node = Node("b1", Acyclic("b1"), MemoryStore(), authority=NamedAuthority({"p": granted}))
    node.start(AT)
    node.accept(1, AT, "p")
    node.receive(1, Hello("client", "p", PROTOCOL_VERSION, incarnation="x"), AT)
    node.receive(1, Subscribe(1, 1, "x < 10"), AT)

    def said(x: int, seq: int) -> list[type]:
        effects = node.receive(1, Publish(Parcel.of("", to_batch({"x": x})), seq), AT)
        return [type(each.message) for each in effects if isinstance(each, Send)]

    assert said(-1, 1) == [Refused, Accepted]
    assert said(1, 2) == [Deliver, Accepted]


def test_system_names_are_refused_by_itself_too() -> None:
    place = Place(ReferenceSelector, ["EXISTS x"])
    (_, refused), _ = place.publish(Parcel.of("", pa.record_batch({"x": [1], "$y": [2]})))
    assert isinstance(refused, Refused)
    assert "begin with $" in refused.failure.message


def test_a_batch_that_numbers_and_times_make_too_large_is_refused() -> None:
    place = Place(ReferenceSelector, ["EXISTS x"])
    count = MAX_BATCH_ROWS
    size = MAX_BATCH_BYTES // count - STAMP_BYTES + 2
    batch = pa.record_batch({"x": ["a" * size] * count})
    assert batch.nbytes < MAX_BATCH_BYTES
    (_, refused), (_, accepted), *_ = place.publish(Parcel("", batch))
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq) == (1, count)
    assert "MAX_BATCH_BYTES" in refused.failure.message
    assert isinstance(accepted, Accepted)


def test_the_largest_batch_fits_into_a_frame_when_it_is_handed_on() -> None:
    count = MAX_BATCH_ROWS
    size = MAX_BATCH_BYTES // count - STAMP_BYTES - 5
    parcel = Parcel("", pa.record_batch({"x": ["a" * size] * count}))
    check_size(count, 1, parcel.nbytes)
    delivered = Deliver(parcel.stamped("p" * 200, 1, 1), pack_mask(np.arange(count) % 2 == 0))
    frames = Encoder().encode(delivered)
    assert sum(memoryview(part).nbytes for part in frames) <= MAX_FRAME_BYTES


def test_a_batch_of_too_many_cells_is_refused() -> None:
    place = Place(ReferenceSelector, ["EXISTS c0"])
    column = pa.array(np.ones(8_192, np.bool_))
    wide = MAX_BATCH_CELLS // 8_192
    for columns in (wide, wide + 1):
        batch = pa.record_batch({f"c{place}": column for place in range(columns)})
        first, *_ = place.publish(Parcel("", batch))
        place.seq += batch.num_rows
        assert (first[1] is Deliver) == (columns == wide)
        if columns > wide:
            assert "MAX_BATCH_CELLS" in first[1].failure.message


@pytest.mark.parametrize(
    "event",
    [{"x": 1}, {"x": 1, "$seq": 1}, {"x": 1, "$seq": "1", "$time": 5}, {"x": 1, "$time": 5}],
)
def test_a_neighbour_may_not_bring_events_without_numbers(event: dict[str, Any]) -> None:
    place = Place(ReferenceSelector, ["EXISTS x"])
    effects = place.say(3, Forward(Parcel.of("p", to_batch(event))))
    assert any(isinstance(each, Send) and isinstance(each.message, Bye) for each in effects)


# --- what a publisher is told is what has become of its events ---


def _times(raw: list[int | None]) -> pa.Array[Any]:
    return pa.array(raw, pa.int64()).view(pa.timestamp("us", "UTC"))


COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(_times),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.int64())
    ),
    st.lists(st.none() | st.floats(), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.float64())
    ),
    st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=3, max_size=3).map(
        lambda column: pa.array(column, pa.utf8())
    ),
)
BATCHES = st.builds(
    lambda columns, first, count: pa.record_batch(columns).slice(first, count),
    st.dictionaries(st.sampled_from(["x", "y", "s", "a b"]), COLUMNS, min_size=1),
    st.integers(0, 2),
    st.integers(1, 3),
)


def receipts(effects: list[Effect]) -> tuple[bool, bool, list[Any]]:
    """Whether all was accepted, whether it was refused, and the events that link 1 was sent."""
    sent = [each for each in effects if isinstance(each, Send)]
    refused = any(isinstance(each.message, Refused) for each in sent)
    accepted = any(isinstance(each.message, Accepted) for each in sent) and not refused
    heard = [
        event
        for each in sent
        if each.link == 1 and isinstance(each.message, Deliver)
        for event in each.message.parcel.batch.to_pylist()
    ]
    return accepted, refused, heard


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@given(st.lists(BATCHES, min_size=1, max_size=4))
@examples(40)
def test_a_receipt_tells_the_truth_whatever_arrow_can_make(
    selector: SelectorFactory, published: list[pa.RecordBatch]
) -> None:
    place = Place(selector, ["TRUE", "x > 0 OR s = 'a'"])
    for batch in published:
        place.seq += 10
        effects = place.say(0, Publish(Parcel.of("", batch), place.seq))
        accepted, refused, heard = receipts(effects)
        assert accepted != refused
        assert len(heard) == (len(batch) if accepted else 0)


class Breaking(ReferenceSelector):
    """An engine that fails on the events of one attribute."""

    def route(self, events: Any) -> Any:
        if any("breaks" in row for row in events.rows):
            raise OverflowError("too much for this engine")
        return super().route(events)

    def match_event(self, event: Mapping[str, Any]) -> list[int]:
        if "breaks" in event:
            raise OverflowError("too much for this engine")
        return super().match_event(event)


def test_what_an_engine_fails_on_is_refused_and_nothing_else_is() -> None:
    place = Place(Breaking, ["TRUE"])
    for event, is_taken in (({"x": 1}, True), ({"breaks": 1}, False), ({"x": 2}, True)):
        place.seq += 1
        effects = place.say(0, Publish(Parcel.of("", to_batch(event)), place.seq))
        accepted, refused, heard = receipts(effects)
        assert (accepted, refused, len(heard)) == (is_taken, not is_taken, int(is_taken))


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@pytest.mark.parametrize("rows", [1, 2])
def test_an_event_as_wide_as_it_may_be_is_delivered_with_what_the_broker_adds(
    selector: SelectorFactory, rows: int
) -> None:
    place = Place(selector, ["a1 = 1"])
    for width, is_taken in ((4_094, True), (4_096, True), (4_097, False)):
        place.seq += 10
        batch = pa.record_batch({f"a{number}": [1] * rows for number in range(width)})
        effects = place.say(0, Publish(Parcel.of("", batch), place.seq))
        assert receipts(effects)[:2] == (is_taken, not is_taken)
        assert len(receipts(effects)[2]) == rows * is_taken


# --- in parts ---


def in_parts(place: Place, link: int, message: Message, *ends: int) -> list[Effect]:
    """Hand a message in part by part, and then the rest."""
    effects = [each for end in ends for each in place.node.receive(link, message, AT, up_to=end)]
    return effects + place.say(link, message)


def heard_at(effects: list[Effect], link: int) -> list[tuple[int, int]]:
    """The events and their numbers. Each part has a time of its own."""
    return [
        (event["x"], event["$seq"])
        for each in effects
        if isinstance(each, Send) and each.link == link
        if isinstance(each.message, Deliver | Forward)
        for event in each.message.parcel.select(
            unpack_mask(each.message.rows, len(each.message.parcel))
        ).batch.to_pylist()
    ]


@pytest.mark.parametrize("selector", SELECTORS, ids=["rows", "index"])
@pytest.mark.parametrize("ends", [(1,), (5,), (3, 4, 9), (9, 9)])
@pytest.mark.parametrize("durable", [False, True])
def test_a_publication_in_parts_is_heard_as_it_is_as_one(
    selector: SelectorFactory, ends: tuple[int, ...], durable: bool
) -> None:
    whole, parts = Place(selector, ["x > 2", "x < 8"]), Place(selector, ["x > 2", "x < 8"])
    message = Publish(Parcel("", pa.record_batch({"x": range(10)})), 1, durable)
    expected, found = whole.say(0, message), in_parts(parts, 0, message, *ends)
    for link in (1, 2, 3):
        assert heard_at(found, link) == heard_at(expected, link) != []
    answers = [each.message for each in found if isinstance(each, Send) and each.link == 0]
    assert answers[-1] == Accepted(10, "durable" if durable else "memory")
    assert parts.node.status()["published"] == 10
    again = parts.say(0, message)  # number 1 was published before
    assert [type(each) for each in again][-1] is Close


def test_what_was_taken_of_a_message_is_not_taken_again_when_it_comes_again() -> None:
    place = Place(ReferenceSelector, ["TRUE"])
    session = place.welcome.session
    message = Publish(Parcel("", pa.record_batch({"x": range(10)})), 1)
    effects = place.node.receive(0, message, AT, up_to=4)
    place.node.lost(0, AT)
    place.node.accept(7, AT)
    greeting = Hello("client", "p", PROTOCOL_VERSION, incarnation="x", session=session)
    (welcome,) = [each.message for each in place.say(7, greeting) if isinstance(each, Send)][:1]
    assert isinstance(welcome, Welcome)
    assert (welcome.resumed, welcome.received) == (True, 0)
    effects += in_parts(place, 7, message, 2, 6)
    assert heard_at(effects, 1) == [(x, 1 + x) for x in range(10)]
    effects = place.say(7, Publish(Parcel("", pa.record_batch({"x": [77]})), 11))
    assert heard_at(effects, 1) == [(77, 11)]


def test_a_neighbours_message_in_parts_is_passed_on_once_each_row() -> None:
    place = Place(ReferenceSelector, ["TRUE"])
    parcel = Parcel("", pa.record_batch({"x": range(10)})).stamped("q/1", 1, 1)
    rows = pack_mask(np.arange(10) != 5)
    effects = in_parts(place, 3, Forward(parcel, rows), 4, 4, 5, 6)
    assert heard_at(effects, 1) == [(x, 1 + x) for x in range(10) if x != 5]


def test_what_was_taken_of_one_message_is_not_left_out_of_another() -> None:
    place = Place(ReferenceSelector, ["TRUE"])
    first, other = (
        Parcel("", pa.record_batch({"x": range(10)})).stamped(publisher, 1, 1)
        for publisher in ("q/1", "r/1")
    )
    effects = place.node.receive(3, Forward(first), AT, up_to=4)
    effects += place.say(3, Forward(other))  # the first was taken out of the session
    assert heard_at(effects, 1) == [(x, 1 + x) for x in [*range(4), *range(10)]]


def test_what_comes_in_the_stead_of_a_message_that_was_admitted_is_looked_at() -> None:
    place = Place(ReferenceSelector, ["TRUE"])
    first, other = (
        Publish(
            Parcel("", pa.record_batch({"t": pa.array([us, us], pa.timestamp("us", "UTC"))})), 1
        )
        for us in (0, 1 << 62)
    )
    place.node.receive(0, first, AT, up_to=1)
    refused, accepted = [each.message for each in place.say(0, other) if isinstance(each, Send)]
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq) == (2, 2)
    assert accepted == Accepted(2, "memory")


def test_a_publication_that_is_too_much_is_refused_as_a_whole() -> None:
    granted = Principal("p", parse_filter("TRUE"), limits=Limits(events_per_s=2))
    node = Node("b1", Acyclic("b1"), MemoryStore(), authority=NamedAuthority({"p": granted}))
    node.start(AT)
    node.accept(1, AT, "p")
    node.receive(1, Hello("client", "p", PROTOCOL_VERSION, incarnation="x"), AT)

    def answers(first: int, *ends: int) -> list[Message]:
        message = Publish(Parcel("", pa.record_batch({"x": range(10)})), first)
        effects = [each for end in ends for each in node.receive(1, message, AT, up_to=end)]
        effects += node.receive(1, message, AT)
        return [each.message for each in effects if isinstance(each, Send)]

    assert answers(1, 4) == [Accepted(4, "memory"), Accepted(10, "memory")]
    refused, accepted = answers(11, 4, 7)
    assert isinstance(refused, Refused)
    assert (refused.first_seq, refused.last_seq, refused.failure.kind) == (11, 20, "NotPermitted")
    assert accepted == Accepted(20, "memory")
