"""Reads settings from their sources and says where each came from."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec

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
        near = difflib.get_close_matches(setting.name, kinds, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else "; palio config show lists them all"
        raise InvalidConfiguration(f"{setting.origin}: no setting is called {setting.name}{hint}")
    kind = kinds[setting.name]
    try:
        return msgspec.convert(setting.value, kind, strict=not isinstance(setting.value, str))
    except msgspec.ValidationError as error:
        raise InvalidConfiguration(
            f"{setting.origin}: {setting.name} = {setting.value!r:.80}: {_in_words(error, kind)}"
        ) from None


def _in_words(error: msgspec.ValidationError, kind: Any) -> str:
    allowed = [
        choice
        for part in (kind, *get_args(kind))
        for choice in get_args(part)
        if choice is not None
    ]
    if "Invalid enum value" in str(error):
        return "it is one of " + ", ".join(str(each) for each in allowed if isinstance(each, str))
    return str(error)


# --- sources ---


def _from_file(path: Path) -> Iterator[Setting]:
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise InvalidConfiguration(f"{path}: {error}") from None
    lines = text.splitlines()
    for section, table in document.items():
        if not isinstance(table, dict):
            yield Setting(section, table, _place(path, lines, "", section))
            continue
        for key, value in table.items():
            yield Setting(f"{section}.{key}", value, _place(path, lines, section, key))


def _place(path: Path, lines: list[str], section: str, key: str) -> str:
    """The file, and the line of a key if it is written in the usual way."""
    here = ""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped.startswith("["):
            here = stripped.strip("[]").strip()
            if here == f"{section}.{key}" or here.startswith(f"{section}.{key}."):
                return f"{path}:{number}"
        elif here == section and stripped.partition("=")[0].strip().strip("\"'") == key:
            return f"{path}:{number}"
    return str(path)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().replace("__", ".", 1)
            yield Setting(name, _from_text(name, text), f"environment {variable}")


def _kind(name: str) -> Any:
    """Of what type a setting is, apart from what is said about it; None if nobody knows it."""
    found = msgspec.inspect.type_info(known_settings().get(name))
    return found.type if isinstance(found, msgspec.inspect.Metadata) else found


def _from_text(name: str, text: str) -> Any:
    """Lists and tables are written as JSON, lists also with commas; all else is text."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidConfiguration(f"environment, {name}: no JSON: {error}") from None
    if isinstance(_kind(name), msgspec.inspect.VarTupleType):
        return [each.strip() for each in text.split(",") if each.strip()]
    return text
