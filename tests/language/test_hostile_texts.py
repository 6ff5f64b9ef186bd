"""No filter text holds a broker up: each is accepted or refused after a bounded number of steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from palio.errors import InvalidInput
from palio.language import cesql, cloudevents, eventbridge
from palio.language.lexer import tokens
from palio.language.parsing import parse, parse_advertisement, parse_many
from palio.model.limits import MAX_CONSTANTS, MAX_TEXT_CHARS, MAX_TOKENS
from tests.conftest import share
from tests.language.hostile_texts import documents, texts
from tests.timing import within

PATIENCE_S: Final = 1.0
"""Most take a tenth of that; without limits they took up to 9 s."""

SHARE: Final = 60
"""Texts that a usual run tries, of the hundreds that the night does."""


def test_a_text_is_accepted_or_refused_in_time() -> None:
    """And what is accepted has a text that is accepted as well, for the same meaning."""
    whole = texts()
    assert all(len(text) <= MAX_TEXT_CHARS for text in whole.values())
    assert sum(len(text) > MAX_TEXT_CHARS * 0.9 for text in whole.values()) > 150
    for name, text in share(whole.items(), SHARE):
        check_tokens(name, text)
        read_in_time(parse, name, text)
        read_in_time(parse_advertisement, name, text)
        with within(2 * PATIENCE_S, name):
            found = parse_many([text])
        assert len([*found.groups, *found.singles, *found.rejects]) == 1, name


def check_tokens(name: str, text: str) -> None:
    """The parser is given no more than the limit."""
    with suppress(InvalidInput):
        found = tokens(text)
        assert len(found) <= MAX_TOKENS, name
        listed = sum(len(token.value) for token in found if token.type == "LIST")
        assert listed <= MAX_CONSTANTS, name


def read_in_time(
    read: Callable[[str], object],
    name: str,
    text: str,
    again: Callable[[str], object] | None = None,
) -> None:
    """Read a text that may be refused; one that is not reads back from what it is printed as."""
    with within(PATIENCE_S, name):
        try:
            meaning = read(text)
        except InvalidInput:
            return
    assert (again or read)(str(meaning)) == meaning, name


def test_a_document_is_accepted_or_refused_in_time() -> None:
    for dialect, read in (
        ("cesql", cesql.loads),
        ("cloudevents", cloudevents.loads),
        ("eventbridge", eventbridge.loads),
    ):
        for name, document in share(documents()[dialect].items(), SHARE // 6):
            read_in_time(read, name, document, again=parse)


def test_a_document_of_objects_may_be_deep_too() -> None:
    """Objects from a program are not text, and nest as deep as memory allows."""
    deep: object = 1
    for _ in range(100_000):
        deep = {"a": deep}
    for read in (cloudevents.loads, eventbridge.loads):
        with pytest.raises(InvalidInput, match="MAX_DEPTH"):
            read(deep)  # type: ignore[arg-type]  # a document like any other
