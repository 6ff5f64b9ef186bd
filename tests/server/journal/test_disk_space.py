"""A full disk: what grows is refused, what shrinks is written, and then all goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from palio.node.operations import Ack, Discard, Place
from palio.server.journal.disk_space import (
    FILE,
    RESERVE_BYTES,
    SLACK_BYTES,
    DiskSpace,
)
from palio.server.journal.journal import Journal
from tests.server.full_disk import CYCLES
from tests.server.helpers import append, put

PATIENCE_S = 120.0

SMALL_DISK = 'mount -t tmpfs -o size=6m tmpfs "$0" && exec "$1" -m tests.server.full_disk "$0"'


def test_a_disk_that_was_full_is_used_again_once_it_is_drained(tmp_path: Path) -> None:
    """A real one of 6 MiB; also where others have taken its last byte, and the broker restarts."""
    apart = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    found = subprocess.run(
        [*apart, "sh", "-c", SMALL_DISK, str(tmp_path), sys.executable],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert len(told["cycles"]) == CYCLES
    for filled, acknowledged, is_writable, subscribed in told["cycles"]:
        assert filled > 20, "events of 100 kB"
        assert acknowledged == filled
        assert is_writable
        assert subscribed
    assert told["kept"] == [True] * 3, "what was stored is there after the restart"
    waiting, acknowledged, left, is_refused = told["full"]
    assert (acknowledged, left) == (waiting, 0)
    assert is_refused, "what grows, until others have made room"
    assert told["filled"] > 20


class Disk:
    """A disk of so many free bytes, as `os.statvfs` tells of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int, total: int = 1 << 40) -> None:
        self.free, self.total = free, total
        monkeypatch.setattr(os, "statvfs", self._told)

    def _told(self, _path: Any) -> Any:
        class Told:
            f_frsize = 1
            f_bavail = self.free
            f_blocks = self.total

        return Told


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_what_grows_leaves_room_for_the_log_to_move(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beyond: int
) -> None:
    (tmp_path / "journal.sqlite-wal").write_bytes(bytes(5_000))
    disk = Disk(monkeypatch, 1 << 30)
    found = DiskSpace(tmp_path, 0)
    disk.free = 2 * 1_000 + 5_000 + 2 * SLACK_BYTES + beyond
    assert found.admits(1_000) == (beyond >= 0)
    disk.free = 1_000 + SLACK_BYTES + beyond
    assert found.admits(1_000, reusable=6_000) == (beyond >= 0)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_the_reserve_is_made_where_there_is_room_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beyond: int
) -> None:
    disk = Disk(monkeypatch, 1 << 30)
    found = DiskSpace(tmp_path, 1 << 20)
    disk.free = (1 << 20) + SLACK_BYTES + beyond
    found.reserve()
    assert found.is_reserved == (beyond >= 0)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_what_grows_leaves_room_for_a_reserve_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beyond: int
) -> None:
    disk = Disk(monkeypatch, 1 << 30)
    found = DiskSpace(tmp_path, 1 << 20)
    disk.free = 2 * 1_000 + 2 * SLACK_BYTES + (1 << 20) + beyond
    assert found.admits(1_000) == (beyond >= 0)
    found.reserve()
    disk.free -= 1 << 20
    assert found.admits(1_000) == (beyond >= 0)


def test_a_small_disk_gives_a_part_of_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Disk(monkeypatch, 1 << 30, total=8 << 20)
    assert DiskSpace(tmp_path).reserve_bytes == 1 << 20
    Disk(monkeypatch, 1 << 30)
    assert DiskSpace(tmp_path).reserve_bytes == RESERVE_BYTES


def test_the_reserve_goes_with_a_journal_that_is_closed_unless_the_disk_is_nearly_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for free, is_kept in ((1 << 30, False), (3 << 20, True)):
        disk = Disk(monkeypatch, 1 << 30)
        journal = Journal(tmp_path, "b1", reserve_bytes=1 << 20)
        assert (tmp_path / FILE).stat().st_size == 1 << 20
        disk.free = free
        journal.close()
        assert (tmp_path / FILE).exists() == is_kept


def waiting(journal: Journal) -> list[int]:
    return [each.entry for each in journal.load().operations if isinstance(each, Place)]


def test_what_lets_go_is_written_and_what_grows_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("palio.server.journal.writer.PROBE_S", 0.01)
    disk = Disk(monkeypatch, 1 << 30)
    journal = Journal(tmp_path, "b1", reserve_bytes=1 << 20)
    stored: list[int] = []
    failed: dict[int, str] = {}
    writable = threading.Event()
    journal.start(stored.extend, failed.__setitem__, writable.set)
    journal.append(append(1, put(1, "b1", "s")))
    journal.flush()
    disk.free = 0
    over = (Ack("s", 1), Discard((1,)))
    journal.append(append(2, put(2, "b1", "s"), released=over))
    journal.flush()
    assert list(failed) == [2]
    assert "the disk is full" in failed[2]
    assert waiting(journal) == [1], "all of an append or nothing"
    journal.append(append(3, term=1, released=over))
    journal.flush()
    assert stored == [1, 3]
    assert waiting(journal) == []
    assert journal.entries([1, 2]) == []
    assert not writable.wait(0.1)
    disk.free = 1 << 30
    assert writable.wait(20)
    journal.append(append(4, put(4, "b1", "s"), term=1))
    journal.flush()
    assert stored == [1, 3, 4]
    assert waiting(journal) == [4]
    journal.close()


def test_the_reserve_is_for_its_owner_and_not_made_through_a_link(tmp_path: Path) -> None:
    elsewhere, name = tmp_path / "elsewhere", tmp_path / FILE
    name.symlink_to(elsewhere)
    room = DiskSpace(tmp_path, reserve_bytes=4_096)
    room.reserve()
    assert room.is_reserved
    assert not elsewhere.exists()
    assert not name.is_symlink()
    assert name.stat().st_mode & 0o777 == 0o600
