from __future__ import annotations

import io
import json
import sys

import pytest

import palio
from palio.cli.inputs import BadLine
from palio.cli.reporting import described, show, show_error
from palio.errors import InvalidEvent, LimitExceeded, ParseError


def test_a_text_or_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    show("é")
    show({"é": 1})
    assert capsys.readouterr().out == 'é\n{\n  "é": 1\n}\n'


def test_a_document_for_a_terminal_that_knows_no_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    show({"name": "é😀"})
    sys.stdout.flush()
    assert raw.getvalue().isascii()
    assert json.loads(raw.getvalue()) == {"name": "é😀"}


def test_a_parse_error_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ParseError) as caught:
        palio.parse("a = 1 AND\nb ~ 2")
    show_error(caught.value, as_json=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("palio: line 2, column 3: unexpected character '~'")
    assert err.endswith("\n  b ~ 2\n    ^\n")
    show_error(caught.value, as_json=True)
    out, err = capsys.readouterr()
    assert err == ""
    error = json.loads(out)["error"]
    assert (error["type"], error["line"], error["column"]) == ("ParseError", 2, 3)
    assert error["message"].startswith("unexpected character '~'; there are no regular")


def test_an_error_in_a_line_keeps_its_kind_and_place() -> None:
    assert described(BadLine(7, InvalidEvent("no"))) == {
        "type": "InvalidEvent",
        "message": "line 7: no",
        "line": 7,
        "column": None,
    }


def test_any_other_error() -> None:
    error = LimitExceeded("it", limit="MAX_IT", maximum=1, actual=2)
    assert described(error)["type"] == "LimitExceeded"
    assert "MAX_IT = 1 (2 found)" in described(error)["message"]
