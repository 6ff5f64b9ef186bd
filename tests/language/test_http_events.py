from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidEvent
from palio.language.http_events import (
    CURSOR,
    NATIVE_TYPE,
    from_binary,
    from_json,
    gap_event,
    to_binary,
    to_json,
)
from palio.model.events import PAYLOAD, SEQ, TIME, is_system_name, rows, to_batch
from palio.model.payloads import event_of

BASE: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def table(heading: str) -> list[tuple[Any, Any]]:
    """The rows of a table of docs/reference/http.md, both cells read as JSON."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index(heading) + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        left, right = (cell.strip(" `|") for cell in line.split(" | "))
        found.append((json.loads(left), _revived(json.loads(right))))
    return found


def _revived(event: dict[str, Any]) -> dict[str, Any]:
    for name, value in event.items():
        match value:
            case {"timestamp": text}:
                event[name] = datetime.fromisoformat(text)
            case {"bytes": text}:
                event[name] = base64.b64decode(text)
            case _:
                pass
    return event


CLOUD = table("| in the CloudEvent | in the event |")
NATIVE = table("| the event | as a CloudEvent |")


def test_the_tables_are_there() -> None:
    assert len(CLOUD) >= 12
    assert len(NATIVE) >= 3


def seen(event: Mapping[str, Any]) -> dict[str, Any]:
    """What filters see of an event."""
    return {name: value for name, value in event.items() if not is_system_name(name)}


def kept(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event after it travelled as a batch."""
    (stored,) = rows(to_batch(event))
    return stored


@pytest.mark.parametrize(("cloud", "event"), CLOUD, ids=[str(n) for n in range(len(CLOUD))])
def test_each_row_of_the_table_holds_both_ways(cloud: Any, event: Any) -> None:
    read = from_json(BASE | cloud)
    assert seen(read) == BASE | event
    assert to_json(kept(read), "p") == BASE | cloud


@pytest.mark.parametrize("cloud", [cloud for cloud, _ in CLOUD], ids=map(str, range(len(CLOUD))))
def test_binary_mode_means_the_same(cloud: Any) -> None:
    read = from_json(BASE | cloud)
    headers, body = to_binary(kept(read), "p")
    again = from_binary(headers, body)
    for name, value in seen(read).items():
        assert again[name] == (str(value).lower() if name == "myext" else value)
    assert to_binary(kept(again), "p") == (headers, body)


@pytest.mark.parametrize(("event", "cloud"), NATIVE, ids=[str(n) for n in range(len(NATIVE))])
def test_other_events_are_the_data_of_one(event: Any, cloud: Any) -> None:
    published = dict(event_of(event))
    sent = to_json(published | {SEQ: 7, TIME: NOON}, "ticker/1")
    assert sent == {
        "specversion": "1.0",
        "id": "7",
        "source": "/ticker/1",
        "type": NATIVE_TYPE,
        "time": "2026-01-31T12:00:00Z",
        "datacontenttype": "application/json",
        **cloud,
    }
    assert from_json(sent) == published


@pytest.mark.parametrize(
    "data",
    [{}, {"price": 1.5, "Upper": 1}, {"tags": ["a"], "size": {"x": 1}}, {"blob": b"a", "at": NOON}],
    ids=str,
)
def test_a_program_gives_a_cloud_event_its_type(data: dict[str, Any]) -> None:
    event = event_of(BASE | {"subject": "s", "time": NOON} | data)
    sent = to_json({**event, SEQ: 1}, "p")
    times = {"subject": "s", "time": "2026-01-31T12:00:00Z"}
    json_data = data | ({"blob": "YQ==", "at": "2026-01-31T12:00:00Z"} if "blob" in data else {})
    assert sent == BASE | times | ({"data": json_data} if data else {})
    assert {**seen(from_json(sent)), **data} == {**seen(event), **data}


@pytest.mark.parametrize(
    "odd",
    [{"time": "noon"}, {"subject": 1}, {"specversion": "0.3"}, {"type": NATIVE_TYPE}, {"id": ""}],
    ids=str,
)
def test_what_a_cloud_event_cannot_have_makes_it_another_event(odd: dict[str, Any]) -> None:
    sent = to_json(BASE | odd | {"x": math.inf, SEQ: 1}, "p")
    assert sent["type"] == NATIVE_TYPE
    assert sent["data"] == BASE | odd | {"x": "inf"}
    json.dumps(sent, allow_nan=False)


@pytest.mark.parametrize(
    "change", [{"x": 2}, {"x": 1.0}, {"type": "u"}, {"more": 1}, {"x": None}, {PAYLOAD: b"{"}]
)
def test_a_cloud_event_that_is_not_that_of_the_attributes_does_not_leave(change: Any) -> None:
    row = from_json(BASE | {"data": {"x": 1, "secret": [1]}}) | change
    sent = to_json({name: value for name, value in row.items() if value is not None}, "p")
    assert sent["type"] == change.get("type", "t")
    assert "secret" not in sent.get("data", {})


def test_data_that_are_not_those_of_the_attributes_do_not_leave() -> None:
    row = {**event_of({"x": 1, "tags": ["a"]}), "x": 2}
    assert to_json(row, "p")["data"] == {"x": 2}
    assert to_json({"x": 2, PAYLOAD: b"\x90"}, "p")["data"] == {"x": 2}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ([], "is a JSON object"),
        ({**BASE, "specversion": "0.3"}, "specversion is '0.3'"),
        ({**BASE, "id": ""}, "has the attribute 'id'"),
        ({key: BASE[key] for key in ("specversion", "id", "source")}, "has the attribute 'type'"),
        ({**BASE, "subject": 5}, "'subject' is a text"),
        ({**BASE, "Upper": "a"}, "lower-case letters"),
        ({**BASE, "a.b": "a"}, "lower-case letters"),
        ({**BASE, "myext": {"a": 1}}, "is one value"),
        ({**BASE, "myext": 2**63}, "'myext'"),
        ({**BASE, "time": "noon"}, "RFC 3339"),
        ({**BASE, "time": "2026-01-31T12:00:00"}, "RFC 3339"),
        ({**BASE, "time": 5}, "RFC 3339"),
        ({**BASE, "data": 1, "data_base64": "AA=="}, "not both"),
        ({**BASE, "data_base64": "!"}, "is not base64"),
        ({**BASE, "data_base64": 5}, "is not base64"),
        ({**BASE, "type": NATIVE_TYPE, "data": [1]}, "an object of attributes"),
        ({**BASE, "data": {"x": 2**64}}, "'x'"),
        ({**BASE, "myext": "a", "data": {"myext": "b"}}, "'myext' and the member .* differ"),
        ({**BASE, "data": {"id": 1, "data": {"id": 2}}}, "'data.id' occurs twice"),
        ({**BASE, "data": ["\ud800"]}, "lone surrogate"),
    ],
)
def test_what_is_no_cloud_event_is_refused(wrong: Any, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem):
        from_json(wrong)


def test_binary_mode_reads_text_json_and_bytes() -> None:
    headers = {f"ce-{name}": value for name, value in BASE.items()}
    kinds: dict[tuple[str, bytes], dict[str, Any]] = {
        ("application/json", b'{"x": 1}'): {"x": 1},
        ("application/vnd.x+json; charset=utf-8", b"[1]"): {},
        ("text/plain", "é".encode()): {"data": "é"},
        ("text/plain; charset=latin-1", b"\xe9"): {},
        ("image/png", b"\x89PNG"): {},
    }
    for (kind, body), data in kinds.items():
        event = from_binary(headers | {"content-type": kind}, body)
        assert seen(event) == BASE | {"datacontenttype": kind} | data
        assert to_binary(kept(event), "p") == (headers | {"content-type": kind}, body)
    assert seen(from_binary(headers, b"")) == BASE
    with pytest.raises(InvalidEvent, match="not valid JSON"):
        from_binary(headers | {"content-type": "application/json"}, b"{")


def test_headers_are_percent_encoded() -> None:
    headers, _ = to_binary(BASE | {"subject": 'a "é" 5%'}, "p")
    assert headers["ce-subject"].isascii()
    assert " " not in headers["ce-subject"]
    assert from_binary(headers, b"")["subject"] == 'a "é" 5%'


def test_a_cursor_is_no_attribute() -> None:
    assert from_json(BASE | {CURSOR: "d.1.0"}) == from_json(BASE)


def test_an_expiry_time_is_that_of_the_event() -> None:
    document = BASE | {"expirytime": "2026-01-31T12:00:00Z"}
    event = from_json(document)
    assert (event["$expires"], event["expirytime"]) == (NOON, "2026-01-31T12:00:00Z")
    assert to_json(kept(event), "p") == document
    with pytest.raises(InvalidEvent, match="'expirytime' is a time as in RFC 3339"):
        from_json(BASE | {"expirytime": "soon"})


def test_a_gap_is_a_cloud_event() -> None:
    gap = gap_event("ticker", 3, 5, 2, "b")
    assert gap["data"] == {"publisher": "ticker", "first_seq": 3, "last_seq": 5, "count": 2}
    from_json(gap)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab.", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON.filter(lambda data: data is not None))
def test_any_data_comes_back(data: Any) -> None:
    try:
        event = from_json(BASE | {"data": data})
    except InvalidEvent:
        return  # two members that flatten to one name
    assert to_json(kept(event), "p")["data"] == data


@given(JSON, st.sampled_from(["time", "data", "myext", "id", "specversion", "datacontenttype"]))
def test_anything_is_read_or_refused(value: Any, name: str) -> None:
    with suppress(InvalidEvent):
        to_json(from_json(BASE | {name: value}), "p")
