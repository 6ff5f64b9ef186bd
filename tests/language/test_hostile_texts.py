"""No filter text holds a broker up: each is accepted or refused after a bounded number of steps."""

from __future__ import annotations

from itertools import islice
from typing import Final

import pytest

from palio.errors import InvalidInput
from palio.language import cloudevents, eventbridge
from palio.language.bulk import parse_many
from palio.language.cesql import loads
from palio.language.lexer import tokens
from palio.language.parsing import parse, parse_advertisement
from palio.model.limits import MAX_CONSTANTS, MAX_TEXT_CHARS, MAX_TOKENS
from tests.conftest import NIGHTLY
from tests.language.hostile_texts import documents, texts
from tests.timing import within

PATIENCE_S: Final = 1.0
"""Most take a tenth of that; without limits they took up to 9 s."""

TEXTS: Final = texts()
DOCUMENTS: Final = documents()


def test_the_texts_are_as_long_as_they_may_be() -> None:
    assert all(len(text) <= MAX_TEXT_CHARS for text in TEXTS.values())
    assert sum(len(text) > MAX_TEXT_CHARS * 0.9 for text in TEXTS.values()) > 150


def test_whatever_the_text_the_parser_is_given_no_more_than_the_limit() -> None:
    for name, text in TEXTS.items():
        try:
            found = tokens(text)
        except InvalidInput:
            continue
        assert len(found) <= MAX_TOKENS, name
        listed = sum(len(token.value) for token in found if token.type == "LIST")
        assert listed <= MAX_CONSTANTS, name


def test_a_text_is_accepted_or_refused_in_time() -> None:
    """And what is accepted has a text that is accepted as well, for the same filter."""
    for name, text in TEXTS.items():
        with within(PATIENCE_S, name):
            try:
                meaning = parse(text)
            except InvalidInput:
                meaning = None
        if meaning is not None:
            assert parse(str(meaning)) == meaning, name


def test_an_advertisement_is_accepted_or_refused_in_time() -> None:
    """And what is accepted has a text that is accepted as well, for the same advertisement."""
    accepted = 0
    for name, text in TEXTS.items():
        with within(PATIENCE_S, name):
            try:
                meaning = parse_advertisement(text)
            except InvalidInput:
                meaning = None
        if meaning is not None:
            assert parse_advertisement(str(meaning)) == meaning, name
            accepted += 1
    assert accepted > 20


def test_many_texts_at_once_are_no_worse() -> None:
    for name, text in islice(TEXTS.items(), 0, None, 1 if NIGHTLY else 4):
        with within(2 * PATIENCE_S, name):
            found = parse_many([text])
        assert len(found.filters()) == 1


@pytest.mark.parametrize("dialect", ["cesql", "cloudevents", "eventbridge"])
def test_a_document_is_accepted_or_refused_in_time(dialect: str) -> None:
    read = {"cesql": loads, "cloudevents": cloudevents.loads, "eventbridge": eventbridge.loads}
    for name, document in DOCUMENTS[dialect].items():
        with within(PATIENCE_S, name):
            try:
                meaning = read[dialect](document)
            except InvalidInput:
                meaning = None
        if meaning is not None:
            assert parse(str(meaning)) == meaning, name


def test_a_document_of_objects_may_be_deep_too() -> None:
    """Objects from a program are not text, and nest as deep as memory allows."""
    deep: object = 1
    for _ in range(100_000):
        deep = {"a": deep}
    for read in (cloudevents.loads, eventbridge.loads):
        with pytest.raises(InvalidInput, match="MAX_DEPTH"):
            read(deep)  # type: ignore[arg-type]  # a document like any other
