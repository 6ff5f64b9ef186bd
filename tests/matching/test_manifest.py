"""Saved files are read as they were written, or refused by name; nothing crashes their reader."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.errors import FileDamaged, InvalidInput
from palio.matching.index import Index
from palio.matching.manifest import (
    Loading,
    Saving,
    Written,
    filters_batch,
    filters_of,
    read_arrow,
    write_arrow,
)
from palio.matching.storage import TEXTS
from palio.model import Filter, to_batch
from palio.model.values import Value
from tests.conftest import NIGHTLY, SEED
from tests.matching.damage import forged, saved

ROOT: Final = Path(__file__).parents[2]


class Meta(msgspec.Struct):
    said: str


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("saved") / "index"
    saved(home)
    return home


def loading(home: Path, version: int = 1) -> Loading[Meta]:
    return Loading(home, "manifest", "thing", version, Meta)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.array("a.npy", np.arange(6).reshape(2, 3))
    saving.array("empty.npy", np.zeros(0, np.int32))
    saving.arrow("t.arrow", pa.table({"x": [1, 2]}))
    saving.finish("manifest", 1, Meta("hello"))
    found = loading(tmp_path)
    assert found.meta == Meta("hello")
    for mapped in (True, False):
        assert found.array("a.npy", np.int64, columns=3, mapped=mapped).tolist() == [
            [0, 1, 2],
            [3, 4, 5],
        ]
        assert found.array("empty.npy", np.int32, mapped=mapped).tolist() == []
    assert found.arrow("t.arrow").to_pydict() == {"x": [1, 2]}
    assert found.has("a.npy")
    assert not found.has("b.npy")


def test_what_is_not_listed_or_of_another_sort_is_refused(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.array("a.npy", np.arange(6))
    saving.array("objects.npy", np.array(0))
    saving.finish("manifest", 1, Meta("hello"))
    (tmp_path / "b.npy").write_bytes((tmp_path / "a.npy").read_bytes())
    found = loading(tmp_path)
    with pytest.raises(FileDamaged, match=r"manifest .* does not list 'b.npy'"):
        found.array("b.npy", np.int64)
    for dtype, columns in ((np.int32, None), (np.int64, 3), (np.float64, None)):
        with pytest.raises(FileDamaged, match=r"a\.npy .* holds int64"):
            found.array("a.npy", dtype, columns=columns)
    with pytest.raises(FileDamaged, match=r"objects\.npy"):
        found.array("objects.npy", np.int64)
    with pytest.raises(InvalidInput, match="has format 1, not 2; save the thing again"):
        loading(tmp_path, 2)
    with pytest.raises(InvalidInput, match="holds no thing"):
        loading(tmp_path / "none")


HEADS: Final = (b"{'descr': (", b'"' * 3, b"{'descr': 'O'}", b"\xff" * 9, b"1" * 5_000)


@pytest.mark.parametrize("head", HEADS)
def test_an_array_whose_head_cannot_be_read_is_damaged(tmp_path: Path, head: bytes) -> None:
    saving = Saving(tmp_path)
    saving.array("a.npy", np.arange(6))
    saving.finish("index.msgpack", 1, Meta("hello"))
    head = head.ljust(118)
    data = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    (tmp_path / "a.npy").write_bytes(data)
    forged(tmp_path, "a.npy")
    found = Loading(tmp_path, "index.msgpack", "thing", 1, Meta)
    with pytest.raises(FileDamaged, match=r"a\.npy .* holds no array"):
        found.array("a.npy", np.int64)


def test_what_is_no_manifest_is_damaged(tmp_path: Path) -> None:
    for data in (b"", b"x", msgspec.msgpack.encode([1, 2])):
        (tmp_path / "manifest").write_bytes(data)
        with pytest.raises(FileDamaged, match="manifest is not what was written"):
            loading(tmp_path)


# --- damage ---


CASES: Final = 5_000 if NIGHTLY else 20
"""Of each way of damage, of which there are at most 2,000."""


def test_no_altered_file_crashes_or_changes_an_answer(index: Path) -> None:
    """Half of each file made huge, negative or cut short: the error names it.

    With a manifest rewritten for it, or altered itself, answers may differ: a
    checksum is no signature.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.matching.damage", str(index), str(CASES), str(SEED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-2_000:])
    for way in ("plain", "forge", "twist"):
        cases = [line.split(maxsplit=1)[1] for line in lines if line.startswith(way)]
        assert len(cases) >= min(CASES, 500)
        outcomes = {case.split(": ")[1] for case in cases}
        assert outcomes <= ({"FileDamaged"} if way == "plain" else {"FileDamaged", "same", "other"})
        for case in cases if way == "plain" else ():
            name, outcome = case.split(",")[0], case.partition(": ")[2]
            assert f"/{name} is not what was written" in outcome


@given(st.data())
def test_random_damage_is_refused(index: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(index.iterdir())))
    written = path.read_bytes()
    place = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path.write_bytes(changed)
    try:
        if bytes(changed) == written:
            Index.load(index)
            return
        with pytest.raises(FileDamaged, match=path.name):
            Index.load(index)
    finally:
        path.write_bytes(written)


# --- filters as texts ---


@pytest.mark.parametrize(
    "value",
    [1, -(2**63), 0.1, math.inf, True, "é\0", b"\xff", datetime(2026, 1, 31, 12, 0, 0, 1, UTC)],
    ids=str,
)
def test_values_come_back(value: Value, tmp_path: Path) -> None:
    filter = palio.parse("x = :x AND y IN ('a''b', 'c') OR z LIKE 'a%'")
    assert isinstance(filter, Filter)
    write_arrow(tmp_path / TEXTS, filters_batch([Written.of(-7, filter, {"x": value}, 9)]))
    (row,) = filters_of(read_arrow(tmp_path / TEXTS), tmp_path / TEXTS).to_pylist()
    assert (row["key"], row["destination"]) == (-7, 9)
    assert Written(**row).read() == (filter, {"x": value})


def test_an_empty_index_has_a_file_too(tmp_path: Path) -> None:
    Index().save(tmp_path)
    assert len(Index.load(tmp_path)) == 0


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    Index().save(tmp_path)
    write_arrow(tmp_path / TEXTS, to_batch({"x": 1}))
    forged(tmp_path, TEXTS)
    with pytest.raises(InvalidInput, match="not of filters"):
        Index.load(tmp_path)
