from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palio
from palio.cli.archive import Rolling
from palio.cli.connecting import BrokerAccess
from palio.cli.replay import paced, replay
from palio.client.archive import Archive, part_files
from palio.client.history import history
from palio.errors import InvalidInput, NotPermitted, PalioError, Unreachable
from palio.language.parsing import parse_filter
from palio.model.events import stamped, to_batches
from palio.protocol.messages import Parcel
from palio.testing import run as run_virtually
from tests.cli.brokers import PATIENCE_S, broker, process
from tests.cli.helpers import Palio

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker("b1", tmp_path_factory.mktemp("journal")) as address:
        yield address


@pytest.fixture
def publisher(url: str) -> Iterator[palio.SyncClient]:
    with palio.SyncClient(url) as client:
        yield client


def archived(path: Path) -> list[int]:
    """The attribute `n` of all events in finished files."""
    files = (pq.ParquetFile(file).read(["n"]) for file in part_files(path))
    return sorted(int(n) for table in files for n in table.column("n").to_numpy())


def await_line(archiver: subprocess.Popen[str]) -> str:
    """Wait until it is subscribed."""
    assert archiver.stderr is not None
    line = archiver.stderr.readline()
    assert "archiving" in line, line
    return line


def stop(archiver: subprocess.Popen[str]) -> tuple[str, str]:
    archiver.send_signal(signal.SIGTERM)
    said = archiver.communicate(timeout=PATIENCE_S)
    assert archiver.returncode == 0, said
    return said


# --- archive ---


def test_what_comes_before_sigterm_is_archived(
    url: str, publisher: palio.SyncClient, tmp_path: Path
) -> None:
    arguments = ("archive", "n < :top", "-p", "top=5", "--broker", url, "--output", str(tmp_path))
    with process(*arguments, "--name", "one", "--json") as archiver:
        await_line(archiver)
        publisher.publish([{"n": n} for n in range(10)], durable=True)
        publisher.publish([{"n": 4, "shape": "other"}], durable=True)
        settled(url, "one/archive")
        out, _ = stop(archiver)
    assert json.loads(out) == {"events": 6, "files": 2, "directory": str(tmp_path)}
    assert archived(tmp_path) == [0, 1, 2, 3, 4, 4]


def settled(url: str, subscription: str) -> None:
    """Wait until nothing waits for a durable subscription: all of it was acknowledged."""
    with palio.SyncClient(url) as client:
        while client.admin.query("status")["custody_waiting"][subscription]:
            pass


def test_what_is_published_while_it_is_away_is_archived(
    url: str, publisher: palio.SyncClient, tmp_path: Path
) -> None:
    arguments = ("archive", "EXISTS n", "--broker", url, "--output", str(tmp_path), "--name", "two")
    with palio.SyncClient(url, name="two") as away:
        away.subscribe("EXISTS n", durable_name="archive")
        away.settled()
    publisher.publish([{"n": n} for n in range(3)], durable=True)
    with process(*arguments) as archiver:
        await_line(archiver)
        settled(url, "two/archive")
        out, _ = stop(archiver)
    assert out.startswith("3 events archived, 1 files written")
    assert archived(tmp_path) == [0, 1, 2]


SMALL: Final = ("--file-mib", "0.004")

KILLS: Final = 60 if os.environ.get("PALIO_PROFILE") == "nightly" else 2


def test_each_event_is_archived_once_however_often_it_is_killed(
    url: str, publisher: palio.SyncClient, tmp_path: Path
) -> None:
    """Files are so small that many are written between two kills."""
    draw = random.Random(5)
    name = f"killed{KILLS}"
    arguments = ("archive", "EXISTS n", "--broker", url, "--output", str(tmp_path), "--name", name)
    n = 0
    for _ in range(KILLS):
        with process(*arguments, *SMALL) as archiver:
            await_line(archiver)
            for _ in range(draw.randrange(1, 60)):
                count = draw.randrange(1, 20)
                publisher.publish(
                    [
                        {"n": n + each, **draw.choice(({}, {"x": 1}, {"y": "a"}))}
                        for each in range(count)
                    ],
                    durable=True,
                )
                n += count
            archiver.kill()
            archiver.wait()
    with process(*arguments, *SMALL) as archiver:
        await_line(archiver)
        settled(url, f"{name}/archive")
        stop(archiver)
    assert archived(tmp_path) == list(range(n))
    assert len(part_files(tmp_path)) > KILLS


class Stream(threading.Thread):
    """Publishes durably, number after number, until it is told to stop."""

    def __init__(self, client: palio.SyncClient) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._stopped = threading.Event()
        self.published = 0
        self.progress = threading.Semaphore(0)

    def run(self) -> None:
        while not self._stopped.is_set():
            self._client.publish([{"n": self.published + n} for n in range(10)], durable=True)
            self.published += 10
            self.progress.release()

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


@pytest.mark.nightly
def test_each_event_is_archived_once_though_the_broker_is_killed_too(tmp_path: Path) -> None:
    draw = random.Random(6)
    address = "127.0.0.1:0"
    serving = ("serve", "--data", str(tmp_path / "journal"), "--json", "--listen")
    target = tmp_path / "archive"
    with ExitStack() as stack:

        def serve() -> tuple[subprocess.Popen[str], str]:
            started = stack.enter_context(process(*serving, address))
            assert started.stdout is not None
            listening = json.loads(started.stdout.readline())["listening"]["palio"]
            return started, str(listening)

        def archive() -> subprocess.Popen[str]:
            started = stack.enter_context(
                process("archive", "EXISTS n", "--broker", where, "--output", str(target), *SMALL)
            )
            await_line(started)
            return started

        served, where = serve()
        address = where.removeprefix("palio://")
        archiver = archive()
        stream = Stream(stack.enter_context(palio.SyncClient(where)))
        stream.start()
        for _ in range(10):
            for _ in range(draw.randrange(1, 40)):
                assert stream.progress.acquire(timeout=PATIENCE_S)
            victim = draw.choice(("archiver", "broker", "both"))
            if victim != "broker":
                archiver.kill()
                archiver.wait()
            if victim != "archiver":
                served.kill()
                served.wait()
                served, _ = serve()
            if victim != "broker":
                archiver = archive()
        stream.stop()
        settled(where, "archive/archive")
        stop(archiver)
    assert archived(target) == list(range(stream.published))


def test_mistakes_are_told(palio: Palio, url: str, tmp_path: Path) -> None:
    nowhere = palio("archive", "x <", "--broker", url, "--output", str(tmp_path))
    assert (nowhere.status, nowhere.err.startswith("palio: ")) == (2, True)
    assert (
        "cannot name" in palio("archive", "x < 1", "--output", str(tmp_path), "--name", "a/b").err
    )
    with Archive(tmp_path, "busy"):
        busy = palio(
            "archive", "x < 1", "--broker", url, "--output", str(tmp_path), "--name", "busy"
        )
    assert "another process" in busy.err


@pytest.mark.parametrize(
    ("rolling", "expected"),
    [(Rolling(1, 900.0), 0.0), (Rolling(1 << 20, 0.0), 0.0), (Rolling(1 << 20, 1e9), 1e9)],
)
def test_a_file_is_due_by_size_or_by_age(tmp_path: Path, rolling: Rolling, expected: float) -> None:
    with Archive(tmp_path) as archive:
        assert rolling.wait_s(archive) is None
        archive.add([Parcel("p", stamped(pa.record_batch({"n": [1]}), 1, 0))])
        assert rolling.wait_s(archive) == pytest.approx(expected)


# --- replay ---


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """Ten events a minute apart, of two shapes and two publishers."""
    with Archive(tmp_path) as archive:
        for n in range(10):
            event: dict[str, Any] = {"n": n} if n % 3 else {"n": n, "name": "IBM"}
            (batch,) = to_batches([event])
            time_us = int((NOON + timedelta(minutes=n)).timestamp()) * 1_000_000
            archive.add([Parcel(f"p{n % 2}", stamped(batch, n, time_us))])
        archive.roll()
    return tmp_path


def printed(out: str) -> list[int]:
    return [json.loads(line)["event"]["n"] for line in out.splitlines()]


def test_events_are_printed_as_they_were(palio: Palio, past: Path) -> None:
    outcome = palio("replay", str(past), "--print")
    assert printed(outcome.out) == list(range(10))
    assert json.loads(outcome.out.splitlines()[3]) == {
        "publisher": "p1",
        "seq": 3,
        "time": "2026-01-01T12:03:00+00:00",
        "event": {"n": 3, "name": "IBM"},
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("n >= 7",), [7, 8, 9]),
        (("n >= :low AND name = 'IBM'", "-p", "low=4"), [6, 9]),
        (("--since", "2026-01-01T12:08", "n < 9"), [8]),
        (("--until", "2026-01-01T13:02+01:00"), [0, 1]),
        (("--since", "2026-01-02"), []),
    ],
)
def test_some_events_are_printed(
    palio: Palio, past: Path, arguments: tuple[str, ...], expected: list[int]
) -> None:
    assert printed(palio("replay", str(past), *arguments, "--print").out) == expected


def test_events_are_published_again_in_order(
    palio: Palio, url: str, past: Path, publisher: palio.SyncClient
) -> None:
    heard = publisher.subscribe("n >= 0 AND n < 100")
    outcome = palio("replay", str(past), "n > 1", "--broker", url, "--publisher", "past", "--json")
    assert outcome.document["events"] == 8
    events = [heard.receive(PATIENCE_S) for _ in range(8)]
    assert [event["n"] for event in events] == list(range(2, 10))
    assert dict(events[1]) == {"n": 3, "name": "IBM"}
    assert {event.publisher for event in events} == {outcome.document["publisher"]}
    assert outcome.document["publisher"].startswith("past/")


def test_replaying_durably_says_how_many(palio: Palio, url: str, past: Path) -> None:
    assert "10 events published by" in palio("replay", str(past), "--broker", url, "--durable").out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--speed", "0"), "above 0"),
        (("--speed", "fast"), "above 0"),
        (("--speed", "nan"), "above 0"),
        (("--since", "yesterday"), "no time"),
        (("n <",), "expected"),
        (("n < :x",), ":x"),
    ],
)
def test_mistakes_in_what_is_replayed(
    palio: Palio, past: Path, arguments: tuple[str, ...], problem: str
) -> None:
    outcome = palio("replay", str(past), *arguments, "--print")
    assert outcome.status == 2
    assert problem in outcome.err


def test_no_archive(palio: Palio, tmp_path: Path) -> None:
    assert "no archive" in palio("replay", str(tmp_path), "--print").err


@pytest.mark.parametrize("pace", [1.0, 60.0, 0.5])
def test_events_keep_their_distances(past: Path, pace: float) -> None:
    async def times() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        return [
            (round(loop.time() - began, 6), n)
            async for piece in paced(history(past, EVERYTHING), pace)
            for n in piece.column("n").to_numpy().tolist()
        ]

    assert run_virtually(times()) == [(60 * n / pace, n) for n in range(10)]


def test_at_most_speed_nothing_waits(past: Path) -> None:
    async def pieces() -> int:
        return sum([piece.num_rows async for piece in paced(history(past, EVERYTHING), math.inf)])

    assert run_virtually(pieces()) == 10


EVERYTHING: Final = parse_filter("TRUE")


class Refusing:
    """A broker's client whose events are refused, some of them."""

    publisher = "past/1"

    def __init__(self, refused: Collection[int], error: PalioError) -> None:
        self.refused = refused
        self.error = error
        self.taken: list[int] = []

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        """It has nothing to let go of."""

    def publish_nowait(
        self, batch: pa.RecordBatch, *, durable: bool, timeout: float
    ) -> asyncio.Future[None]:
        del timeout
        answer = asyncio.get_running_loop().create_future()
        column: Any = batch.column("n")
        numbers: list[int] = column.to_pylist()
        if not durable and set(numbers) & set(self.refused):
            answer.set_exception(self.error)
        else:
            self.taken += numbers
            answer.set_result(None)
        return answer


@pytest.fixture
def replayed(past: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Replay at a client; the exit status."""

    def replayed(client: Refusing, skip: int = 0, take: int | None = None) -> int:
        monkeypatch.setattr(BrokerAccess, "connect", lambda _, **__: client)
        return replay(path=past, filter="EXISTS n", skip=skip, take=take, as_json=True)

    return replayed


@pytest.mark.parametrize(
    ("error", "became"),
    [
        (NotPermitted("may not publish this"), "were not published"),
        (Unreachable("gone"), "may have been published or not"),
    ],
)
def test_a_replay_that_ends_early_says_what_was_published_and_how_to_go_on(
    replayed: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    error: PalioError,
    became: str,
) -> None:
    everything = Refusing((), error)
    assert replayed(everything) == 0
    order = everything.taken
    assert len(order) > 4
    client = Refusing(order[2:3], error)
    with pytest.raises(type(error), match=str(error)):
        replayed(client)
    told = capsys.readouterr().err
    assert f"{len(client.taken):,} events were published before the replay ended" in told
    assert became in told
    ways = re.findall(r"--skip (\d+)(?: --take (\d+))?", told)
    assert len(ways) == 2
    again = Refusing((), error)
    for skip, take in ways:
        assert replayed(again, int(skip), int(take) if take else None) == 0
    assert sorted(client.taken + again.taken) == sorted(order)


def test_a_part_is_a_number_of_events(replayed: Callable[..., int]) -> None:
    for skip, take in ((-1, None), (0, -1)):
        with pytest.raises(InvalidInput, match="--skip and --take"):
            replayed(Refusing((), NotPermitted("")), skip, take)
    client = Refusing((), NotPermitted(""))
    assert replayed(client, skip=1, take=2) == 0
    assert len(client.taken) == 2


def test_a_directory_that_cannot_be_made_is_told(palio: Palio, url: str) -> None:
    outcome = palio("archive", "TRUE", "--broker", url, "--output", "/proc/nope")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("palio: '/proc/nope")
    assert len(outcome.err.splitlines()) == 1
