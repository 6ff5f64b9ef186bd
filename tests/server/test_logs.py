from __future__ import annotations

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from palio.node.core import _level
from palio.server.logs import configure_logs
from tests.tables import code, table


@contextmanager
def logging_to(stream: io.StringIO, level: str, style: str) -> Iterator[logging.Logger]:
    names = ("palio", "uvicorn")
    before = {
        name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in names
    }
    handler = configure_logs(level, style, stream)
    try:
        yield logging.getLogger("palio.node")
    finally:
        for name, (old_level, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = propagate


def test_a_line_for_programs_is_a_json_object() -> None:
    stream = io.StringIO()
    with logging_to(stream, "info", "json") as logger:
        logger.warning("peer_down", extra={"details": {"peer": "b2", "level": "mine"}})
    document = json.loads(stream.getvalue())
    assert document.pop("time").endswith("+00:00")
    assert document == {
        "level": "warning",
        "logger": "palio.node",
        "event": "peer_down",
        "peer": "b2",
    }


def test_a_line_for_people_has_pairs() -> None:
    stream = io.StringIO()
    with logging_to(stream, "info", "text") as logger:
        logger.info("peer_up", extra={"details": {"peer": "b2", "links": 3}})
    assert stream.getvalue().split(" ", 1)[1] == "info peer_up peer=b2 links=3\n"


@pytest.mark.parametrize(
    "value", ["two words", "a=b", "line\nbreak", "\x1b[31mred", '"', "", "tab\t"]
)
def test_what_others_chose_cannot_forge_a_line_or_a_pair(value: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, "info", "text") as logger:
        logger.info("event", extra={"details": {"reason": value}})
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line.partition("reason=")[2]) == value


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_is_shown(style: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, "info", style) as logger:
        try:
            raise ValueError("a bug")
        except ValueError:
            logger.exception("failed")
    assert "ValueError: a bug" in stream.getvalue()


def test_less_than_the_level_is_not_told() -> None:
    stream = io.StringIO()
    with logging_to(stream, "warning", "text") as logger:
        logger.info("quiet")
    assert stream.getvalue() == ""


SOURCES: Final = Path(__file__).parents[2] / "src" / "palio"

LEVELS: Final = ("debug", "info", "warning", "error", "exception")


def _logged(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Each event that is logged, and its level; empty where a variable decides."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("logger" | "losses"), attr="log"),
                args=[_, event],
            ):
                yield event, ""
            case ast.Call(
                func=ast.Attribute(value=ast.Name("logger" | "losses"), attr=level), args=[event]
            ) if level in LEVELS:
                yield event, "error" if level == "exception" else level
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name("core" | "self") | ast.Attribute(attr="_core"), attr="report"
                ),
                args=[level, event],
            ):
                yield event, str(level.value) if isinstance(level, ast.Constant) else ""
            case ast.Call(func=ast.Attribute(attr="warn"), args=[event, *_]):
                yield event, _level(str(event.value)) if isinstance(event, ast.Constant) else ""


def test_the_documentation_lists_every_event() -> None:
    """Each is called `noun_verb`, so that an alert can match it; what varies is in the details."""
    rows = {code(row["event"]): row for row in table("Logs", "server.md")}
    assert all(row["when"] and row["what to do"] for row in rows.values())
    events = set()
    for path in sorted([*(SOURCES / "server").rglob("*.py"), *(SOURCES / "node").rglob("*.py")]):
        for event, level in _logged(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.value for each in ast.walk(event) if isinstance(each, ast.Constant)]
            if not names:  # the calls of `RateLimitedLog`, which are given the event's name
                assert (path.name, ast.unparse(event)) == ("core.py", "event")
            for name in names:
                assert re.fullmatch(r"[a-z]+(_[a-z]+)+", str(name)), (path, name)
                assert not level or rows[str(name)]["level"] == level, (path, name)
                events.add(name)
    assert events == set(rows)
