"""No record of the house prints the secret that it holds."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final, NamedTuple

import msgspec

import palio
from palio.model.printing import shown_without

SECRET: Final = re.compile(r"token|password|secret|headers|protocolsettings|authorization")

NO_SECRET: Final = {
    ("Principal", "token"),  # the number of a token, by which it is revoked
    ("Auth", "token_file"),  # where it is
    ("BrokerAccess", "token_file"),
    ("BrokerOptions", "token_file"),
    ("Hook", "token_file"),
    ("Kept", "token"),  # whatever waits for the disk
    ("NotKept", "token"),
    ("Pending", "token"),
    ("LiftedText", "tokens"),  # words of a text
    ("AccessPolicy", "token"),  # a function
    ("SinkAnswer", "headers"),  # what a sink says
}


def records() -> Iterator[Any]:
    for module in pkgutil.walk_packages(palio.__path__, "palio."):
        if module.name.endswith("__main__"):
            continue
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            is_named = issubclass(found, tuple) and hasattr(found, "_fields")
            if found.__module__ == module.name and (
                is_named or is_dataclass(found) or issubclass(found, msgspec.Struct)
            ):
                yield found


def fields(record: Any) -> tuple[str, ...]:
    kind = "__struct_fields__" if issubclass(record, msgspec.Struct) else "__match_args__"
    names: tuple[str, ...] = getattr(record, kind, ())
    return names


def holders() -> list[tuple[Any, str]]:
    return [
        (record, name)
        for record in records()
        for name in fields(record)
        if SECRET.search(name) and (record.__name__, name) not in NO_SECRET
    ]


def test_no_secret_is_printed() -> None:
    found = holders()
    names = {record.__name__ for record, _ in found}
    assert {"Hello", "Welcome", "BrokerLogin", "Catalogue", "Hook", "HookCall"} <= names
    assert {"HttpCaller", "HttpSubscription"} <= names
    for record, name in found:
        made = holding(record, name)
        assert "eyJsecret" not in repr(made), record
        assert "eyJsecret" not in str(made), record


def holding(record: Any, name: str) -> Any:
    """A record with a secret in one of its fields."""
    values = {field: "eyJsecret" if field == name else "x" for field in fields(record)}
    if not is_dataclass(record):
        return record(**values)
    kind: Any = record
    made = object.__new__(kind)
    for field, value in values.items():
        object.__setattr__(made, field, value)
    return made


def test_an_empty_secret_is_printed_as_such() -> None:
    class Door(NamedTuple):
        url: str
        token: str

    assert shown_without(Door("u", ""), "token") == "Door(url='u', token='')"
