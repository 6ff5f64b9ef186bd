from __future__ import annotations

from pathlib import Path

import pytest

import palio as package
from tests.cli.helpers import Palio

CASES = [
    ("cesql", "type = 'order.created'", "type = 'order.created'"),
    ("cloudevents", '{"exact": {"type": "order.created"}}', "type = 'order.created'"),
    (
        "cloudevents",
        '[{"prefix": {"type": "a"}}, {"suffix": {"source": "b"}}]',
        "source ENDS WITH 'b' AND type STARTS WITH 'a'",
    ),
    ("eventbridge", '{"detail": {"state": ["on"]}}', "detail.state = 'on'"),
]


@pytest.mark.parametrize(("dialect", "source", "expected"), CASES)
def test_from_a_text_a_file_and_standard_input(
    palio: Palio, tmp_path: Path, dialect: str, source: str, expected: str
) -> None:
    path = tmp_path / "filter"
    path.write_text(source + "\n", encoding="utf-8")
    for arguments, stdin in (([source], ""), ([str(path)], ""), (["-"], source), ([], source)):
        assert palio("convert", "--from", dialect, *arguments, stdin=stdin) == (
            0,
            expected + "\n",
            "",
        )
    assert str(package.parse(expected)) == expected


def test_json(palio: Palio) -> None:
    dialect, source, expected = CASES[-1]
    assert palio("convert", source, "--from", dialect, "--json").document == {
        "from": dialect,
        "filter": expected,
        "attributes": ["detail.state"],
    }


@pytest.mark.parametrize(
    ("dialect", "source"),
    [
        ("cesql", "type ="),
        ("cesql", "x" * 10_000 + " ="),
        ("cloudevents", '{"nosuch": {}}'),
        ("cloudevents", "{"),
        ("cloudevents", "no/such/file"),
        ("eventbridge", '{"source": "not a list"}'),
        ("eventbridge", "[" * 10_000),
        ("eventbridge", "."),
    ],
)
def test_what_cannot_be_converted(palio: Palio, dialect: str, source: str) -> None:
    outcome = palio("convert", "--from", dialect, source)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith("palio: ")
    assert palio("convert", "--from", dialect, source, "--json").document["error"]["message"]
