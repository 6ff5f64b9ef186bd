"""The routers' own selector against the reference engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palio.matching.index import Index
from palio.matching.protocol import Matcher
from palio.matching.reference import Reference
from palio.model.events import to_batches
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.model.values import Value
from palio.routing.acyclic import Acyclic
from palio.routing.messages import Batch, Subscribe, Update
from palio.routing.protocol import Matching, Selector
from palio.routing.reference_selector import ReferenceSelector
from palio.simulation import Randomness
from tests.conftest import seeds
from tests.routing.helpers import ALICE, BOB, attached, parse
from tests.routing.scenarios import random_event, random_filter


@pytest.mark.parametrize("seed", seeds(5, nightly=500))
def test_rows_selects_what_the_filters_match(seed: int) -> None:
    random = Randomness(seed)
    rows = ReferenceSelector()
    known: dict[int, tuple[Filter, dict[str, Value]]] = {}
    for key in range(30):
        values: dict[str, Value] = {}
        filter = random_filter(random, values)
        known[key] = (filter, values)
        rows.add(key, filter, values, destination=key % 4)
    for key in random.sample(sorted(known), 10):
        rows.remove(key)
        del known[key]
    for key in random.sample(sorted(known), 5):
        known[key][1].update(dict.fromkeys(known[key][1], 3))
        rows.bind(key, known[key][1], known[key][0].bind(known[key][1]))
    events = RowParcel("p", [random_event(random) for _ in range(random.between(1, 20))])
    expected: dict[int, list[bool]] = {}
    for key, (filter, values) in known.items():
        hits = [filter.matches(row, values) for row in events.rows]
        if any(hits):
            before = expected.get(key % 4, [False] * len(hits))
            expected[key % 4] = [a or b for a, b in zip(before, hits, strict=True)]
    assert {k: mask.tolist() for k, mask in rows.route(events).items()} == expected


def test_nan_null_and_other_kinds_are_outside_every_interval() -> None:
    events = RowParcel("p", [{"a": float("nan")}, {}, {"a": "x"}, {"a": True}, {"a": 1}])
    rows = ReferenceSelector()
    rows.add(1, parse("a < 5"), {}, destination=1)
    rows.add(2, parse("a = 1"), {}, destination=2)
    rows.add(3, parse("a = true"), {}, destination=3)
    assert {k: mask.tolist() for k, mask in rows.route(events).items()} == {
        1: [False, False, False, False, True],
        2: [False, False, False, False, True],
        3: [False, False, False, True, False],
    }


@pytest.mark.parametrize("engine", [Reference, Index], ids=["reference", "index"])
def test_an_engine_of_the_matching_room_may_take_its_place(
    engine: Callable[[], Matcher],
) -> None:
    broker = attached(Acyclic("b1", lambda: Matching(engine())), ALICE, BOB)
    broker.receive(ALICE, Batch((Subscribe(0, parse("a < :x"), {"x": 3}),)))
    broker.receive(ALICE, Batch((Update(0, {"x": 5}, 1),)))
    (batch,) = to_batches([{"a": 4}, {"a": 5}])
    found = broker.route(BOB, Parcel("bob", batch).stamped("bob", 0, 0))
    assert {peer: mask.tolist() for peer, mask in found.items()} == {ALICE: [True, False]}


@pytest.mark.parametrize("seed", seeds(4, nightly=500))
def test_the_index_and_rows_select_the_same_through_any_changes(seed: int) -> None:
    """Filters come, change and go between batches; a batch may be of several shapes."""
    random = Randomness(seed)
    selectors: list[Selector] = [ReferenceSelector(), Matching(Index())]
    known: dict[int, dict[str, Value]] = {}
    filters: dict[int, Filter] = {}
    for key in range(60):
        values: dict[str, Value] = {}
        filter = filters[key] = random_filter(random, values)
        values = {name: values[name] for name in filter.variables}  # one may have vanished in it
        known[key] = values
        for each in selectors:
            each.add(key, filter, values, key % 5)
        if key > 10 and random.chance(0.4):
            gone = random.choice(sorted(known))
            del known[gone]
            for each in selectors:
                each.remove(gone)
        changed = random.choice(sorted(known))
        known[changed].update(dict.fromkeys(known[changed], random.below(8)))
        for each in selectors:
            each.bind(changed, known[changed], filters[changed].bind(known[changed]))
        if key % 6 == 0:
            events = RowParcel("p", [random_event(random) for _ in range(random.between(1, 9))])
            rows, index = (
                {to: mask.tolist() for to, mask in sorted(each.route(events).items())}
                for each in selectors
            )
            assert rows == index
