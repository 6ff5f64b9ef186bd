"""The HTTP front, described for programs: OpenAPI 3.1. A test holds it against the routes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from palio import __version__
from palio.language.http_events import BATCH_TYPE, CURSOR, JSON_TYPE, PLAIN_TYPE
from palio.server.http.access import TOKEN
from palio.server.http.arrow import ARROW_TYPE, TYPES
from palio.server.http.sse import EVENT_STREAM_TYPE
from palio.server.http.subscriptions import Request
from palio.server.limits import MAX_TAKEN, MAX_WAIT_S

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
_ASKED: Final = ("400", "401", "403", "421", "503")
"""Errors of what a caller may be refused."""
_SENT: Final = (*_ASKED, "413", "415")
"""Errors of what has a body."""


def document() -> dict[str, Any]:
    """The description.

    >>> sorted(document()["paths"]["/events"])
    ['get', 'post']
    """
    paths = {"/events": _events(), **_subscriptions(), **_advertisements(), **_running()}
    for path, operations in paths.items():
        for method, operation in operations.items():  # generators call their functions so
            operation["operationId"] = "_".join([method, *re.findall(r"\w+", path)])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palio",
            "version": __version__,
            "description": "Content-based publish/subscribe: CloudEvents in and out.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": TOKEN},
            },
        },
        "security": [{"token": []}, {"query": []}, {}],
    }


# --- paths ---


def _events() -> dict[str, Any]:
    durable = _parameter(
        "durable",
        "query",
        "Answer when they are on the disk, or on those of all homes, too.",
        enum=["false", "true", "home"],
    )
    identity = _parameter("as", "query", "Under which identity it was advertised.")
    text = _parameter("filter", "query", "In Palio's language.", required=True, minLength=1)
    return {
        "post": _operation(
            "Publish JSON objects, CloudEvents (binary, structured or batch), or an Arrow stream.",
            {"202": ("All are held.", "Receipt"), "207": ("Some were refused.", "Receipt")},
            (*_SENT, "409"),
            [durable, identity],
            {
                PLAIN_TYPE: {"schema": {"type": ["object", "array"], "items": {"type": "object"}}},
                JSON_TYPE: {"schema": _ref("CloudEvent")},
                BATCH_TYPE: {"schema": _listed("CloudEvent")},
                ARROW_TYPE: {},
                "*/*": {},
            },
        ),
        "get": _operation(
            "Receive matching events while the request is open. Also as a WebSocket.",
            _STREAM,
            _ASKED,
            [text, _values(), _columns(), *_resuming()],
        ),
    }


def _subscriptions() -> dict[str, Any]:
    one = _parameter("id", "path", "The subscription's id.", required=True)
    found, sent = (*_ASKED, "404"), (*_SENT, "404")
    forget = _parameter("forget", "query", "Delete durable ones.", type="boolean")
    waiting = ("The backlog.", _listed("Taken"), BATCH_TYPE, ARROW_TYPE)
    return {
        "/subscriptions": {
            "post": _operation(
                "Create a subscription.",
                {"201": ("It is created.", "Subscription")},
                _SENT,
                body=_json("Request"),
            ),
            "get": _operation(
                "List one's own.", {"200": ("The subscriptions.", _listed("Subscription"))}, _ASKED
            ),
            "delete": _operation(
                "End the subscriptions of an identity that a filter covers.",
                {"200": ("Their number.", "Cancelled")},
                (*_ASKED, "413"),
                [*_covering(), forget],
            ),
        },
        "/subscriptions/{id}": {
            "get": _operation("Show one.", {"200": ("It.", "Subscription")}, found, [one]),
            "put": _operation(
                "Change its filter or sink; identity and position stay.",
                {"200": ("As it is now.", "Subscription")},
                sent,
                [one],
                _json("Request"),
            ),
            "delete": _operation("End it.", {"204": ("It has ended.",)}, found, [one]),
        },
        "/subscriptions/{id}/events": {
            "get": _operation(
                "Receive its events. Also as a WebSocket.",
                _STREAM,
                found,
                [one, _columns(), *_resuming()],
            )
        },
        "/subscriptions/{id}/batch": {
            "get": _operation(
                "Return the backlog of a durable subscription; only its cursor acknowledges.",
                {"200": waiting},
                found,
                [one, _columns(), *_taking()],
            )
        },
        "/subscriptions/{id}/acknowledge": {
            "post": _operation(
                "Acknowledge all events up to a cursor.",
                {"204": ("They are acknowledged.",)},
                sent,
                [one],
                _json("Cursor"),
            )
        },
    }


def _advertisements() -> dict[str, Any]:
    one = _parameter("id", "path", "The name of the advertisement.", required=True)
    over: dict[str, Any] = {"204": ("It is over.",)}
    return {
        "/advertisements": {
            "get": _operation(
                "List what was announced by HTTP under an identity.",
                {"200": ("The advertisements.", _listed("Advertisement"))},
                _ASKED,
                [_identity()],
            ),
            "delete": _operation(
                "Withdraw all of an identity that a filter covers.",
                over,
                (*_ASKED, "413"),
                _covering(),
            ),
        },
        "/advertisements/{id}": {
            "put": _operation(
                "Announce what will be published, or renew that.",
                {
                    "200": ("It is renewed.", "Advertisement"),
                    "201": ("It is new.", "Advertisement"),
                },
                _SENT,
                [one, _identity()],
                _json("AdvertisementHandle"),
            ),
            "delete": _operation(
                "Announce it no longer.", over, (*_ASKED, "404"), [one, _identity()]
            ),
        },
    }


def _running() -> dict[str, Any]:
    """The paths for operators of a broker."""
    known: dict[str, Any] = {"type": "object"}
    text = ("In Prometheus' format.", {"type": "string"}, "text/plain")
    health = _operation("Whether it runs.", {"200": ("It does.", "Status")}, ("421",))
    ready = _operation(
        "Whether it serves clients in full; names of peers need the grant `monitor`.",
        {"200": ("It does.", "Readiness"), "503": ("It does not.", "Readiness")},
        ("421",),
    )
    metrics = _operation(
        "Counts, for Prometheus; needs the grant `monitor`.", {"200": text}, _ASKED
    )
    topology = _operation(
        "Brokers and links; needs the grant `monitor`.",
        {"200": ("Brokers and links.", known)},
        _ASKED,
    )
    status = _operation(
        "Counts of this broker; without the grant `monitor` of one's own sessions.",
        {"200": ("The counts.", known)},
        _ASKED,
    )
    catalogue = _operation(
        "Subscriptions of this broker's clients, a page of them; needs the grant `monitor`.",
        {"200": ("The page, and where the next begins.", known)},
        _ASKED,
        [
            _parameter("own", "query", "Only one's own; needs no grant.", type="boolean"),
            _parameter("from", "query", "`next` of the page before."),
        ],
    )
    trace = _operation(
        "The path of an event and the subscriptions it would reach; it is not published.",
        {"200": ("A hop for each broker.", known)},
        _SENT,
        body={"application/json": {"schema": known}},
    )
    live = _operation(
        "The page of the broker.", {"200": ("It.", {"type": "string"}, "text/html")}, ("421",)
    )
    described = _operation("This document.", {"200": ("It.", known)}, ("421",))
    sockets = _operation("The WebSockets in AsyncAPI.", {"200": ("It.", known)}, ("421",))
    script = _operation(
        "The client for web pages.",
        {"200": ("A module.", {"type": "string"}, "text/javascript")},
        ("421",),
    )
    for each in (health, ready, described, sockets, script, live):
        each["security"] = []
    return {
        "/healthz": {"get": health},
        "/readyz": {"get": ready},
        "/metrics": {"get": metrics},
        "/status": {"get": status},
        "/topology": {"get": topology},
        "/catalogue": {"get": catalogue},
        "/trace": {"post": trace},
        "/": {"get": live},
        "/openapi.json": {"get": described},
        "/asyncapi.json": {"get": sockets},
        "/palio.js": {"get": script},
    }


_STREAM: Final = {"200": ("A stream.", {"type": "string"}, EVENT_STREAM_TYPE, ARROW_TYPE)}


def _operation(
    summary: str,
    answers: dict[str, tuple[Any, ...]],
    errors: tuple[str, ...],
    parameters: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """An operation. An answer is its description, then its schema or the name of one, and in which
    types it comes if not as JSON.
    """
    failures = {status: _answer(_ERRORS[status], "Error") for status in sorted(errors)}
    responses = {status: _answer(*answer) for status, answer in answers.items()} | failures
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _answer(
    description: str, schema: Any = None, media: str = "application/json", other: str = ""
) -> dict[str, Any]:
    if schema is None:
        return {"description": description}
    content = {media: {"schema": _ref(schema) if isinstance(schema, str) else schema}}
    if other:  # for who accepts it
        content[other] = {"schema": {"contentMediaType": other}}
    return {"description": description, "content": content}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(name)}}


# --- parameters ---


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
    names = {"pattern": rf"^{prefix}\."}
    return _parameter(
        name, "query", description, type="object", propertyNames=names, additionalProperties=kind
    ) | {"style": "form", "explode": True}


_RESUME_AT: Final = "The position to resume at: the id of the last received event."


def _resuming() -> list[dict[str, Any]]:
    return [
        _parameter("Last-Event-ID", "header", _RESUME_AT),
        _parameter("cursor", "query", f"{_RESUME_AT} For those who can send no header."),
    ]


def _taking() -> list[dict[str, Any]]:
    most: dict[str, Any] = {"minimum": 1, "maximum": MAX_TAKEN, "default": 100}
    wait: dict[str, Any] = {"minimum": 0, "maximum": MAX_WAIT_S, "default": 5}
    return [
        _parameter("cursor", "query", f"{_RESUME_AT} What is before it is acknowledged."),
        _parameter("max", "query", "Events at most.", type="integer", **most),
        _parameter("wait_s", "query", "Seconds to wait for the first.", type="number", **wait),
    ]


# --- schemas ---

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_SECONDS: Final = {"type": "number"}
_NAME: Final = {"type": "string", "minLength": 1}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _listed(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": properties}


def _schemas() -> dict[str, Any]:
    (_, found) = msgspec.json.schema_components(
        [Request], ref_template="#/components/schemas/{name}"
    )
    filter = {"filter": _TEXT, "parameters": {"type": "object"}}
    event = {
        "specversion": {"const": "1.0"},
        "id": _NAME,
        "source": _NAME,
        "type": _NAME,
        "subject": _TEXT,
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": _TEXT,
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    }
    named = ("specversion", "id", "source", "type")
    numbers = {"first_seq": _NUMBER, "last_seq": _NUMBER}
    # What was asked for, without what is empty, and what the broker makes of it.
    asked = found["Request"]["properties"]
    made = {"id": _NAME, "palio": _object(filter, "filter", "parameters")}
    receipt = {
        "accepted": _NUMBER,
        "level": {"enum": ["memory", "durable", "home"]},
        "publisher": _TEXT,
        **numbers,
        "refused": _listed("Refusal"),
    }
    failure = {
        "type": _NAME,
        "message": _TEXT,
        "limit": _TEXT,
        "line": _NUMBER,
        "column": _NUMBER,
        "maximum": _NUMBER,
    }
    refusal = {**numbers, "error": _ref("Failure")}
    advertised = {"id": _NAME, "filter": _TEXT, "lease_s": _SECONDS}
    return {
        **found,
        "Subscription": _object(asked | made, *made),
        "CloudEvent": _object(event, *named),
        "Taken": _object({**event, CURSOR: _TEXT}, *named, CURSOR),
        "Receipt": _object(receipt, "accepted"),
        "Refusal": _object(refusal, *refusal),
        "Cursor": _object({"cursor": _NAME}, "cursor"),
        "AdvertisementHandle": _object({**filter, "lease_s": _SECONDS}, "filter"),
        "Advertisement": _object(advertised, *advertised),
        "Cancelled": _object({"cancelled": _NUMBER}, "cancelled"),
        "Status": _object({"status": _TEXT}, "status"),
        "Readiness": _object(
            {"status": _TEXT, "reasons": _listed("Problem"), "warnings": _listed("Problem")},
            *("status", "reasons", "warnings"),
        ),
        "Problem": _object(
            {"code": _TEXT, "message": _TEXT, "peers": {"type": "array", "items": _TEXT}},
            *("code", "message"),
        ),
        "Failure": _object(failure, "type", "message"),
        "Error": _object({"error": _ref("Failure")}, "error"),
    }
