"""The pattern layer of single brokers and of small networks: who is told what, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

import palio
from palio.errors import InvalidEvent, InvalidInput
from palio.language.parsing import parse_advertisement
from palio.model.patterns import Monitor, Occurrence, Pattern, place_of
from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.messages import Advertise, Batch, Unadvertise
from palio.routing.patterns import reading as reading_room
from palio.routing.patterns import unread as unread_room
from palio.routing.patterns.messages import (
    AssemblyProgress,
    CancelPattern,
    Composite,
    HeldBack,
    PatternControl,
    Ready,
    Recall,
    Resume,
    Returned,
    SubscribePattern,
    TooLate,
    UnsubscribePattern,
)
from palio.routing.patterns.router import Patterned
from palio.routing.protocol import IllegalMessage, Peer, Send
from palio.simulation import Randomness, Topology, line, tree
from palio_studies.simulator import Client, Link, Network
from tests.routing.helpers import ALICE, BOB, ONE, THREE, TWO

ALARMS: Final = parse_advertisement("alarm IS NOT NULL AND attempts IS NOT NULL")
FILES: Final = parse_advertisement("file IS NOT NULL AND operation IS NOT NULL")
ALL: Final = parse_advertisement("a IS NOT NULL AND b IS NOT NULL AND c IS NOT NULL")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW: Final = timedelta(milliseconds=500)


def pattern(text: str) -> Pattern:
    found = palio.parse(text)
    assert isinstance(found, Pattern)
    return found


LOGIN: Final = "alarm = 'failed login' AND attempts > 3"
PASSWD: Final = "file = '/etc/passwd' AND operation = 'change'"
BREAK_IN: Final = pattern(f"{LOGIN} THEN {LOGIN} THEN {PASSWD}")
AB: Final = pattern("a = 1 THEN b = 2")


def broker_with(*peers: Peer) -> Patterned:
    broker = Patterned("s0", window=WINDOW)
    for peer in peers:
        broker.attach(peer)
        if not peer.is_client:
            broker.receive(peer, Batch((), fresh=True))
    return broker


def offer(broker: Patterned, peer: Peer, *filters: Any) -> list[Send]:
    return broker.receive(
        peer, Batch(tuple(Advertise(key, each) for key, each in enumerate(filters)))
    )


def wish(broker: Patterned, peer: Peer, wanted: Pattern, key: int = 0) -> list[Send]:
    return broker.receive(peer, SubscribePattern(key, wanted))


def said(sends: list[Send]) -> list[tuple[str, str]]:
    """Who is told what, in short; advertisements left out."""
    found = []
    for peer, message in sends:
        if isinstance(message, Batch):
            found += [
                (peer.name, type(each).__name__)
                for each in message.requests
                if not isinstance(each, Advertise | Unadvertise)
            ]
        else:
            found.append((peer.name, type(message).__name__))
    return found


def at(seconds: float, **event: Any) -> dict[str, Any]:
    return {**event, "$time": START + timedelta(seconds=seconds)}


def publish(broker: Patterned, peer: Peer, *rows: dict[str, Any], seq: int = 0) -> None:
    broker.route(peer, RowParcel("p", rows, seq))


# --- factoring and delegation ---


def test_the_papers_example_is_factored_as_there_and_assembled_here() -> None:
    """siena 5.4: two failed logins come from one server, the changed file from another."""
    broker = broker_with(ALICE, TWO, THREE)
    offer(broker, TWO, ALARMS)
    offer(broker, THREE, FILES)
    sends = wish(broker, ALICE, BREAK_IN)
    assert [
        (len(each.steps), each.only_provider)
        for each in broker.delegation.providers.factors(broker.subscriptions[0])
    ] == [
        (2, TWO),
        (1, THREE),
    ]
    assert said(sends) == [("s2", "Subscribe"), ("s3", "Subscribe")]


# --- assembling and time ---


def composites(sends: list[Send]) -> list[tuple[int, ...]]:
    return [
        tuple(part.seq for part in message.parts)
        for _, message in sends
        if isinstance(message, Composite)
    ]


def assembler() -> Patterned:
    broker = broker_with(ALICE, BOB)
    offer(broker, BOB, ALL)
    wish(broker, ALICE, AB)
    return broker


def test_an_occurrence_is_told_when_the_window_has_passed() -> None:
    broker = assembler()
    publish(broker, BOB, at(0, a=1), at(1, b=2))
    assert broker.wake == START + WINDOW
    assert broker.advance(START + WINDOW) == []
    end = START + timedelta(seconds=1) + WINDOW
    assert broker.wake == end
    assert broker.advance(end - timedelta(microseconds=1)) == []
    assert composites(broker.advance(end)) == [(0, 1)]
    assert broker.wake is None


def test_alarms_do_not_pile_up_where_events_never_end() -> None:
    broker = assembler()
    for second in range(200):  # always something held back, and then something before it
        publish(broker, BOB, at(second + 1, a=1), seq=2 * second + 2)
        broker.advance(START + timedelta(seconds=second) + WINDOW)
        publish(broker, BOB, at(second + 0.5, b=2), seq=2 * second + 1)
        broker.advance(START + timedelta(seconds=second + 0.5) + WINDOW)
        assert len(broker.delegation.scheduler.times) <= 2


def test_an_event_later_than_the_window_takes_no_part_and_is_counted() -> None:
    broker = assembler()
    publish(broker, BOB, at(0.4, b=2), seq=1)
    broker.advance(START + timedelta(seconds=1))
    publish(broker, BOB, at(0, a=1))
    publish(broker, BOB, at(1, b=2), seq=2)
    sends = broker.advance(START + timedelta(seconds=9))
    assert sends == [Send(ALICE, TooLate(0, "p", 0, 0, 1))]
    assert broker.advance(START + timedelta(seconds=99)) == []  # it is told once
    assert broker.late == 1
    broker.receive(ALICE, UnsubscribePattern(0))
    assert broker.late == 1


def test_an_event_without_a_time_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"no \$time"):
        publish(assembler(), BOB, {"a": 1})


def test_a_window_is_not_negative() -> None:
    with pytest.raises(InvalidInput, match="not negative"):
        Patterned("s0", window=timedelta(seconds=-1))


def test_patterns_need_advertisements() -> None:
    with pytest.raises(InvalidInput, match="General over it"):
        Patterned("s0", partial(General, inner=Acyclic))
    network = Network.of(line(2), Acyclic, seed=1)
    with pytest.raises(InvalidInput, match="matches no patterns"):
        network.client("alice", "b1").subscribe_pattern("a = 1 THEN b = 2")


def test_values_are_bound_where_the_pattern_is_subscribed() -> None:
    broker = broker_with(ALICE, ONE)
    offer(broker, ONE, ALL)
    wanted = SubscribePattern(0, pattern("a = :x THEN b = 2"), {"x": 1})
    (send,) = broker.receive(ALICE, wanted)
    assert send.message == SubscribePattern(0, AB)


# --- giving up ---


@pytest.mark.parametrize(
    ("wide", "ended"),
    [
        ("a = 1 THEN b = 2", ["a = 1 THEN b = 2", "a = 1 THEN b = 2 WITHIN 1s"]),
        ("a > 0 THEN b > 0", ["a = 1 THEN b = 2", "a = 1 THEN b = 2 WITHIN 1s"]),
        ("a = 1 THEN b = 2 WITHIN 1s", ["a = 1 THEN b = 2 WITHIN 1s"]),
        ("b > 0 THEN a > 0", []),
        ("a > 0 THEN b > 0 THEN c > 0", ["a = 1 THEN b = 2 THEN c = 3"]),
    ],
)
def test_cancelling_ends_what_is_covered_position_by_position(wide: str, ended: list[str]) -> None:
    texts = ["a = 1 THEN b = 2", "a = 1 THEN b = 2 WITHIN 1s", "a = 1 THEN b = 2 THEN c = 3"]
    broker = broker_with(ALICE, BOB)
    for key, text in enumerate(texts):
        wish(broker, ALICE, pattern(text), key)
    wish(broker, BOB, AB)
    broker.receive(ALICE, CancelPattern(pattern(wide)))
    left = [str(each.pattern) for each in broker.subscriptions]
    assert left == [each for each in texts if each not in ended] + [str(AB)]


# --- what is illegal changes nothing ---

TAKEN: Final = (Occurrence(START, "p", 0, {"a": 1}),)
PLACE: Final = (START, "p", 0)


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        (Peer.client("eve"), SubscribePattern(0, AB), "not attached"),
        (ALICE, SubscribePattern(5, AB, running=True), "only a broker"),
        (ALICE, SubscribePattern(5, pattern("a = :x THEN b = 2")), "x"),
        (TWO, CancelPattern(AB), "for clients"),
        (TWO, Resume(0, AssemblyProgress()), "not awaited"),
        (TWO, Recall(0), "not delegated"),
        (ALICE, Recall(0), "not delegated"),
        (ALICE, Ready(0), "never delegated"),
        (ONE, Ready(9), "never delegated"),
        (ONE, Ready(-1), "never delegated"),
        (ONE, Ready(0), "out of turn"),
        (ONE, Returned(0, AssemblyProgress()), "out of turn"),
        (TWO, Composite(0, TAKEN), "out of turn"),
        (ONE, Composite(0, TAKEN), "does not occur"),
        (THREE, Recall(1), "out of turn"),
        (THREE, Resume(1, AssemblyProgress(taken=TAKEN)), "comes to such a state"),
        (
            THREE,
            Resume(1, AssemblyProgress((*TAKEN, *TAKEN), after=PLACE)),
            "comes to such a state",
        ),
    ],
)
def test_an_illegal_message_is_refused_and_changes_nothing(
    sender: Peer, message: PatternControl, reason: str
) -> None:
    broker = broker_with(ALICE, ONE, TWO, THREE)
    offer(broker, ONE, ALL)
    wish(broker, ALICE, AB)
    broker.receive(THREE, SubscribePattern(1, AB, running=True))
    before = [(each.number, each.stage, each.provider) for each in broker.subscriptions]
    with pytest.raises(IllegalMessage, match=reason):
        broker.receive(sender, message)
    assert [(each.number, each.stage, each.provider) for each in broker.subscriptions] == before


def test_a_pattern_is_recalled_once() -> None:
    broker = broker_with(ONE, TWO)
    offer(broker, TWO, ALL)
    wish(broker, ONE, AB)
    broker.receive(ONE, Recall(0))
    with pytest.raises(IllegalMessage, match="out of turn"):
        broker.receive(ONE, Recall(0))


def test_what_a_neighbour_was_too_late_for_is_passed_on() -> None:
    broker = broker_with(ONE, TWO)
    offer(broker, TWO, ALL)
    wish(broker, ONE, AB, key=7)
    assert broker.receive(TWO, TooLate(0, "p", 3, 5, 2)) == [Send(ONE, TooLate(7, "p", 3, 5, 2))]


def test_events_held_back_may_come_in_several_messages() -> None:
    """Ahead of `Resume` to who takes over, and of `Returned` to who takes back or passes on."""
    events = tuple(Occurrence(at(n)["$time"], "p", n, at(n, a=1, b=2)) for n in range(4))
    broker = broker_with(ALICE, ONE, TWO, THREE)
    offer(broker, ONE, ALL)
    broker.receive(THREE, SubscribePattern(1, AB, running=True))
    for part in (events[:2], events[2:3]):
        assert broker.receive(THREE, HeldBack(1, part, is_back=False)) == []
    broker.receive(THREE, Resume(1, AssemblyProgress(held=events[3:])))
    broker.receive(ONE, Ready(0))  # it goes on to the provider, with all that is held back
    passing = broker_with(ONE, TWO)
    offer(passing, TWO, ALL)
    wish(passing, ONE, AB, key=7)
    passing.receive(ONE, Recall(7))
    passing.receive(TWO, HeldBack(0, events[:2], is_back=True))
    (send,) = passing.receive(TWO, Returned(0, AssemblyProgress(held=events[2:])))
    assert send == Send(ONE, Returned(7, AssemblyProgress(held=events)))
    with pytest.raises(IllegalMessage, match="not awaited"):
        passing.receive(ONE, HeldBack(7, events, is_back=False))
    assert passing.receive(TWO, HeldBack(0, events, is_back=True)) == []  # it was given up


# --- networks ---


def network_of(topology: Topology, *, graph: bool = False) -> Network:
    inner = partial(General, inner=Advertised) if graph else Advertised
    network = Network.of(
        topology, partial(Patterned, inner=inner, window=WINDOW), seed=1, link=Link(latency_ms=10)
    )
    network.run()
    return network


def numbers(client: Client) -> list[tuple[tuple[str, int], ...]]:
    return [tuple((part.publisher, part.seq) for part in each.parts) for each in client.found]


def test_parts_stay_at_the_source_and_one_composite_travels() -> None:
    network = network_of(line(4))
    alice, bob = network.client("alice", "b1"), network.client("bob", "b4")
    bob.advertise(ALL)
    alice.subscribe_pattern("a = 1 THEN b = 2 THEN c = 3")
    network.run()
    for event in ({"a": 1}, {"a": 1}, {"c": 3}, {"b": 2}, {"b": 2}, {"a": 5}, {"c": 3}):
        bob.publish(event)
        network.run()
    assert numbers(alice) == [(("bob", 0), ("bob", 3), ("bob", 6))]
    assert network.costs.notifications == 3  # one composite on each of three links
    assert network.costs.subscribes == 3
    assert network.costs.stray == 0


def crossings(*, delegated: bool) -> tuple[int, int]:
    """What crosses links: ten subscribers in a tree of 31, 1,000 events of one publisher."""
    network = Network.of(tree(31), Patterned, seed=1)
    random = Randomness(5)
    publisher = network.client("publisher", "b31")
    publisher.advertise("topic IS NOT NULL AND value IS NOT NULL")
    subscribers = [network.client(f"s{n}", random.choice(list(network.routers))) for n in range(10)]
    network.run()
    for n, subscriber in enumerate(subscribers):
        steps = (
            f"topic = {n} AND value > 5",
            f"topic = {n} AND value < 3",
            f"topic = {(n + 1) % 10} AND value > 7",
        )
        if delegated:
            subscriber.subscribe_pattern(" THEN ".join(steps))
        else:
            for step in steps:
                subscriber.subscribe(step)
    network.run()
    for _ in range(1000):
        publisher.publish({"topic": random.below(10), "value": random.below(10)})
    network.run()
    return network.costs.subscribes, network.costs.notifications


def test_delegation_saves_what_docs_say() -> None:
    assert crossings(delegated=True) == (52, 433)
    assert crossings(delegated=False) == (123, 3811)


def test_an_event_that_no_monitor_needs_crosses_no_link() -> None:
    network = network_of(line(3))
    alice, bob, carol = (network.client(name, at) for name, at in
                         (("alice", "b1"), ("bob", "b3"), ("carol", "b1")))  # fmt: skip
    bob.advertise(ALL)
    carol.advertise(ALL)
    alice.subscribe_pattern("a = 1 THEN b = 2")
    network.run()
    bob.publish({"a": 5}, {"c": 3})
    network.run()
    assert network.costs.notifications == 0
    bob.publish({"a": 1})
    carol.publish({"b": 2})
    network.run()
    assert network.costs.notifications == 2
    assert numbers(alice) == [(("bob", 2), ("carol", 0))]


# --- what concatenated sub-monitors would lose ---


def papers_rule(whole: Pattern, at: int, events: list[Occurrence]) -> list[tuple[int, ...]]:
    """Sub-monitors for the first `at` steps and for the rest, each starting over on its own."""

    def sub(steps: Any) -> list[tuple[Occurrence, ...]]:
        if len(steps) > 1:
            return Monitor(Pattern(steps)).push(events)
        return [(each,) for each in events if steps[0].matches(each.event)]

    found, end = [], None
    heads, tails = sub(whole.steps[:at]), sub(whole.steps[at:])
    for head in heads:
        if end is not None and place_of(head[0]) <= end:
            continue
        later = [tail for tail in tails if place_of(tail[0]) > place_of(head[-1])]
        if later:
            found.append(tuple(each.seq for each in (*head, *later[0])))
            end = place_of(later[0][-1])
    return found


@pytest.mark.parametrize(
    ("at", "rows", "right", "theirs"),
    [
        # The tail's monitor begins with a b from before the a; the only whole match is lost.
        (1, [{"b": 2}, {"a": 1}, {"b": 2}, {"c": 3}], [(1, 2, 3)], []),
        # The head's monitor takes a pair across the end of the first match; the second is lost.
        (2, [{"a": 1}, {"b": 2}, {"a": 1}, {"c": 3}, {"a": 1}, {"b": 2}, {"c": 3}],
         [(0, 1, 3), (4, 5, 6)], [(0, 1, 3)]),
    ],
)  # fmt: skip
def test_concatenated_sub_monitors_are_not_the_sequence(
    at: int, rows: list[dict[str, Any]], right: list[Any], theirs: list[Any]
) -> None:
    whole = pattern("a = 1 THEN b = 2 THEN c = 3")
    events = [Occurrence(START + timedelta(seconds=n), "p", n, row) for n, row in enumerate(rows)]
    reference = Monitor(whole).push(events)
    assert [tuple(each.seq for each in parts) for parts in reference] == right
    assert papers_rule(whole, at, events) == theirs

    network = network_of(line(3))  # the head from one side, the tail from the other
    alice, left, far = (network.client(name, where) for name, where in
                        (("alice", "b2"), ("left", "b1"), ("far", "b3")))  # fmt: skip
    sides = {"a": left, "b": left if at == 2 else far, "c": far}
    for client in (left, far):
        mine = [name for name, side in sides.items() if side is client]
        client.advertise(" AND ".join(f"{name} IS NOT NULL" for name in mine))
    alice.subscribe_pattern(whole)
    network.run()
    for row in rows:
        sides[next(iter(row))].publish(row)
        network.run()
    order = {("left", 0): 0}
    counts = {"left": 0, "far": 0}
    for n, row in enumerate(rows):
        side = sides[next(iter(row))].name
        order[side, counts[side]] = n
        counts[side] += 1
    assert [tuple(order[part] for part in parts) for parts in numbers(alice)] == right


def ticks(first: int, count: int) -> RowParcel:
    """Events of a publisher, a millisecond apart."""
    return RowParcel(
        "p",
        [
            {"a": n % 7, "$seq": n, "$time": START + timedelta(milliseconds=n)}
            for n in range(first, first + count)
        ],
        first,
    )


@pytest.mark.parametrize("step", [1, 13, 400])
def test_much_is_read_and_let_go_in_slices(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of one call is bounded, whatever came, and all is found in the end."""
    monkeypatch.setattr(reading_room, "SLICE", 50)
    monkeypatch.setattr(reading_room, "READ_AT_ONCE", 20)
    wishes = {key: pattern(f"a = {key} THEN a = {(key + 3) % 7}") for key in range(5)}
    broker = broker_with(ALICE, BOB)
    offer(broker, BOB, parse_advertisement("a IS NOT NULL"))
    for key, wish in wishes.items():
        broker.receive(ALICE, SubscribePattern(key, wish))
    found: dict[int, list[tuple[int, ...]]] = {key: [] for key in wishes}
    for first in range(0, 800, step):
        broker.route(BOB, ticks(first, min(step, 800 - first)))
    now = START + timedelta(seconds=5)
    calls = 0
    while (wake := broker.wake) is not None and wake <= now:
        before = len(broker.delegation.scheduler.unread) + sum(
            each.assembly.held for each in broker.subscriptions if each.assembly
        )
        for _, message in broker.advance(now):
            assert isinstance(message, Composite)
            found[message.key].append(tuple(part.seq for part in message.parts))
        calls += 1
        assert calls < 2_000
        assert before - sum(
            each.assembly.held for each in broker.subscriptions if each.assembly
        ) <= (len(broker.delegation.scheduler.unread) + 51)
    assert calls > 10
    rows = [Occurrence(row["$time"], "p", row["$seq"], row) for row in ticks(0, 800).rows]
    for key, wish in wishes.items():
        expected = [tuple(part.seq for part in parts) for parts in Monitor(wish).push(rows)]
        assert found[key] == expected
    assert broker.late == 0


def test_what_there_is_no_room_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_room, "MAX_UNREAD", 100)
    broker = broker_with(ALICE, BOB)
    offer(broker, BOB, parse_advertisement("a IS NOT NULL"))
    broker.receive(ALICE, SubscribePattern(3, pattern("a < 9 THEN a = 9")))
    broker.route(BOB, ticks(0, 100))
    broker.route(BOB, ticks(100, 70))
    sends = []
    while broker.wake is not None and broker.wake <= START + timedelta(seconds=9):
        sends += broker.advance(START + timedelta(seconds=9))
    assert sends == [Send(ALICE, TooLate(3, "p", 100, 169, 70))]
    assert broker.late == 70


def test_an_assembly_that_moves_reads_first_what_came_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading_room, "READ_AT_ONCE", 0)
    monkeypatch.setattr(reading_room, "SLICE", 10)
    for count, missed in ((10, 0), (11, 1)):
        broker = broker_with(TWO, BOB)
        offer(broker, BOB, parse_advertisement("a IS NOT NULL"))
        broker.receive(TWO, SubscribePattern(3, pattern("a >= 0 THEN a = 9")))
        broker.route(BOB, ticks(0, 10))
        if count > 10:
            broker.route(BOB, ticks(10, 1))
        answers = [message for _, message in broker.receive(TWO, Recall(3))]
        (returned,) = [each for each in answers if isinstance(each, Returned)]
        held = [e for each in answers if isinstance(each, HeldBack) for e in each.events]
        assert len(held) + len(returned.progress.held) == 10
        told = [each for each in answers if isinstance(each, TooLate)]
        assert sum(each.count for each in told) == missed
        assert not broker.delegation.scheduler.unread
