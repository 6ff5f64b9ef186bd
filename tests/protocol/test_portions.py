"""Tables of any size go over a link, and say the same as they would in one frame."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import IllegalMessage
from palio.language.parsing import parse_filter
from palio.model.patterns import Occurrence
from palio.protocol import messages
from palio.protocol import portions as portions_module
from palio.protocol.limits import PORTION_BYTES, PORTION_FACTS, TOGETHER_CHARS
from palio.protocol.messages import Fact, Facts, Message, Ping, Route
from palio.protocol.portions import chars_together, cut, portions
from palio.protocol.wire import Decoder, Encoder
from palio.routing.messages import (
    PORTION,
    Batch,
    Flood,
    Join,
    Request,
    Subscribe,
    Unsubscribe,
)
from palio.routing.patterns.messages import (
    MOST_HELD,
    AssemblyProgress,
    HeldBack,
    Resume,
    Returned,
)
from tests.client.helpers import NOON
from tests.node.events import heard
from tests.node.test_node import QUICK, world_of


def subscribe(key: int, text: str = "x = 1") -> Request:
    return Subscribe(key, parse_filter(text), {"y": "é" * 10})


def encoded(message: Message) -> int:
    return sum(len(bytes(each)) for each in Encoder().encode(message))


def batches(message: Message) -> list[Batch]:
    found = []
    for each in portions(message):
        assert isinstance(each, Route)
        assert isinstance(each.control, Batch)
        found.append(each.control)
    return found


@pytest.mark.parametrize(
    "message",
    [
        Ping(),
        Route(Join()),
        Route(Batch((), fresh=True, wave=1)),
        Route(Batch(tuple(Unsubscribe(key) for key in range(PORTION)), wave=3)),
        Facts(tuple(Fact("b1", version, "o/d", (), "x = 1") for version in range(100))),
    ],
    ids=["ping", "join", "empty", "many", "facts"],
)
def test_what_fits_goes_as_it_is(message: Message) -> None:
    assert list(portions(message)) == [message]


@given(st.integers(9, 60), st.booleans(), st.none() | st.integers(0, 9), st.integers(50, 500))
def test_a_table_in_portions_is_the_table(
    count: int, fresh: bool, wave: int | None, most: int
) -> None:
    requests = tuple(subscribe(key) for key in range(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portions_module, "PORTION_BYTES", most)
        found = batches(Route(Batch(requests, fresh, wave)))
    assert sum((each.requests for each in found), ()) == requests
    assert [each.fresh for each in found] == [fresh] + [False] * (len(found) - 1)
    assert [each.wave for each in found] == [None] * (len(found) - 1) + [wave]
    assert len(found) > 1
    assert all(len(each.requests) == 1 or encoded(Route(each)) < most + 100 for each in found)


@pytest.mark.parametrize(
    ("requests", "count"), [(PORTION - 1, 1), (PORTION, 1), (PORTION + 1, 2), (3 * PORTION, 3)]
)
def test_a_portion_has_so_many_requests(requests: int, count: int) -> None:
    batch = Batch(tuple(Unsubscribe(key) for key in range(requests)), fresh=True, wave=3)
    found = batches(Route(batch))
    assert len(found) == count
    assert sum((each.requests for each in found), ()) == batch.requests
    flood = Route(Flood("b1", batch.requests, fresh=True, wave=3))
    floods = [each.control for each in portions(flood) if isinstance(each, Route)]
    assert [each.requests for each in found] == [
        each.requests for each in floods if isinstance(each, Flood)
    ]
    assert [(each.fresh, each.wave) for each in found] == [
        (each.fresh, each.wave) for each in floods if isinstance(each, Flood)
    ]


def test_parts_of_a_flood_that_is_numbered_say_whether_more_comes() -> None:
    requests = tuple(Unsubscribe(key) for key in range(600))
    flood = Route(Flood("b1", requests, fresh=True, wave=3, version=7))
    parts = [part.control for part in portions(flood) if isinstance(part, Route)]
    assert all(isinstance(part, Flood) for part in parts)
    told = [(p.version, p.fresh, p.wave, p.more) for p in parts if isinstance(p, Flood)]
    assert told == [(7, True, None, True), (7, False, None, True), (7, False, 3, False)]
    assert sum((p.requests for p in parts if isinstance(p, Flood)), ()) == requests
    first, *_ = (p for p in parts if isinstance(p, Flood))
    again = [part.control for part in cut(first, most=100)]
    assert [p.more for p in again if isinstance(p, Flood)] == [True] * 3, "a part of a part"


@pytest.mark.parametrize(("beyond", "count"), [(-1, 2), (0, 1), (1, 1)])
def test_a_portion_is_full_at_its_limit(
    beyond: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tuple(Fact("b1", 1, f"o/{number:04}", (), "x = 1") for number in range(9))
    size = sum(len(portions_module._encoder.encode(each)) for each in facts)
    monkeypatch.setattr(portions_module, "PORTION_BYTES", size + beyond)
    assert len(list(portions(Facts(facts)))) == count


def test_filters_that_take_long_to_read_go_a_few_at_a_time() -> None:
    """A frame is read at once: a table of such filters held a neighbour for seconds."""
    costly = " AND ".join(f"(a{each} = 1 OR b{each} = 1)" for each in range(7))
    text = str(parse_filter(costly))
    subscribed = tuple(subscribe(key, costly) for key in range(20))
    subscribed += tuple(Unsubscribe(key) for key in range(20))
    claimed = tuple(Fact("b1", key, f"o/{key}", (), text) for key in range(20))
    for found in (
        list(portions(Route(Batch(subscribed)))),
        list(portions(Route(Flood("b1", subscribed)))),
        list(portions(Facts(claimed))),
    ):
        assert len(found) >= 20
        assert max(map(encoded, found)) < PORTION_BYTES + 1_000


def test_what_is_larger_by_itself_goes_alone() -> None:
    longest = "s IN (" + ", ".join(f"'{number:03}{'é' * 800}'" for number in range(300)) + ")"
    requests = tuple(subscribe(key, longest) for key in range(3))
    assert encoded(Route(Batch(requests[:1]))) > PORTION_BYTES
    assert [each.requests for each in batches(Route(Batch(requests)))] == [
        (each,) for each in requests
    ]


def test_a_neighbour_gets_tables_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions_module, "PORTION_BYTES", 200)
    world = world_of(2, settings=QUICK)
    listener, publisher = world.client("l", "b2"), world.client("p", "b1")
    for number in range(50):
        listener.subscribe(f"x = {number}", durable=f"d{number}" if number % 2 else "")
    world.run(1.0)
    world.kill("b1")
    world.run(1.0)
    world.start("b1")
    world.run(5.0)
    for number in range(50):
        publisher.publish({"x": number}, durable=True)
    world.run(2.0)
    assert sorted(heard(listener)) == list(range(50))


@pytest.mark.parametrize(("more", "parts"), [(-1, 1), (0, 1), (1, 2)])
def test_so_many_facts_go_at_a_time(more: int, parts: int) -> None:
    facts = tuple(Fact("b1", number, "o/d") for number in range(PORTION_FACTS + more))
    found = list(portions(Facts(facts)))
    assert len(found) == parts
    assert sum((each.facts for each in found if isinstance(each, Facts)), ()) == facts


def test_a_subscription_counts_its_filter_and_its_values() -> None:
    plain = chars_together(messages.Subscribe(1, 1, "x = :y"))
    assert plain == 6
    for value in ("é" * 30, b"z" * 30):
        assert chars_together(messages.Subscribe(1, 1, "x = :y", {"y": value})) == plain + 30
    numbers = messages.Subscribe(1, 1, "x = :y", {"y": 5, "z": 2.5})
    assert plain < chars_together(numbers) < TOGETHER_CHARS


@pytest.mark.parametrize("values", [{"y": [1, 2]}, {"y": (1,)}, {"y": {}}])
def test_a_subscription_with_a_collection_goes_by_itself(values: dict[str, object]) -> None:
    assert chars_together(messages.Subscribe(1, 1, "x IN :y", values)) > TOGETHER_CHARS


@pytest.mark.parametrize("kind", [Resume, Returned])
@pytest.mark.parametrize("count", [0, 1, MOST_HELD - 1, MOST_HELD, MOST_HELD + 1, 3 * MOST_HELD])
def test_what_a_monitor_holds_back_goes_in_parts(kind: Any, count: int) -> None:
    held = tuple(Occurrence(NOON, "p", seq, {"x": seq}) for seq in range(count))
    whole = Route(kind(7, AssemblyProgress((), held)))
    *parts, last = list(portions(whole))
    assert len(parts) == max(0, count - 1) // MOST_HELD
    found: list[Occurrence] = []
    for each in parts:
        assert isinstance(each, Route)
        assert isinstance(each.control, HeldBack)
        assert (each.control.key, each.control.is_back) == (7, kind is Returned)
        found += each.control.events
    assert isinstance(last, Route)
    assert isinstance(last.control, kind)
    assert (*found, *last.control.progress.held) == held


def test_more_events_held_back_are_refused_before_they_are_read() -> None:
    for count in (MOST_HELD, MOST_HELD + 1):
        held = tuple(Occurrence(NOON, "p", seq, {}) for seq in range(count))
        frame = b"".join(Encoder().encode(Route(HeldBack(7, held, is_back=True))))
        if count == MOST_HELD:
            assert len(list(Decoder("peer").feed(frame))) == 1
        else:
            with pytest.raises(IllegalMessage, match="length"):
                list(Decoder("peer").feed(frame))
