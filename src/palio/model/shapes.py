"""`Shape`: the names and types of events, of which Arrow makes a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from palio.engine import pa
from palio.model.events import SEQ, TIME, arrow_types
from palio.model.values import INT64_MAX, INT64_MIN

Kind: TypeAlias = "type | pa.DataType"
"""A type of the model; or of Arrow, in columns that are no events yet."""


@cache
def _kinds() -> dict[pa.DataType, type]:
    return {arrow: kind for kind, arrow in arrow_types().items()}


class Shape:
    """Names and types that are compared and hashed at once, with what both ends need to know.

    >>> shape = Shape(("x", "s"), (int, str))
    >>> shape.fits((1, None)), shape.fits((1.0, "a")), shape.fits((1,))
    (True, False, False)
    >>> Shape.of(shape.schema) == shape
    True
    """

    __slots__ = (
        "_hash",
        "_integers",
        "_schema",
        "_stamped",
        "kinds",
        "names",
        "system_columns",
        "text_columns",
        "time_columns",
    )

    def __init__(self, names: Sequence[str], kinds: Sequence[Kind]) -> None:
        self.names: Final = tuple(names)
        self.kinds: Final = tuple(kinds)
        self._hash = hash((self.names, self.kinds))
        self._integers = self._places(int)
        self._schema: pa.Schema | None = None
        self._stamped: Shape | None = None
        self.text_columns = self._places(str, bytes)
        self.time_columns = self._places(datetime)
        """The columns of timestamps, of which Arrow holds more than can be read."""
        self.system_columns = (self._place(SEQ, int), self._place(TIME, datetime))
        """The columns of `$seq` and `$time`; -1 if one is missing, of another type or twofold."""

    @classmethod
    def of(cls, schema: pa.Schema) -> Shape:
        """The shape of batches that have this schema."""
        kinds = _kinds()
        return cls(schema.names, [kinds.get(kind, kind) for kind in schema.types])

    @property
    def schema(self) -> pa.Schema:
        """The schema of a batch."""
        if self._schema is None:
            types: Mapping[Any, pa.DataType] = arrow_types()
            kinds: Any = [types.get(kind, kind) for kind in self.kinds]  # others are of Arrow
            self._schema = pa.schema(list(zip(self.names, kinds, strict=True)))
        return self._schema

    def _places(self, *kinds: type) -> list[int]:
        return [place for place, kind in enumerate(self.kinds) if kind in kinds]

    def _place(self, name: str, kind: type) -> int:
        if self.names.count(name) != 1:
            return -1
        place = self.names.index(name)
        return place if self.kinds[place] is kind else -1

    @property
    def stamped(self) -> Shape:
        """The same with the system columns."""
        if self._stamped is None:
            self._stamped = Shape((*self.names, SEQ, TIME), (*self.kinds, int, datetime))
        return self._stamped

    def fits(self, values: Sequence[Any]) -> bool:
        """Check whether values are those of one event of this shape: each of its type, or None.

        An event without attributes travels as a batch.
        """
        if not values or len(values) != len(self.kinds):
            return False
        if tuple(map(type, values)) != self.kinds:
            for value, kind in zip(values, self.kinds, strict=True):
                if type(value) is not kind and value is not None:
                    return False
        integers = [values[place] for place in self._integers]
        if None in integers:
            integers = [value for value in integers if value is not None]
        return not integers or (min(integers) >= INT64_MIN and max(integers) <= INT64_MAX)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Shape) and self.names == other.names and self.kinds == other.kinds
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Shape({', '.join(self.names)})"
