"""Text and Python expressions to filters and back; CESQL, CloudEvents and EventBridge as well.

>>> from palio.language import parse
>>> str(parse("NOT price >= 5"))
'price < 5'

The dialects are modules of this one, loaded when first used:

>>> import palio
>>> palio.language.cesql.evaluate("1 + 2", {}).value
3
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from palio.language.parsing import parse, parse_advertisement, parse_filter, parse_pattern

if TYPE_CHECKING:
    from palio.language import cesql, cloudevents, eventbridge

__all__ = [
    "cesql",
    "cloudevents",
    "eventbridge",
    "parse",
    "parse_advertisement",
    "parse_filter",
    "parse_pattern",
]

_DIALECTS: Final = frozenset({"cesql", "cloudevents", "eventbridge"})


def __getattr__(name: str) -> ModuleType:
    if name in _DIALECTS:
        return import_module(f"palio.language.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
