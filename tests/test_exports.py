"""The public names are a promise: this page changes only together with CHANGELOG.md."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Final

import pytest

import palio

PUBLIC: Final = {
    "Admin",
    "SyncAdmin",
    "AddedPeer",
    "Advertisement",
    "Bus",
    "CatalogueEntry",
    "Client",
    "ConnectionState",
    "Event",
    "Explanation",
    "Filter",
    "Gap",
    "LateGap",
    "AdvertisementHandle",
    "Parameter",
    "Parcel",
    "Pattern",
    "PeerInfo",
    "PublishReceipt",
    "DrainStatus",
    "RemovedPeer",
    "Subscriber",
    "Subscription",
    "SyncBus",
    "SyncClient",
    "SyncAdvertisementHandle",
    "SyncSubscription",
    "Topology",
    "Trace",
    "attr",
    "client",
    "connect",
    "covers",
    "covers_advertisement",
    "errors",
    "event",
    "language",
    "matching",
    "merge",
    "model",
    "on",
    "overlaps",
    "param",
    "parse",
    "parse_filter",
    "parse_pattern",
    "spark",
    "testing",
    "parse_advertisement",
}

RETURNING: Final = sorted(
    {
        "Bus",
        "Client",
        "Filter",
        "AdvertisementHandle",
        "Pattern",
        "Subscription",
        "SyncBus",
        "SyncClient",
    }
    | {"SyncAdvertisementHandle", "SyncSubscription"}
)
"""Classes whose methods return what people want to name."""

HEAVY: Final = frozenset({"duckdb", "numba", "pandas", "pyspark", "rich", "starlette", "typer"})
"""What programs with a bus or a client must leave for the moment it is needed: numba comes with the
first engine that has had some work."""

ARROW: Final = frozenset({"numpy", "pyarrow"})
"""What events are made of, which `import palio` leaves, too."""

FOR_OTHERS: Final = frozenset({"pyarrow.dataset", "pyarrow.flight", "pyarrow.parquet"})
"""What archives and other protocols need."""

A_PROGRAM: Final = """
import asyncio, sys, palio

async def main():
    palio.connect("palio://127.0.0.1:1"), palio.SyncClient, palio.Subscriber
    async with palio.Bus() as bus:
        sub = await bus.subscribe("symbol = 'IBM' AND price < :limit", {"limit": 10.0})
        await bus.subscribe("a = 1 THEN b = 2 WITHIN 30s")
        await bus.publish({"symbol": "IBM", "price": 15.0})
        await bus.publish({"symbol": "IBM", "price": 9.5})
        assert (await sub.receive())["price"] == 9.5

asyncio.run(main())
print(*sys.modules)
"""


def test_all_is_what_was_promised() -> None:
    assert set(palio.__all__) == PUBLIC
    assert list(palio.__all__) == sorted(palio.__all__)


def test_names_are_there_and_say_what_they_are() -> None:
    assert set(dir(palio)) >= PUBLIC
    assert [name for name in PUBLIC if not getattr(palio, name).__doc__] == []


@pytest.mark.parametrize("name", RETURNING)
def test_what_a_call_returns_can_be_named(name: str) -> None:
    kind = getattr(palio, name)
    unnamed = {
        f"{name}.{member}: {word}"
        for member in dir(kind)
        if not member.startswith("_")
        for function in [inspect.unwrap(getattr(kind, member))]
        if inspect.isfunction(function)
        for word in re.findall(r"[A-Z]\w+", str(function.__annotations__.get("return", "")))
        if inspect.isclass(found := function.__globals__.get(word))
        if found.__module__.startswith("palio.") and word not in palio.__all__
    }
    assert not unnamed


def printed_by(program: str) -> list[str]:
    """The lines that a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_rooms_and_dialects_are_there_without_being_imported() -> None:
    program = (
        "import palio\n"
        "print(palio.spark.session.__name__, palio.testing.Network.__name__)\n"
        "print(palio.matching.Index.__name__, palio.client.__name__)\n"
        "print(palio.language.cesql.evaluate('5 / 0', {}).value)\n"
        "print(palio.language.cloudevents.loads([]))\n"
        'print(palio.language.eventbridge.loads({"a": [1]}))\n'
        'print(palio.model.flatten({"a": {"b": 1}}))'
    )
    assert printed_by(program) == [
        "session Network",
        "Index palio.client",
        *("0", "TRUE", "a = 1", "{'a.b': 1}"),
    ]


def test_another_name_is_an_attribute_error() -> None:
    name = "no_such_name"
    with pytest.raises(AttributeError, match=name):
        getattr(palio, name)


def test_import_is_light() -> None:
    assert not (HEAVY | ARROW | FOR_OTHERS) & loaded_by("import sys, palio; print(*sys.modules)")


def test_a_program_with_a_bus_and_a_client_is_light() -> None:
    loaded = loaded_by(A_PROGRAM)
    assert not (HEAVY | FOR_OTHERS) & loaded
    assert loaded >= ARROW


def loaded_by(program: str) -> set[str]:
    """The modules that a program says it has."""
    return set(" ".join(printed_by(program)).split())
