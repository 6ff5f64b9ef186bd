from __future__ import annotations

from typing import Any

from starlette.routing import Route

from palio.node.authority import OpenAuthority
from palio.server.http import application
from palio.server.http_access import Access
from palio.server.http_delivery import Delivery
from palio.server.http_subscriptions import Directory
from palio.server.openapi import document
from tests.server.fronts import broker


async def test_what_is_described_is_what_there_is() -> None:
    async with broker() as server:
        access = Access(OpenAuthority(), server.moment)
        delivery = Delivery(server.connect_local, access, Directory())
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
    found = list(_references(whole))
    assert found
    for reference in found:
        part: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]


def _references(part: Any) -> Any:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for each in part:
            yield from _references(each)


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
