from __future__ import annotations

import json
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import pytest

import palio.spark
from palio.errors import InvalidInput

PATIENCE_S: Final = 60.0


def write(path: Path, *filters: str) -> None:
    rows = [{"id": number, "filter": text} for number, text in enumerate(filters)]
    fresh = path.with_suffix(".fresh")
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fresh.replace(path)


def wait_for(true: Any) -> None:
    until = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < until
        sleep(0.01)


def test_a_set_keeps_up_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "wanted.jsonl"
    write(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    first = standing.version
    with standing.follow(file, 0.01) as refreshing:
        write(file, "x > 1", "x > 2")
        wait_for(lambda: refreshing.changes == 1)
        assert len(standing) == 2
        assert standing.version != first
    assert not refreshing._thread.is_alive()


def test_a_source_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "wanted.jsonl"
    write(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    with standing.follow(file, 0.01) as refreshing:
        file.unlink()
        wait_for(lambda: refreshing.error is not None)
        assert "there is no such file" in str(refreshing.error)
        assert len(standing) == 1
        write(file, "x > 5")
        wait_for(lambda: refreshing.error is None)
    assert refreshing.changes == 1


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_a_source_is_read_now_and_then(tmp_path: Path, every_s: float) -> None:
    file = tmp_path / "wanted.jsonl"
    write(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    with pytest.raises(InvalidInput, match="after a number of seconds above 0"):
        standing.follow(file, every_s)
