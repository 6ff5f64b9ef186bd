from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import LimitExceeded
from palio.language import documents
from palio.language.documents import check_parts, read_json
from palio.model.limits import MAX_JSON_PARTS

DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.text('a",[{\\\n\x00é'),
    lambda each: st.lists(each) | st.dictionaries(st.text('b",]\\'), each),
)


def marks(document: Any) -> int:
    """The dumbest count: what a document of these values needs."""
    match document:
        case list():
            return 1 + max(0, len(document) - 1) + sum(map(marks, document))
        case dict():
            return 1 + max(0, len(document) - 1) + sum(map(marks, document.values()))
        case _:
            return 0


@given(DOCUMENTS, st.booleans())
def test_marks_in_texts_do_not_count(document: Any, is_ascii: bool) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii).encode()
    assert documents._count_marks(text) == marks(document)


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("value", ["[]", "1", '{"a":1}', '"x"'])
def test_values_have_a_limit(value: str, extra: int) -> None:
    each = 2 if value[0] in "[{" else 1
    count = (MAX_JSON_PARTS + extra) // each
    document = f"[{','.join([value] * count)}]".encode()
    for way in (check_parts, read_json):
        if documents._count_marks(document) > MAX_JSON_PARTS:
            with pytest.raises(LimitExceeded, match="MAX_JSON_PARTS"):
                way(document)
        else:
            way(document)
    assert abs(documents._count_marks(document) - MAX_JSON_PARTS) <= 2


def test_a_long_text_is_one_value() -> None:
    text = ', [{"' * MAX_JSON_PARTS
    assert read_json(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize("document", [b"", b"[", b"\xff", b'{"a" 1}', b"[" * 10_000])
def test_what_is_no_json_is_told(document: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_json(document)
