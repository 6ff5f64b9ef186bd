"""Spark's pushed-down filters as Palio's, as far as both mean exactly the same.

What is left to Spark, which then looks at the rows itself:

- `<=>`, lists with a null in them, and columns whose type is no attribute's;
- on floating-point columns whatever is true of NaN in Spark, where NaN is greater than any number
  and equal to itself: `>`, `>=` and negations. In Palio NaN satisfies no comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from palio.errors import InvalidInput
from palio.model.constraints import Constraint
from palio.model.filters import TRUE, Conjunction, Filter
from palio.model.operators import Op
from palio.spark.attributes import leaves

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter as SparkFilter
    from pyspark.sql.types import StructType

__all__ = ["Pushed", "push"]

_OPERATORS: Final = {
    "EqualTo": Op.EQ,
    "GreaterThan": Op.GT,
    "GreaterThanOrEqual": Op.GE,
    "LessThan": Op.LT,
    "LessThanOrEqual": Op.LE,
    "In": Op.IN,
    "StringStartsWith": Op.PREFIX,
    "StringEndsWith": Op.SUFFIX,
    "StringContains": Op.CONTAINS,
    "IsNull": Op.ABSENT,
    "IsNotNull": Op.EXISTS,
}

_UNARY: Final = (Op.ABSENT, Op.EXISTS)

_PLAIN: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "timestamp"}
)
_FLOATING: Final = frozenset({"float", "double"})


class Pushed(NamedTuple):
    """The filters that Palio takes over, as one, and those left to Spark."""

    filter: Filter
    left: list[SparkFilter]


def push(filters: Iterable[SparkFilter], schema: StructType) -> Pushed:
    """Take over what means the same in Palio.

    >>> from pyspark.sql.datasource import EqualNullSafe, LessThan, Not, StringStartsWith
    >>> from pyspark.sql.types import StructType
    >>> schema = StructType().add("price", "double").add("symbol", "string")
    >>> given = [LessThan(("price",), 5.0), Not(StringStartsWith(("symbol",), "I"))]
    >>> str(push(given, schema).filter)
    "price < 5 AND symbol NOT STARTS WITH 'I'"
    >>> push([EqualNullSafe(("price",), 5.0)], schema).left
    [EqualNullSafe(attribute=('price',), value=5.0)]
    """
    types = {name: kind.simpleString() for name, (_, kind) in leaves(schema.fields).items()}
    whole, left = TRUE, []
    for each in filters:
        found = _translated(each, types)
        if found is None:
            left.append(each)
        else:
            whole = whole & found
    return Pushed(whole, left)


def _translated(given: Any, types: dict[str, str]) -> Filter | None:
    is_negated = type(given).__name__ == "Not"
    inner = given.child if is_negated else given
    op = _OPERATORS.get(type(inner).__name__)
    if op is None:
        return None
    name = ".".join(inner.attribute)
    kind = types.get(name)
    if kind in _FLOATING:
        if op not in _UNARY and (is_negated or op in (Op.GT, Op.GE)):
            return None
    elif kind not in _PLAIN:
        return None
    try:
        constraint = (
            Constraint.of(name, op)
            if op in _UNARY
            else Constraint.of(name, op, _operand(inner.value))
        )
    except (InvalidInput, TypeError):
        return None
    found = Filter.of([Conjunction.of([constraint])])
    return ~found if is_negated else found


def _operand(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_operand, value))
    if value is None or (isinstance(value, datetime) and value.tzinfo is None):
        raise TypeError("no single value of the model")
    return bytes(value) if isinstance(value, bytearray) else value
