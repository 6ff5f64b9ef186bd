"""Messages as a whole: each has a tag and a place in the union, and numbers stay numbers."""

from __future__ import annotations

import inspect
from typing import Any, Final, get_args

import msgspec
import pytest

from palio.protocol import messages
from palio.protocol.limits import MAX_NUMBER, MAX_SECONDS
from palio.protocol.messages import (
    UNCOUNTED,
    Addressed,
    ClaimNumbers,
    Detour,
    EventMessage,
    Fact,
    Failure,
    Gap,
    Hello,
    Message,
    Parcel,
    SessionEpoch,
    Share,
    StreamAck,
    Subscribe,
)

PARTS = {Addressed, ClaimNumbers, Detour, Fact, Failure, Gap, Parcel, Share, SessionEpoch}
"""What messages are made of, and are none themselves."""

BEYOND: Final = {
    "Subscribe": {"lease_s": "the broker checks it, and says what is wrong with it"},
    "Accepted": {"seq": "a client believes its own broker"},
    "Refused": {"last_seq": "a client believes its own broker"},
    "Deliver": {"key": "an unknown key is nobody's", "entry": "it is only told back"},
}
"""Numbers that the codec does not bound, each with the reason."""

KINDS: tuple[type[Any], ...] = get_args(Message)


def test_all_that_is_defined_is_a_message_or_part_of_one() -> None:
    defined = {
        each
        for _, each in inspect.getmembers(messages, inspect.isclass)
        if each.__name__ in messages.__all__
    }
    assert defined == {*KINDS} | PARTS


def test_messages_are_told_apart_by_their_names() -> None:
    tags = [each.__struct_config__.tag for each in KINDS]
    assert tags == [each.__name__ for each in KINDS]
    assert len(set(tags)) == len(tags)


def test_messages_do_not_change() -> None:
    assert all(each.__struct_config__.frozen for each in KINDS)
    with pytest.raises(AttributeError):
        StreamAck(1).count = 2  # type: ignore[misc]


def test_what_carries_events_and_what_is_not_counted_are_messages() -> None:
    assert {*get_args(EventMessage)} < {*KINDS}
    assert {*UNCOUNTED} < {*KINDS}
    assert not {*UNCOUNTED} & {*get_args(EventMessage)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_is_a_number_has_bounds(kind: type[Any]) -> None:
    """See `Number` and `Seconds`."""
    known = BEYOND.get(kind.__name__, {})
    for name, schema in fields(kind):
        if name not in known and schema.get("type") in ("integer", "number"):
            assert "minimum" in schema, name
            assert "maximum" in schema, name


def fields(kind: type[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The fields of a message that JSON can describe."""
    found = []
    for field in msgspec.structs.fields(kind):
        try:
            found.append((field.name, msgspec.json.schema(field.type)))
        except TypeError:  # events: bounded by the codec
            continue
    return found


@pytest.mark.parametrize("number", [0, 1, MAX_NUMBER - 1, MAX_NUMBER])
def test_numbers_up_to_the_limit_are_taken(number: int) -> None:
    assert msgspec.convert({"type": "StreamAck", "count": number}, StreamAck) == StreamAck(number)


@pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1, 0.5, "1", None])
def test_what_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "StreamAck", "count": number}, StreamAck)


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Hello("client", "alice", 1, token="secret"))


def test_options_have_the_defaults_of_who_does_not_give_them() -> None:
    asked = msgspec.convert({"type": "Subscribe", "id": 1, "key": 2, "filter": "TRUE"}, Subscribe)
    assert (asked.values, asked.durable, asked.lease_s) == ({}, "", 0.0)
    assert MAX_SECONDS > 0
