from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Final

import pytest

import palio.spark
from palio.errors import FileDamaged, InvalidInput, UnsafeFile
from palio.spark import SubscriptionSet, reading, sets, subscriptions
from palio.spark.sets import KEEP_PINS, KEEP_S
from tests.modes import modes_below, umask
from tests.spark.brokers import wait_for

ONE: Final[list[dict[str, Any]]] = [{"id": 1, "filter": "n = 1"}]
TWO: Final[list[dict[str, Any]]] = [{"id": 2, "filter": "n = 2"}, {"id": 3, "filter": "n ="}]


def versions(found: SubscriptionSet) -> list[str]:
    return sorted(each.name for each in (found.path / "versions").iterdir())


def test_a_set_says_what_is_in_it(tmp_path: Path) -> None:
    found = subscriptions([*ONE, *TWO], tmp_path)
    assert len(found) == 2
    assert found.meta.attributes == ("n",)
    assert [tuple(row.values())[:2] for row in found.rejects.to_pylist()] == [(3, "n =")]
    assert subscriptions(found) is found


def test_the_same_subscriptions_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = subscriptions(ONE, tmp_path)
    monkeypatch.setattr("palio.spark.sets.save", None)
    assert subscriptions(ONE, tmp_path).version == found.version
    assert not found.refresh(ONE)


def test_without_a_path_it_is_found_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    found = subscriptions(ONE)
    monkeypatch.setattr("palio.spark.sets.save", None)
    assert subscriptions(ONE).path == found.path


def test_refresh_puts_another_version_in_force(tmp_path: Path) -> None:
    found = subscriptions(ONE, tmp_path)
    before = found.version
    other = SubscriptionSet(tmp_path)
    assert other.refresh(TWO)
    assert found.version == other.version != before
    assert len(found) == 1
    assert found.refresh(ONE)
    assert found.version == before


def test_what_changes_the_meaning_changes_the_name() -> None:
    sets = [
        subscriptions(ONE),
        subscriptions(ONE, time="at"),
        subscriptions(ONE, shards=2),
        subscriptions([{**ONE[0], "subscriber": "ann"}]),
        subscriptions([*ONE, {"id": 9}]),
    ]
    assert len({each.version for each in sets}) == len(sets)


def test_versions_that_were_replaced_stay_for_a_day(tmp_path: Path) -> None:
    found = subscriptions(ONE, tmp_path)
    first = found.version
    found.refresh(TWO)
    assert len(versions(found)) == 2
    home = tmp_path / "versions" / first
    for age, stays in ((KEEP_S - 60, True), (KEEP_S + 60, False)):
        stamp = home.stat().st_ctime - age
        os.utime(home, (stamp, stamp))
        found.refresh([{"id": age, "filter": "n = 5"}])
        assert (first in versions(found)) == stays


def test_a_micro_batch_keeps_its_version(tmp_path: Path) -> None:
    found = subscriptions(ONE, tmp_path)
    first = found.version
    assert found.pinned("query", 7) == first
    found.refresh(TWO)
    assert found.pinned("query", 7) == first
    assert found.pinned("query", 8) == found.version
    assert found.pinned("other", 7) == found.version


def test_all_tasks_of_a_micro_batch_agree(tmp_path: Path) -> None:
    """Whoever asks while versions come and go gets the same answer."""
    found = subscriptions(ONE, tmp_path)
    said: list[str] = []
    start = threading.Barrier(5)

    def ask() -> None:
        start.wait()
        said.append(SubscriptionSet(tmp_path).pinned("query", 1))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    start.wait()
    found.refresh(TWO)
    for each in threads:
        each.join()
    assert len(set(said)) == 1


def test_old_pins_go(tmp_path: Path) -> None:
    found = subscriptions(ONE, tmp_path)
    for batch in (0, 1, KEEP_PINS - 1, KEEP_PINS, KEEP_PINS + 1):
        found.pinned("query", batch)
    left = sorted(int(each.name.rpartition("-")[2]) for each in (tmp_path / "pins").iterdir())
    assert left == [KEEP_PINS - 1, KEEP_PINS, KEEP_PINS + 1]


def test_a_pin_to_a_version_that_is_gone(tmp_path: Path) -> None:
    found = subscriptions(ONE, tmp_path)
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / "query-1").write_text("0" * 32)
    assert found.pinned("query", 1) == found.version


@pytest.mark.parametrize("said", ["../..", "gone", "", "0" * 33, "\0" * 32, "/etc/passwd"])
def test_a_pin_or_a_name_that_is_no_version_is_refused(tmp_path: Path, said: str) -> None:
    found = subscriptions(ONE, tmp_path)
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / "query-1").write_text(said)
    with pytest.raises(FileDamaged, match=r"query-1 contains .*, which names no version"):
        found.pinned("query", 1)
    (tmp_path / "current").write_text(said)
    with pytest.raises(FileDamaged, match="current contains"):
        len(found)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_a_set_is_for_its_owner_only(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        subscriptions(ONE, tmp_path / "new" / "set").pinned("query", 1)
    assert modes_below(tmp_path / "new") == ({0o700}, {0o600})


def test_a_set_in_a_directory_for_a_group_is_for_this_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with umask(0o077):
        subscriptions(ONE, tmp_path).pinned("query", 1)
    directories, files = modes_below(tmp_path / "versions")
    assert (directories, files) == ({0o750}, {0o640})
    assert modes_below(tmp_path / "pins") == ({0o770}, {0o640})


@pytest.mark.parametrize("name", ["versions", "pins"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    home, elsewhere = tmp_path / "set", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / name).symlink_to(elsewhere)
    with pytest.raises(UnsafeFile, match=name):
        subscriptions(ONE, home).pinned("query", 1)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"shards": 0}, "whole number of shards"),
        ({"shards": 1.5}, "not 1.5"),
        ({"time": ""}, "name"),
        ({"time": "x" * 257}, "name"),
    ],
)
def test_wrong_arguments(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        subscriptions(ONE, **keywords)


def test_a_history_needs_a_time(tmp_path: Path) -> None:
    rows = [{**ONE[0], "valid_to": "2026-01-01"}]
    with pytest.raises(InvalidInput, match="name the column of the events' time"):
        subscriptions(rows, tmp_path)
    assert not (tmp_path / "current").exists()
    assert len(subscriptions(rows, tmp_path, time="at")) == 1


def test_a_path_without_a_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no subscription set"):
        SubscriptionSet(tmp_path).version  # noqa: B018 # reading it is the test


def test_a_set_without_subscriptions(tmp_path: Path) -> None:
    assert len(subscriptions([], tmp_path)) == 0


def test_a_set_says_what_it_holds(tmp_path: Path) -> None:
    found = subscriptions([{"id": 1, "filter": "x = 1"}, {"id": 2, "filter": "="}], tmp_path / "s")
    assert repr(found) == (
        f"<SubscriptionSet {str(found.path)!r}: 1 ids, 1 rejected, version {found.version}>"
    )
    nowhere = SubscriptionSet(tmp_path / "nowhere")
    assert repr(nowhere) == f"<SubscriptionSet {str(nowhere.path)!r}, of nothing yet>"


# --- keeping up with a source ---


def write_filters(path: Path, *filters: str) -> None:
    rows = [{"id": number, "filter": text} for number, text in enumerate(filters)]
    fresh = path.with_suffix(".fresh")
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fresh.replace(path)


def test_a_set_keeps_up_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "wanted.jsonl"
    write_filters(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    first = standing.version
    with standing.follow(file, 0.01) as refreshing:
        write_filters(file, "x > 1", "x > 2")
        wait_for(lambda: refreshing.changes == 1)
        assert len(standing) == 2
        assert standing.version != first
    assert not refreshing._thread.is_alive()


def test_a_source_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "wanted.jsonl"
    write_filters(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    with standing.follow(file, 0.01) as refreshing:
        file.unlink()
        wait_for(lambda: refreshing.error is not None)
        assert "there is no such file" in str(refreshing.error)
        assert len(standing) == 1
        write_filters(file, "x > 5")
        wait_for(lambda: refreshing.error is None)
    assert refreshing.changes == 1


def test_a_source_that_fails_in_another_way_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wanted.jsonl"
    write_filters(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    read = reading.read

    def fails(_: Any) -> Any:
        raise OSError("no space left on device")

    with standing.follow(file, 0.01) as refreshing:
        monkeypatch.setattr(sets, "read", fails)
        wait_for(lambda: refreshing.error is not None)
        assert "no space left" in str(refreshing.error)
        write_filters(file, "x > 5")
        monkeypatch.setattr(sets, "read", read)
        wait_for(lambda: refreshing.changes == 1)
    assert refreshing.error is None


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_a_source_is_read_now_and_then(tmp_path: Path, every_s: float) -> None:
    file = tmp_path / "wanted.jsonl"
    write_filters(file, "x > 1")
    standing = palio.spark.subscriptions(file, tmp_path / "set")
    with pytest.raises(InvalidInput, match="after a number of seconds above 0"):
        standing.follow(file, every_s)
