"""What workers compute, called as Spark calls it, against `Reference`."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import palio
from palio.errors import InvalidInput, LimitExceeded
from palio.matching import Reference
from palio.model import Filter
from palio.spark import SubscriptionSet, subscriptions, workers
from palio.spark.workers import ColumnSlots, MatchTask

NAMES: Final = ("n", "x", "s")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing mapped before or after."""
    workers._versions.clear()
    workers._shards.clear()
    yield
    workers._versions.clear()
    workers._shards.clear()


def drawn_events(rng: random.Random, count: int) -> pa.RecordBatch:
    nan = float("nan")
    return pa.record_batch(
        {
            "n": pa.array([rng.choice([None, *range(8)]) for _ in range(count)], pa.int64()),
            "x": pa.array([rng.choice([None, nan, 0.5, 3.0]) for _ in range(count)], pa.float64()),
            "s": pa.array([rng.choice([None, "", "a", "A"]) for _ in range(count)], pa.utf8()),
            "id": list(range(count)),
        }
    )


def drawn_subscriptions(rng: random.Random, count: int, ids: int) -> list[dict[str, Any]]:
    texts = ["n < {}", "x >= {} OR n = 2", "s = 'a' AND n > {}", "s IS NULL AND x < {}", "n = {}"]
    return [
        {
            "id": number % ids,
            "filter": rng.choice(texts).format(rng.randrange(8)),
            "subscriber": f"who{number % ids % 4}",
        }
        for number in range(count)
    ]


def task(found: SubscriptionSet, how: str, columns: tuple[int, ...] = (3,)) -> MatchTask:
    fields: list[tuple[str, pa.DataType]] = [("id", pa.int64())] if columns else []
    fields += [("subscription", pa.int64())] if how in ("pairs", "count") else []
    fields += [("subscriber", pa.utf8())] if how in ("pairs", "route") else []
    fields += [("subscribers", pa.list_(pa.utf8()))] if how == "sets" else []
    fields += [("count", pa.int64())] if how in ("count", "sets") else []
    slots = ColumnSlots(tuple((name, at) for at, name in enumerate(NAMES)), columns)
    return MatchTask(str(found.path), found.version, how, slots, pa.schema(fields))


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def oracle(events: pa.RecordBatch, subs: list[dict[str, Any]]) -> set[tuple[int, int, str]]:
    """Event, id, subscriber."""
    engine = Reference()
    for key, row in enumerate(subs):
        filter = palio.parse(row["filter"])
        assert isinstance(filter, Filter)
        engine.add(key, filter)
    found = engine.match(events)
    return {
        (event, subs[key]["id"], subs[key]["subscriber"])
        for event, key in zip(found.rows.tolist(), found.keys.tolist(), strict=True)
    }


@pytest.mark.parametrize("ids", [60, 23], ids=["unique", "repeated"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("limit", ["ample", "tight"])
def test_every_answer_is_that_of_the_oracle(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    ids: int,
    shards: int,
    limit: str,
) -> None:
    if limit == "tight":
        monkeypatch.setattr(workers, "MAX_MAPPED_BYTES", 1)
        monkeypatch.setattr(workers, "CHUNK_BYTES", 2_000)
        monkeypatch.setattr(workers, "MAX_BATCH_ROWS", 7)
    events, subs = drawn_events(rng, 150), drawn_subscriptions(rng, 60, ids)
    found = subscriptions(subs, tmp_path, shards=shards)
    expected = oracle(events, subs)

    def answer(how: str, columns: tuple[int, ...] = (3,)) -> list[tuple[Any, ...]]:
        return rows(task(found, how, columns)(iter([events.slice(0, 40), events.slice(40)])))

    assert sorted(answer("pairs")) == sorted(expected)
    assert answer("any") == [(event,) for event in sorted({event for event, _, _ in expected})]
    assert sorted(answer("route")) == sorted({(event, who) for event, _, who in expected})
    assert sorted(answer("count", ())) == sorted(Counter(id_ for _, id_, _ in expected).items())
    to: dict[int, set[str]] = {}
    for event, _, who in expected:
        to.setdefault(event, set()).add(who)
    sets = {frozenset(each): count for each, count in answer("sets", ())}
    assert sets == Counter(frozenset(each) for each in to.values())


def test_sets_have_so_many_subscribers_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_BROKERS", 3)
    monkeypatch.setattr(workers, "MAX_MASK_BYTES", 7)
    events = drawn_events(random.Random(1), 9)
    for many in (3, 4):
        subs = [{"id": n, "filter": "TRUE", "subscriber": f"b{n}"} for n in range(many)]
        answer = task(subscriptions(subs, tmp_path / str(many)), "sets", ())(iter([events]))
        if many == 3:
            assert rows(answer) == [(["b0", "b1", "b2"], 9)]
        else:
            with pytest.raises(LimitExceeded, match=r"MAX_BROKERS = 3 \(4 found\)"):
                rows(answer)


def test_result_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_BATCH_ROWS", 4)
    found = subscriptions([{"id": 1, "filter": "TRUE", "subscriber": "a"}], tmp_path)
    for count, sizes in ((3, [3]), (4, [4]), (5, [4, 1]), (0, [])):
        events = drawn_events(random.Random(1), count)
        batches = task(found, "pairs")(iter([events]))
        assert [batch.num_rows for batch in batches] == sizes


def test_without_attributes_and_without_columns(tmp_path: Path) -> None:
    found = subscriptions([{"id": 1, "filter": "TRUE"}, {"id": 2, "filter": "n = 1"}], tmp_path)
    schema = pa.schema([("subscription", pa.int64())])
    bare = MatchTask(str(found.path), found.version, "pairs", ColumnSlots((), ()), schema)
    assert rows(bare(iter([pa.record_batch({"c0": pa.nulls(3)})]))) == [(1,)] * 3


def test_a_version_is_mapped_once_and_only_the_last_two_are_kept(tmp_path: Path) -> None:
    found = subscriptions([{"id": 0, "filter": "n = 0"}], tmp_path)
    homes = []
    for number in range(1, 4):
        homes.append(tmp_path / "versions" / found.version)
        one = workers.mapped(homes[-1])
        assert workers.mapped(homes[-1]) is one
        workers._shard(one, 0, 10)
        found.refresh([{"id": number, "filter": "n = 0"}])
    assert [Path(home) for home, _ in workers._versions] == homes[-2:]
    assert [version.home for version, _ in workers._shards] == homes[-2:]


def test_a_set_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere holds no subscription set"):
        workers.mapped(tmp_path / "nowhere")


def test_a_new_version_that_names_what_was_not_sent(tmp_path: Path) -> None:
    found = subscriptions([{"id": 1, "filter": "n = 1 AND other = 2"}], tmp_path)
    narrow = MatchTask(
        str(found.path),
        None,
        "any",
        ColumnSlots((("n", 0),), ()),
        pa.schema([]),
        frozenset({"other"}),
    )
    with pytest.raises(InvalidInput, match="now name other"):
        list(narrow(iter([])))


def test_tasks_are_small_to_send(tmp_path: Path, rng: random.Random) -> None:
    found = subscriptions(drawn_subscriptions(rng, 500, 500), tmp_path)
    assert len(pickle.dumps(task(found, "pairs"))) < 2_000
