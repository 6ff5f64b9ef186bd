"""CloudEvents to events and back; docs/reference/http.md has the table that a test reads.

Context attributes and the scalars of JSON data are attributes of the same names, so that one filter
fits events of programs and of HTTP. The CloudEvent itself is the event's payload, and leaves as it
came. An event of a program is the data of one: of the type `palio.event`, unless it has `id`,
`source` and `type` itself.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from palio.errors import InvalidEvent, InvalidInput, LimitExceeded
from palio.language.documents import read_json
from palio.model.events import EXPIRES, PAYLOAD, SEQ, TIME, attribute, is_system_name
from palio.model.payloads import (
    CONTEXT,
    cloud_data,
    cloud_event_of,
    data_of,
    event_of,
    is_same,
    seen_by_filters,
)

PLAIN_TYPE: Final = "application/json"
JSON_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
NATIVE_TYPE: Final = "palio.event"
GAP_TYPE: Final = "palio.gap"

CURSOR: Final = "paliocursor"
"""The extension with the position of a consumer; it is no attribute of the event."""

_NAME: Final = re.compile(r"[a-z0-9]{1,60}")
_REQUIRED: Final = ("id", "source", "type")
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
"""The characters that a header carries as they are; all others are percent-encoded."""

# --- in ---


def from_json(document: Any) -> dict[str, Any]:
    """The event that a CloudEvent in JSON is.

    >>> event = from_json(
    ...     {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"x": {"y": 1}}}
    ... )
    >>> event["type"], event["x.y"]
    ('t', 1)
    """
    event = _attributes(document)
    if "expirytime" in event:
        event[EXPIRES] = _time("expirytime", event["expirytime"])
    own = {name: value for name, value in document.items() if name != CURSOR and value is not None}
    if event["type"] == NATIVE_TYPE and "data" in own:
        return dict(event_of(own["data"]))
    try:
        event[PAYLOAD] = json.dumps(own, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidEvent("a CloudEvent is text, and this one has a lone surrogate") from None
    return event


def _attributes(document: Any) -> dict[str, Any]:
    """The attributes of a CloudEvent for filters."""
    if not isinstance(document, Mapping):
        raise InvalidEvent(f"a CloudEvent is a JSON object, not {document!r:.60}")
    event = {
        name: _context(name, value)
        for name, value in document.items()
        if name not in ("data", "data_base64", CURSOR) and value is not None
    }
    _check(event)
    if "data_base64" in document and "data" in document:
        raise InvalidEvent("a CloudEvent has data or data_base64, not both")
    try:
        data = cloud_data(document)
    except (TypeError, ValueError):
        raise InvalidEvent("data_base64 is not base64") from None
    if event["type"] == NATIVE_TYPE and not isinstance(data, Mapping | None):
        raise InvalidEvent(f"the data of {NATIVE_TYPE} are an object of attributes")
    for name, value in seen_by_filters(data, is_cloud_event=True).items():
        if not is_same(event.setdefault(name, value), value):
            raise InvalidEvent(
                f"the extension {name!r} and the member of the data of that name differ; rename one"
            )
    return event


def from_plain(data: Any) -> dict[str, Any]:
    """The event that a JSON object of attributes is, as if a program had published it.

    >>> from_plain({"symbol": "IBM", "size": {"lots": 2}})["size.lots"]
    2
    """
    if not isinstance(data, Mapping):
        raise InvalidEvent(f"an event is a JSON object of attributes, not {data!r:.60}")
    if "specversion" in data:
        raise InvalidEvent(f"this is a CloudEvent; send it with content-type {JSON_TYPE}")
    native = {"specversion": "1.0", "id": "1", "source": "/", "type": NATIVE_TYPE}
    return from_json(native | {"data": data})


def from_binary(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The event that a request in binary mode is: `ce-` headers, and data in its body."""
    document: dict[str, Any] = {
        name: unquote(value.strip('"'))
        for key, value in headers.items()
        if key.startswith("ce-") and (name := key.removeprefix("ce-")) != CURSOR
    }
    if "content-type" in headers:
        document["datacontenttype"] = headers["content-type"]
    return from_json(_with_data(document, body) if body else document)


def _context(name: str, value: Any) -> Any:
    if _NAME.fullmatch(name) is None:
        raise InvalidEvent(
            f"attribute {name!r:.60}: a CloudEvent's names have lower-case letters and digits only"
        )
    if name in CONTEXT and name != "time" and not isinstance(value, str):
        raise InvalidEvent(f"attribute {name!r} is a text, not {value!r:.60}")
    if name == "time":
        return _time(name, value)
    if isinstance(value, list | dict):
        raise InvalidEvent(f"attribute {name!r} is one value, not {value!r:.60}")
    return attribute(name, value)


def _time(name: str, value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidEvent(f"attribute {name!r} is a time as in RFC 3339, not {value!r:.60}")
    return moment


def _check(event: Mapping[str, Any]) -> None:
    if event.get("specversion") != "1.0":
        raise InvalidEvent(f"specversion is {event.get('specversion')!r:.20}; 1.0 is understood")
    for name in _REQUIRED:
        if not event.get(name):
            raise InvalidEvent(f"a CloudEvent has the attribute {name!r}, and it is not empty")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def _with_data(document: dict[str, Any], body: bytes) -> dict[str, Any]:
    """With data as bytes: JSON or text where the content type is one."""
    content_type = document.get("datacontenttype", "")
    if _is_json(content_type):
        try:
            return document | {"data": read_json(body)}
        except LimitExceeded:
            raise
        except (ValueError, RecursionError) as error:
            raise InvalidEvent(
                f"the data are not valid JSON, as their content type claims: {error}"
            ) from None
    if content_type.startswith("text/"):
        try:
            return document | {"data": body.decode()}
        except UnicodeDecodeError:
            pass  # another character set: bytes, as they came
    return document | {"data_base64": base64.b64encode(body).decode()}


# --- out ---


def to_json(row: Mapping[str, Any], publisher: str) -> dict[str, Any]:
    """An event, with its system columns, as a CloudEvent in JSON."""
    event = {name: value for name, value in row.items() if not is_system_name(name)}
    document = _as_published(event, row.get(PAYLOAD))
    return _of_program(event, row, publisher) if document is None else document


def _as_published(event: Mapping[str, Any], payload: object) -> dict[str, Any] | None:
    """The CloudEvent that an event was published as; None if it was not, or if its attributes are
    not those of the CloudEvent: filters and grants have seen the attributes alone.
    """
    try:
        document = cloud_event_of(payload)
        if document is None:
            return None
        attributes = _attributes(document)
    except InvalidInput:
        return None
    if attributes.keys() != event.keys():
        return None
    is_same_event = all(is_same(event[name], value) for name, value in attributes.items())
    return document if is_same_event else None


def to_binary(row: Mapping[str, Any], publisher: str) -> tuple[dict[str, str], bytes]:
    """The same as headers and a body."""
    document = to_json(row, publisher)
    headers = {
        f"ce-{name}": quote(_text(value), safe=_SAFE)
        for name, value in document.items()
        if name not in ("data", "data_base64", "datacontenttype")
    }
    content_type = document.get("datacontenttype", "application/json")
    if "data_base64" in document:
        body = base64.b64decode(document["data_base64"])
        content_type = document.get("datacontenttype", "application/octet-stream")
    elif "data" not in document:
        body = b""
    elif isinstance(document["data"], str) and not _is_json(content_type):
        body = document["data"].encode()
    else:
        body = json.dumps(document["data"]).encode()
    if body or "datacontenttype" in document:
        headers["content-type"] = content_type
    return headers, body


def gap_event(
    publisher: str, first: int, last: int, count: int, broker: str, reason: str = ""
) -> dict[str, Any]:
    """The CloudEvent that reports lost events to a consumer."""
    data: dict[str, Any] = {
        "publisher": publisher,
        "first_seq": first,
        "last_seq": last,
        "count": count,
    }
    if reason:
        data["reason"] = reason
    return {
        "specversion": "1.0",
        "id": f"gap:{publisher}:{first}-{last}",
        "source": f"/{quote(broker)}",
        "type": GAP_TYPE,
        "data": data,
    }


def _of_program(event: Mapping[str, Any], row: Mapping[str, Any], publisher: str) -> dict[str, Any]:
    """An event that a program published, as a CloudEvent with its data."""
    data = data_of_program(event, row.get(PAYLOAD))
    context = _context_of(data)
    if context is not None:
        others = {name: each for name, each in data.items() if name not in context}
        return context | ({"data": json_value(others)} if others else {})
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(row.get(SEQ)),
        "source": f"/{quote(publisher)}",
        "type": NATIVE_TYPE,
    }
    if row.get(TIME) is not None:
        document["time"] = json_value(row[TIME])
    document["datacontenttype"] = "application/json"
    document["data"] = json_value(data)
    return document


def data_of_program(event: Mapping[str, Any], payload: object) -> Mapping[str, Any]:
    """Return the data that a program published: attributes, and lists and nested data if given."""
    try:
        if payload is None or cloud_event_of(payload) is not None:
            return event
        data: Mapping[str, Any] = data_of(payload, event)
    except InvalidEvent:
        return event
    return data


def _context_of(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The context attributes of an event that is to be a CloudEvent of its own type; None if it
    lacks some, or has one that a CloudEvent cannot have.
    """
    context = {"specversion": "1.0"} | {each: data[each] for each in data if each in CONTEXT}
    if context["specversion"] != "1.0" or context.get("type") == NATIVE_TYPE:
        return None
    if not all(context.get(name) for name in _REQUIRED):
        return None
    for name, value in context.items():
        if not isinstance(value, datetime if name == "time" else str):
            return None
    return {name: json_value(value) for name, value in context.items()}


def json_value(value: Any) -> Any:
    """A value as JSON has it; times, bytes, NaN and infinities are texts."""
    if isinstance(value, Mapping):
        return {str(name): json_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_value(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
