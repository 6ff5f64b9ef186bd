"""Reads settings from their sources and says where each came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from palio.config import Document, bare, explain, hint
from palio.errors import InvalidConfiguration
from palio.server.settings import Configuration, check

__all__ = ["PREFIX", "Configured", "Setting", "configure", "described", "known_settings"]

PREFIX: Final = "PALIO__"
"""How variables of the environment begin that set something: `PALIO__LISTEN__PORT`."""


class Setting(NamedTuple):
    """A value, and where it was set: a flag, a variable, a file and line, or `default`."""

    name: str
    value: Any
    origin: str


class Configured(NamedTuple):
    """The outcome: what to run with, and each setting with its origin."""

    configuration: Configuration
    settings: tuple[Setting, ...]


def known_settings() -> dict[str, Any]:
    """Every setting, `section.key`, with its type.

    >>> "listen.port" in known_settings()
    True
    """
    return {
        f"{section.name}.{field.name}": field.type
        for section in msgspec.structs.fields(Configuration)
        for field in msgspec.structs.fields(section.type)
    }


def described(name: str) -> str:
    """What a setting means, in a few words."""
    found = msgspec.inspect.type_info(known_settings()[name])
    if isinstance(found, msgspec.inspect.Metadata):
        return str((found.extra_json_schema or {}).get("description", ""))
    return ""


def configure(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[Setting] = (),
) -> Configured:
    """Put the sources together; `InvalidConfiguration` names what is wrong, and where it stands.

    >>> found = configure(environment={"PALIO__LISTEN__PORT": "7401"})
    >>> found.configuration.listen.port
    7401
    """
    given: dict[str, Setting] = {}
    sources = (
        _from_file(file) if file is not None else (),
        _from_environment(environment or {}),
        flags,
    )
    for source in sources:
        given.update({setting.name: setting for setting in source})
    sections: dict[str, dict[str, Any]] = {}
    for setting in given.values():
        section, _, key = setting.name.partition(".")
        sections.setdefault(section, {})[key] = _converted(setting)
    configuration = Configuration(
        **{
            field.name: field.type(**sections.get(field.name, {}))
            for field in msgspec.structs.fields(Configuration)
        }
    )
    check(configuration, {name: setting.origin for name, setting in given.items()})
    return Configured(configuration, tuple(_all(configuration, given)))


def _all(configuration: Configuration, given: Mapping[str, Setting]) -> Iterator[Setting]:
    for name in known_settings():
        section, _, key = name.partition(".")
        value = msgspec.to_builtins(getattr(getattr(configuration, section), key))
        yield Setting(name, value, given[name].origin if name in given else "default")


def _converted(setting: Setting) -> Any:
    kinds = known_settings()
    if setting.name not in kinds:
        words = hint(setting.name, kinds, "palio config show lists them all")
        raise InvalidConfiguration(
            f"{setting.origin}: no setting is called {setting.name}; {words}"
        )
    kind = kinds[setting.name]
    try:
        return msgspec.convert(setting.value, kind, strict=not isinstance(setting.value, str))
    except msgspec.ValidationError as error:
        within, problem = explain(error, kind)
        said = f"{within}: {problem}" if within else problem
        raise InvalidConfiguration(
            f"{setting.origin}: {setting.name} = {setting.value!r:.80}: {said}"
        ) from None


# --- sources ---


def _from_file(path: Path) -> Iterator[Setting]:
    document = Document(path)
    for section, table in document.values.items():
        if not isinstance(table, dict):
            yield Setting(section, table, document.place(section))
            continue
        for key, value in table.items():
            name = f"{section}.{key}"
            yield Setting(name, value, document.place(name))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().replace("__", ".", 1)
            yield Setting(name, _from_text(name, text), f"environment {variable}")


def _from_text(name: str, text: str) -> Any:
    """Lists and tables are written as JSON, lists also with commas; all else is text."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidConfiguration(f"environment, {name}: no JSON: {error}") from None
    if get_origin(bare(known_settings().get(name))) is tuple:
        return [each.strip() for each in text.split(",") if each.strip()]
    return text
