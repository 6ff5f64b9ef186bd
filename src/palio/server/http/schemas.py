"""JSON schemas of the HTTP front's requests and answers, for its description."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from palio.language.http_events import CURSOR
from palio.server.http.subscriptions import Request

__all__ = ["listed", "ref", "schemas"]

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_NAME: Final = {"type": "string", "minLength": 1}


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of `schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(name: str) -> dict[str, Any]:
    """A list of what a schema describes."""
    return {"type": "array", "items": ref(name)}


def schemas() -> dict[str, Any]:
    """All schemas by name.

    >>> sorted(schemas()["Receipt"]["required"])
    ['accepted']
    """
    (_, found) = msgspec.json.schema_components(
        [Request], ref_template="#/components/schemas/{name}"
    )
    return {
        **found,
        "Subscription": _subscription(found["Request"]),
        "CloudEvent": _CLOUD_EVENT,
        "Taken": _TAKEN,
        "Receipt": _RECEIPT,
        "Refusal": _REFUSAL,
        "Cursor": _object({"cursor": _NAME}, "cursor"),
        "Offer": _object(
            {"filter": _TEXT, "parameters": {"type": "object"}, "lease_s": {"type": "number"}},
            "filter",
        ),
        "Advertisement": _object(
            {"id": _NAME, "filter": _TEXT, "lease_s": {"type": "number"}},
            *("id", "filter", "lease_s"),
        ),
        "Cancelled": _object({"cancelled": _NUMBER}, "cancelled"),
        "Status": _object({"status": _TEXT}, "status"),
        "Failure": _FAILURE,
        "Error": _object({"error": ref("Failure")}, "error"),
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": properties}


def _subscription(request: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, without what is empty, and what the broker makes of it."""
    meaning = _object({"filter": _TEXT, "parameters": {"type": "object"}}, "filter", "parameters")
    return _object({**request["properties"], "id": _NAME, "palio": meaning}, "id", "palio")


_CLOUD_EVENT: Final = _object(
    {
        "specversion": {"const": "1.0"},
        "id": _NAME,
        "source": _NAME,
        "type": _NAME,
        "subject": _TEXT,
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": _TEXT,
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
    *("specversion", "id", "source", "type"),
)
_TAKEN: Final = _object(
    {**_CLOUD_EVENT["properties"], CURSOR: _TEXT}, *_CLOUD_EVENT["required"], CURSOR
)
_FAILURE: Final = _object(
    {
        "type": _NAME,
        "message": _TEXT,
        "line": _NUMBER,
        "column": _NUMBER,
        "limit": _TEXT,
        "maximum": _NUMBER,
    },
    *("type", "message"),
)
_REFUSAL: Final = _object(
    {"first_seq": _NUMBER, "last_seq": _NUMBER, "error": ref("Failure")},
    *("first_seq", "last_seq", "error"),
)
_RECEIPT: Final = _object(
    {
        "accepted": _NUMBER,
        "level": {"enum": ["memory", "durable"]},
        "publisher": _TEXT,
        "first_seq": _NUMBER,
        "last_seq": _NUMBER,
        "refused": listed("Refusal"),
    },
    "accepted",
)
