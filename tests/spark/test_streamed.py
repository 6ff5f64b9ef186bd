"""What a stream of Spark has written, by its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palio.errors import InvalidInput
from palio.spark.streamed import streamed_files


def added(home: Path, *names: str) -> str:
    """A file of the log."""
    rows = []
    for name in names:
        (home / name).touch()
        rows.append(json.dumps({"path": (home / name).as_uri(), "action": "add"}))
    return "\n".join(["v1", *rows])


def log(home: Path, **entries: str) -> None:
    (home / "_spark_metadata").mkdir(exist_ok=True)
    for name, text in entries.items():
        (home / "_spark_metadata" / name.strip("b").replace("_", ".")).write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "out put"
    found.mkdir()
    return found


def test_the_files_that_the_log_names_are_the_streams(home: Path) -> None:
    log(home, b1=added(home, "c"), b0=added(home, "b %20", "a"))
    (home / "orphan").touch()
    (home / "_spark_metadata" / ".2.0a-0b.tmp").write_text("v1")
    assert [each.name for each in streamed_files(home)] == ["a", "b %20", "c"]


def test_what_was_compacted_has_all_before_it(home: Path) -> None:
    log(home, b8=added(home, "lost"), b9_compact=added(home, "a", "b"), b10=added(home, "c"))
    assert [each.name for each in streamed_files(home)] == ["a", "b", "c"]
    log(home, b11=added(home), b9=added(home, "lost"))
    assert [each.name for each in streamed_files(home)] == ["a", "b", "c"]


def test_a_stream_that_has_written_nothing_has_no_files(home: Path) -> None:
    log(home)
    assert streamed_files(home) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"b1": "v1"}, "batch 0 of its log is missing"),
        ({"b0": "v1", "b2": "v1"}, "batch 1 of its log is missing"),
        ({"b3_compact": "v1", "b5": "v1"}, "batch 4 of its log is missing"),
        ({"b0": "v2"}, "is of version 'v2', not v1"),
        ({"b0": ""}, "cannot read '.*0'"),
        ({"b0": "v1\n{"}, "cannot read '.*0'"),
        ({"b0": 'v1\n{"path": "x", "action": "delete"}'}, "what is not understood"),
        ({"b0": 'v1\n{"action": "add"}'}, "what is not understood"),
        ({"b0": 'v1\n{"path": "s3a://b/x", "action": "add"}'}, "which is elsewhere"),
        ({"b0": 'v1\n{"path": "file:///etc/passwd", "action": "add"}'}, "which is elsewhere"),
    ],
)
def test_a_log_that_cannot_be_followed_is_refused(
    home: Path, entries: dict[str, Any], message: str
) -> None:
    log(home, **entries)
    with pytest.raises(InvalidInput, match=rf"(?s){message}.*hand in spark\.read\.parquet"):
        streamed_files(home)


def test_a_file_that_is_gone_is_missed(home: Path) -> None:
    log(home, b0=added(home, "a"))
    (home / "a").unlink()
    with pytest.raises(InvalidInput, match=r"names '.*a', which is not there"):
        streamed_files(home)
