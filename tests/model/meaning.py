"""The meaning of a condition as it is written, which the filter made of it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from palio.model.evaluation import test_truth
from palio.model.expressions import All, AnyOf, Boolean, Exclusive, Foreign, Not, Test
from palio.model.values import NO_VALUES, Bindings


def truth(
    expression: Boolean, event: Mapping[str, Any], values: Bindings = NO_VALUES
) -> bool | None:
    """Evaluate a condition on an event: True, False, or None for unknown."""
    match expression:
        case Test():
            return test_truth(expression, event, values)
        case Not(part):
            inner = truth(part, event, values)
            return None if inner is None else not inner
        case All(parts):
            results = [truth(part, event, values) for part in parts]
            return False if False in results else None if None in results else True
        case AnyOf(parts):
            results = [truth(part, event, values) for part in parts]
            return True if True in results else None if None in results else False
        case Exclusive(left, right):
            a, b = truth(left, event, values), truth(right, event, values)
            return None if a is None or b is None else a is not b
        case Foreign():
            return expression.truth(event)
        case _:
            assert_never(expression)
