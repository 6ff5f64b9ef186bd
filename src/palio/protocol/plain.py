"""Events as plain values of msgpack: their shapes, described, and events read by these.

A shape is described as `[types, names...]`, a letter for each type; a final `$` stands for `$seq`
and `$time`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from palio.model.events import SEQ, TIME, check_names
from palio.model.limits import MAX_ATTRIBUTES
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.model.shapes import Shape
from palio.protocol.limits import MAX_SHAPES

_Names: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=3 + MAX_ATTRIBUTES)]
"""The letters of a shape's types and the names of its attributes."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Names).decode

_LETTERS: Final[dict[Any, str]] = {
    bool: "b",
    int: "i",
    float: "f",
    str: "s",
    bytes: "y",
    datetime: "t",
}
_KINDS: Final[dict[str, type]] = {letter: kind for kind, letter in _LETTERS.items()}
_STAMPED: Final = "$"


@lru_cache(maxsize=MAX_SHAPES)
def described(shape: Shape) -> bytes:
    """Describe a shape.

    >>> described(Shape(("x", "s"), (int, str)))
    b'\\x93\\xa2is\\xa1x\\xa1s'
    """
    names = shape.names
    letters = "".join([_LETTERS[kind] for kind in shape.kinds])
    if names[-2:] == (SEQ, TIME) and letters.endswith("it"):
        names, letters = names[:-2], letters[:-2] + _STAMPED
    return _encode([letters, *names])


def shape_of(description: Any) -> Shape:
    """Read a shape; `ValueError` if it has names or types that no event has.

    >>> shape_of(described(Shape(("x", "s"), (int, str))))
    Shape(x, s)
    """
    letters, *names = _decode(description)
    kinds = [_KINDS.get(letter) for letter in letters.removesuffix(_STAMPED)]
    if None in kinds or len(kinds) != len(names):
        raise ValueError(f"a shape with types that events cannot have: {letters!r:.80}")
    shape = Shape(names, [kind for kind in kinds if kind is not None])
    shape = shape.stamped if letters.endswith(_STAMPED) else shape
    check_names(shape.names)
    return shape


def lone_parcel(publisher: str, shape: Shape, values: Any) -> Parcel:
    """Return a single event from its values, in the order of the shape; `ValueError` if they do not
    fit the shape.

    >>> lone_parcel("p", Shape(("x",), (int,)), [1]).event
    {'x': 1}
    """
    if not isinstance(values, list) or not shape.fits(values):
        raise ValueError("an event without its values, or with some of another type")
    return Parcel.lone(publisher, shape, tuple(values))


def row_parcel(publisher: str, shape: Shape, rows: Sequence[Any]) -> RowParcel:
    """Return several stamped events, each from its values; `ValueError` as for `lone_parcel`.

    >>> shape, now = Shape(("x",), (int,)).stamped, datetime(2026, 1, 1)
    >>> row_parcel("p", shape, [[5, 1, now], [6, 2, now]]).seqs
    (1, 2)
    """
    if shape.system_columns[0] < 0:
        raise ValueError(f"several events without {SEQ}")
    events = [lone_parcel(publisher, shape, values) for values in rows]
    numbers = [event.seqs[0] for event in events]
    return RowParcel(publisher, [event.rows[0] for event in events], seqs=numbers, shape=shape)
