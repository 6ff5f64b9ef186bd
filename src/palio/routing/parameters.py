"""Parametric subscriptions (parametric 4.3): constants as variables, merging of pending updates.

Every constant of a filter is a variable too, named by its position: `0`, `1`, ..., also within an
expression, as in `p > q * 2`. The *skeleton* of a filter is the filter without them, so two filters
of one skeleton differ by values only. A broker whose summary changes from one to the other reports
the change in one UPD. With a subscription's key on a link these names are the paper's *broker
variables*: two neighbours share them, and no one else.

Where updates come faster than a link takes them, pending ones are merged (`WaitingBatch`): of a
variable that changes often only the last value is sent. That skips effects, which the paper allows,
but never reorders them. A batch is applied as one, so a subscription is never missing between two
of its requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from palio.model.expressions import (
    Arithmetic,
    Call,
    Foreign,
    Literal,
    Scalar,
    Slot,
    Test,
    Variable,
)
from palio.model.filters import Conjunction, Constraint, Filter, Residual
from palio.model.values import Bindings, Kind, Value
from palio.routing.messages import (
    Advertise,
    Batch,
    Cancel,
    Request,
    Subscribe,
    Unadvertise,
    Update,
    Withdraw,
)

_Key: TypeAlias = tuple[bool, int]
"""A key, and whether it is that of an advertisement."""

_REMEMBERED: Final = 1 << 16
"""Cached filters: equal requests of many peers are bound once."""


class LiftedFilter(NamedTuple):
    """A filter without variables, taken apart: `skeleton` with `names` is the filter again.

    >>> import palio
    >>> lifted = lift(palio.parse("a > 5 AND b = 'x'"))
    >>> lifted.names
    {'0': 5, '1': 'x'}
    >>> str(lifted.filled({"0": 7}))
    "a > 7 AND b = 'x'"
    """

    skeleton: Filter
    names: Bindings
    """Each value under the name of its position, in that order."""

    def filled(self, values: Bindings) -> Filter:
        """Return the filter with some of its constants replaced."""
        return bound(self.skeleton, {**self.names, **values})


def bound(filter: Filter, values: Bindings) -> Filter:
    """Replace the variables of a filter by values. Cached.

    >>> import palio
    >>> str(bound(palio.parse("a > :x"), {"x": 5}))
    'a > 5'
    """
    if not filter.variables:
        return interned(filter)
    # With their types, because 1 and True are one key but two constants.
    named = tuple([(name, type(value), value) for name, value in values.items()])
    try:
        return _bound(filter, named)
    except TypeError:  # a list of values has no hash
        return interned(filter.bind(values))


@lru_cache(_REMEMBERED)
def _bound(filter: Filter, named: tuple[tuple[str, type, Any], ...]) -> Filter:
    return interned(filter.bind({name: value for name, _, value in named}))


def refilled(filter: Filter, values: Bindings) -> Filter | None:
    """Replace constants, by position, of a filter without variables; None if it lacks a position.
    Cached.

    >>> import palio
    >>> str(refilled(palio.parse("a > 5"), {"0": 7})), refilled(palio.parse("a > 5"), {"1": 7})
    ('a > 7', None)
    """
    named = tuple([(name, type(value), value) for name, value in values.items()])
    try:
        return _refilled(filter, named)
    except TypeError:  # a list of values has no hash
        return _refilled.__wrapped__(filter, named)


@lru_cache(_REMEMBERED)
def _refilled(filter: Filter, named: tuple[tuple[str, type, Any], ...]) -> Filter | None:
    lifted = lift(filter)
    if any(name not in lifted.names for name, _, _ in named):
        return None
    return lifted.filled({name: value for name, _, value in named})


@lru_cache(_REMEMBERED)
def interned(filter: Filter) -> Filter:
    """Return one object for all equal filters: comparing it with itself costs nothing."""
    return filter


@lru_cache(_REMEMBERED)
def lift(filter: Filter) -> LiftedFilter:
    """Take the constants out of a filter: those of constraints first, then those in expressions.

    The list of an IN test on an expression stays, and so does a condition of another language: they
    are structure.

    >>> import palio
    >>> lifted = lift(palio.parse("p > q * 2 AND LOWER(s) = 'x' AND a = 5"))
    >>> str(lifted.skeleton)
    'a = :0 AND LOWER(s) = :1STRING AND p > q * :2'
    >>> lifted.names
    {'0': 5, '1STRING': 'x', '2': 2}
    """
    values: dict[str, Value | tuple[Value, ...]] = {}
    constraints = [
        tuple([_without_constant(constraint, values) for constraint in conjunction.constraints])
        for conjunction in filter.conjunctions
    ]
    residuals = [
        tuple([_without_constants(residual, values) for residual in conjunction.residuals])
        for conjunction in filter.conjunctions
    ]
    skeleton = Filter(tuple(map(Conjunction, constraints, residuals)))
    return LiftedFilter(interned(skeleton), values)


def _without_constant(
    constraint: Constraint, values: dict[str, Value | tuple[Value, ...]]
) -> Constraint:
    operand = constraint.operand
    name = str(len(values))
    # A slot with the constant's kind: `a > 5` and `a > 'x'` are not one skeleton.
    slot: Variable
    if isinstance(operand, Literal):
        values[name] = operand.value
        slot = Slot(name, operand.kind)
    elif isinstance(operand, tuple):
        assert all(isinstance(item, Literal) for item in operand)
        values[name] = tuple(item.value for item in operand if isinstance(item, Literal))
        slot = Variable(name)
    else:
        return constraint
    return Constraint(constraint.name, constraint.op, slot, constraint.ignore_case)


def _without_constants(
    residual: Residual, values: dict[str, Value | tuple[Value, ...]]
) -> Residual:
    """Take the constants out of a residual. Its text identifies it, so slot names include kinds."""

    def without(expression: Scalar) -> Scalar:
        match expression:
            case Literal(kind, value):
                name = f"{len(values)}{'' if kind is Kind.NUMBER else kind.name}"
                values[name] = value
                return Slot(name, kind)
            case Arithmetic(operator, left, right):
                return Arithmetic(operator, without(left), without(right))
            case Call(function, arguments):
                return Call(function, tuple(map(without, arguments)))
        return expression

    check = residual.condition
    if isinstance(check, Foreign):  # a text that only its own language can take apart
        return residual
    subject, operand = without(check.subject), check.operand
    if operand is not None and not isinstance(operand, tuple):
        operand = without(operand)
    return Residual(Test(subject, check.op, operand, check.ignore_case))


@lru_cache(_REMEMBERED)
def changes(old: Filter, new: Filter) -> Bindings | None:
    """Find the values in which two filters of one skeleton differ; None if their skeletons do.

    >>> import palio
    >>> changes(palio.parse("a > 5 AND b = 1"), palio.parse("a > 7 AND b = 1"))
    {'0': 7}
    """
    before, after = lift(old), lift(new)
    if before.skeleton != after.skeleton:
        return None
    old_values = before.names
    return {  # 2 and 2.0 are one number to a comparison, and two in an expression
        name: value
        for name, value in after.names.items()
        if old_values[name] != value or type(old_values[name]) is not type(value)
    }


class WaitingBatch:
    """The pending batches of a busy link, merged into one with the same effect.

    For each key only the last request is kept. `budget` limits the total weight of the requests.

    >>> waiting = WaitingBatch()
    >>> [waiting.add(Batch((Update(7, {"0": value}, value),))) for value in (5, 9)]
    [True, True]
    >>> waiting.batch.requests
    (Update(key=7, values={'0': 9}, version=9),)
    """

    def __init__(self, budget: int = 0, weigh: Callable[[Request], int] = lambda _: 0) -> None:
        self._budget = budget
        self._weigh = weigh
        self._weight = 0
        self._last: dict[_Key, tuple[Request, int]] = {}
        self._fresh = False
        self._wave: int | None = None

    @property
    def batch(self) -> Batch:
        """The batch to send."""
        requests = tuple([request for request, _ in self._last.values()])
        return Batch(requests, self._fresh, self._wave)

    def add(self, batch: Batch) -> bool:
        """Merge a batch into the pending one; return False, and change nothing, if that is not
        possible.

        It is not if both have a wave, as each wave is answered by itself; if the budget is
        exceeded; or if a client cancels by covering, where the order of requests matters.
        """
        if self._wave is not None and batch.wave is not None:
            return False
        last = {} if batch.fresh else self._last
        weight = 0 if batch.fresh else self._weight
        changed: dict[_Key, tuple[Request, int]] = {}
        for request in batch.requests:
            if isinstance(request, Cancel | Withdraw):
                return False
            # Subscriptions and advertisements number their keys separately.
            key = (isinstance(request, Advertise | Unadvertise), request.key)
            pending = changed.get(key) or last.get(key)
            merged = request if pending is None else _merged(pending[0], request)
            changed[key] = merged, self._weigh(merged)
            weight += changed[key][1] - (0 if pending is None else pending[1])
        if weight > self._budget:
            return False
        # Nothing was changed until here, so that a refused batch can be sent by itself.
        last.update(changed)
        self._last, self._weight = last, weight
        self._fresh = self._fresh or batch.fresh
        self._wave = batch.wave if self._wave is None else self._wave
        return True


def _merged(pending: Request, request: Request) -> Request:
    """Merge two requests about one key."""
    if not isinstance(request, Update):
        return request
    match pending:
        case Update(key, values):
            return Update(key, {**values, **request.values}, request.version)
        case Subscribe(key, filter, values):
            # Without variables the update names constants by position, so they are filled in.
            if filter.variables:
                return Subscribe(key, filter, {**values, **request.values})
            return Subscribe(key, lift(filter).filled(request.values))
    return request
