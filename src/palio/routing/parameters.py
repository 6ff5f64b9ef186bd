"""Parametric subscriptions (parametric 4.3): constants are variables, and updates are joined.

Every constant of a filter is a variable too, named by its place: `0`, `1`, ..., also within an
expression, as in `p > q * 2`. The *skeleton* of a filter is what is left, so that two filters of
one skeleton differ by values only, and a broker whose summary changes from one to the other reports
so in one UPD. Together with the key that a subscription has on a link these names are the paper's
*broker variables*: they mean something between two neighbours only.

Where updates come faster than a link takes them, those that wait are joined (`WaitingBatch`): of a
variable that swings to and fro only its last value travels. That skips effects, which the paper
allows, but never reorders them, and as each batch is applied as one there is no gap.
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

_Place: TypeAlias = tuple[bool, int]
"""True if a key is that of an advertisement, and the key."""

_REMEMBERED: Final = 1 << 16
"""Filters whose parts are kept at hand: an update is filled in by every broker it passes."""


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
    """Each value under the name of its place, in that order."""

    def filled(self, values: Bindings) -> Filter:
        """The filter with some of its constants replaced."""
        return bound(self.skeleton, {**self.names, **values})


def bound(filter: Filter, values: Bindings) -> Filter:
    """A filter with its variables replaced, and a memory: all brokers bind the same ones.

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
    """A filter without variables with other constants, by their places, and a memory; None if it
    has no such place.

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
    """The one object for all equal filters: comparing it with itself costs nothing."""
    return filter


@lru_cache(_REMEMBERED)
def lift(filter: Filter) -> LiftedFilter:
    """Take the constants out of a filter: those of constraints first, then those in expressions.

    A list that something computed is looked for in stays, and so does a condition of another
    language: they are structure.

    >>> import palio
    >>> lifted = lift(palio.parse("p > q * 2 AND LOWER(s) = 'x' AND a = 5"))
    >>> str(lifted.skeleton)
    'a = :0 AND LOWER(s) = :1STRING AND p > q * :2'
    >>> lifted.names
    {'0': 5, '1STRING': 'x', '2': 2}
    """
    values: dict[str, Value | tuple[Value, ...]] = {}
    constraints = [
        tuple([_without_constant(each, values) for each in conjunction.constraints])
        for conjunction in filter.conjunctions
    ]
    residuals = [
        tuple([_without_constants(each, values) for each in conjunction.residuals])
        for conjunction in filter.conjunctions
    ]
    skeleton = Filter(tuple(map(Conjunction, constraints, residuals)))
    return LiftedFilter(interned(skeleton), values)


def _without_constant(
    constraint: Constraint, values: dict[str, Value | tuple[Value, ...]]
) -> Constraint:
    operand = constraint.operand
    name = str(len(values))
    slot: Variable
    if isinstance(operand, Literal):
        values[name] = operand.value
        slot = Slot(name, operand.kind)
    elif isinstance(operand, tuple):
        assert all(isinstance(each, Literal) for each in operand)
        values[name] = tuple(each.value for each in operand if isinstance(each, Literal))
        slot = Variable(name)
    else:
        return constraint
    return Constraint(constraint.name, constraint.op, slot, constraint.ignore_case)


def _without_constants(
    residual: Residual, values: dict[str, Value | tuple[Value, ...]]
) -> Residual:
    """A residual is identified by its text, so the names of slots say what kind they are of."""

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
    if isinstance(check, Foreign):
        return residual
    subject, operand = without(check.subject), check.operand
    if operand is not None and not isinstance(operand, tuple):
        operand = without(operand)
    return Residual(Test(subject, check.op, operand, check.ignore_case))


@lru_cache(_REMEMBERED)
def changes(old: Filter, new: Filter) -> Bindings | None:
    """The values in which two filters of one skeleton differ; None if their skeletons do.

    >>> import palio
    >>> changes(palio.parse("a > 5 AND b = 1"), palio.parse("a > 7 AND b = 1"))
    {'0': 7}
    """
    before, after = lift(old), lift(new)
    if before.skeleton != after.skeleton:
        return None
    known = before.names
    return {  # 2 and 2.0 are one number to a comparison, and two in an expression
        name: value
        for name, value in after.names.items()
        if known[name] != value or type(known[name]) is not type(value)
    }


class WaitingBatch:
    """Batches that wait for a busy link, as one with the effect of them all in a row.

    Of each key only the last is kept. It is one message, and so leaves no gap however many went
    into it; `room` bounds what its requests weigh together.

    >>> waiting = WaitingBatch()
    >>> [waiting.add(Batch((Update(7, {"0": value}, value),))) for value in (5, 9)]
    [True, True]
    >>> waiting.batch.requests
    (Update(key=7, values={'0': 9}, version=9),)
    """

    def __init__(self, room: int = 0, weigh: Callable[[Request], int] = lambda _: 0) -> None:
        self._room = room
        self._weigh = weigh
        self._weight = 0
        self._last: dict[_Place, tuple[Request, int]] = {}
        self._fresh = False
        self._wave: int | None = None

    @property
    def batch(self) -> Batch:
        """The batch to send."""
        requests = tuple([request for request, _ in self._last.values()])
        return Batch(requests, self._fresh, self._wave)

    def add(self, batch: Batch) -> bool:
        """Join a batch with those before it. False, and nothing changes, if it must stay another.

        It must if both have a wave, if there is no room, and if a client cancels by covering, where
        order matters.
        """
        if self._wave is not None and batch.wave is not None:
            return False
        last = {} if batch.fresh else self._last
        weight = 0 if batch.fresh else self._weight
        changed: dict[_Place, tuple[Request, int]] = {}
        for request in batch.requests:
            if isinstance(request, Cancel | Withdraw):
                return False
            place = (isinstance(request, Advertise | Unadvertise), request.key)
            known = changed.get(place) or last.get(place)
            joined = request if known is None else _joined(known[0], request)
            changed[place] = joined, self._weigh(joined)
            weight += changed[place][1] - (0 if known is None else known[1])
        if weight > self._room:
            return False
        last.update(changed)
        self._last, self._weight = last, weight
        self._fresh = self._fresh or batch.fresh
        self._wave = batch.wave if self._wave is None else self._wave
        return True


def _joined(known: Request, request: Request) -> Request:
    """One request in place of two about one key."""
    if not isinstance(request, Update):
        return request
    match known:
        case Update(key, values):
            return Update(key, {**values, **request.values}, request.version)
        case Subscribe(key, filter, values):
            if filter.variables:
                return Subscribe(key, filter, {**values, **request.values})
            return Subscribe(key, lift(filter).filled(request.values))
    return request
