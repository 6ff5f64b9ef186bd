"""`palio match` up to where Spark begins, and once all the way; `palio pipeline` as far as it goes
without Spark, for tests/spark/test_pipeline.py has the rest.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palio.cli.main import INTERRUPTED
from palio.cli.spark import REJECTS, spark_session
from tests.cli.brokers import PATIENCE_S
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
        ({"out": "subs.jsonl"}, "is not empty"),
        ({"out": "."}, "is not empty"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    palio: Palio, home: Path, changed: dict[str, str], message: str
) -> None:
    names = {"events": "events.parquet", "subs": "subs.jsonl", "out": "out"} | changed
    events, subs, out = (str(home / each) for each in names.values())
    outcome = palio("match", events, "--subscriptions", subs, "--output", out)
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.out == ""


@pytest.mark.usefixtures("spark")  # the command finds it running, and starts and stops none
def test_matching_writes_parquet(palio: Palio, home: Path) -> None:
    def run(out: str, *more: str) -> list[tuple[Any, ...]]:
        outcome = palio(
            *("match", str(home / "events.parquet"), "--subscriptions", str(home / "subs.jsonl")),
            *("--output", str(home / out), *more),
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
        *("--output", str(home / "json"), "--key", "id", "--json"),
    )
    assert json.loads(outcome.out)["rows"] == 1
    outcome = palio(
        *("match", str(home / "events.jsonl"), "--subscriptions", str(home / "subs.jsonl")),
        *("--output", str(home / "keyless")),
    )
    assert outcome.status == 2
    assert "need --key" in outcome.err
    outcome = palio(
        *("match", path, "--subscriptions", str(home / "subs.jsonl")),
        *("--output", str(home / "nokey"), "--key", "nope"),
    )
    assert outcome.status == 2
    assert "no column 'nope'" in outcome.err
    assert not (home / "nokey").exists()


# --- pipeline ---

PLAN = """name = "p"

[source]
format = "rate"

[[sinks]]
of = "events"
path = "out"
"""


def test_a_plan_is_explained(palio: Palio, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PLAN)
    lines = ["read all of rate", "flatten structs", f"write events as parquet {tmp_path}/out"]
    outcome = palio("pipeline", "check", str(file))
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == "".join(f"{n}. {line}\n" for n, line in enumerate(lines, 1))
    outcome = palio("pipeline", "check", str(file), "--json")
    assert outcome.document == {"valid": True, "pipeline": "p", "plan": lines}


def test_a_wrong_plan_is_told_with_its_place_before_spark_starts(
    palio: Palio, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PLAN.replace("rate", "json").replace('path = "out"', ""))
    for verb in ("check", "run"):
        outcome = palio("pipeline", verb, str(file))
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err == f"palio: {file}:6: sinks[0].path: parquet is written to a path\n"
    document = palio("pipeline", "run", str(file), "--json").document
    assert document["error"]["type"] == "InvalidConfiguration"


# --- sessions ---


def test_a_command_stops_the_session_that_it_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Any] = []

    def session(**settings: Any) -> str:
        done.append(settings)
        return "session"

    monkeypatch.setattr("palio.spark.sessions.running_session", lambda: None)
    monkeypatch.setattr("palio.spark.sessions.session", session)
    monkeypatch.setattr("palio.spark.sessions.stop", done.append)
    with pytest.raises(ZeroDivisionError), spark_session(master="local[2]"):
        raise ZeroDivisionError
    assert done == [{"spark.ui.showConsoleProgress": False, "master": "local[2]"}, "session"]
    assert capsys.readouterr().err == "palio: starting Spark\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, 0)])
def test_a_stream_reports_before_a_signal_ends_it(
    palio: Palio,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    def run_pipeline(_plan: Any, _spark: Any, _log: Any, stop: threading.Event) -> Any:
        os.kill(os.getpid(), number)
        assert stop.wait(PATIENCE_S)
        return SimpleNamespace(markdown=lambda: "the report")

    file = tmp_path / "pipeline.toml"
    plan = PLAN.replace("[source]", 'checkpoint = "checkpoint"\n\n[source]\nstream = true')
    file.write_text(plan)
    monkeypatch.setattr("palio.cli.spark.spark_session", lambda **_: nullcontext())
    monkeypatch.setattr("palio.spark.pipeline.run_pipeline", run_pipeline)
    outcome = palio("pipeline", "run", str(file))
    assert outcome == (status, "the report\n", "palio: stopping\n")
