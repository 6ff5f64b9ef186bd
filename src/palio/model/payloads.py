"""Payloads: the data of an event as they were published, where attributes cannot hold all of them.

Filters see scalars: those of nested objects under dotted names. Where more was published (lists,
the digits of a `Decimal`, nulls of a typed object), the data travel whole beside the attributes, in
the one attribute `$payload`: in MessagePack, or as the CloudEvent in JSON that a front received.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from palio.errors import InvalidEvent
from palio.model.events import PAYLOAD, attribute, flatten, is_system_name
from palio.model.values import Value, checked, is_nan

CONTEXT: Final = frozenset(
    [
        *("id", "source", "type", "specversion", "datacontenttype", "dataschema", "subject"),
        "time",
    ]
)
"""The context attributes of the CloudEvents specification; others are extensions."""

_KEPT: Final = (bytes, bytearray, memoryview, datetime, date, UUID, Decimal)
"""What a typed object keeps for its attributes, which are made of them as of a plain event's."""

_SCALARS: Final = frozenset({bool, int, float, str, bytes, datetime, UUID, date, type(None)})
"""Types of values that attributes give back, so that most events need not be looked at further."""

_BESIDE: Final = (list, tuple, set, frozenset, Mapping, Decimal)
"""Values that no attribute gives back."""


def event_of(given: Mapping[str, Any], *, keeps_nulls: bool = False) -> Mapping[str, Any]:
    """The attributes of published data, with their payload if they need one.

    `keeps_nulls` is for typed objects, whose fields have to be there when they are read back.

    >>> event_of({"symbol": "IBM", "price": 9.5})
    {'symbol': 'IBM', 'price': 9.5}
    >>> event = event_of({"size": {"x": 1}, "tags": ["a"]})
    >>> event["size.x"], data_of(event["$payload"], event)
    (1, {'size': {'x': 1}, 'tags': ['a']})
    """
    values = given.values()
    if not keeps_nulls and _SCALARS.issuperset(map(type, values)):
        return given
    if not any(isinstance(each, _BESIDE) or (keeps_nulls and each is None) for each in values):
        return given
    attributes: dict[str, Value] = flatten(given)
    attributes[PAYLOAD] = _encoded(given)
    return attributes


def as_mapping(given: object) -> dict[str, Any] | None:
    """The fields of a typed object: a dataclass, a struct of msgspec, a model of pydantic, a class
    of attrs. None for anything else.
    """
    kind = type(given)
    if hasattr(kind, "model_dump"):
        fields: dict[str, Any] = kind.model_dump(given)
        return fields
    if any(hasattr(kind, f"__{each}__") for each in ("dataclass_fields", "struct_fields")) or (
        hasattr(kind, "__attrs_attrs__")
    ):
        fields = msgspec.to_builtins(given, builtin_types=_KEPT, enc_hook=_plain)
        return fields if isinstance(fields, dict) else None
    return None


def _plain(value: object) -> Any:
    """Convert objects that msgspec does not encode: models, and scalars of numpy."""
    fields = dict(value) if isinstance(value, Mapping) else as_mapping(value)
    return checked(value) if fields is None else fields


def _encoded(data: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.msgpack.encode(dict(data), enc_hook=_plain)
    except (OverflowError, RecursionError, UnicodeError) as error:
        raise InvalidEvent(f"an event's lists and nested data do not fit: {error}") from None


def data_of(payload: object, attributes: Mapping[str, Any]) -> Any:
    """The data that a payload holds; `InvalidEvent` if it is none, or is not that of these
    attributes: filters and grants have seen the attributes alone.

    >>> data_of(b'{"specversion": "1.0", "type": "order", "data": [1, 2]}', {"type": "order"})
    [1, 2]
    """
    document = cloud_event_of(payload)
    try:
        if document is not None:
            data = cloud_data(document)
        else:
            data = msgspec.msgpack.decode(cast(bytes, payload), type=dict[Any, Any])
        seen = seen_by_filters(data, is_cloud_event=document is not None)
    except (TypeError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidEvent(f"{PAYLOAD} is neither MessagePack nor a CloudEvent: {error}") from None
    for name, value in seen.items():
        if not is_same(attributes.get(name), value):
            raise InvalidEvent(
                f"{PAYLOAD} says {name} = {value!r:.40}, and the attributes of the event do not; "
                "publish both from the same data"
            )
    return data


def seen_by_filters(data: Any, *, is_cloud_event: bool) -> dict[str, Value]:
    """The attributes that data give: scalars, those of nested objects under dotted names. Of a
    CloudEvent those that are called as its context attributes are go under `data.`, and data that
    are one scalar are `data`.

    >>> seen_by_filters({"id": 7, "size": {"x": 1}}, is_cloud_event=True)
    {'data.id': 7, 'size.x': 1}
    """
    if not isinstance(data, Mapping):
        is_scalar = is_cloud_event and isinstance(data, bool | int | float | str)
        return {"data": attribute("data", data)} if is_scalar else {}
    seen: dict[str, Value] = {}
    for own, value in flatten(data).items():
        name = f"data.{own}" if is_cloud_event and own in CONTEXT else own
        if name in seen:
            raise InvalidEvent(f"attribute {name!r} occurs twice in the data; rename one of them")
        if not is_system_name(name):
            seen[name] = value
    return seen


def cloud_data(document: Mapping[str, Any]) -> Any:
    """The data of a CloudEvent in JSON."""
    if "data_base64" in document:
        return base64.b64decode(document["data_base64"], validate=True)
    return document.get("data")


def is_same(seen: object, value: object) -> bool:
    """True if data with this value give this attribute."""
    if isinstance(seen, float) and isinstance(value, str):  # the digits of a Decimal
        try:
            value = float(value)
        except ValueError:
            return False
    return type(seen) is type(value) and (seen == value or (is_nan(seen) and is_nan(value)))


def cloud_event_of(payload: object) -> dict[str, Any] | None:
    """The CloudEvent that a payload holds; None for one in MessagePack, whose first byte is never
    `{`, as an object's is of 0x80 and above.
    """
    if not isinstance(payload, bytes) or not payload.startswith(b"{"):
        return None
    try:
        document: dict[str, Any] = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"{PAYLOAD} is neither MessagePack nor a CloudEvent: {error}") from None
    return document
