"""Events and subscriptions drawn at random, and what `Reference` finds in them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import pyarrow as pa

import palio
from palio.matching import Reference
from palio.model import Filter

EVENTS: Final = 1_200

TEXTS: Final = (
    "n < {0}",
    "n BETWEEN {0} AND {1} AND x >= 0.5",
    "x < {0} OR s = 'a'",
    "s LIKE 'A%' AND NOT n = {0}",
    "n IS NULL AND x > {0}",
)


def drawn_events(draw: random.Random) -> pa.Table:
    nan = float("nan")
    return pa.table(
        {
            "id": pa.array(range(EVENTS), pa.int64()),
            "n": pa.array([draw.choice([None, *range(40)]) for _ in range(EVENTS)], pa.int64()),
            "x": pa.array([draw.choice([None, nan, 0.5, 3.0, 20.0]) for _ in range(EVENTS)]),
            "s": pa.array([draw.choice([None, "", "a", "A", "Ab"]) for _ in range(EVENTS)]),
        }
    )


def drawn_subscriptions(draw: random.Random) -> list[dict[str, Any]]:
    found = []
    for number in range(60):
        low, high = sorted(draw.sample(range(40), 2))
        text = draw.choice(TEXTS).format(low, high)
        found.append({"id": number, "filter": text, "subscriber": f"who{number % 7}"})
    return found


def answers(events: pa.Table, rows: list[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    """Each kind of answer as `Reference` has it."""
    oracle = Reference()
    for row in rows:
        filter = palio.parse(row["filter"])
        assert isinstance(filter, Filter)
        oracle.add(row["id"], filter)
    who = {row["id"]: row["subscriber"] for row in rows}
    (batch,) = events.to_batches()
    pairs = [(int(row), int(key)) for row, key in zip(*oracle.match(batch), strict=True)]
    counts = Counter(key for _, key in pairs)
    goes: dict[int, set[str]] = {}
    for event, key in pairs:
        goes.setdefault(event, set()).add(who[key])
    sets = Counter(tuple(sorted(each)) for each in goes.values())
    return {
        "pairs": sorted([row, key, who[key]] for row, key in pairs),
        "any": sorted([row] for row in {row for row, _ in pairs}),
        "count": sorted([key, count] for key, count in counts.items()),
        "route": sorted(map(list, {(row, who[key]) for row, key in pairs})),
        "sets": sorted([list(each), count] for each, count in sets.items()),
    }
