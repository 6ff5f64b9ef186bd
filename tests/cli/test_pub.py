from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palio
from palio.cli.sub import described, sub
from palio.client.events import Event
from palio.client.reordering import REORDER_S
from tests.cli.brokers import PATIENCE_S, broker
from tests.cli.helpers import Palio


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker("b1", tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def listener(url: str) -> Iterator[palio.SyncClient]:
    with palio.SyncClient(url) as client:
        yield client


def test_json_lines_are_published(run: Palio, url: str, listener: palio.SyncClient) -> None:
    heard = listener.subscribe("EXISTS x")
    lines = '{"x": 1}\n{"x": {"y": 2}}\n{"x": 3, "tags": ["a"]}'
    outcome = run("pub", "--broker", url, "--json", stdin=lines)
    assert outcome.status == 0
    receipt = outcome.document
    assert (receipt["events"], receipt["last_seq"], receipt["level"]) == (3, 3, "memory")
    first, second = heard.receive(5), heard.receive(5)
    assert (first.payload, second.payload) == ({"x": 1}, {"x": 3, "tags": ["a"]})
    assert "payload" not in described(first)
    assert described(second)["event"] == {"x": 3}
    assert described(second)["payload"] == {"x": 3, "tags": ["a"]}
    second.packed = b""
    assert described(second)["payload"].startswith("not readable: ")


def test_csv_is_published(run: Palio, url: str, listener: palio.SyncClient, tmp_path: Path) -> None:
    heard = listener.subscribe("EXISTS price")
    file = tmp_path / "quotes.csv"
    file.write_text("price,name,at\n1.5,IBM,2026-01-01T00:00:00\n,HAL,\n2.5,,\n")
    outcome = run("pub", str(file), "--broker", url, "--durable")
    assert outcome.status == 0
    assert "3 events published" in outcome.out
    assert "disk" in outcome.out
    assert "all homes" in run("pub", '{"name": "late"}', "--broker", url, "--at-homes").out
    first, second = heard.receive(5), heard.receive(5)
    assert (first["price"], first["name"], first["at"].isoformat()) == (
        1.5,
        "IBM",
        "2026-01-01T00:00:00+00:00",
    )
    assert dict(second) == {"price": 2.5}


def test_parquet_is_published_in_batches(
    run: Palio, url: str, listener: palio.SyncClient, tmp_path: Path
) -> None:
    heard = listener.subscribe("row >= 0")
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"row": list(range(2500))}), file)
    assert run("pub", str(file), "--broker", url).status == 0
    batches = iter(heard.batches())
    rows: list[int | None] = []
    while len(rows) < 2500:
        rows += next(batches).column("row").to_pylist()
    assert rows == list(range(2500))


@pytest.mark.parametrize(
    ("name", "content"),
    [("bad.csv", b""), ("bad.parquet", b"no parquet"), ("bad.json", b"{")],
)
def test_a_file_that_cannot_be_read(
    run: Palio, url: str, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    outcome = run("pub", str(tmp_path / name), "--broker", url)
    assert outcome.status == 2
    assert outcome.err.startswith("palio: ")
    assert "Traceback" not in outcome.err


def test_a_bad_line_is_named(run: Palio, url: str) -> None:
    outcome = run("pub", "--broker", url, stdin='{"x": 1}\n7\n')
    assert outcome.status == 2
    assert "line 2" in outcome.err


def test_what_was_published_before_a_failure_is_told(run: Palio, url: str) -> None:
    """Else whoever mends the input publishes it twice."""
    outcome = run("pub", "--broker", url, stdin='{"x": 1}\n{"x": 2}\n7\n')
    assert outcome.status == 2
    first, *error = outcome.err.splitlines()
    assert first == "palio: 2 events were published"
    assert "line 3" in error[0]


def test_nobody_answers(run: Palio) -> None:
    outcome = run("pub", '{"x": 1}', "--broker", "palio://127.0.0.1:1", "--json")
    assert outcome.status == 2
    assert outcome.document["error"]["type"] == "Unreachable"


def test_what_is_no_address(run: Palio) -> None:
    outcome = run("sub", "TRUE", "--broker", "localhost")
    assert outcome.status == 2
    assert "palio://" in outcome.err


def test_a_durable_subscription_prints_what_waited_and_acknowledges_it(
    run: Palio, url: str, listener: palio.SyncClient
) -> None:
    options = ["sub", "z < :most", "--broker", url, "--name", "ann", "--durable", "low", "--json"]
    with client_of(url, "ann") as ann:
        ann.subscribe("z < 10", durable_name="low")
    for z in range(3):
        listener.publish({"z": z}, durable=True)
    first = run(*options, "-p", "most=10", "--count", "2")
    assert [json.loads(line)["event"] for line in first.out.splitlines()] == [{"z": 0}, {"z": 1}]
    second = run(*options, "-p", "most=10", "--count", "1")
    assert json.loads(second.out)["event"] == {"z": 2}


def test_a_late_comer_prints_the_past(run: Palio, tmp_path: Path) -> None:
    with broker("b1", tmp_path, history_s=3_600.0, latest_by=("symbol",)) as url:
        with client_of(url, "bob") as bob:
            while not bob.admin.query("status")["custody_waiting"]:
                pass  # the history begins with the broker
            begun = datetime.now(UTC).isoformat()
            for x in range(3):
                bob.publish({"symbol": "a", "x": x}, durable=True)
        sub = ("sub", "x > 0", "--broker", url, "--name", "ann", "--json")
        past = run(*sub, "--durable", "late", "--since", begun, "--count", "2")
        last = run(*sub, "--latest-by", "symbol", "--count", "1")
    assert [json.loads(line)["event"]["x"] for line in past.out.splitlines()] == [1, 2]
    assert json.loads(last.out)["event"] == {"symbol": "a", "x": 2}


def client_of(url: str, name: str) -> palio.SyncClient:
    return palio.SyncClient(url, name=name)


@contextmanager
def printing(
    monkeypatch: pytest.MonkeyPatch, until: str, filter: str, url: str, **options: Any
) -> Iterator[io.StringIO]:
    """`palio sub` on a thread, until its first event; what it tells, beginning with some words."""
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    thread = threading.Thread(
        target=sub, kwargs={"filter": filter, "broker": [url], "count": 1, **options}
    )
    thread.start()
    while until not in told.getvalue():
        assert thread.is_alive()
        thread.join(0.01)
    yield told
    thread.join(PATIENCE_S)


def test_parameters_change_while_events_come(
    url: str, listener: palio.SyncClient, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"\nlimit=oops\nno=1\nlimit=20\n"))
    monkeypatch.setattr(sys, "stdin", typed)
    with printing(monkeypatch, ":limit = 20", "v < :limit", url, param=["limit=1"]) as told:
        listener.publish([{"v": 25}, {"v": 15}])
    assert "v=15" in capsys.readouterr().out
    assert "no parameter :no" in told.getvalue()


PATTERN: Final = "w = 1 THEN w = 2"


@pytest.fixture
def no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.mark.usefixtures("no_input")
def test_a_pattern_waits_as_long_as_it_is_told(
    url: str, listener: palio.SyncClient, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with printing(monkeypatch, "in force", PATTERN, url, reorder=0.0, as_json=True):
        listener.publish([{"w": 1}, {"w": 2}])
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert [part["event"] for part in parts] == [{"w": 1}, {"w": 2}]


@pytest.mark.usefixtures("no_input")
def test_brokers_assemble_a_pattern(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with broker(routing="advertised") as url, palio.SyncClient(url) as teller:
        teller.advertise("EXISTS w")
        own = teller.subscribe(PATTERN, match_at="brokers")
        with printing(monkeypatch, "in force", PATTERN, url, by_brokers=True, as_json=True):
            teller.publish([{"w": 1}, {"w": 2}])
            assert [part["w"] for part in own.receive(timeout=30).parts] == [1, 2]
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert [part["event"] for part in parts] == [{"w": 1}, {"w": 2}]


def test_a_reorder_window_is_for_patterns_and_has_bounds(run: Palio, url: str) -> None:
    for filter, seconds, said in (
        ("w = 1", "1", "reorder_timeout= is for patterns"),
        ("w = 1 THEN w = 2", "-1", "reorder_timeout is -1"),
        ("w = 1 THEN w = 2", "3601", "MAX_REORDER_S"),
    ):
        outcome = run("sub", filter, "--broker", url, "--reorder", seconds)
        assert outcome.status == 2
        assert said in outcome.err


def test_help_says_how_long_patterns_wait(run: Palio) -> None:
    said = " ".join(run("sub", "--help").out.split())
    assert f"a pattern waits for events that were overtaken: {REORDER_S:g} at first" in said


def test_an_event_is_described_with_its_parts() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    part = Event({"x": 1}, "p", 1, noon)
    document = described(Event({"x": 2}, "p", 2, noon, (part,)))
    assert document["event"] == {"x": 2}
    assert document["parts"] == [
        {"publisher": "p", "seq": 1, "time": "2026-01-01T12:00:00+00:00", "event": {"x": 1}}
    ]


def test_where_nobody_knows_of_sources_a_lifetime_is_refused(run: Palio, url: str) -> None:
    outcome = run("sub", "x > 0", "--broker", url, "--lifetime", "0")
    assert outcome.status == 2
    assert "routing has no advertisements, so it cannot find sources" in outcome.err


def test_a_subscription_without_a_source_ends_and_says_so(run: Palio, tmp_path: Path) -> None:
    with broker("b1", tmp_path, routing="proxies") as url:
        outcome = run("sub", "x > 0", "--broker", url, "--lifetime", "0")
    assert "nobody advertises what x > 0 wants" in outcome.err
    assert outcome.status == 2


def test_an_event_with_an_id_is_published_once_and_one_with_a_time_to_live_expires(
    run: Palio, url: str, listener: palio.SyncClient
) -> None:
    heard = listener.subscribe("EXISTS order")
    given = ("pub", '{"order": 7}', "--broker", url, "--name", "shop", "--dedup-id", "order-7")
    for _ in range(2):
        assert run(*given, "--ttl", "3600").status == 0
    assert run("pub", '{"order": 8}', "--broker", url).status == 0
    first, second = heard.receive(5), heard.receive(5)
    assert (first["order"], second["order"]) == (7, 8)
    assert first.expires is not None
    assert 3500 < (first.expires - first.time).total_seconds() <= 3600
    assert second.expires is None


def test_an_id_is_for_one_event_of_a_name(run: Palio, url: str) -> None:
    options = ("--broker", url, "--dedup-id", "a")
    outcome = run("pub", "--name", "shop", *options, stdin='{"x": 1}\n{"x": 2}\n')
    assert outcome.status == 2
    assert "the id of one event" in outcome.err
    outcome = run("pub", '{"x": 1}', *options)
    assert outcome.status == 2
    assert "--dedup-id requires --name" in outcome.err
