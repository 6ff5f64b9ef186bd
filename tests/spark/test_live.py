"""The stages over a stream without Spark: micro-batches, watermark and state as Spark has them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable
from decimal import Decimal
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pytest

pytest.importorskip("pandas")

import pandas as pd  # type: ignore[import-untyped]  # it has its types in another package

import palio
from palio.errors import InvalidInput, LimitExceeded
from palio.model import Pattern
from palio.spark import live
from palio.spark.following import Completed, FindSteps, Follow, StepEvent
from palio.spark.live import FollowLive, Hit, HitTypes, KeyState, PackHits, Unpack, pattern_name
from palio.spark.workers import ColumnSlots

INSTANT: Final = pa.timestamp("us", tz="UTC")
START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAMES: Final = ("host", "at", "n", "what")
EVENTS: Final = pa.schema(list(map(pa.field, NAMES, (pa.utf8(), INSTANT, pa.int64(), pa.utf8()))))
TEXTS: Final = {
    1: "what = 'a' THEN what = 'b' WITHIN 30s",
    2: "what = 'a' THEN n > 50 THEN what = 'a' WITHIN 20s",
    3: "n > 90 THEN n < 10 WITHIN 1m",
    4: "what IN ('a', 'b') AND n < 50 THEN what = 'nothing' WITHIN 1h",
}


def patterns(texts: dict[int, str]) -> tuple[Pattern, ...]:
    found = [palio.parse(text) for text in texts.values()]
    return tuple(each for each in found if isinstance(each, Pattern))


class State:
    """Spark's state of a key: the part of `GroupState` that is used."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.wakes: int | None = None
        self.hasTimedOut = False
        self.watermark_ms = 0

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802  # Spark's name
        return self.watermark_ms

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def remove(self) -> None:
        self.value = None

    def setTimeoutTimestamp(self, wakes: int) -> None:  # noqa: N802  # Spark's name
        assert wakes >= self.watermark_ms
        assert wakes > 0
        self.wakes = wakes


class Stream:
    """What Spark does with the three stages."""

    def __init__(self, texts: dict[int, str] = TEXTS, delay_s: float = 0) -> None:
        kept = pa.schema([EVENTS.field(name) for name in ("host", "at", "n", "what")])
        ids, found = tuple(texts), patterns(texts)
        names = tuple(map(pattern_name, ids, found))
        kinds = HitTypes(kept, 1, 0)
        slots = ColumnSlots((("n", 2), ("what", 3)), (0, 1, 2, 3))
        fields: list[Any] = [("k0", pa.utf8()), ("at", INSTANT), ("hit", pa.binary())]
        hits = pa.schema(fields)
        self.find = FindSteps(found, slots, kept)
        self.pack = PackHits(self.find, kinds, names, hits)
        self.follow = FollowLive(found, ids, names, kinds)
        events = pa.list_(pa.struct([EVENTS.field(name) for name in ("at", "n", "what")]))
        columns: list[Any] = [("host", pa.utf8()), ("pattern", pa.int64())]
        columns += [("started", INSTANT), ("ended", INSTANT), ("events", events)]
        self.unpack = Unpack(kinds, pa.schema(columns))
        self.history = Follow(found, ids, 1, 0, self.unpack.schema)
        self.delay = dt.timedelta(seconds=delay_s)
        self.states: dict[Any, State] = {}
        self.watermark_ms = 0
        self.late = 0
        self.found: list[Any] = []

    def take(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """A micro-batch, and the one without data that Spark has follow."""
        rows = list(rows)
        self._batch(rows)
        times = [row[1] for row in rows if row[1] is not None]
        if times:
            newest = (max(times) - self.delay - live.EPOCH) // dt.timedelta(milliseconds=1)
            self.watermark_ms = max(self.watermark_ms, newest)
        self._batch([])

    def _batch(self, rows: list[tuple[Any, ...]]) -> None:
        batch = pa.RecordBatch.from_pylist(
            [dict(zip(EVENTS.names, row, strict=True)) for row in rows], schema=EVENTS
        )
        passed = live.EPOCH + dt.timedelta(milliseconds=self.watermark_ms)
        hits: list[Any] = []
        for each in self.pack(iter([batch])):
            found = each.to_pylist()
            hits += [hit for hit in found if hit["at"] > passed]
            self.late += len(found) - len([hit for hit in found if hit["at"] > passed])
        called = set()
        hits.sort(key=lambda hit: str(hit["k0"]))
        for key, mine in groupby(hits, key=lambda hit: hit["k0"]):
            called.add(key)
            self._call(key, [pd.DataFrame({"hit": [hit["hit"] for hit in mine]})])
        for key, state in list(self.states.items()):
            is_due = state.wakes is not None and state.wakes < self.watermark_ms
            if key not in called and state.exists and is_due:
                self._call(key, [], timed_out=True)

    def _call(self, key: Any, frames: list[Any], *, timed_out: bool = False) -> None:
        state = self.states.setdefault(key, State())
        state.hasTimedOut, state.watermark_ms, state.wakes = timed_out, self.watermark_ms, None
        given: Any = state
        for frame in self.follow((key,), frames, given):
            packed = pa.record_batch({"found": pa.array(list(frame["found"]), pa.binary())})
            for each in self.unpack(iter([packed])):
                self.found += each.to_pylist()

    def of_history(self, rows: list[tuple[Any, ...]]) -> list[Any]:
        """What history finds among the same events."""
        known = sorted((row for row in rows if row[1] is not None), key=lambda row: (
            str(row[0]), row[1], row[2], row[3] is not None, row[3] or ""))  # fmt: skip
        batch = pa.RecordBatch.from_pylist(
            [dict(zip(EVENTS.names, row, strict=True)) for row in known], schema=EVENTS
        )
        schema = pa.schema([*EVENTS, ("pattern", pa.int32()), ("steps", pa.int64())])
        hits = FindSteps(self.find.patterns, self.find.slots, schema)(iter([batch]))
        return [row for each in self.history(hits) for row in each.to_pylist()]


def second(number: float) -> dt.datetime:
    return START + dt.timedelta(seconds=number)


def drawn(rng: random.Random, count: int, seconds: int) -> list[tuple[Any, ...]]:
    hosts, whats = ["h1", "h2", "h3", None], ["a", "b", "c", None]
    return [
        (rng.choice(hosts), second(rng.randrange(seconds * 4) / 4), rng.randrange(100),
         rng.choice(whats))
        for _ in range(count)
    ]  # fmt: skip


END: Final = ("end", second(100_000), 50, "c")
"""After it the watermark has passed all others; it matches no step."""


@pytest.mark.parametrize("delay_s", [0, 20, 1_000])
def test_any_micro_batches_find_what_history_finds(rng: random.Random, delay_s: int) -> None:
    for _ in range(4):
        rows = drawn(rng, 250, 400)
        # No event is later than the delay: each comes before one that is so much newer.
        arrived = sorted(
            rows, key=lambda row: row[1] + dt.timedelta(seconds=delay_s * rng.random())
        )
        stream = Stream(delay_s=delay_s)
        while arrived:
            size = rng.choice([1, 3, 20, 100])
            if delay_s == 0:  # events of one instant are of one micro-batch, or late
                while size < len(arrived) and arrived[size][1] == arrived[size - 1][1]:
                    size += 1
            stream.take([(None, None, 99, "a"), *arrived[:size]])
            del arrived[:size]
        stream.take([END])
        assert stream.late == 0
        assert sorted(map(str, stream.found)) == sorted(map(str, stream.of_history(rows)))
        assert {row["pattern"] for row in stream.found} == {1, 2, 3}


def test_what_is_late_takes_no_part() -> None:
    stream = Stream(delay_s=10)
    stream.take([("h", second(20), 99, None)])
    stream.take([("h", second(9), 99, None), ("h", second(10), 99, None)])
    stream.take([("h", second(11), 95, None), ("h", second(12), 5, None), END])
    assert stream.late == 2
    (row,) = stream.found
    assert [each["n"] for each in row["events"]] == [95, 5]


def test_a_sequence_is_told_when_nothing_earlier_can_come() -> None:
    stream = Stream(delay_s=10)
    stream.take([("h", second(0), 95, None), ("h", second(5), 5, None)])
    stream.take([("other", second(14.999), 50, "c")])
    assert stream.found == []
    stream.take([("other", second(15), 50, "c")])
    assert len(stream.found) == 1


def test_a_key_is_forgotten_when_its_patterns_have_run_out() -> None:
    stream = Stream({1: "what = 'a' THEN what = 'b' WITHIN 30s"})
    stream.take([("h", second(0), 1, "a")])
    stream.take([("other", second(29.999), 1, "c")])
    assert stream.states["h"].exists
    stream.take([("other", second(30), 1, "c")])
    assert not stream.states["h"].exists


def test_the_last_instant_of_within_counts() -> None:
    stream = Stream({1: "what = 'a' THEN what = 'b' WITHIN 30s"})
    stream.take([("h", second(0), 1, "a")])
    stream.take([("h", second(30), 1, "b")])
    assert len(stream.found) == 1
    assert not stream.states["h"].exists


def test_patterns_that_stay_go_on_and_those_that_changed_begin_anew() -> None:
    before = {1: "n = 1 THEN n = 2 WITHIN 1h", 2: "n = 1 THEN n = 3 WITHIN 1h"}
    after = {5: "n = 9 THEN n = 9 WITHIN 1h", 1: before[1], 2: "n = 1 THEN n = 4 WITHIN 1h"}
    stream = Stream(before)
    stream.take([("h", second(0), 1, None)])
    restarted = Stream(after)
    restarted.states, restarted.watermark_ms = stream.states, stream.watermark_ms
    rows = [("h", second(at), n, None) for at, n in ((1, 2), (2, 4), (3, 1), (4, 4))]
    restarted.take(rows)
    found = [(row["pattern"], [each["n"] for each in row["events"]]) for row in restarted.found]
    assert found == [(1, [1, 2]), (2, [1, 4])]


@pytest.mark.parametrize(("more", "is_too_many"), [(-1, False), (0, False), (1, True)])
def test_so_many_events_of_a_key_may_wait(
    monkeypatch: pytest.MonkeyPatch, more: int, *, is_too_many: bool
) -> None:
    monkeypatch.setattr(live, "MAX_HELD_EVENTS", 50)
    stream = Stream(delay_s=1_000)
    rows = [("h", second(number), 99, None) for number in range(50 + more)]
    if is_too_many:
        with pytest.raises(LimitExceeded, match=r"\('h',\) that wait .*MAX_HELD_EVENTS"):
            stream.take(rows)
    else:
        stream.take(rows)
        assert stream.states["h"].exists


VALUES: Final[list[tuple[pa.DataType, Any]]] = [
    (pa.int64(), 2**53 + 1),
    (pa.float64(), 0.1),
    (pa.float64(), float("inf")),
    (pa.bool_(), True),
    (pa.utf8(), "ä"),
    (pa.binary(), b"\xff"),
    (pa.decimal128(20, 2), Decimal("12345678901234567.89")),
    (INSTANT, START + dt.timedelta(microseconds=1)),
    (pa.timestamp("us"), START.replace(tzinfo=None)),
    (pa.date32(), dt.date(2026, 1, 2)),
    (pa.time64("us"), dt.time(1, 2, 3, 4)),
    (pa.duration("us"), dt.timedelta(days=-1, microseconds=1)),
    (pa.null(), None),
    (pa.list_(pa.date32()), [dt.date(2026, 1, 2), None]),
    (pa.struct([("a b", pa.binary()), ("x", INSTANT)]), {"a b": b"\x00", "x": START}),
    (pa.map_(pa.utf8(), pa.int64()), [("k", 1)]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_come_back_as_they_were(kind: pa.DataType, value: Any) -> None:
    names = ["k0", "at", "o", "g0", "g1"]
    schema = pa.schema([(name, INSTANT if name == "at" else kind) for name in names])
    find = FindSteps(
        patterns({1: "g1 = 1 THEN g1 = 1 WITHIN 1s"}),
        ColumnSlots((("g1", 5),), tuple(range(5))),
        schema,
    )
    arrays = [
        pa.array([START if name == "at" else value], schema.field(name).type) for name in names
    ]
    arrays[-1] = pa.array([None], kind)
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array([1])], [*names, "x"])
    kinds = HitTypes(schema, 1, 1)
    packed = pa.schema([("k0", kind), ("at", INSTANT), ("hit", pa.binary())])
    (hits,) = PackHits(find, kinds, (1,), packed)(iter([batch]))
    follow = FollowLive(find.patterns, (1,), (1,), kinds)
    memory = follow._with(None, hits.column(2)[0].as_py())
    again = follow._decode_memory(follow._encode(memory))
    assert again == memory == KeyState((value,), [Hit(START, (value,), (value, None), {1: 3})], {})
    completed = Completed((value,), 1, (StepEvent(START, (value, None)),) * 2)
    events = pa.list_(pa.struct([("at", INSTANT), ("g0", kind), ("g1", kind)]))
    times = [("started", INSTANT), ("ended", INSTANT)]
    result = pa.schema([("k", kind), ("pattern", pa.int64()), *times, ("events", events)])
    found = pa.record_batch({"found": [follow._encode(completed)]})
    (row,) = next(Unpack(kinds, result)(iter([found]))).to_pylist()
    assert row["k"] == value
    assert row["events"][0] == {"at": START, "g0": value, "g1": None}


def test_a_type_that_cannot_go_along_is_refused() -> None:
    fields: list[tuple[str, pa.DataType]] = [("k0", pa.month_day_nano_interval()), ("at", INSTANT)]
    schema = pa.schema(fields)
    with pytest.raises(InvalidInput, match="type month_day_nano_interval cannot go along"):
        _ = HitTypes(schema, 1, 0).key


def test_events_of_one_instant_are_in_sparks_order() -> None:
    values: list[Any] = [None, float("-inf"), 0.5, float("inf"), float("nan")]
    hits = [Hit(START, (value,), ({"x": value}, [value]), {}) for value in values]
    mixed = random.Random(1).sample(hits, len(hits))
    assert [hit.order for hit in sorted(mixed, key=Hit.place)] == [hit.order for hit in hits]
