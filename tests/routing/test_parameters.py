"""Parametric subscriptions: one UPD a hop, stopped where nothing changes; coalescing; no gap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given

from palio.language.parsing import parse_advertisement
from palio.matching.index import Index
from palio.model.expressions import Slot, Test, walk
from palio.model.filters import Filter
from palio.routing.acyclic import Acyclic
from palio.routing.messages import (
    Advertise,
    Batch,
    Cancel,
    Request,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.routing.parameters import WaitingBatch, changes, lift
from palio.routing.protocol import IllegalMessage, Matching, Peer, Selector
from palio.routing.reference_selector import ReferenceSelector
from palio.simulation import Randomness, line
from palio_studies.parametric_runs import SteadyWork
from palio_studies.simulator import Network
from tests.routing.helpers import ALICE, BOB, ONE, TWO, ask, attached, parse, said
from tests.strategies import filters


def coalesce(first: Batch, second: Batch) -> Batch | None:
    """One batch with the effect of two in a row; None if they must stay two."""
    waiting = WaitingBatch()
    return waiting.batch if waiting.add(first) and waiting.add(second) else None


def broker_with(*peers: Peer) -> Acyclic:
    return attached(Acyclic("b1"), *peers)


def test_example_of_parametric_4_2() -> None:
    """Fig. 4 and 7: price < 10 goes on, price < 5 does not; a change is one UPD."""
    broker = broker_with(ALICE, BOB, ONE)
    assert said(ask(broker, ALICE, Subscribe(0, parse("price < :x"), {"x": 10}))) == [
        ("s1", "Subscribe")
    ]
    assert ask(broker, BOB, Subscribe(0, parse("price < :y"), {"y": 5})) == []
    (send,) = ask(broker, ALICE, Update(0, {"x": 30}, 1))
    assert send.message == Batch((Update(0, {"0": 30}, 1),))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Update(3, {"x": 1}, 1), "key 3, which is not subscribed"),
        (Update(0, {"y": 1}, 1), "has no :y"),
        (Update(0, {"x": "text"}, 1), "price"),
        (Update(0, {"0": 1}, 1), "has no :0"),
    ],
)
def test_an_illegal_update_changes_nothing(request_: Update, reason: str) -> None:
    broker = broker_with(ALICE, ONE)
    ask(broker, ALICE, Subscribe(0, parse("price < :x AND price > 1"), {"x": 10}))
    if reason == "price":  # a string bound is a filter that matches nothing, not an error
        assert said(ask(broker, ALICE, request_)) != []
        return
    with pytest.raises(IllegalMessage, match=reason):
        ask(broker, ALICE, Update(0, {"x": 11}, 1), request_)
    (kept,) = broker.subscriptions.table.nodes
    assert str(kept) == "price < 10 AND price > 1"


@given(filters())
def test_lifting_and_filling_give_any_filter_back(filter: Filter) -> None:
    lifted = lift(filter)
    assert lifted.filled({}) == filter
    assert all(each.name in lifted.names for each in slots_of(lifted.skeleton))


def slots_of(filter: Filter) -> list[Slot]:
    return [
        node
        for each in filter.conjunctions
        for residual in each.residuals
        if isinstance(residual.condition, Test)
        for node in walk(residual.condition)
        if isinstance(node, Slot)
    ]


EXPRESSIONS: Final = [
    "p > q * :x",
    "p - q < :x",
    "ABS(p) < :x",
    "p * 2 < :x",
    "LENGTH(s) > :x",
    "LENGTH(s) > :x + 1 AND LOWER(s) = :word",
    "(p - :x) * (p - :x) + (q - :y) * (q - :y) < 2",
    "SQRT((p - :x) * (p - :x) + (q - :y) * (q - :y)) < :y",
    "ABS(p - :x) < 2 OR q > :y",
    "CONCAT(s, :word) = 'xx' AND p < :y",
    "NOT p % 3 = q - :x",
]


def some_values(random: Randomness, *numbers: float) -> dict[str, Any]:
    return {
        "x": random.choice(numbers),
        "y": random.choice(numbers),
        "word": random.choice(["x", "xy", ""]),
    }


def chosen(filter: Filter, values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in filter.variables}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_change_within_an_expression_is_one_update_with_the_effect_of_the_text(text: str) -> None:
    """What the next broker makes of it is what it would have read."""
    random = Randomness(1)
    filter = parse(text)
    here, there = broker_with(ALICE, ONE), broker_with(ONE)
    values = chosen(filter, some_values(random, 3, 4, 5))
    for send in ask(here, ALICE, Subscribe(0, filter, values)):
        there.receive(ONE, send.message)
    for version in range(1, 40):
        values = chosen(filter, some_values(random, 3, 4.5, 5, -7, 0.5, 0, 1, 1.0))
        before = list(there.subscriptions.table.nodes)
        sends = ask(here, ALICE, Update(0, values, version))
        after = [parse(str(filter.bind(values)))]
        assert said(sends) == [("s1", "Update")] * (before != after)
        for send in sends:
            there.receive(ONE, send.message)
        assert list(there.subscriptions.table.nodes) == after
        assert list(here.subscriptions.table.nodes) == after


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("engine", [ReferenceSelector, lambda: Matching(Index())])
def test_expressions_that_change_hear_what_their_text_says(
    text: str, engine: Callable[[], Selector]
) -> None:
    """Over three brokers: what matches at any time since is heard, nothing else is."""
    random = Randomness(2)
    filter = parse(text)
    network = Network.of(line(3), lambda name: Acyclic(name, engine), seed=1)
    subscriber, publisher = network.client("s", "b1"), network.client("p", "b3")
    values = chosen(filter, some_values(random, 1, 2))
    key = subscriber.subscribe(text, values)
    network.run()
    before, wanted = network.costs.subscribes, []
    for _ in range(30):
        values = chosen(filter, some_values(random, 0, 1, 2, 1.5))
        subscriber.update(key, **values)
        network.run()
        for _ in range(4):
            event = {
                "p": random.below(5) - 2,
                "q": random.below(4),
                "s": random.choice(["x", "XY"]),
            }
            publisher.publish(event)
            if filter.matches(event, values):
                wanted.append(event)
        network.run()
    assert [each.event for each in subscriber.received] == wanted
    assert wanted
    assert (network.costs.subscribes, network.costs.unsubscribes) == (before, 0)


def test_changes_are_told_apart_by_type() -> None:
    assert changes(parse("p > q * 2"), parse("p > q * 2.0")) == {"0": 2.0}
    assert changes(parse("COALESCE(p, q) = 1"), parse("COALESCE(p, q) = TRUE")) is None
    assert changes(parse("a = 1"), parse("a = true")) is None
    assert changes(parse("a IN (1, 2)"), parse("a IN (1, 3, 4)")) == {"0": (1, 3, 4)}
    assert changes(parse("a < 1"), parse("a <= 1")) is None


def test_coalescing_leaves_the_effect() -> None:
    """Random batches, one by one and coalesced, leave a broker in the same state."""
    for seed in range(60):
        random = Randomness(seed)
        shapes = [parse("a < 1 AND b > 2"), parse("a = 3"), parse("c >= 0")]
        known: dict[int, int] = {}
        versions: dict[int, int] = {}
        batches = []
        for _ in range(6):
            requests: list[Request] = []
            for _ in range(random.between(0, 4)):
                key = random.below(4)
                if key not in known or random.chance(0.3):
                    known[key] = random.below(3)
                    versions[key] = 0
                    requests.append(Subscribe(key, shapes[known[key]]))
                elif random.chance(0.3):
                    del known[key]
                    requests.append(Unsubscribe(key))
                else:
                    versions[key] += 1
                    requests.append(Update(key, {"0": random.below(9)}, versions[key]))
            batches.append(Batch(tuple(requests)))
        plain, joined = broker_with(ONE, TWO), broker_with(ONE, TWO)
        whole = batches[0]
        for batch in batches:
            plain.receive(ONE, batch)
        for batch in batches[1:]:
            both = coalesce(whole, batch)
            assert both is not None
            whole = both
        joined.receive(ONE, whole)
        assert len(whole.requests) <= 4
        assert set(plain.subscriptions.table.nodes) == set(joined.subscriptions.table.nodes)


def test_what_may_not_be_joined_is_not() -> None:
    waved = Batch((), wave=1)
    assert coalesce(waved, Batch((), wave=2)) is None
    assert coalesce(Batch((Cancel(parse("a = 1")),)), Batch(())) is None
    assert coalesce(waved, Batch((Unsubscribe(1),), fresh=True)) == Batch(
        (Unsubscribe(1),), fresh=True, wave=1
    )
    both = coalesce(
        Batch((Subscribe(0, parse("a = 1")),)), Batch((Advertise(0, parse_advertisement("b = 1")),))
    )
    assert both is not None
    assert len(both.requests) == 2
    assert coalesce(both, Batch((Unadvertise(0),))) is not None


@pytest.mark.parametrize(("count", "fits"), [(9, True), (10, True), (11, False)])
def test_a_batch_that_waits_is_full_at_its_room(count: int, fits: bool) -> None:
    waiting = WaitingBatch(10, lambda _: 1)
    assert waiting.add(Batch(tuple(Unsubscribe(key) for key in range(9))))
    before = waiting.batch
    assert waiting.add(Batch((Unsubscribe(0), *(Unsubscribe(key) for key in range(9, count))))) == (
        fits
    )
    assert (len(waiting.batch.requests) == count) if fits else (waiting.batch == before)
    assert waiting.add(Batch((Unsubscribe(1),), fresh=True))  # in the place of all before it
    assert waiting.batch == Batch((Unsubscribe(1),), fresh=True)
    assert waiting.add(Batch(tuple(Unsubscribe(key) for key in range(2, 11)), wave=3))
    assert (len(waiting.batch.requests), waiting.batch.fresh, waiting.batch.wave) == (10, True, 3)


def test_a_busy_broker_passes_on_only_the_last_of_many_updates() -> None:
    network = Network.of(line(2), Acyclic, seed=1, service=SteadyWork(10_000, 10, lines=1))
    subscriber, publisher = network.client("s", "b1"), network.client("p", "b2")
    key = subscriber.subscribe("price < :x", {"x": 0})
    network.run()
    for value in range(1, 101):
        network.after(value * 0.5, partial(subscriber.update, key, x=value))
    network.run()
    assert network.costs.updates < 15
    publisher.publish({"price": 99.5})
    network.run()
    assert len(subscriber.received) == 1
