"""One rule for names: what obeys it stays itself however it is put together, shown and written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidInput, LimitExceeded
from palio.protocol.limits import MAX_NAME_BYTES
from palio.protocol.names import check_name

GOOD = ("palio", "b1", "north-1.example", "Nördlich", "名前", "two words", "a:b", "...", "😀")

BAD = (
    *("", ".", "..", "/", "a/b", "/a", "a/", "a\\b", "\\", "../../etc", " ", " a", "a ", "\ta"),
    *("a\nb", "a\rb", "a\0b", "a\x1b[2J", "a\x7f", "a\x85", "a\u200bb", "a\u202eb", "a\u00a0b"),
    *("a\u2028b", "\ud800", "a\udfff", "\ufeffa", "a\ue000"),
)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_a_name(name: str) -> None:
    assert check_name(name, "a broker") == name


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_what_is_none_is_told_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"a client cannot be called .*: a name has 1"):
        check_name(name, "a client")


@pytest.mark.parametrize("name", [None, True, 5, b"north", ["a"]])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(InvalidInput, match="a durable subscription is called by a text, not by"):
        check_name(name, "a durable subscription")


@pytest.mark.parametrize("letter", ["n", "é", "名", "😀"])
def test_the_length_is_counted_in_bytes(letter: str) -> None:
    size = len(letter.encode())
    most = MAX_NAME_BYTES // size
    for name in (letter * (most - 1), letter * most):
        assert check_name(name, "a broker") == name
    with pytest.raises(LimitExceeded, match="MAX_NAME_BYTES"):
        check_name(letter * (most + 1), "a broker")


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_two_names_put_together_are_no_other_two(owner: str, name: str) -> None:
    try:
        whole = f"{check_name(owner, 'an owner')}/{check_name(name, 'a subscription')}"
    except InvalidInput:
        return
    assert whole.split("/") == [owner, name]
    assert whole.isprintable()
    assert whole.encode().decode() == whole
