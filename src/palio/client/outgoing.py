"""What may be published, brought to record batches: one event, several, or a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from palio.errors import InvalidEvent
from palio.model.events import conform_values, refuse_system_names, to_batches

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
        refuse_system_names(batch.schema.names)
        return [batch]
    if not isinstance(events, Iterable) or _is_table(events):
        raise InvalidEvent(
            f"publish takes an event, several, or a record batch, not {type(events).__name__}"
            f"{_advice(events)}"
        )
    listed = [events] if isinstance(events, Mapping) else list(events)
    for event in listed:
        if not isinstance(event, Mapping):
            raise _no_event(events if _record_advice(events) else event)
        refuse_system_names(event)
    return list(to_batches(listed))


def _is_table(given: object) -> bool:
    return isinstance(given, pa.Table) or type(given).__name__ == "DataFrame"


def _no_event(given: object) -> InvalidEvent:
    """Some records give their fields, which are no events, when they are gone through."""
    what = f"{type(given).__name__}{_advice(given)}"
    return InvalidEvent(f"an event is a mapping of attributes, not {what}")


def _advice(given: object) -> str:
    """How to publish something that has events in it, but is none and no list of them."""
    if isinstance(given, pa.RecordBatch):
        return "; publish record batches one by one"
    if isinstance(given, pa.Table):
        return "; publish each of its to_batches()"
    if _is_table(given):
        return "; publish pa.RecordBatch.from_pandas(it, preserve_index=False), or its to_batches()"
    if isinstance(given, str | bytes):
        return "; publish json.loads of it"
    return _record_advice(given)


def _record_advice(given: object) -> str:
    """How to publish a record of one of the common kinds; nothing is said of anything else."""
    kind = type(given)
    if hasattr(kind, "__dataclass_fields__"):
        return "; publish dataclasses.asdict(it)"
    if hasattr(kind, "__struct_fields__"):
        return "; publish msgspec.structs.asdict(it)"
    if hasattr(kind, "model_dump"):
        return "; publish it.model_dump()"
    if hasattr(kind, "__attrs_attrs__"):
        return "; publish attrs.asdict(it)"
    return "; publish it._asdict()" if hasattr(kind, "_asdict") else ""
