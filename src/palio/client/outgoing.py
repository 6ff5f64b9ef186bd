"""What may be published, brought to record batches: one event, several, or a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from palio.errors import InvalidEvent
from palio.model.events import conform_values, to_batches

__all__ = ["Publishable", "batches"]

Publishable: TypeAlias = Mapping[str, Any] | pa.RecordBatch | Iterable[Mapping[str, Any]]
"""What `publish` takes."""


def batches(events: Publishable) -> list[pa.RecordBatch]:
    """Whatever was published as conforming batches, refused as a whole if anything is wrong.

    >>> [batch.num_rows for batch in batches([{"x": 1}, {"x": 2}])]
    [2]
    """
    if isinstance(events, pa.RecordBatch):
        batch = conform_values(events)
        _refuse_system_names(batch.schema.names)
        return [batch]
    if not isinstance(events, Iterable):
        raise InvalidEvent(
            f"publish takes an event, several, or a record batch, not {type(events).__name__}"
        )
    listed = [events] if isinstance(events, Mapping) else list(events)
    for event in listed:
        if not isinstance(event, Mapping):
            raise InvalidEvent(f"an event is a mapping of attributes, not {type(event).__name__}")
        _refuse_system_names(event)
    return list(to_batches(listed))


def _refuse_system_names(names: Iterable[Any]) -> None:
    for name in names:
        if isinstance(name, str) and name.startswith("$"):
            raise InvalidEvent(f"attribute {name!r}: names that begin with $ belong to the system")
