from __future__ import annotations

import contextlib
import io
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.cli.inputs import (
    MOST_NAMED,
    BadLine,
    bindings,
    check_bindings,
    events,
    moment,
    names_a_file,
    text_of,
)
from palio.errors import InvalidBinding, InvalidEvent, InvalidInput, PalioError, ParseError


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(content: str | bytes) -> str:
        path = tmp_path / "events.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


# --- events ---


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": 1}', [(1, {"a": 1})]),
        ('{"a": 1}\n', [(1, {"a": 1})]),
        ('{"a": 1}\n\n  \n{"b": 2}\r\n', [(1, {"a": 1}), (4, {"b": 2})]),
        ('\n\n{\n "a": {"b": 1,\n "c": null}\n}\n', [(3, {"a.b": 1})]),
        ('\ufeff{"a": 1}', [(1, {"a": 1})]),
        ('{"a": "é😀", "b": [1], "c": true, "d": 0.5}', [(1, {"a": "é😀", "c": True, "d": 0.5})]),
        ("{}", [(1, {})]),
    ],
)
def test_events_of_a_file(write: Any, content: str, expected: list[Any]) -> None:
    assert list(events(write(content))) == expected


def test_what_becomes_no_attribute_is_named_once(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    content = '{"a": 1}\n{"b": 2, "data": {"tags": [1], "note": null}}\n{"c": []}\n'
    assert [event for _, event in events(write(content))] == [{"a": 1}, {"b": 2}, {}]
    told = capsys.readouterr().err
    assert "line 2: filters do not see 'data.tags' (an array), 'data.note' (null), as" in told
    assert told.count("do not see") == 1


def test_of_many_omitted_attributes_a_few_are_named_without_control_characters(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    members = ", ".join(f'"\\u001b{n}": []' for n in range(1_000))
    assert [event for _, event in events(write("{" + members + "}"))] == [{}]
    told = capsys.readouterr().err
    assert told.count("an array") == MOST_NAMED
    assert "\x1b" not in told


def test_events_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}\n{"a": 2}')))
    assert [event for _, event in events("-")] == [{"a": 1}, {"a": 2}]


def test_an_event_comes_as_soon_as_its_line_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(size)
            assert b"later" not in line, "read ahead"
            return line

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Stream(b'{"a": 1}\n{"later": 2}\n')))
    assert next(events("-")) == (1, {"a": 1})


@pytest.mark.parametrize(
    ("content", "line", "column", "problem"),
    [
        ('{"a": 1', 1, 8, "this is no JSON"),
        ('{"a": 1}\n{"a" 2}', 2, 6, "this is no JSON"),
        ('\n\n{\n "a": 1,\n}', 5, 1, "this is no JSON"),
        ('{"a": 1}\n{\n"b": 1}', 2, 2, "this is no JSON"),
        ('{"a": 1}\n{"a": "\xff"}'.encode("latin-1"), 2, 8, "not UTF-8"),
        ('{"a": ' + "[" * 100_000, 1, 1, "nested too deeply"),
        ('{"a": ' + "1" * 5_000 + "}", 1, 1, "this is no JSON"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(
    write: Any, content: str | bytes, line: int, column: int, problem: str
) -> None:
    with pytest.raises(ParseError, match=problem) as error:
        list(events(write(content)))
    assert (error.value.line, error.value.column) == (line, column)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("[1]", 1, "not an array"),
        ('{"a": 1}\n"text"', 2, "not a string"),
        ('{"a": 1}\n\n7', 3, "not a number"),
        ("null", 1, "not null"),
        ("true", 1, "not a boolean"),
        ('{"a": 9223372036854775808}', 1, "int64"),
        ('{"a": {"b": 1}, "a.b": 2}', 1, "occurs twice"),
        ('{"": 1}', 1, "no attribute name"),
        ('{"a": "\\ud800"}', 1, "surrogate"),
        ("\n" + '{"a":' * 70 + "1" + "}" * 70, 2, "nesting"),
    ],
)
def test_what_is_no_event_is_refused_with_its_line(
    write: Any, content: str, line: int, problem: str
) -> None:
    with pytest.raises(BadLine, match=problem) as error:
        list(events(write(content)))
    assert error.value.line == line


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_no_event_at_all_is_bad_input(write: Any, content: str) -> None:
    with pytest.raises(InvalidEvent, match="there is no event"):
        list(events(write(content)))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for source in (str(tmp_path), str(tmp_path / "none"), "x" * 10_000, "nul\0"):
        with pytest.raises(InvalidInput, match="cannot read"):
            list(events(source))


def test_a_file_that_can_be_opened_but_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def readline(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(InvalidInput, match="cannot read: Input/output error"):
        list(events("-"))


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_comes_only_errors_of_ours_come_out(content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with contextlib.suppress(PalioError):
            assert list(events("-"))


def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "filter.txt"
    path.write_text("a = 1\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"c = 3")))
    assert text_of(str(path), is_text=False) == "a = 1\n"
    assert text_of("b = 'é'", is_text=True) == "b = 'é'"
    assert text_of("-", is_text=False) == "c = 3"
    assert names_a_file(str(path))
    assert not names_a_file("x" * 10_000)


# --- parameters ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("-10", -10),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("infinity", math.inf),
        ("-infinity", -math.inf),
        ("'10'", "10"),
        ("'it''s'", "it's"),
        ("''", ""),
        ("", ""),
        ("IBM", "IBM"),
        ("two words", "two words"),
        ("it's", "it's"),
        ("a=b", "a=b"),
        ("10s", "10s"),
        ("null", "null"),
        ("2026-01-01", "2026-01-01"),
        ("a'b'", "a'b'"),
        ("X'00ff'", b"\x00\xff"),
        ("TIMESTAMP '2026-01-01T00:00:00Z'", datetime(2026, 1, 1, tzinfo=UTC)),
        ("(1, 2)", (1, 2)),
        ("('a')", ("a",)),
        ("(true, 'a')", (True, "a")),
        ("(a)", "(a)"),
        ("()", "()"),
        ("(1 2)", "(1 2)"),
        ("(1,)", "(1,)"),
        ("1 + 1", "1 + 1"),
        ("*.csv", "*.csv"),
    ],
)
def test_a_value_is_typed_as_in_the_language(text: str, value: object) -> None:
    found = bindings([f"name={text}"])["name"]
    assert found == value
    assert type(found) is type(value)


def test_names_of_parameters() -> None:
    assert bindings([":a=1", " b =2"]) == {"a": 1, "b": 2}
    assert bindings([]) == {}


@pytest.mark.parametrize("bad", ["limit", "=1", ":=1", ""])
def test_a_parameter_without_a_name_or_a_value(bad: str) -> None:
    with pytest.raises(InvalidInput, match="write it as name=value"):
        bindings([bad])


@pytest.mark.parametrize("bad", ["a='open", "a=X'0'", "a=TIMESTAMP 'soon'", "a=('open)"])
def test_what_begins_like_a_literal_must_be_one(bad: str) -> None:
    with pytest.raises(ParseError, match="line 1"):
        bindings([bad])


def test_a_parameter_given_twice() -> None:
    with pytest.raises(InvalidBinding, match="given twice"):
        bindings(["a=1", "a=2"])


def test_a_parameter_that_the_filter_does_not_have() -> None:
    filter = palio.parse("a = :x OR b = :y")
    check_bindings(filter, {"x": 1})
    with pytest.raises(InvalidBinding, match="no parameter :z; it has :x, :y"):
        check_bindings(filter, {"x": 1, "z": 2})


def test_times_without_a_zone_are_utc() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert moment("2026-01-01T12:00") == moment("2026-01-01T12:00Z") == noon
    assert moment("") is None
    with pytest.raises(InvalidInput, match="'soon' is no time"):
        moment("soon")
