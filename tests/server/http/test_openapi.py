from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Route

from palio.language.http_events import BATCH_TYPE, JSON_TYPE
from palio.model.filters import TRUE, Conjunction, Constraint, Filter
from palio.node.authority import OpenAuthority, Principal
from palio.server.http.access import Access
from palio.server.http.app import application
from palio.server.http.arrow import ARROW_TYPE
from palio.server.http.openapi import document
from palio.server.http.subscribers import HttpSubscribers
from palio.server.http.subscriptions import Directory
from tests.server.fronts import asked, broker, event
from tests.server.http.test_app import Tokens, bearer


async def test_what_is_described_is_what_there_is() -> None:
    async with broker() as server:
        access = Access(OpenAuthority(), server.moment)
        delivery = HttpSubscribers(server.connect_local, access, Directory(server.host.keep, {}))
        routes = application(server.connect_local, access, delivery).routes
    there = {
        (route.path, method.lower())
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {
        (path, method) for path, methods in document()["paths"].items() for method in methods
    }
    assert described == there


def test_references_lead_somewhere() -> None:
    whole = document()
    found = list(references(whole))
    assert found
    for reference in found:
        part: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]


def references(part: Any) -> Any:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        each["operationId"] for methods in document()["paths"].values() for each in methods.values()
    ]
    assert len(names) == len({*names})
    assert {"post_events", "get_subscriptions_id_events"} <= {*names}


def test_streams_go_on_from_a_cursor_of_the_query_too() -> None:
    for path in ("/events", "/subscriptions/{id}/events"):
        parameters = document()["paths"][path]["get"]["parameters"]
        assert ("query", "cursor") in {(each["in"], each["name"]) for each in parameters}


def test_path_parameters_are_described() -> None:
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            names = [each["name"] for each in operation.get("parameters", [])]
            assert ("{id}" in path) == ("id" in names)
            assert operation["summary"]


def test_every_answer_has_a_schema() -> None:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            assert operation["responses"]
            for status, answer in operation["responses"].items():
                there = [*answer.get("content", {}).values()]
                assert status == "204" or all("schema" in each for each in there), (path, method)
                assert bool(there) == (status != "204")


def test_what_needs_no_token_is_not_refused_for_want_of_one() -> None:
    paths = document()["paths"]
    for path in ("/healthz", "/readyz", "/openapi.json"):
        operation = paths[path]["get"]
        assert operation["security"] == []
        assert not operation["responses"].keys() & {"400", "401", "403", "413"}
    for path in ("/metrics", "/topology"):
        assert "security" not in paths[path]["get"]


def test_parameters_of_the_query_are_those_that_are_read() -> None:
    paths = document()["paths"]
    names = {
        each["name"] for each in paths["/events"]["get"]["parameters"] if each["in"] == "query"
    }
    assert names == {"filter", "cursor", "parameters", "columns"}
    schemes = document()["components"]["securitySchemes"].values()
    assert {"type": "apiKey", "in": "query", "name": "access_token"} in schemes


def test_streams_are_those_of_arrow_too() -> None:
    paths = document()["paths"]
    assert ARROW_TYPE in paths["/events"]["post"]["requestBody"]["content"]
    for path in ("/events", "/subscriptions/{id}/events", "/subscriptions/{id}/batch"):
        operation = paths[path]["get"]
        assert ARROW_TYPE in operation["responses"]["200"]["content"]
        assert "columns" in {each["name"] for each in operation["parameters"]}


async def test_answers_are_as_described(tmp_path: Path) -> None:
    async with broker(tmp_path) as server, asked(server) as client:
        publish = {"content-type": JSON_TYPE}
        made = await client.post("/subscriptions", json={"config": {"durable": True}})
        one = f"/subscriptions/{made.json()['id']}"
        events = "/events?durable=true"
        _check("post", "/events", await client.post(events, json=event(1), headers=publish))
        _check("post", "/subscriptions", made)
        for path, address in (
            ("/subscriptions", "/subscriptions"),
            ("/subscriptions/{id}", one),
            ("/subscriptions/{id}/batch", f"{one}/batch?wait_s=60"),
            ("/healthz", "/healthz"),
            ("/readyz", "/readyz"),
            ("/topology", "/topology"),
            ("/openapi.json", "/openapi.json"),
            ("/events", "/events?filter=a ="),
            ("/subscriptions/{id}", "/subscriptions/none"),
        ):
            _check("get", path, await client.get(address))
        _check("post", "/events", await client.post("/events", json=event(2), headers=publish))
        packed = await client.post("/events", headers={"content-encoding": "gzip"})
        _check("post", "/events", packed)
        changed = await client.put(one, json={"types": ["a"], "config": {"durable": True}})
        _check("put", "/subscriptions/{id}", changed)
        cursor = {"cursor": "d.1.0"}
        acknowledged = await client.post(f"{one}/acknowledge", json=cursor)
        _check("post", "/subscriptions/{id}/acknowledge", acknowledged)
        _check("delete", "/subscriptions/{id}", await client.delete(one))


async def test_a_publication_refused_in_part_is_as_described() -> None:
    published = Filter.of([Conjunction.of([Constraint.of("x", "=", 1)])])
    tokens = Tokens({"t": Principal("alice", published, TRUE)})
    async with broker(authority=tokens) as server, asked(server, tokens) as client:
        for events, status in (([event(1), event(2)], 207), ([event(2)], 403)):
            headers = bearer("t") | {"content-type": BATCH_TYPE}
            answer = await client.post("/events", json=events, headers=headers)
            assert answer.status_code == status
            _check("post", "/events", answer)


def _check(method: str, path: str, answer: httpx.Response) -> None:
    """Hold an answer against what the document says of it."""
    described = document()["paths"][path][method]["responses"][str(answer.status_code)]
    if answer.status_code == 204:
        assert not answer.content
        return
    content = described["content"][answer.headers["content-type"].partition(";")[0]]
    _fits(answer.json(), content["schema"], f"{method} {path}")


_KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
}


def _fits(value: Any, schema: Any, place: str) -> None:
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "type" in schema:
        assert isinstance(value, _KINDS.get(schema["type"], object)), place
    if "enum" in schema:
        assert value in schema["enum"], place
    if "const" in schema:
        assert value == schema["const"], place
    assert {*schema.get("required", ())} <= (value.keys() if isinstance(value, dict) else set())
    for name, part in schema.get("properties", {}).items():
        if name in value:
            _fits(value[name], part, f"{place}.{name}")
    for each in value if "items" in schema else ():
        _fits(each, schema["items"], f"{place}[]")
