from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palio.server.journal.disk_space import FileIdentity


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
    identity = FileIdentity([data / "file", data / "log"])
    with (data / "log").open("a") as log:  # to be written to is what they are for
        log.write("x")
    assert identity.problem() is None
    harm(data)
    problem = identity.problem()
    assert problem is not None
    assert told in problem
    assert "restart the broker" in problem


def test_it_is_for_good(tmp_path: Path) -> None:
    """What was refused meanwhile is not in it."""
    (tmp_path / "file").write_text("x")
    identity = FileIdentity([tmp_path / "file"])
    (tmp_path / "file").rename(tmp_path / "other")
    problem = identity.problem()
    (tmp_path / "other").rename(tmp_path / "file")
    assert identity.problem() == problem
