"""Find the filters that events satisfy: engines behind one protocol, and their kernels.

`Index` is the default engine, `Reference` its oracle.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from palio.matching.index import Index
    from palio.matching.protocol import Matcher, Matches, RowMask
    from palio.matching.reference import Reference

__all__ = ["Index", "Matcher", "Matches", "Reference", "RowMask"]

_HOMES: Final = {
    "Index": "palio.matching.index",
    "Matcher": "palio.matching.protocol",
    "Matches": "palio.matching.protocol",
    "Reference": "palio.matching.reference",
    "RowMask": "palio.matching.protocol",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
