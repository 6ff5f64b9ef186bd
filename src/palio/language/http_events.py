"""CloudEvents to events and back; docs/reference/http.md has the table that a test reads.

A CloudEvent's context attributes are attributes of the same names, and JSON data is flattened as
`data.x.y`. An event that is no CloudEvent (it lacks `id`, `source` or `type`, or has attributes
that a CloudEvent cannot have) travels as one of type `palio.event`, whose data are its attributes.
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

from palio.errors import InvalidEvent, LimitExceeded
from palio.language.documents import read_json
from palio.model.events import SEQ, TIME, attribute, flatten

JSON_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
NATIVE_TYPE: Final = "palio.event"
GAP_TYPE: Final = "palio.gap"

CURSOR: Final = "paliocursor"
"""The extension with the position of a consumer; it is no attribute of the event."""

_NAME: Final = re.compile(r"[a-z0-9]{1,60}")
_REQUIRED: Final = ("id", "source", "type")
_TEXTS: Final = (*_REQUIRED, "specversion", "datacontenttype", "dataschema", "subject")
_INTEGER_BITS: Final = 31
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
"""The characters that a header carries as they are; all others are percent-encoded."""

# --- in ---


def from_json(document: Any) -> dict[str, Any]:
    """The event that a CloudEvent in JSON is.

    >>> from_json(
    ...     {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"x": {"y": 1}}}
    ... )
    {'specversion': '1.0', 'id': '1', 'source': '/s', 'type': 't', 'data.x.y': 1}
    """
    if not isinstance(document, Mapping):
        raise InvalidEvent(f"a CloudEvent is a JSON object, not {document!r:.60}")
    event = {
        name: _context(name, value)
        for name, value in document.items()
        if name not in ("data", "data_base64", CURSOR) and value is not None
    }
    _check(event)
    if "data_base64" in document:
        if "data" in document:
            raise InvalidEvent("a CloudEvent has data or data_base64, not both")
        return _with_data(event, _from_base64(document["data_base64"]))
    if document.get("data") is None:
        return event
    data = document["data"]
    if isinstance(data, str) and not _is_json(event.get("datacontenttype", "application/json")):
        return event | {"data": data}
    return _with_json(event, data)


def from_binary(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The event that a request in binary mode is: `ce-` headers, and data in its body."""
    event = {
        name: _context(name, unquote(value.strip('"')))
        for key, value in headers.items()
        if key.startswith("ce-") and (name := key.removeprefix("ce-")) != CURSOR
    }
    if "content-type" in headers:
        event["datacontenttype"] = headers["content-type"]
    _check(event)
    return _with_data(event, body) if body else event


def _context(name: str, value: Any) -> Any:
    if _NAME.fullmatch(name) is None:
        raise InvalidEvent(
            f"attribute {name!r:.60}: a CloudEvent's names have lower-case letters and digits only"
        )
    if name in _TEXTS and not isinstance(value, str):
        raise InvalidEvent(f"attribute {name!r} is a text, not {value!r:.60}")
    if name == "time":
        return _time(value)
    if isinstance(value, list | dict):
        raise InvalidEvent(f"attribute {name!r} is one value, not {value!r:.60}")
    return attribute(name, value)


def _time(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidEvent(f"attribute 'time' is a time as in RFC 3339, not {value!r:.60}")
    return found


def _check(event: Mapping[str, Any]) -> None:
    if event.get("specversion") != "1.0":
        raise InvalidEvent(f"specversion is {event.get('specversion')!r:.20}; 1.0 is understood")
    for name in _REQUIRED:
        if not event.get(name):
            raise InvalidEvent(f"a CloudEvent has the attribute {name!r}, and it is not empty")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def _with_data(event: dict[str, Any], body: bytes) -> dict[str, Any]:
    """With data as bytes: JSON or text where the content type is one."""
    content_type = event.get("datacontenttype", "")
    if _is_json(content_type):
        try:
            return _with_json(event, read_json(body))
        except LimitExceeded:
            raise
        except (ValueError, RecursionError) as error:
            raise InvalidEvent(f"the data are not the JSON they are said to be: {error}") from None
    if content_type.startswith("text/"):
        try:
            return event | {"data": body.decode()}
        except UnicodeDecodeError:
            pass  # another character set: bytes, as they came
    return event | {"data": body}


def _with_json(event: dict[str, Any], data: Any) -> dict[str, Any]:
    if event["type"] == NATIVE_TYPE:
        if not isinstance(data, Mapping):
            raise InvalidEvent(f"the data of {NATIVE_TYPE} are an object of attributes")
        return dict(flatten(data))
    if isinstance(data, Mapping):
        flat = {f"data.{name}": value for name, value in flatten(data).items()}
        if flat and _unflattened(flat) == data:
            return event | flat
        event = event | flat  # what is no attribute stays in the text
    return event | {"data": json.dumps(data, separators=(",", ":"), ensure_ascii=False)}


def _from_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise InvalidEvent("data_base64 is not base64") from None


# --- out ---


def to_json(row: Mapping[str, Any], publisher: str, cursor: str = "") -> dict[str, Any]:
    """An event, with its system columns, as a CloudEvent in JSON."""
    event = {name: value for name, value in row.items() if name not in (SEQ, TIME)}
    document = _cloud_event(event)
    if document is None:
        document = _native(event, publisher, row.get(SEQ), row.get(TIME))
    if cursor:
        document[CURSOR] = cursor
    return document


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


def _cloud_event(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The CloudEvent that an event is; None if it has what no CloudEvent can have."""
    document: dict[str, Any] = {"specversion": "1.0"}
    flat: dict[str, Any] = {}
    for name, value in event.items():
        if name.startswith("data."):
            if not _is_json_value(value):
                return None
            flat[name] = value
        elif name != "data":
            if not _is_context(name, value):
                return None
            document[name] = json_value(value)
    if document["specversion"] != "1.0" or document.get("type") == NATIVE_TYPE:
        return None
    if not all(document.get(name) for name in _REQUIRED):
        return None
    if "data" in event:
        return _with_whole(document, event["data"])
    if flat:
        document["data"] = _unflattened(flat)
        if document["data"] is None:
            return None
    return document


def _is_json_value(value: Any) -> bool:
    return isinstance(value, bool | int | str) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _is_context(name: str, value: Any) -> bool:
    """Check whether a CloudEvent can have this attribute, in a type that comes back."""
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "time":
        return isinstance(value, datetime)
    return _NAME.fullmatch(name) is not None and (
        isinstance(value, bool | str)
        or (isinstance(value, int) and -(2**_INTEGER_BITS) <= value < 2**_INTEGER_BITS)
    )


def _with_whole(document: dict[str, Any], data: Any) -> dict[str, Any] | None:
    """With data that are kept as one: bytes, text, or JSON as text."""
    if isinstance(data, bytes):
        return document | {"data_base64": base64.b64encode(data).decode()}
    if not isinstance(data, str):
        return None
    if not _is_json(document.get("datacontenttype", "application/json")):
        return document | {"data": data}
    try:
        return document | {"data": read_json(data.encode())}
    except (ValueError, RecursionError):  # or of too many values: LimitExceeded is a ValueError
        return None


def _native(
    event: Mapping[str, Any], publisher: str, seq: int | None, time: datetime | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(seq),
        "source": f"/{quote(publisher)}",
        "type": NATIVE_TYPE,
    }
    if time is not None:
        document["time"] = json_value(time)
    document["datacontenttype"] = "application/json"
    document["data"] = {name: json_value(value) for name, value in event.items()}
    return document


def _unflattened(flat: Mapping[str, Any]) -> Any:
    """`data.x.y` as nested objects."""
    whole: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")[1:]
        part = whole
        for step in path:
            inner = part.setdefault(step, {})
            if not isinstance(inner, dict):  # `data.x` beside `data.x.y`
                return None
            part = inner
        if isinstance(part.get(last), dict):
            return None
        part[last] = value
    return whole


def json_value(value: Any) -> Any:
    """A value of the model as JSON has it; times, bytes, NaN and infinities are texts."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
