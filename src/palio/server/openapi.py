"""The HTTP front, described for programs: OpenAPI 3.1. A test holds it against the routes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from palio import __version__
from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.server.http_subscriptions import Request

__all__ = ["document"]

_ERRORS: Final = {
    "400": "what was given is not as it should be",
    "401": "it was not shown who calls",
    "403": "beyond what was granted",
    "413": "larger than a limit",
    "503": "the broker is not ready",
}
_CURSOR: Final = "Where to go on: the id of the last event that was received."


def document() -> dict[str, Any]:
    """The description.

    >>> sorted(document()["paths"]["/events"])
    ['get', 'post']
    """
    (_, schemas) = msgspec.json.schema_components(
        [Request], ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palio",
            "version": __version__,
            "description": "Content-based publish/subscribe: CloudEvents in and out.",
        },
        "paths": _named(_paths()),
        "components": {
            "schemas": {**schemas, "Error": _ERROR, "CloudEvent": _CLOUD_EVENT},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
_CLOUD_EVENT: Final = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "subject": {"type": "string"},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"type": "string"},
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
}
_EVENT_REF: Final = {"$ref": "#/components/schemas/CloudEvent"}


def _paths() -> dict[str, Any]:
    one = [_parameter("id", "path", "The subscription's id.", required=True)]
    request = {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}}}
    listen = {"200": {"description": "An event stream.", "content": {"text/event-stream": {}}}}
    resume = [
        _parameter("Last-Event-ID", "header", _CURSOR),
        _parameter("cursor", "query", f"{_CURSOR} For those who can send no header."),
    ]
    return {
        "/events": {
            "post": _operation(
                "Publish CloudEvents, in binary, structured or batch mode.",
                {"202": _said("All are held."), "207": _said("Some were refused.")},
                parameters=[
                    _parameter(
                        "durable", "query", "Answer when they are on the disk.", kind="boolean"
                    )
                ],
                body={
                    JSON_TYPE: {"schema": _EVENT_REF},
                    BATCH_TYPE: {"schema": {"type": "array", "items": _EVENT_REF}},
                    "*/*": {},
                },
            ),
            "get": _operation(
                "Hear what matches a filter, for as long as the request is open. "
                "Parameters of the filter are given as param.NAME=VALUE. Also as a WebSocket.",
                listen,
                parameters=[
                    _parameter(
                        "filter", "query", "In Palio's language.", required=True, min_length=1
                    ),
                    *resume,
                ],
            ),
        },
        "/subscriptions": {
            "post": _operation("Make a subscription.", {"201": _said("It is made.")}, body=request),
            "get": _operation("List one's own.", {"200": _said("The subscriptions.")}),
        },
        "/subscriptions/{id}": {
            "get": _operation("Show one.", {"200": _said("It.")}, parameters=one, found=True),
            "put": _operation(
                "Change its filter or sink; identity and position stay.",
                {"200": _said("As it is now.")},
                parameters=one,
                body=request,
                found=True,
            ),
            "delete": _operation(
                "End it.", {"204": _said("It has ended.")}, parameters=one, found=True
            ),
        },
        "/subscriptions/{id}/events": {
            "get": _operation(
                "Hear it. Also as a WebSocket.", listen, parameters=[*one, *resume], found=True
            )
        },
        "/subscriptions/{id}/acknowledge": {
            "post": _operation(
                "Say that all up to a cursor has been dealt with.",
                {"204": _said("It is noted.")},
                parameters=one,
                body={"application/json": {"schema": _cursor_body()}},
                found=True,
            )
        },
        "/healthz": {"get": _operation("Whether it runs.", {"200": _said("It does.")})},
        "/readyz": {"get": _operation("Whether it takes sessions.", {"200": _said("It does.")})},
        "/metrics": {
            "get": _operation(
                "Counts, for Prometheus; needs the grant `monitor`.", {"200": _said("Text.")}
            )
        },
        "/topology": {
            "get": _operation(
                "Brokers and links; needs the grant `monitor`.", {"200": _said("What is known.")}
            )
        },
        "/openapi.json": {"get": _operation("This document.", {"200": _said("It.")})},
    }


def _named(paths: dict[str, Any]) -> dict[str, Any]:
    """Paths whose operations have names, which generators of programs call their functions by."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            operation["operationId"] = "_".join([method, *_WORD.findall(path)])
    return paths


_WORD: Final = re.compile(r"\w+")


def _cursor_body() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["cursor"],
        "properties": {"cursor": {"type": "string"}},
    }


def _operation(
    summary: str,
    answers: dict[str, Any],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
    found: bool = False,
) -> dict[str, Any]:
    errors = {**_ERRORS, "404": "there is no such subscription"} if found else _ERRORS
    failures = {
        status: {
            "description": description,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status, description in errors.items()
    }
    operation: dict[str, Any] = {"summary": summary, "responses": {**answers, **failures}}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _said(description: str) -> dict[str, str]:
    return {"description": description}


def _parameter(
    name: str,
    where: str,
    description: str,
    *,
    required: bool = False,
    kind: str = "string",
    min_length: int = 0,
) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": required,
        "description": description,
        "schema": {"type": kind} | ({"minLength": min_length} if min_length else {}),
    }
