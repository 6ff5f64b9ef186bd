"""The HTTP front, described for programs: OpenAPI 3.1. A test holds it against the routes."""

from __future__ import annotations

import re
from typing import Any, Final

from palio import __version__
from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.server.http.access import TOKEN
from palio.server.http.arrow import ARROW_TYPE, TYPES
from palio.server.http.cursors import EVENT_STREAM_TYPE
from palio.server.http.schemas import listed, ref, schemas
from palio.server.limits import MAX_TAKEN, MAX_WAIT_S

__all__ = ["document"]

_ERRORS: Final = {
    "400": "what was given is not as it should be",
    "401": "it was not shown who calls",
    "403": "beyond what was granted",
    "404": "there is no such subscription or advertisement",
    "409": "not advertised, where only that is delivered",
    "413": "larger than a limit",
    "415": "a packed body",
    "421": "sent to a name that is not this broker's",
    "503": "the broker is not ready",
}
_ANYONE: Final = ("421",)
"""Errors of what needs no token."""
_ASKED: Final = ("400", "401", "403", *_ANYONE, "503")
"""Errors of what a caller may be refused."""
_SENT: Final = (*_ASKED, "413", "415")
"""Errors of what has a body."""

_CURSOR: Final = "Where to go on: the id of the last event that was received."


def document() -> dict[str, Any]:
    """The description.

    >>> sorted(document()["paths"]["/events"])
    ['get', 'post']
    """
    paths = {"/events": _events(), **_subscriptions(), **_advertisements(), **_running()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palio",
            "version": __version__,
            "description": "Content-based publish/subscribe: CloudEvents in and out.",
        },
        "paths": _named(paths),
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": TOKEN},
            },
        },
        "security": [{"token": []}, {"query": []}, {}],
    }


def _events() -> dict[str, Any]:
    durable = _parameter("durable", "query", "Answer when they are on the disk.", type="boolean")
    identity = _parameter("as", "query", "Under which identity it was advertised.")
    text = _parameter("filter", "query", "In Palio's language.", required=True, minLength=1)
    event = {JSON_TYPE: {"schema": ref("CloudEvent")}}
    return {
        "post": _operation(
            "Publish CloudEvents, in binary, structured or batch mode, or an Arrow stream.",
            {
                "202": _json("All are held.", ref("Receipt")),
                "207": _json("Some were refused.", ref("Receipt")),
            },
            (*_SENT, "409"),
            parameters=[durable, identity],
            body={
                **event,
                BATCH_TYPE: {"schema": listed("CloudEvent")},
                ARROW_TYPE: {},
                "*/*": {},
            },
        ),
        "get": _operation(
            "Hear what matches a filter, for as long as the request is open. Also as a WebSocket.",
            _stream(),
            _ASKED,
            parameters=[text, _values(), _columns(), *_resuming()],
        ),
    }


def _subscriptions() -> dict[str, Any]:
    one = _parameter("id", "path", "The subscription's id.", required=True)
    found = (*_ASKED, "404")
    asked = {"application/json": {"schema": ref("Request")}}
    cursor = {"application/json": {"schema": ref("Cursor")}}
    shown = ref("Subscription")
    return {
        "/subscriptions": {
            "post": _operation(
                "Make a subscription.", {"201": _json("It is made.", shown)}, _SENT, body=asked
            ),
            "get": _operation(
                "List one's own.",
                {"200": _json("The subscriptions.", listed("Subscription"))},
                _ASKED,
            ),
            "delete": _operation(
                "End all that an identity hears and a filter covers.",
                {"200": _json("How many that were.", ref("Cancelled"))},
                (*_ASKED, "413"),
                parameters=[
                    *_covering(),
                    _parameter("forget", "query", "End durable ones for good.", type="boolean"),
                ],
            ),
        },
        "/subscriptions/{id}": {
            "get": _operation("Show one.", {"200": _json("It.", shown)}, found, parameters=[one]),
            "put": _operation(
                "Change its filter or sink; identity and position stay.",
                {"200": _json("As it is now.", shown)},
                (*_SENT, "404"),
                parameters=[one],
                body=asked,
            ),
            "delete": _operation(
                "End it.", {"204": {"description": "It has ended."}}, found, parameters=[one]
            ),
        },
        "/subscriptions/{id}/events": {
            "get": _operation(
                "Hear it. Also as a WebSocket.",
                _stream(),
                found,
                parameters=[one, _columns(), *_resuming()],
            )
        },
        "/subscriptions/{id}/batch": {
            "get": _operation(
                "Take what waits for a durable subscription; nothing is acknowledged but by its "
                "cursor.",
                {"200": _or_arrow(_said("What waits.", BATCH_TYPE, listed("Taken")))},
                found,
                parameters=[one, _columns(), *_taking()],
            )
        },
        "/subscriptions/{id}/acknowledge": {
            "post": _operation(
                "Say that all up to a cursor has been dealt with.",
                {"204": {"description": "It is noted."}},
                (*_SENT, "404"),
                parameters=[one],
                body=cursor,
            )
        },
    }


def _advertisements() -> dict[str, Any]:
    one = _parameter("id", "path", "The name of the advertisement.", required=True)
    shown, gone = ref("Advertisement"), {"204": {"description": "It is over."}}
    offer = {"application/json": {"schema": ref("Offer")}}
    return {
        "/advertisements": {
            "get": _operation(
                "List what was announced by HTTP under an identity.",
                {"200": _json("The advertisements.", listed("Advertisement"))},
                _ASKED,
                parameters=[_identity()],
            ),
            "delete": _operation(
                "Withdraw all of an identity that a filter covers.",
                gone,
                (*_ASKED, "413"),
                parameters=_covering(),
            ),
        },
        "/advertisements/{id}": {
            "put": _operation(
                "Announce what will be published, or renew that.",
                {"200": _json("It is renewed.", shown), "201": _json("It is new.", shown)},
                _SENT,
                parameters=[one, _identity()],
                body=offer,
            ),
            "delete": _operation(
                "Announce it no longer.", gone, (*_ASKED, "404"), parameters=[one, _identity()]
            ),
        },
    }


def _running() -> dict[str, Any]:
    """The paths for operators of a broker."""
    status, known = ref("Status"), {"type": "object"}
    health = _operation("Whether it runs.", {"200": _json("It does.", status)}, _ANYONE)
    ready = _operation(
        "Whether it takes sessions.", {"200": _json("It does.", status)}, (*_ANYONE, "503")
    )
    metrics = _operation(
        "Counts, for Prometheus; needs the grant `monitor`.",
        {"200": _said("In Prometheus' format.", "text/plain", {"type": "string"})},
        _ASKED,
    )
    topology = _operation(
        "Brokers and links; needs the grant `monitor`.",
        {"200": _json("What is known.", known)},
        _ASKED,
    )
    described = _operation("This document.", {"200": _json("It.", known)}, _ANYONE)
    for each in (health, ready, described):
        each["security"] = []
    return {
        "/healthz": {"get": health},
        "/readyz": {"get": ready},
        "/metrics": {"get": metrics},
        "/topology": {"get": topology},
        "/openapi.json": {"get": described},
    }


def _named(paths: dict[str, Any]) -> dict[str, Any]:
    """Paths whose operations have names, which generators of programs call their functions by."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            operation["operationId"] = "_".join([method, *_WORD.findall(path)])
    return paths


_WORD: Final = re.compile(r"\w+")


def _operation(
    summary: str,
    answers: dict[str, Any],
    errors: tuple[str, ...],
    *,
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    failures = {status: _json(_ERRORS[status], ref("Error")) for status in sorted(errors)}
    operation: dict[str, Any] = {"summary": summary, "responses": {**answers, **failures}}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _said(description: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema}}}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return _said(description, "application/json", schema)


def _stream() -> dict[str, Any]:
    return {"200": _or_arrow(_said("A stream.", EVENT_STREAM_TYPE, {"type": "string"}))}


def _or_arrow(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that is an Arrow stream for who accepts one."""
    answer["content"][ARROW_TYPE] = {"schema": {"contentMediaType": ARROW_TYPE}}
    return answer


def _parameter(
    name: str, where: str, description: str, *, required: bool = False, **schema: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": required,
        "description": description,
        "schema": {"type": "string"} | schema,
    }


def _identity() -> dict[str, Any]:
    return _parameter("as", "query", "The identity.", required=True, minLength=1)


def _covering() -> list[dict[str, Any]]:
    text = _parameter("filter", "query", "What covers them.", required=True, minLength=1)
    return [_identity(), text, _values()]


def _values() -> dict[str, Any]:
    text = "Parameters of the filter, each as param.NAME=VALUE."
    return _spread("parameters", text, "param", {"type": "string"})


def _columns() -> dict[str, Any]:
    text = "Columns of an Arrow stream, each as column.NAME=TYPE."
    return _spread("columns", text, "column", {"enum": sorted(TYPES)})


def _spread(name: str, description: str, prefix: str, kind: dict[str, Any]) -> dict[str, Any]:
    """An object whose names nobody knows beforehand, spread out over the query."""
    return _parameter(
        name,
        "query",
        description,
        type="object",
        propertyNames={"pattern": rf"^{prefix}\."},
        additionalProperties=kind,
    ) | {"style": "form", "explode": True}


def _resuming() -> list[dict[str, Any]]:
    return [
        _parameter("Last-Event-ID", "header", _CURSOR),
        _parameter("cursor", "query", f"{_CURSOR} For those who can send no header."),
    ]


def _taking() -> list[dict[str, Any]]:
    bounds: dict[str, Any] = {"minimum": 0, "maximum": MAX_WAIT_S, "default": 5}
    return [
        _parameter("cursor", "query", f"{_CURSOR} What is before it is acknowledged."),
        _parameter(
            "max",
            "query",
            "Events at most.",
            type="integer",
            minimum=1,
            maximum=MAX_TAKEN,
            default=100,
        ),
        _parameter("wait_s", "query", "Seconds to wait for the first.", type="number", **bounds),
    ]
