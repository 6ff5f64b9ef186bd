from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from palio.server.journal.disk_space import Presence
from palio.server.limits import LOOK_S


def remove(data: Path) -> None:
    (data / "log").unlink()


def move(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))


def replace(data: Path) -> None:
    shutil.copy(data / "log", data / "copy")
    (data / "copy").rename(data / "log")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (remove, "log was removed or moved away"),
        (move, "file was removed or moved away"),
        (replace, "log was replaced"),
    ],
)
def test_files_that_are_not_where_they_were_are_noticed(
    tmp_path: Path, harm: Callable[[Path], None], told: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("file", "log"):
        (data / name).write_text("x")
    presence = Presence([data / "file", data / "log"], clock=count().__next__)
    with (data / "log").open("a") as log:  # to be written to is what they are for
        log.write("x")
    assert presence.problem() is None
    harm(data)
    problem = presence.problem()
    assert problem is not None
    assert told in problem
    assert "restart the broker" in problem


def test_it_is_for_good(tmp_path: Path) -> None:
    """What was refused meanwhile is not in it."""
    (tmp_path / "file").write_text("x")
    presence = Presence([tmp_path / "file"], clock=count().__next__)
    (tmp_path / "file").rename(tmp_path / "other")
    problem = presence.problem()
    (tmp_path / "other").rename(tmp_path / "file")
    assert presence.problem() == problem


@pytest.mark.parametrize(("later_s", "is_seen"), [(0.9 * LOOK_S, False), (LOOK_S, True)])
def test_a_look_is_good_for_some_time(tmp_path: Path, later_s: float, is_seen: bool) -> None:
    (tmp_path / "file").write_text("x")
    now = 100.0
    presence = Presence([tmp_path / "file"], clock=lambda: now)
    assert presence.problem() is None
    (tmp_path / "file").unlink()
    now += later_s
    assert (presence.problem() is not None) is is_seen
