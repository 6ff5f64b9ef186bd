"""Events, filters and patterns; covers, overlaps, merges. Pure: no clock, no I/O.

`flatten` and the other event helpers load pyarrow when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from palio.model.advertisements import Advertisement
from palio.model.expressions import Attribute, Literal, Variable
from palio.model.filters import FALSE, TRUE, Conjunction, Constraint, Filter, Residual
from palio.model.merging import merge
from palio.model.operators import Op
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.model.relations import covers, covers_advertisement, overlaps, roots
from palio.model.values import NO_VALUES, Bindings, Kind, Value

if TYPE_CHECKING:
    from palio.model.events import conform, flatten, rows, to_batch, to_batches

__all__ = [
    "FALSE",
    "NO_VALUES",
    "TRUE",
    "Advertisement",
    "Attribute",
    "Bindings",
    "Conjunction",
    "Constraint",
    "Filter",
    "Kind",
    "Literal",
    "Monitor",
    "Occurrence",
    "Op",
    "Pattern",
    "Residual",
    "Value",
    "Variable",
    "conform",
    "covers",
    "covers_advertisement",
    "flatten",
    "merge",
    "overlaps",
    "roots",
    "rows",
    "to_batch",
    "to_batches",
]

_EVENT_HELPERS = frozenset({"conform", "flatten", "rows", "to_batch", "to_batches"})


def __getattr__(name: str) -> Any:
    if name in _EVENT_HELPERS:
        from palio.model import events

        return getattr(events, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
