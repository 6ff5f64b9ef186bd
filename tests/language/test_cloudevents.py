from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import palio
from palio.errors import InvalidFilter, LimitExceeded, ParseError
from palio.language import cesql
from palio.language.cloudevents import loads
from palio.model.limits import (
    MAX_CONJUNCTIONS,
    MAX_DEPTH,
    MAX_NAME_CHARS,
    MAX_STRING_CHARS,
    MAX_TEXT_CHARS,
    MAX_TOKENS,
)
from tests.language.hostile_texts import outcome

PUSH: Final[dict[str, Any]] = {
    "id": "1",
    "source": "https://github.com/cloudevents/spec",
    "type": "com.github.push",
    "specversion": "1.0",
    "subject": "main",
    "partition": 5,
    "urgent": True,
}


# Reading


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "TRUE"),
        ({"exact": {"type": "a"}}, "type = 'a'"),
        ({"exact": {"type": "a", "source": "b"}}, "type = 'a' AND source = 'b'"),
        ({"prefix": {"type": "a.", "source": "b"}}, "type LIKE 'a.%' AND source LIKE 'b%'"),
        ({"suffix": {"type": ".a"}}, "type LIKE '%.a'"),
        ([{"exact": {"type": "a"}}, {"suffix": {"id": "b"}}], "type = 'a' AND id LIKE '%b'"),
        ({"all": [{"exact": {"type": "a"}}]}, "type = 'a'"),
        ({"any": [{"exact": {"type": "b"}}, {"exact": {"type": "a"}}]}, "type IN ('a', 'b')"),
        ({"not": {"exact": {"type": "a"}}}, "type != 'a' OR CONCAT(type) IS NULL"),
        ({"not": {"not": {"exact": {"type": "a"}}}}, "type = 'a'"),
        (
            {"not": {"any": [{"exact": {"type": "a"}}, {"exact": {"type": "b"}}]}},
            "type NOT IN ('a', 'b') OR CONCAT(type) IS NULL",
        ),
        # An extension may be an Integer or a Boolean; what CloudEvents defines as a string is one.
        ({"exact": {"partition": "5"}}, "partition = '5' OR partition = 5"),
        ({"exact": {"partition": "05"}}, "partition = '05'"),
        ({"exact": {"partition": str(2**63)}}, f"partition = '{2**63}'"),
        ({"exact": {"urgent": "true"}}, "urgent = 'true' OR urgent = TRUE"),
        ({"exact": {"id": "5", "subject": "true"}}, "id = '5' AND subject = 'true'"),
        ({"sql": "type = 'a' AND source LIKE 'b%'"}, "type = 'a' AND source STARTS WITH 'b'"),
        ({"not": {"sql": "EXISTS subject"}}, "subject IS NULL"),
    ],
)
def test_a_filter_reads_as_this_text(document: object, text: str) -> None:
    found = loads(json.dumps(document))
    assert found == palio.parse(text)
    assert palio.parse(str(found)) == found


def test_objects_are_read_like_the_text_they_stand_for() -> None:
    filters: list[dict[str, Any]] = [
        {"exact": {"type": "a"}},
        {"not": {"prefix": {"source": "b"}}},
    ]
    assert loads(filters) == loads(json.dumps(filters))
    assert loads(filters[0]) == loads([filters[0]])


# Meaning


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"exact": {"type": "com.github.push", "subject": "main"}}, True),
        ({"exact": {"type": "com.github.push", "subject": "dev"}}, False),
        ({"exact": {"type": "COM.GITHUB.PUSH"}}, False),
        ({"prefix": {"type": "com.github.", "source": "https://"}}, True),
        ({"suffix": {"type": ".push", "source": "/sdk"}}, False),
        ({"exact": {"dataschema": "x"}}, False),
        ({"not": {"exact": {"dataschema": "x"}}}, True),
        ({"not": {"prefix": {"dataschema": "x"}}}, True),
        ({"not": {"exact": {"type": "com.github.push", "dataschema": "x"}}}, True),
        ({"not": {"all": [{"exact": {"subject": "main"}}, {"exact": {"id": "1"}}]}}, False),
        ({"not": {"any": [{"exact": {"subject": "dev"}}, {"exact": {"x": "1"}}]}}, True),
        ({"exact": {"partition": "5"}}, True),
        ({"exact": {"urgent": "true"}}, True),
        ({"not": {"exact": {"partition": "5"}}}, False),
        ({"not": {"exact": {"partition": "6"}}}, True),
        ({"not": {"exact": {"urgent": "true"}}}, False),
        ({"not": {"exact": {"urgent": "false"}}}, True),
        # Prefixes and suffixes are a matter of text.
        ({"prefix": {"partition": "5"}}, False),
        ({"not": {"prefix": {"partition": "5"}}}, True),
        ({"sql": "partition + 1 = 6"}, True),
        ({"sql": "partition / 0 = 0"}, False),
        ({"sql": "missing = 'x'"}, False),
        ({"not": {"sql": "dataschema = 'x'"}}, True),
        ({"not": {"sql": "subject = 'main' OR dataschema = 'x'"}}, False),
    ],
)
def test_a_filter_is_true_or_false_of_an_event(document: object, *, expected: bool) -> None:
    assert loads(json.dumps(document)).matches(PUSH) is expected


def test_a_long_list_of_exclusions_is_two_alternatives() -> None:
    excluded = [{"not": {"exact": {"type": f"t{i}"}}} for i in range(500)]
    excluded += [{"not": {"prefix": {"type": f"p{i}."}}} for i in range(100)]
    found = loads(excluded)
    assert len(found.conjunctions) == 2
    assert [found.matches({"type": each}) for each in ("t7", "p7.x", "t", "p", 7)] == [
        *(False, False, True, True, True)
    ]


def test_six_different_attributes_may_be_negated_together() -> None:
    found = loads([{"not": {"prefix": {f"ext{i}": "a"}}} for i in range(6)])
    assert found.matches({"ext1": "b", "ext2": 5})
    assert not found.matches({"ext1": "b", "ext4": "ab"})


# Errors


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            5,
            "at $: a filter is an object with one dialect as its key, not 5; the dialects are",
        ),
        (None, "at $: a filter is an object"),
        ({}, "at $: a filter is an object"),
        ([[]], "at $[0]: a filter is an object"),
        ({"exact": {"a": "b"}, "prefix": {"a": "b"}}, "at $: a filter is an object"),
        (
            {"regex": {"type": "a"}},
            'at $.regex: the dialect "regex" is not supported; the dialects',
        ),
        (
            [{"all": [{"exact": {"a": "b"}}, {"not": {"https://x.example/d": 1}}]}],
            'at $[0].all[1].not["https://x.example/d"]: the dialect "https://x.example/d" is not',
        ),
        ({"exact": {}}, "at $.exact: takes an object of attributes and their text, not {}"),
        ({"exact": ["type", "a"]}, "at $.exact: takes an object"),
        ({"prefix": "a"}, "at $.prefix: takes an object"),
        ({"suffix": {"type": ""}}, "at $.suffix.type: takes a text that is not empty"),
        ({"exact": {"": "a"}}, 'at $.exact[""]: an attribute\'s name is empty'),
        ({"exact": {"n": 5}}, "at $.exact.n: takes a text that is not empty, not 5"),
        ({"all": []}, "at $.all: takes a list of at least one filter, not []"),
        ({"any": {"exact": {"a": "b"}}}, "at $.any: takes a list of at least one filter"),
        ({"any": [5]}, "at $.any[0]: a filter is an object"),
        ({"not": [{"exact": {"a": "b"}}]}, "at $.not: a filter is an object"),
        ({"sql": {"a": "b"}}, "at $.sql: takes the text of an expression"),
        ([{"not": {"sql": "type ="}}], "at $[0].not.sql: line 1, column 7: "),
        ({"sql": "NOSUCH(type)"}, "at $.sql: line 1, column 1: "),
        ({"not": {"sql": "hop < 8"}}, "at $.not.sql: `not` negates only expressions"),
        ({"exact": {"type": "\ud800"}}, "at $.exact.type: "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(document: object, message: str) -> None:
    with pytest.raises(InvalidFilter, match=re.escape(message)):
        loads(json.dumps(document))


def test_a_text_that_is_no_json_says_where() -> None:
    with pytest.raises(ParseError, match="line 2, column 1: not JSON"):
        loads('[{"exact": {"type": "a"}},\n]')


def test_a_key_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidFilter, match='the key "type" occurs twice'):
        loads('{"exact": {"type": "a", "type": "b"}}')


# Limits


def nested(levels: int) -> Any:
    """A filter with that many objects and lists inside each other."""
    document: Any = {"exact": {"type": "a"}}
    for _ in range(levels - 2):
        document = {"not": document}
    return document


def containers(size: int) -> Any:
    """So many lists and objects together."""
    same = {"exact": {"type": "a"}}
    return [same] * ((size - 1) // 2) if size % 2 else [{"not": same}, *containers(size - 3)]


LIMITS: Final[dict[str, tuple[int, Callable[[int], Any]]]] = {
    "MAX_DEPTH": (MAX_DEPTH, nested),
    "MAX_TOKENS": (MAX_TOKENS // 2, containers),
    "MAX_TEXT_CHARS": (MAX_TEXT_CHARS, lambda size: json.dumps(nested(3)).ljust(size)),
    "MAX_NAME_CHARS": (MAX_NAME_CHARS, lambda size: {"exact": {"x" * size: "a"}}),
    "MAX_STRING_CHARS": (MAX_STRING_CHARS, lambda size: {"exact": {"type": "x" * size}}),
    "MAX_CONJUNCTIONS": (
        MAX_CONJUNCTIONS,
        lambda size: {"any": [{"prefix": {"type": f"{i:06}"}} for i in range(size)]},
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    maximum, document = LIMITS[name]
    loads(document(maximum - 1))
    loads(document(maximum))
    with pytest.raises(LimitExceeded) as caught:
        loads(document(maximum + 1))
    assert caught.value.limit == name


def test_a_filter_that_would_multiply_out_is_refused() -> None:
    choices = [{"any": [{"prefix": {f"a{i}": "x"}}, {"suffix": {f"a{i}": "y"}}]} for i in range(30)]
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        loads(choices)


# The oracle: the filter evaluated directly, in two values

CORE: Final = frozenset({"id", "source", "specversion", "type", "subject"})
TEXTS: Final = ["a", "ab", "ba", "b", "5", "-5", "0", "05", "-0", "true", "false", "True"]
SQL: Final = [
    "EXISTS subject",
    "EXISTS ext",
    "type LIKE 'a%'",
    "type = 'a' OR subject = 'b'",
    "NOT EXISTS ext AND type != 'ab'",
    "subject IN ('a', 'b')",
    "EXISTS subject AND NOT EXISTS ext",
    "ext = 'true'",
    "ext = 'NQ=='",  # the bytes b"5"
    "TRUE",
    "FALSE",
]
RESIDUAL_SQL: Final = [
    "LENGTH(type) > 1",
    "ext + 1 = 6",
    "ext < 3 AND type = 'a'",
    "ext = subject",
    "ext = '2024-05-17T00:00:00Z' OR type = 'a'",
]


def is_true(document: Any, attributes: dict[str, Any]) -> bool:
    """The truth of a filter for an event by the specification."""
    if isinstance(document, list):
        return all(is_true(each, attributes) for each in document)
    ((dialect, body),) = document.items()
    match dialect:
        case "all":
            return all(is_true(each, attributes) for each in body)
        case "any":
            return any(is_true(each, attributes) for each in body)
        case "not":
            return not is_true(body, attributes)
        case "sql":
            value, error = cesql.evaluate(body, attributes)
            return value is True and error is None
        case "exact":
            return all(written(name, attributes.get(name)) == text for name, text in body.items())
        case "prefix":
            return all(text_of(attributes.get(n))[: len(text)] == text for n, text in body.items())
        case "suffix":
            return all(text_of(attributes.get(n))[-len(text) :] == text for n, text in body.items())
    raise AssertionError(dialect)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def written(name: str, value: Any) -> str:
    """An attribute's value as `exact` sees it; the empty text for what it never equals."""
    if isinstance(value, str) or name in CORE:
        return text_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    return ""


names = st.sampled_from(["type", "subject", "ext", "data.x"])
tests = st.dictionaries(names, st.sampled_from(TEXTS), min_size=1, max_size=2)
leaves = st.one_of(
    tests.map(lambda body: {"exact": body}),
    tests.map(lambda body: {"prefix": body}),
    tests.map(lambda body: {"suffix": body}),
    st.sampled_from(SQL).map(lambda text: {"sql": text}),
)
filters = st.recursive(
    leaves,
    lambda inner: (
        inner.map(lambda body: {"not": body})
        | st.lists(inner, min_size=1, max_size=3).map(lambda body: {"all": body})
        | st.lists(inner, min_size=1, max_size=3).map(lambda body: {"any": body})
    ),
    max_leaves=6,
)
documents = filters | st.lists(filters | st.sampled_from(RESIDUAL_SQL).map(lambda t: {"sql": t}))
values = st.sampled_from(
    [
        *TEXTS,
        "",
        5,
        -5,
        0,
        5.0,
        5.5,
        -0.0,
        True,
        False,
        b"a",
        b"5",
        datetime(2024, 5, 17, tzinfo=UTC),
    ]
)
events = st.dictionaries(names, values, max_size=4)


@given(documents, st.lists(events, min_size=1, max_size=8))
def test_a_filter_agrees_with_the_specification_and_prints_and_parses_back(
    document: Any, candidates: list[dict[str, Any]]
) -> None:
    try:
        found = loads(json.dumps(document))
    except LimitExceeded:
        assume(False)
    assert palio.parse(str(found)) == found
    for candidate in candidates:
        verdict = is_true(document, candidate)
        event(f"true: {verdict}")
        assert found.matches(candidate) is verdict, (str(found), candidate)


@given(filters, events)
def test_not_is_the_complement(document: Any, candidate: dict[str, Any]) -> None:
    try:
        straight, inverse = loads(document), loads({"not": document})
    except LimitExceeded:
        assume(False)
    assert straight.matches(candidate) is not inverse.matches(candidate)


# Fuzz

KEYS: Final = ["exact", "prefix", "suffix", "all", "any", "not", "sql", "type"]
junk = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=12,
)
WHOLE: Final = json.dumps(
    [
        {"not": {"any": [{"exact": {"type": "a", "x": "5"}}, {"prefix": {"subject": "b\u00e9"}}]}},
        {"sql": "type LIKE 'a%' AND (hop < 5 OR NOT EXISTS subject)"},
    ]
)


@given(junk | st.dictionaries(st.sampled_from(KEYS), junk, min_size=1, max_size=1))
def test_any_json_is_read_or_refused(document: Any) -> None:
    event(outcome(loads, document))
    event(outcome(loads, json.dumps(document)))


@given(
    st.integers(0, len(WHOLE)), st.integers(0, 4), st.text('{}[]":,\\e1-.$', min_size=0, max_size=3)
)
def test_a_damaged_text_is_read_or_refused(start: int, removed: int, added: str) -> None:
    event(outcome(loads, WHOLE[:start] + added + WHOLE[start + removed :]))
