from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import palio.spark
from palio.errors import InvalidInput
from palio.spark import reading, sets
from tests.spark.brokers import wait_for


def write(path: Path, *filters: str) -> None:
    rows = [{"id": number, "filter": text} for number, text in enumerate(filters)]
    fresh = path.with_suffix(".fresh")
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fresh.replace(path)


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


def test_a_source_that_fails_in_another_way_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wanted.jsonl"
    write(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    read = reading.read

    def fails(_: Any) -> Any:
        raise OSError("no space left on device")

    with standing.follow(file, 0.01) as refreshing:
        monkeypatch.setattr(sets, "read", fails)
        wait_for(lambda: refreshing.error is not None)
        assert "no space left" in str(refreshing.error)
        write(file, "x > 5")
        monkeypatch.setattr(sets, "read", read)
        wait_for(lambda: refreshing.changes == 1)
    assert refreshing.error is None


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_a_source_is_read_now_and_then(tmp_path: Path, every_s: float) -> None:
    file = tmp_path / "wanted.jsonl"
    write(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    with pytest.raises(InvalidInput, match="after a number of seconds above 0"):
        standing.follow(file, every_s)
