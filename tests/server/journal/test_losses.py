from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from palio import Client, Gap, connect
from palio.errors import InvalidConfiguration, JournalDamaged, NotStored, PalioError
from palio.node.loss_markers import LossMarker
from palio.node.operations import (
    Append,
    CaughtUp,
    Claim,
    Cursor,
    DropSubscription,
    Open,
    Place,
    PutSubscription,
    PutTime,
    Release,
    Renew,
)
from palio.protocol.limits import MAX_SUBJECTS
from palio.server.journal.journal import FILE, Journal
from palio.server.journal.maintenance import backup
from palio.server.journal.watermark import FILE as MARK
from palio.testing.fleet import Fleet
from tests.server.helpers import append, put

LOG: Final = f"{FILE}-wal"
ENTRIES: Final = 80
SUBSCRIPTION: Final = PutSubscription("alice/all", "alice", "x > 0", b"\x80", 60.0)


def write(directory: Path, *appends: Append) -> None:
    """Each is a transaction of its own."""
    found = Journal(directory, "b1", reserve_bytes=0)
    found.start(lambda _: None, lambda _, __: None, lambda: None)
    for each in appends:
        found.append(each)
        found.flush()
    found.close()


@contextmanager
def opened(directory: Path) -> Iterator[Journal]:
    found = Journal(directory, "b1", reserve_bytes=0)
    found.start(lambda _: None, lambda _, __: None, lambda: None)
    try:
        yield found
    finally:
        found.close()


OPENING: Final = (
    CaughtUp(1),
    Open(Claim("alice/all", 3, "b1")),
    Open(Claim("carol/all", 1, "b2")),
    Open(Claim("dave/all", 7, "")),
    Renew("b2", 4),
    Cursor("b3", 1, 9),
    SUBSCRIPTION,
)


def entry(number: int) -> Append:
    return append(number, put(number, "b1", "alice/all"))


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """What a broker that was killed leaves behind: 80 entries, most of them in the log alone."""
    with opened(tmp_path / "at work") as found:
        found.append(append(1_000, *OPENING))
        found.flush()
        for number in range(1, ENTRIES + 1):
            found.append(entry(number))
            found.flush()
        shutil.copytree(tmp_path / "at work", tmp_path / "crashed")
    (tmp_path / "crashed" / "journal.lock").unlink()
    return tmp_path / "crashed"


def errors(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        {"event": each.getMessage()} | each.__dict__["details"]
        for each in caplog.records
        if each.levelno >= logging.ERROR
    ]


def entries(journal: Journal) -> list[int]:
    """What waits, in order, without what is told as lost."""
    return [each.entry for each in places(journal) if not told_as_lost(journal, each.entry)]


def log_of(journal: Journal) -> int:
    """Which log a journal has."""
    return next(each.log for each in journal.load().operations if isinstance(each, CaughtUp))


def places(journal: Journal) -> list[Place]:
    return [each for each in journal.load().operations if isinstance(each, Place)]


def told_as_lost(journal: Journal, entry: int) -> bool:
    return any(LossMarker.of(each.parcel) is not None for each in journal.entries([entry]))


def losses(journal: Journal) -> dict[str, list[str]]:
    """For whom a loss is told, by their homes."""
    found: dict[str, list[str]] = {}
    for home, _, entry, shares in places(journal):
        if told_as_lost(journal, entry):
            found.setdefault(home, []).extend(share.subject for share in shares)
    return found


def test_a_broker_that_was_killed_has_lost_nothing(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with opened(crashed) as found:
            assert entries(found) == list(range(1, ENTRIES + 1))
            assert losses(found) == {}
            assert CaughtUp(1) in found.load().operations
            assert found.counters.missing == 0
    assert not caplog.records


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_log_that_was_cut_short_is_told_as_a_range(
    crashed: Path, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    size = (crashed / LOG).stat().st_size
    with (crashed / LOG).open("r+b") as log:
        log.truncate(int(size * share))
    with opened(crashed) as found:
        held = entries(found)
        last = len(held)
        assert held == list(range(1, last + 1))
        assert last < ENTRIES
        (told,) = errors(caplog)
        assert told["event"] == "journal_truncated"
        assert told["entries"] == f"{last + 1} to {ENTRIES}"
        assert told["events"] == f"'alice' {100 * (last + 1)} to {100 * ENTRIES + 2}"
        assert found.counters.missing == ENTRIES - last
        everybody = {"b1": ["alice/all"], "b2": ["carol/all"]}
        assert losses(found) == (everybody if held else {"b1": ["alice/all"]})
        stored = found.load()
        assert stored.last_offset == ENTRIES + len(losses(found)), "each is used once"
        assert stored.epoch == 1
    with opened(crashed) as again:  # it is not forgotten by another start, nor told twice
        assert entries(again) == held
        assert len(losses(again)) == (2 if held else 1)
    assert len(errors(caplog)) == 1


def halve(log: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


def flip(log: Path, place: int | None = None) -> None:
    """SQLite drops the transaction that has the bit, and all behind; of the header, all."""
    data = bytearray(log.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 4
    log.write_bytes(data)


@pytest.mark.parametrize("spoil", [halve, flip])
def test_another_log_begins_where_transactions_are_lost(
    crashed: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """What this broker has forgotten of its streams, others believe to be there."""
    spoil(crashed / LOG)
    with opened(crashed) as found:
        kept = list(found.load().operations)
    assert isinstance(kept[0], CaughtUp)
    assert kept[0].log > 1
    assert Release("b2", 4, 0) in kept
    assert not any(isinstance(each, Cursor) for each in kept)
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("spoil", [lambda file: file.write_bytes(b""), Path.unlink])
def test_an_empty_database_beside_its_log_is_refused(
    crashed: Path, spoil: Callable[[Path], object]
) -> None:
    log = (crashed / LOG).read_bytes()
    spoil(crashed / FILE)
    for _ in range(2):  # the log stays as it is
        with pytest.raises(JournalDamaged, match=r"journal\.sqlite is empty or missing"):
            Journal(crashed, "b1")
        assert (crashed / LOG).read_bytes() == log


@pytest.mark.parametrize("is_there", [False, True])
def test_a_journal_that_is_gone_altogether_is_told(
    crashed: Path, is_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_there:
        flip(crashed / LOG, place=17)
    else:
        for name in (FILE, LOG, f"{FILE}-shm"):
            (crashed / name).unlink()
    with opened(crashed) as found:
        (told,) = errors(caplog)
        assert told["entries"] == f"1 to {ENTRIES}"
        assert told["subscriptions"] == "alice/all"
        assert found.load().subscriptions == []
        assert losses(found) == {"b1": ["alice/all"]}
        kinds = {type(each) for each in found.load().operations}
        assert kinds == {Place}, "it has yet to hear from its network, and which log to begin"


def test_an_old_copy_that_was_put_back_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    write(data, append(1, *OPENING), entry(1), entry(2))
    shutil.copy(data / FILE, tmp_path / "copy")
    bob = PutSubscription("bob/some", "bob", "x > 0", b"\x80", 60.0)
    carol = PutSubscription("carol/some", "carol", "x > 0", b"\x80", 60.0)
    gone = append(5, carol), append(6, DropSubscription("carol/some"))
    write(data, entry(3), entry(4), append(7, bob, PutTime(77)), *gone)
    assert not caplog.records
    shutil.copy(tmp_path / "copy", data / FILE)
    with opened(data) as found:
        (told,) = errors(caplog)
        assert told["entries"] == "3 to 4"
        assert told["events"] == "'alice' 300 to 402"
        assert told["subscriptions"] == "bob/some"
        assert entries(found) == [1, 2]
        assert losses(found) == {"b1": ["alice/all", "bob/some"], "b2": ["carol/all"]}
        assert log_of(found) > 1
        assert found.load().epoch == 2
        assert found.load().time_us == 77


def test_what_a_copy_has_not_forgotten_is_only_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    write(data, append(1, *OPENING), entry(1))
    shutil.copy(data / FILE, tmp_path / "copy")
    write(data, append(2, SUBSCRIPTION))
    shutil.copy(tmp_path / "copy", data / FILE)
    with opened(data) as found:
        assert [each["event"] for each in errors(caplog)] == ["journal_transactions_lost"]
        assert entries(found) == [1]
        assert losses(found) == {}
        assert log_of(found) > 1


def test_a_journal_of_before_there_were_marks_is_taken_as_it_is(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (crashed / MARK).unlink()
    with (crashed / LOG).open("r+b") as log:
        log.truncate(log.seek(0, 2) // 2)
    with opened(crashed) as found:
        assert len(entries(found)) < ENTRIES
    assert not caplog.records


def test_a_copy_that_is_used_twice_begins_two_logs(tmp_path: Path) -> None:
    write(tmp_path / "data", append(1, *OPENING))
    backup(tmp_path / "data", tmp_path / "copy")
    logs = []
    for name in ("once", "again"):
        shutil.copytree(tmp_path / "copy", tmp_path / name)
        with opened(tmp_path / name) as found:
            logs.append(log_of(found))
    assert 1 < logs[0] < logs[1]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_loss_is_told_in_entries_that_can_be_carried(tmp_path: Path, more: int) -> None:
    data = tmp_path / "data"
    count = MAX_SUBJECTS + more
    opening = [Open(Claim(f"s{each:03}", 1, "b2")) for each in range(count)]
    write(data, append(1, CaughtUp(1), *opening))
    shutil.copy(data / FILE, tmp_path / "copy")
    write(data, entry(1))
    shutil.copy(tmp_path / "copy", data / FILE)
    with opened(data) as found:
        assert [len(each.shares) for each in places(found)] == [
            size for size in (min(count, MAX_SUBJECTS), max(0, more)) if size
        ]


def test_the_mark_of_another_broker_is_refused(tmp_path: Path) -> None:
    write(tmp_path, entry(1))
    (tmp_path / FILE).unlink()
    with pytest.raises(InvalidConfiguration, match=r"journal\.mark is of .* 'b1', not of 'b2'"):
        Journal(tmp_path, "b2")


# --- brokers ---


def cut(data: Path) -> None:
    with (data / LOG).open("r+b") as log:
        log.truncate(log.seek(0, 2) // 2)


def empty(data: Path) -> None:
    for name in (FILE, LOG, f"{FILE}-shm"):
        (data / name).write_bytes(b"")


@pytest.mark.parametrize("spoil", [cut, empty])
async def test_whoever_waits_for_what_is_gone_hears_of_a_gap(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    gaps: list[Gap] = []
    async with Fleet(("b1",), tmp_path) as fleet:
        async with connect(fleet.url("b1"), name="alice") as alice:
            await alice.subscribe("n >= 0", durable_name="d")
        async with connect(fleet.url("b1"), name="bob") as bob:
            for number in range(60):
                await bob.publish({"n": number}, durable=True)
        await fleet.kill("b1")
        spoil(tmp_path / "b1")
        await fleet.start("b1")
        heard = []
        async with (
            asyncio.timeout(30),
            connect(fleet.url("b1"), name="bob") as bob,
            connect(fleet.url("b1"), name="alice") as alice,
        ):
            subscription = await alice.subscribe("n >= 0", durable_name="d", on_gap=gaps.append)
            await bob.publish({"n": 60}, durable=True)
            async for event in subscription:
                heard.append(event["n"])
                if event["n"] == 60:
                    break
    assert len(heard) < 61
    assert heard == [*range(len(heard) - 1), 60]
    assert gaps == [Gap("*", 0, 0, 0)]


async def taken(client: Client, event: dict[str, int]) -> bool:
    """Whether the broker takes a durable event."""
    try:
        await client.publish(event, durable=True)
    except NotStored:
        return False
    return True


async def test_a_journal_that_was_removed_under_a_broker_takes_nothing_more(
    tmp_path: Path,
) -> None:
    async with Fleet(("b1",), tmp_path) as fleet, connect(fleet.url("b1"), name="alice") as alice:
        await alice.subscribe("n >= 0", durable_name="d")
        await alice.publish({"n": 1}, durable=True)
        (tmp_path / "b1" / FILE).unlink()
        async with asyncio.timeout(30):
            while await taken(alice, {"n": 2}):  # the directory was looked at just before
                pass
        for _ in range(3):
            with pytest.raises(NotStored, match=r"journal\.sqlite was removed or moved away"):
                await alice.publish({"n": 2}, durable=True)
        with pytest.raises(PalioError, match="removed"):
            await alice.subscribe("n >= 0", durable_name="e")
        await alice.publish({"n": 3})
