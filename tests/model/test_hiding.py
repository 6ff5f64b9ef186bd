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
import pytest

import palio
from palio.model.hiding import shown_without

SECRET: Final = re.compile(r"token|password|secret|headers|protocolsettings|authorization")

NO_SECRET: Final = {
    ("Principal", "token"),  # the number of a token, by which it is revoked
    ("Auth", "token_file"),  # where it is
    ("BrokerDoor", "token_file"),
    ("LiftedText", "tokens"),  # words of a text
    ("Doors", "token"),  # a function
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


def holders() -> list[tuple[Any, str]]:
    return [
        (record, name)
        for record in records()
        for name in getattr(record, "__match_args__", ())
        if SECRET.search(name) and (record.__name__, name) not in NO_SECRET
    ]


def test_those_that_hold_secrets_are_found() -> None:
    names = {record.__name__ for record, _ in holders()}
    assert {"Hello", "Welcome", "Door", "Catalogue", "Hook", "HookCall"} <= names
    assert {"HttpCaller", "HttpSubscription"} <= names


@pytest.mark.parametrize(
    ("record", "name"),
    [pytest.param(*each, id=f"{each[0].__name__}-{each[1]}") for each in holders()],
)
def test_a_secret_is_not_printed(record: Any, name: str) -> None:
    values = {each: "eyJsecret" if each == name else "x" for each in record.__match_args__}
    kind: Any = record
    made: Any
    if is_dataclass(record):
        made = object.__new__(kind)
        for each, value in values.items():
            object.__setattr__(made, each, value)
    else:
        made = record(**values)
    assert "eyJsecret" not in repr(made)
    assert "eyJsecret" not in str(made)


def test_an_empty_secret_is_printed_as_such() -> None:
    class Door(NamedTuple):
        url: str
        token: str

    assert shown_without(Door("u", ""), "token") == "Door(url='u', token='')"
