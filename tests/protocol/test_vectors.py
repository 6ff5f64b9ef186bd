"""Recorded frames are what both ends say and read; docs/reference/wire.md shows what they are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from palio.protocol.messages import Ping
from palio.protocol.wire import Decoder
from tests.protocol.vectors import ENDS, PLAIN, path_of, plain, recorded
from tests.protocol.wire_page import PAGE, client_messages, drawn

AGAIN = "a frame is another: is PROTOCOL_VERSION? Record it by `python -m tests.protocol.vectors`"


def cases(end: str) -> list[dict[str, Any]]:
    """The recorded connections of an end."""
    listed: list[dict[str, Any]] = json.loads(path_of(end).read_text(encoding="utf-8"))
    return listed


@pytest.mark.parametrize("end", ENDS)
def test_what_is_sent_is_what_was_recorded(end: str) -> None:
    assert recorded(end) == path_of(end).read_text(encoding="utf-8"), AGAIN


@pytest.mark.parametrize("end", ENDS)
def test_what_was_recorded_is_read(end: str) -> None:
    for case in cases(end):
        decoder = Decoder("a recording", plain=case["name"] == PLAIN)
        came = [plain(each) for each in decoder.feed(bytes.fromhex("".join(case["frames"])))]
        assert came == case["messages"], case["name"]


def test_every_message_of_a_client_is_recorded() -> None:
    kinds = {message["type"] for end in ENDS for case in cases(end) for message in case["messages"]}
    assert kinds == {kind.__name__ for kind in client_messages()}


def test_the_page_shows_the_smallest_frame() -> None:
    (frame,) = re.findall(r"a `Ping`: `([\da-f ]+)`", PAGE.read_text(encoding="utf-8"))
    assert list(Decoder("the page").feed(bytes.fromhex(frame))) == [Ping()]


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page) == page, "write them anew by `python -m tests.protocol.wire_page`"
    assert page.count("<!-- begin: ") == page.count("<!-- end -->") == 4
