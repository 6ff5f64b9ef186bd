from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from palio.server.logs import configure_logs


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
