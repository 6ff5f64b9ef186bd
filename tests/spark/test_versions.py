from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from palio.errors import FileDamaged, InvalidInput
from palio.spark.reading import read
from palio.spark.versions import (
    FORMAT,
    SetMeta,
    Version,
    read_meta,
    read_rejects,
    save,
)
from tests.matching.damage import alterations, forged


def saved(rows: list[dict[str, Any]], home: Path, shards: int | None = None) -> Version:
    home.mkdir(exist_ok=True)
    save(read(rows), home, None, shards)
    return Version(home)


def test_ids_that_are_all_different_are_the_rows(tmp_path: Path) -> None:
    found = saved([{"id": f"s{each}", "filter": f"n = {each}"} for each in range(5)], tmp_path)
    assert found.numbers is None
    assert found.ids.to_pylist() == [f"s{each}" for each in range(5)]
    assert found.subscribers is None
    assert found.shard(0).match(pa.record_batch({"n": [3]})).keys.tolist() == [3]


def test_rows_of_one_id_are_in_one_shard(tmp_path: Path) -> None:
    rows = [{"id": each % 7, "filter": f"n = {each}"} for each in range(40)]
    found = saved(rows, tmp_path, 3)
    assert found.numbers is not None
    assert found.meta.shards == 3
    events = pa.record_batch({"n": list(range(40))})
    seen: dict[int, set[int]] = {}
    total = 0
    for shard in range(3):
        keys = found.shard(shard).match(events).keys
        total += len(keys)
        for number in found.numbers[keys].tolist():
            seen.setdefault(number, set()).add(shard)
    assert total == 40
    assert sorted(seen) == list(range(7))
    assert all(len(each) == 1 for each in seen.values())


@pytest.mark.parametrize(("ids", "shards"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_there_are_never_more_shards_than_ids(tmp_path: Path, ids: int, shards: int) -> None:
    rows = [{"id": each, "filter": "n = 1"} for each in range(ids)]
    assert saved(rows, tmp_path, 3).meta.shards == shards


def test_an_id_belongs_to_one_subscriber(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "filter": "n = 1", "subscriber": "ann"},
        {"id": 2, "filter": "n = 1", "subscriber": None},
        {"id": 1, "filter": "n = 2", "subscriber": "bob"},
        {"id": 1, "filter": "n = 3", "subscriber": "ann"},
    ]
    found = saved(rows, tmp_path)
    assert found.subscriber_numbers is not None
    whose = found.subscribers.take(pa.array(np.asarray(found.subscriber_numbers)))
    assert whose.to_pylist() == ["ann", None]
    assert (found.meta.rows, found.meta.rejected) == (3, 1)


def test_a_shard_with_keys_that_no_row_has_is_refused(tmp_path: Path) -> None:
    version = saved([{"id": each, "filter": f"n = {each}"} for each in range(3)], tmp_path)
    assert version.shard(0).end == 3
    version.ids = version.ids.slice(0, 2)
    with pytest.raises(FileDamaged, match=r"shard0.*keys that none of 2 rows has"):
        version.shard(0)


def test_everything_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "filter": "a = 1"},
        {"id": 2, "filter": "b ="},
        {"id": None, "filter": "c"},
    ]
    meta = saved(rows, tmp_path).meta
    manifest = tmp_path / "shard0" / "index.msgpack"
    assert meta == SetMeta(
        *(1, 1, 2, 1, ("a",), None, "int64", None), (zlib.crc32(manifest.read_bytes()),)
    )


def test_nothing_but_the_version_is_left(tmp_path: Path) -> None:
    saved([{"id": 1, "filter": "a = 1"}], tmp_path)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["ids.arrow", "rejects.arrow", "set.msgpack", "shard0"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    saved([{"id": 1, "filter": "a = 1"}], tmp_path)
    magic, format_, crc, body = msgspec.msgpack.decode((tmp_path / "set.msgpack").read_bytes())
    other = (magic, format_ + 1, crc, body)
    (tmp_path / "set.msgpack").write_bytes(msgspec.msgpack.encode(other))
    told = f"has format {FORMAT + 1}, not {FORMAT}; save the subscription set again"
    with pytest.raises(InvalidInput, match=told):
        read_meta(tmp_path)
    (tmp_path / "set.msgpack").unlink()
    with pytest.raises(InvalidInput, match="holds no subscription set"):
        read_meta(tmp_path)


ROWS: Final[list[dict[str, Any]]] = [
    {"id": f"s{each % 30}", "filter": f"n = {each}", "subscriber": f"b{each % 3}"}
    for each in range(60)
]


def read_all(home: Path) -> list[Any]:
    """What a worker reads of a version."""
    version = Version(home)
    assert version.numbers is not None
    assert version.subscriber_numbers is not None
    keys = version.shard(0).match(pa.record_batch({"n": list(range(60))})).keys
    numbers = version.numbers[keys]
    whose = version.subscribers.take(pa.array(version.subscriber_numbers[numbers]))
    ids = version.ids.take(pa.array(numbers)).to_pylist()
    return [ids, whose.to_pylist(), read_rejects(home).to_pylist()]


@pytest.mark.parametrize("forge", [False, True])
def test_an_altered_file_of_a_set_is_refused(tmp_path: Path, forge: bool) -> None:
    saved(ROWS, tmp_path)
    expected = read_all(tmp_path)
    listed = (tmp_path / "set.msgpack").read_bytes()
    for path in sorted(each for each in tmp_path.iterdir() if each.is_file()):
        data = path.read_bytes()
        for _, changed in alterations(path.name, data):
            if changed == data or (forge and path.name == "set.msgpack"):
                continue
            path.write_bytes(changed)
            if forge:
                forged(tmp_path, path.name)
                with suppress(FileDamaged):
                    assert len(read_all(tmp_path)[0]) == len(expected[0])
            else:
                with pytest.raises(FileDamaged, match=path.name):
                    read_all(tmp_path)
            path.write_bytes(data)
            (tmp_path / "set.msgpack").write_bytes(listed)


def test_a_shard_of_another_version_is_refused(tmp_path: Path) -> None:
    saved(ROWS, tmp_path / "one")
    saved(ROWS[:10], tmp_path / "two")
    (tmp_path / "one" / "shard0").rename(tmp_path / "old")
    (tmp_path / "two" / "shard0").rename(tmp_path / "one" / "shard0")
    with pytest.raises(FileDamaged, match=r"shard0/index\.msgpack .* not of this version"):
        Version(tmp_path / "one").shard(0)
