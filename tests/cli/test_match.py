"""`palio match` up to where Spark begins, and once all the way."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.cli.match import REJECTS
from tests.cli.helpers import Palio

pytestmark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Events, subscriptions of which two are bad, and a cache of its own."""
    monkeypatch.setenv("PALIO_CACHE", str(tmp_path / "cache"))
    pq.write_table(pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]}), tmp_path / "events.parquet")
    rows: list[dict[str, Any]] = [
        {"id": 1, "filter": "n >= :low", "parameters": {"low": 2}},
        {"id": 2, "filter": "n ="},
        {"id": 3, "filter": None},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "subs.jsonl").write_text(lines)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"events": "nowhere.parquet"}, "cannot read events from"),
        ({"subs": "nowhere.jsonl"}, "cannot read subscriptions from"),
        ({"out": "subs.jsonl"}, "is there already"),
        ({"out": "."}, "is there already"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    palio: Palio, home: Path, changed: dict[str, str], message: str
) -> None:
    names = {"events": "events.parquet", "subs": "subs.jsonl", "out": "out"} | changed
    events, subs, out = (str(home / each) for each in names.values())
    outcome = palio("match", events, "--subscriptions", subs, "--out", out)
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.out == ""


@pytest.mark.usefixtures("spark")  # the command finds it running, and starts and stops none
def test_matching_writes_parquet(palio: Palio, home: Path) -> None:
    def run(out: str, *more: str) -> list[tuple[Any, ...]]:
        outcome = palio(
            *("match", str(home / "events.parquet"), "--subscriptions", str(home / "subs.jsonl")),
            *("--out", str(home / out), *more),
        )
        assert outcome.status == 0, outcome.err
        assert "1 subscriptions compiled, 2 rejected" in outcome.err
        assert "subscription 2" in outcome.err
        rejected = (home / out / REJECTS).read_text().splitlines()
        assert [json.loads(line)["id"] for line in rejected] == [3, 2]
        return sorted(tuple(row.values()) for row in pq.read_table(home / out).to_pylist())

    path = str(home / "events.parquet")
    assert run("pairs", "--key", "id") == [("b", 1), ("c", 1)]
    assert run("rows") == [(path, 1, 1), (path, 2, 1)]
    assert run("any", "--how", "any", "--key", "n") == [(2,), (3,)]
    assert run("counts", "--how", "count") == [(1, 2)]
    (home / "events.jsonl").write_text('{"id": "x", "n": 5}\n{"id": "y"}\n')
    outcome = palio(
        *("match", str(home / "events.jsonl"), "--subscriptions", str(home / "subs.jsonl")),
        *("--out", str(home / "json"), "--key", "id", "--json"),
    )
    assert json.loads(outcome.out)["rows"] == 1
    outcome = palio(
        *("match", str(home / "events.jsonl"), "--subscriptions", str(home / "subs.jsonl")),
        *("--out", str(home / "keyless")),
    )
    assert outcome.status == 2
    assert "need --key" in outcome.err
    outcome = palio(
        *("match", path, "--subscriptions", str(home / "subs.jsonl")),
        *("--out", str(home / "nokey"), "--key", "nope"),
    )
    assert outcome.status == 2
    assert "no column 'nope'" in outcome.err
    assert not (home / "nokey").exists()
