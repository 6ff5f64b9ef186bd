"""The WebSockets of the HTTP front, described for programs: AsyncAPI 3.0, made from the OpenAPI."""

from __future__ import annotations

import re
from typing import Any, Final

from palio.server.http import openapi
from palio.server.http.websocket import SUBPROTOCOL

_STREAMS: Final = {"events": "/events", "subscription": "/subscriptions/{id}/events"}
"""The routes of OpenAPI that are WebSockets, too."""

_TEXT: Final = {"type": "string"}
_ID: Final = {"id": {"description": "What the client chose; it comes back in the answer."}}

_MESSAGES: Final[dict[str, dict[str, Any]]] = {
    "event": {"$ref": "#/components/schemas/Taken"},
    "command": {
        "type": "object",
        "properties": {
            **_ID,
            "update": {"type": "object", "description": "New values of parameters."},
            "replace": {
                "type": "object",
                "properties": {"filter": _TEXT, "parameters": {"type": "object"}},
                "required": ["filter"],
            },
            "acknowledge": {**_TEXT, "description": "A cursor: all up to it is processed."},
        },
        "oneOf": [{"required": [name]} for name in ("update", "replace", "acknowledge")],
    },
    "answer": {
        "type": "object",
        "properties": {
            **_ID,
            "done": {"enum": ["update", "replace", "acknowledge"]},
            "error": {"$ref": "#/components/schemas/Failure"},
            "opened": {**_TEXT, "description": "The cursor from which the connection began."},
        },
        "oneOf": [{"required": ["done"]}, {"required": ["error"]}],
    },
}
"""The messages of a connection, each in JSON; all but the command come from the broker."""


def document() -> dict[str, Any]:
    """The description.

    >>> [channel["address"] for channel in document()["channels"].values()]
    ['/events', '/subscriptions/{id}/events']
    """
    described = openapi.document()
    components = described["components"]
    channels = {
        name: _channel(path, described["paths"][path]["get"]) for name, path in _STREAMS.items()
    }
    operations = {
        f"{action}_{channel}_{message}": {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"}],
        }
        for channel in channels
        for message in _MESSAGES
        for action in ["receive" if message == "command" else "send"]
    }
    schemes = {
        "token": components["securitySchemes"]["token"],
        "query": components["securitySchemes"]["query"] | {"type": "httpApiKey"},
    }
    host = {"default": "localhost:7480", "description": "The broker's `http.port`."}
    return {
        "asyncapi": "3.0.0",
        "info": described["info"],
        "defaultContentType": "application/json",
        "servers": {
            "broker": {
                "host": "{host}",
                "protocol": "ws",
                "variables": {"host": host},
                "security": [{"$ref": f"#/components/securitySchemes/{name}"} for name in schemes],
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: {"payload": payload} for name, payload in _MESSAGES.items()},
            "schemas": components["schemas"],
            "securitySchemes": schemes,
        },
    }


def _channel(path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """A route as a channel. A WebSocket has no columns, which are those of Arrow streams."""
    query: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for parameter in operation["parameters"]:
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] != "query" or name == "columns":
            continue
        if "propertyNames" in schema:
            names = schema["propertyNames"]["pattern"]
            query["patternProperties"] = {names: schema["additionalProperties"]}
            continue
        query["properties"][name] = {**schema, "description": parameter["description"]}
        if parameter["required"]:
            query["required"].append(name)
    if not query["required"]:
        del query["required"]
    return {
        "address": path,
        "description": f"{operation['summary']} The subprotocol is {SUBPROTOCOL}.",
        "parameters": {name: {} for name in re.findall(r"\{(\w+)\}", path)},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _MESSAGES},
        "bindings": {"ws": {"query": query, "bindingVersion": "0.1.0"}},
    }
