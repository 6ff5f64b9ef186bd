"""What is sealed is opened as it was, once; all else is dropped and counted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidInput, LimitExceeded
from palio.model.events import to_batch, to_batches
from palio.model.limits import MAX_ATTRIBUTES
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.multicast.broker_sets import MAX_BROKERS
from palio.multicast.datagrams import Datagram
from palio.protocol import datagrams
from palio.protocol.datagrams import (
    OVERHEAD_BYTES,
    SALT_BYTES,
    Opener,
    Sealer,
    fits,
)
from palio.protocol.group_keys import Ciphers
from palio.protocol.limits import (
    MAX_COUNTS_BYTES,
    MAX_DATAGRAM_BYTES,
    MAX_MTU,
    MAX_NAME_BYTES,
    MAX_NUMBER,
    MAX_PIECES,
    MIN_MTU,
    REPLAY_WINDOW,
)
from tests.protocol.datagram_fuzz import KEY, flat
from tests.strategies import values

SALT = bytes(SALT_BYTES)
QUOTE = {"symbol": "IBM", "price": 123.25, "volume": 700, "is_bid": True}


def parcel(*rows: dict[str, Any], first: int = 1) -> Parcel:
    """Stamped rows, one as its values."""
    (batch,) = to_batches(rows)
    return Parcel.of("", batch).stamped("ann/1", first, 1_700_000_000_000_000)


def datagram(
    number: int = 1, *, incarnation: int = 1, plan: int = 1, held: Parcel | None = None
) -> Datagram:
    return Datagram("b1", incarnation, plan, 3, number, bytes(48), held)


def drops(opener: Opener) -> dict[str, int]:
    return {reason: count for reason, count in opener.dropped.items() if count}


# --- there and back ---


@given(
    rows=st.lists(st.dictionaries(st.sampled_from("abcdef"), values(), min_size=1), min_size=1),
    mtu=st.sampled_from([MIN_MTU, 1_400, MAX_MTU]),
)
def test_what_is_sealed_is_opened_as_it_was(rows: list[dict[str, Any]], mtu: int) -> None:
    sealer, opener = Sealer(KEY, mtu, salt=SALT), Opener(KEY, "b2")
    for number, batch in enumerate(to_batches(rows)):
        for held in (
            Parcel.of("", batch).stamped("p/1", 1, 5),
            Parcel("", batch).stamped("p/1", 1, 5),
        ):
            sent = Datagram("b1", 1, 7, 3, number, bytes(range(8)), held, durable=number % 2 == 0)
            packets = sealer.seal(sent)
            assert max(map(len, packets)) <= mtu
            *none, opened = [opener.open(packet, 0.0) for packet in packets]
            assert not any(none)
            assert opened is not None
            assert flat(opened) == flat(sent)
    assert not drops(opener)


def test_pieces_come_in_any_order(rng: random.Random) -> None:
    sealer, opener = Sealer(KEY, MIN_MTU, salt=SALT), Opener(KEY, "b2")
    sent = [datagram(number, held=parcel({"text": "x" * 5_000})) for number in range(3)]
    packets = [packet for each in sent for packet in sealer.seal(each)]
    assert len(packets) > 30
    rng.shuffle(packets)
    opened = [each for each in (opener.open(packet, 0.0) for packet in packets) if each]
    assert {each.number for each in opened} == {0, 1, 2}
    assert all(each.parcel and each.parcel.event["text"] == "x" * 5_000 for each in opened)  # type: ignore[index]  # a lone event


# --- what does not come ---


def test_a_copy_is_dropped() -> None:
    sealer, opener = Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    packets = [sealer.seal(datagram(number))[0] for number in range(100)]
    assert all(opener.open(packet, 0.0) for packet in packets)
    assert not any(opener.open(packet, 0.0) for packet in packets)
    assert drops(opener) == {"replayed": 100}


def test_the_same_datagram_sealed_again_is_no_copy() -> None:
    sealer, opener = Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    for _ in range(2):
        assert opener.open(sealer.seal(datagram())[0], 0.0) == datagram()


@pytest.mark.parametrize("behind", [REPLAY_WINDOW - 1, REPLAY_WINDOW, REPLAY_WINDOW + 1])
def test_what_was_overtaken_by_too_many_counts_as_a_copy(behind: int) -> None:
    sealer, opener = Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    packets = [sealer.seal(datagram())[0] for _ in range(behind + 1)]
    assert opener.open(packets[-1], 0.0)
    is_heard = behind < REPLAY_WINDOW
    assert bool(opener.open(packets[0], 0.0)) == is_heard
    assert not opener.open(packets[0], 0.0)
    assert drops(opener) == {"replayed": 1 if is_heard else 2}


@given(order=st.permutations(range(40)))
def test_the_window_is_that_of_a_plain_set(order: list[int]) -> None:
    sealer, opener = Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    packets = [sealer.seal(datagram(number, plan=number % 3))[0] for number in range(40)]
    for number in [*order, *order]:
        opener.open(packets[number], 0.0)
    assert drops(opener) == {"replayed": 40}


def test_an_earlier_life_is_over_once_a_later_one_was_heard() -> None:
    old, new, opener = Sealer(KEY, salt=SALT), Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    assert opener.open(old.seal(datagram(incarnation=7))[0], 0.0)
    assert opener.open(new.seal(datagram(incarnation=8))[0], 0.0)
    for plan in (1, 2):
        assert not opener.open(old.seal(datagram(incarnation=7, plan=plan))[0], 0.0)
    assert drops(opener) == {"stale": 2}
    assert opener.open(new.seal(datagram(incarnation=8))[0], 0.0)


def test_pieces_of_an_earlier_life_are_none_of_a_later_one() -> None:
    old, new, opener = (Sealer(KEY, salt=SALT), Sealer(KEY, salt=SALT), Opener(KEY, "b2"))
    held = parcel({"text": "x" * 5_000})
    opener.open(old.seal(datagram(incarnation=7, held=held))[0], 0.0)
    opened = [opener.open(packet, 0.0) for packet in new.seal(datagram(incarnation=8, held=held))]
    assert opened[-1]
    assert drops(opener) == {"incomplete": 1}


def test_no_bit_may_be_altered() -> None:
    sealer, opener = Sealer(KEY, salt=SALT), Opener(KEY, "b2")
    (packet,) = sealer.seal(datagram(held=parcel(QUOTE)))
    for bit in range(8 * len(packet)):
        altered = bytearray(packet)
        altered[bit // 8] ^= 1 << bit % 8
        assert not opener.open(bytes(altered), 0.0)
    assert drops(opener) == {"forged": 8 * len(packet)}
    assert opener.open(packet, 0.0)


@pytest.mark.parametrize("size", [MAX_MTU, MAX_MTU + 1])
def test_what_no_packet_holds_is_not_looked_at(size: int) -> None:
    opener = Opener(KEY, "b2")
    assert not opener.open(bytes(size), 0.0)
    assert drops(opener) == {"forged" if size == MAX_MTU else "oversized": 1}


# --- limits ---


@pytest.mark.parametrize("mtu", [MIN_MTU - 1, MIN_MTU, MAX_MTU, MAX_MTU + 1])
def test_an_mtu_has_bounds(mtu: int) -> None:
    if MIN_MTU <= mtu <= MAX_MTU:
        Sealer(KEY, mtu, salt=SALT)
    else:
        with pytest.raises(InvalidInput, match="mtu"):
            Sealer(KEY, mtu, salt=SALT)


@pytest.mark.parametrize("size", [SALT_BYTES - 1, SALT_BYTES])
def test_a_salt_is_not_too_short(size: int) -> None:
    if size < SALT_BYTES:
        with pytest.raises(InvalidInput, match="salt"):
            Sealer(KEY, salt=bytes(size))
    else:
        Sealer(KEY, salt=bytes(size))


def test_every_broker_of_a_plan_may_have_its_number_in_a_datagram() -> None:
    assert MAX_COUNTS_BYTES == 4 * MAX_BROKERS
    sealer, opener = Sealer(KEY, MAX_MTU, salt=SALT), Opener(KEY, "b2")
    for size in (MAX_COUNTS_BYTES - 4, MAX_COUNTS_BYTES, MAX_COUNTS_BYTES + 4, 7):
        (packet,) = sealer.seal(datagram()._replace(counts=bytes(size)))
        is_legal = size <= MAX_COUNTS_BYTES and size % 4 == 0
        assert bool(opener.open(packet, 0.0)) == is_legal
    assert drops(opener) == {"illegal": 2}


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_shape_has_so_many_attributes(extra: int) -> None:
    names = [f"a{place}" for place in range(MAX_ATTRIBUTES + extra)]
    shape = Shape.of(pa.schema([(name, pa.int64()) for name in names]))
    held = Parcel.lone("", shape, (1,) * len(names)).stamped("p", 1, 1)
    opener = Opener(KEY, "b2")
    (packet,) = Sealer(KEY, MAX_MTU, salt=SALT).seal(datagram(held=held))
    assert bool(opener.open(packet, 0.0)) == (extra <= 0)
    assert opener.dropped["illegal"] == max(extra, 0)


def sized(extra: int) -> Datagram:
    """A datagram whose message has so many bytes more than the limit."""
    beside = len(
        Sealer(KEY, MAX_MTU, salt=SALT).seal(datagram(held=parcel({"t": "x" * 40_000})))[0]
    )
    size = MAX_DATAGRAM_BYTES + extra - (beside - OVERHEAD_BYTES - 40_000)
    return datagram(held=parcel({"t": "x" * size}))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_datagram_has_a_largest_size(extra: int) -> None:
    sealer, opener = Sealer(KEY, MIN_MTU, salt=SALT), Opener(KEY, "b2")
    if extra > 0:
        with pytest.raises(LimitExceeded, match="MAX_DATAGRAM_BYTES"):
            sealer.seal(sized(extra))
        return
    assert [opener.open(packet, 0.0) for packet in sealer.seal(sized(extra))][-1]


def test_a_sealer_never_numbers_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "MAX_COUNTER", 3)
    sealer = Sealer(KEY, salt=SALT)
    for _ in range(3):
        sealer.seal(datagram())
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="MAX_COUNTER"):
            sealer.seal(datagram())


@pytest.mark.parametrize("size", [MAX_NUMBER, MAX_NUMBER + 1])
@pytest.mark.parametrize("field", ["incarnation", "plan", "group", "number"])
def test_numbers_are_those_of_messages(field: str, size: int) -> None:
    opener = Opener(KEY, "b2")
    (packet,) = Sealer(KEY, salt=SALT).seal(Datagram(**(datagram()._asdict() | {field: size})))
    assert bool(opener.open(packet, 0.0)) == (size == MAX_NUMBER)


@pytest.mark.parametrize("extra", [0, 1])
def test_so_many_senders_are_remembered(monkeypatch: pytest.MonkeyPatch, extra: int) -> None:
    monkeypatch.setattr(datagrams, "MAX_SENDERS", 3)
    opener, sealer = Opener(KEY, "me"), Sealer(KEY, salt=SALT)
    packets = [
        sealer.seal(datagram()._replace(source=f"b{place}"))[0] for place in range(3 + extra)
    ]
    assert [bool(opener.open(packet, 0.0)) for packet in packets] == [True] * 3 + [False] * extra
    assert opener.dropped["crowded"] == extra


def test_keys_that_were_let_go_are_derived_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "MAX_STREAMS", 2)
    opener, sealer = Opener(KEY, "me"), Sealer(KEY, salt=SALT)
    sent = [sealer.seal(datagram(plan=plan))[0] for plan in (1, 2, 3, 1, 2, 3)]
    assert all(opener.open(packet, 0.0) for packet in sent)
    assert not any(opener.open(packet, 0.0) for packet in sent)
    assert drops(opener) == {"replayed": 6}


ABOUT = ("b1", 1, 1)
"""A source, an incarnation and a plan."""


def sealed(counter: int, message: Any) -> bytes:
    """A packet of the stream of `ABOUT`, whatever it says, made as the documentation has it."""
    ciphers = Ciphers(KEY)
    stream = ciphers.stream(SALT, *ABOUT)
    head = stream + counter.to_bytes(6, "little")
    said = msgspec.msgpack.encode(message)
    return head + ciphers.cipher(stream).encrypt(head[-12:], said, head)


@pytest.mark.parametrize("about", [("b3", 1, 1), ("b1", 2, 1), ("b1", 1, 2)])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_stream_is_of_one_sender_life_and_plan(
    about: tuple[str, int, int], *, in_pieces: bool
) -> None:
    opener = Opener(KEY, "b2")
    said, other = ((0, *each, 3, 7, b"", False) for each in (ABOUT, about))
    opened = opener.open(sealed(1, said), 0.0)
    assert opened == Datagram(*ABOUT, 3, 7, b"")
    packets = [sealed(2, other)]
    if in_pieces:
        whole = msgspec.msgpack.encode(other)
        parts = whole[:5], whole[5:]
        packets = [sealed(2 + at, (3, *ABOUT, 2, at, 1, part)) for at, part in enumerate(parts)]
    assert not any(opener.open(packet, 0.0) for packet in packets)
    assert drops(opener) == {"illegal": 1}


def test_a_piece_of_a_piece_is_none() -> None:
    opener = Opener(KEY, "b2")
    whole = msgspec.msgpack.encode((3, *ABOUT, 1, 0, 0, b"x"))
    assert opener.open(sealed(1, (3, *ABOUT, 1, 0, 0, whole)), 0.0) is None
    assert drops(opener) == {"illegal": 1}


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_datagram_has_so_many_pieces(extra: int) -> None:
    opener = Opener(KEY, "b2")
    last = MAX_PIECES - 1 + extra
    assert opener.open(sealed(1, (3, *ABOUT, 1, 0, last, b"x")), 0.0) is None
    assert drops(opener) == ({"illegal": 1} if extra > 0 else {})


@pytest.mark.parametrize("shapes", [1, 2, 3])
def test_shapes_that_were_let_go_are_read_again(
    monkeypatch: pytest.MonkeyPatch, shapes: int
) -> None:
    monkeypatch.setattr(datagrams, "SHAPES_BYTES", 4_000)  # two of three attributes
    opener, sealer = Opener(KEY, "me"), Sealer(KEY, salt=SALT)
    for place in [*range(shapes), *range(shapes)]:
        held = parcel({f"x{place}": place})
        opened = opener.open(sealer.seal(datagram(held=held))[0], 0.0)
        assert opened is not None
        assert flat(opened) == flat(datagram(held=held))


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", "b" * 201])
def test_who_is_called_what_no_broker_is_is_not_heard(name: str) -> None:
    opener = Opener(KEY, "b2")
    (packet,) = Sealer(KEY, salt=SALT).seal(datagram()._replace(source=name))
    assert not opener.open(packet, 0.0)
    assert drops(opener) == {"illegal": 1}


def illegal_parcels() -> Iterator[Parcel]:
    yield Parcel.of("p", to_batch({"x": 1}))  # without number and time
    yield Parcel("p", to_batch({"x": 1}))
    yield parcel(QUOTE, first=-1)
    yield parcel(QUOTE, QUOTE, first=-2)
    shape = parcel(QUOTE).shape
    yield Parcel.lone("p", shape, (1,), text_bytes=0)
    yield Parcel.lone("p" * 1_000, shape, parcel(QUOTE).values or ())


@pytest.mark.parametrize("held", list(illegal_parcels()))
def test_what_no_broker_can_have_numbered_is_not_heard(held: Parcel) -> None:
    opener = Opener(KEY, "b2")
    (packet,) = Sealer(KEY, salt=SALT).seal(datagram(held=held))
    assert not opener.open(packet, 0.0)
    assert drops(opener) == {"illegal": 1}


# --- what fits ---


@given(
    event=st.dictionaries(
        st.text(min_size=1, max_size=20), st.text(max_size=200), min_size=1, max_size=40
    ),
    times=st.integers(1, 30),
)
def test_what_fits_is_sealed_whatever_the_group(event: dict[str, Any], times: int) -> None:
    sealer = Sealer(KEY, MAX_MTU, salt=SALT)
    (batch,) = to_batches([{name: text * times for name, text in event.items()}])
    for held in (
        Parcel.of("", batch).stamped("p" * 400, 1, 1),
        Parcel("", batch).stamped("p" * 400, 1, 1),
    ):
        sent = Datagram(
            "b" * 200, MAX_NUMBER, MAX_NUMBER, MAX_NUMBER, MAX_NUMBER, bytes(MAX_COUNTS_BYTES), held
        )
        if fits(held):
            sealer.seal(sent)


@pytest.mark.parametrize("text", ["x", "ä", "\U0001f40e"])
def test_texts_fit_by_their_bytes(text: str) -> None:
    most = next(size for size in range(50_000, 0, -1) if fits(parcel({"t": "x" * size})))
    assert most > MAX_DATAGRAM_BYTES * 2 // 3
    count = most // len(text.encode())
    assert fits(parcel({"t": text * count}))
    assert not fits(parcel({"t": text * (count + 1)}))


@pytest.mark.parametrize("rows", [1, 3])
def test_what_fits_may_have_a_smaller_limit(rows: int) -> None:
    held = parcel(*[{"t": "x" * 1_000}] * rows)
    most = next(size for size in range(10_000) if fits(held, size))
    assert 1_000 * rows < most < 1_000 * rows + 600
    assert not fits(held, most - 1)


def test_names_of_attributes_count() -> None:
    assert not fits(parcel({f"{place}".zfill(250): 1 for place in range(300)}))


def test_the_longest_datagram_of_the_longest_name_has_no_more_pieces_than_are_taken() -> None:
    sealer, opener = Sealer(KEY, MIN_MTU, salt=SALT), Opener(KEY, "b2")
    sent = Datagram(
        "b" * MAX_NAME_BYTES, MAX_NUMBER, MAX_NUMBER, 1, 1, b"", parcel({"t": "x" * 65_000})
    )
    packets = sealer.seal(sent)
    assert MAX_PIECES * 3 // 4 < len(packets) <= MAX_PIECES
    assert max(map(len, packets)) <= MIN_MTU
    assert [opener.open(packet, 0.0) for packet in packets][-1]
