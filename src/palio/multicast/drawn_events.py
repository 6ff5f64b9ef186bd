"""Draw events from subscriptions, to plan groups before there is any traffic (multicast 4.4).

The constants that subscriptions name cut the values of an attribute into cells. Events of the same
cells match the same subscriptions, so one value stands for its cell: the disjoint matching sets of
the paper are the sets of brokers that such events have. Not all products of cells are tried, but as
many events as planners need are drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.model.domains import Spans
from palio.model.filters import Conjunction, Filter
from palio.model.operators import Op
from palio.model.texts import TextTest
from palio.model.values import TOP, Kind, from_coordinate, lowest, successor

DRAWN: Final = 32_768
"""Events that are drawn: twice as many make no better plan, unless hardly any event is wanted."""

AT_ONCE: Final = 4_096
"""Events of a batch: an attribute has one kind of values in it, as a column has."""

SEED: Final = 1
"""The seed of the draws: the same subscriptions give the same events."""

_TYPES: Final[dict[Kind, pa.DataType]] = {
    Kind.BOOL: pa.bool_(),
    Kind.NUMBER: pa.float64(),
    Kind.STRING: pa.utf8(),
    Kind.BYTES: pa.binary(),
    Kind.TIME: pa.timestamp("us", "UTC"),
}

_Cells = dict[str, dict[Kind, Counter[Any]]]
"""By attribute and kind, a value of each cell, with the number of subscriptions that ask for it."""


def without_residuals(filter: Filter) -> Filter:
    """Widen a filter to its constraints: a condition on several attributes has no cells.

    >>> import palio
    >>> str(without_residuals(palio.parse("price < 10 AND price < high")))
    'price < 10'
    """
    return Filter.of(Conjunction.of(each.constraints) for each in filter.conjunctions)


def drawn_events(filters: Iterable[Filter], events: int = DRAWN) -> Iterator[pa.RecordBatch]:
    """Draw events whose values are as popular as subscriptions with constants make them.

    A value that subscriptions ask for by name is as likely as it is often named, any other cell as
    one that is named once. Attributes are drawn independently, and may be absent.

    >>> import palio
    >>> [batch] = drawn_events([palio.parse("n < 10"), palio.parse("n = 20")], events=100)
    >>> sorted({value for value in batch["n"].to_pylist() if value is not None})
    [-inf, 10.0, 20.0, 20.000000000000004]
    """
    cells = _cells_of(filters)
    if not cells:
        raise InvalidInput("no subscription has a constraint; there is nothing to draw events from")
    random = np.random.default_rng(SEED)
    for first in range(0, events, AT_ONCE):
        count = min(AT_ONCE, events - first)
        yield pa.record_batch(
            {name: _column(random, kinds, count) for name, kinds in sorted(cells.items())}
        )


def _cells_of(filters: Iterable[Filter]) -> _Cells:
    cells: _Cells = {}
    for filter in filters:
        for conjunction in filter.conjunctions:
            for name, domain in conjunction.domains.items():
                kinds = cells.setdefault(name, {})
                for kind, admitted in domain.kinds.items():
                    values = kinds.setdefault(kind, Counter({lowest(kind): 0}))
                    _add_spans(values, kind, admitted.spans)
                    values.update(text for test in admitted.tests for text in _texts_of(test))
    return cells


def _add_spans(values: Counter[Any], kind: Kind, spans: Spans) -> None:
    """Add the first value of each span, and the first beyond it."""
    for low, high in spans:
        values[low] += high == successor(kind, low)
        if high is not TOP:
            values[high] += 0


def _texts_of(test: TextTest) -> tuple[str | bytes, ...]:
    """List texts that pass a test, or would if it were not negated."""
    if isinstance(test.operand, tuple):
        return test.operand
    if test.op is Op.CIDR and isinstance(test.operand, str):
        return (test.operand.partition("/")[0],)
    return (test.operand,)  # a pattern matches itself


def _column(
    random: np.random.Generator, kinds: dict[Kind, Counter[Any]], count: int
) -> pa.Array[Any]:
    """Draw the values of an attribute, all of one kind; some are absent."""
    if not kinds:
        return pa.nulls(count)
    weights = [sum(values.values()) + len(values) for values in kinds.values()]
    kind = list(kinds)[random.choice(len(kinds), p=_shares(weights))]
    values = kinds[kind]
    if kind is Kind.NUMBER:  # the nearest floats: a column has no integers beyond 2^53 beside them
        cells: list[Any] = [float(each) for each in values]
    else:
        cells = [from_coordinate(kind, each) for each in values]
    column: pa.Array[Any] = pa.array([*cells, None], _TYPES[kind])
    shares = _shares([named + 1 for named in values.values()] + [1])
    drawn: pa.Array[Any] = column.take(random.choice(len(column), count, p=shares))
    return drawn


def _shares(weights: list[int]) -> npt.NDArray[np.float64]:
    return np.array(weights, np.float64) / sum(weights)
