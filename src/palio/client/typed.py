"""Typed events: what was published read back as objects of a class, and handlers' arguments.

A class is a dataclass, a struct of msgspec, a `TypedDict` or a class of attrs, which msgspec reads,
or a model of pydantic, which reads itself. Nothing is converted silently: a text is no number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, get_origin, get_type_hints

import msgspec

from palio.client.events import Event
from palio.errors import InvalidEvent, InvalidInput

Typed = TypeVar("Typed")

Reader: TypeAlias = Callable[[Any], Any]
"""Reads data as an object of a type; raises `InvalidEvent` for those that do not fit."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _Model(Protocol):
    def model_dump(self) -> dict[str, Any]: ...


class _Attrs(Protocol):
    __attrs_attrs__: ClassVar[Any]


TypedEvent: TypeAlias = _Dataclass | msgspec.Struct | _Model | _Attrs
"""An object that `publish` takes for an event: its fields are the attributes."""


def reader_of(kind: Any) -> Reader:
    """The reader of a type; `InvalidInput` for one that nobody can read.

    >>> reader_of(int)(4)
    4
    """
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        try:
            msgspec.json.Decoder(kind)  # which looks at a type as a whole, fields and all
        except (TypeError, NameError) as error:
            raise InvalidInput(f"no event can be read as {kind!r:.80}: {error}") from None
        validate = partial(msgspec.convert, type=kind)
    return partial(_read, validate)


def _read(validate: Callable[[Any], Any], given: Any) -> Any:
    try:
        return validate(given)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidEvent(str(error)) from error


def check_as(kind: object, *, is_pattern: bool) -> Reader | None:
    """The reader for `as_=`, if that was given."""
    if kind is None:
        return None
    if is_pattern:
        raise InvalidInput(
            "as_= is for filters; a pattern gives several events, whose payloads are in their parts"
        )
    return reader_of(kind)


def argument_readers(
    function: Callable[..., Any], names: list[str]
) -> tuple[dict[str, Reader], list[str]]:
    """The readers of a handler's arguments, by their annotations; and the names of those whose
    annotation cannot be checked.
    """
    readers: dict[str, Reader] = {}
    unchecked = []
    for name in names:
        annotation = function.__annotations__.get(name, Any)
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            kind = get_type_hints(holder, function.__globals__, include_extras=True)[name]
            if name != EVENT:
                readers[name] = reader_of(kind)
            elif not _takes_event(kind):
                readers[name] = partial(_of_payload, reader_of(kind))
        except (NameError, AttributeError, InvalidInput):
            unchecked.append(name)
    return readers, unchecked


EVENT: Final = "event"
"""The argument of a handler that gets the whole event."""


def _takes_event(kind: Any) -> bool:
    """True for an argument that takes the event as it came."""
    plain = get_origin(kind) or kind
    return plain is Any or plain in Event.__mro__


def _of_payload(reader: Reader, event: Event) -> Any:
    return reader(event.payload)
