"""`Announcements`: finds the events that their publisher advertised.

Up to `FEW_EVENTS` events are tested one by one. Of more, a selector tests whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from palio.errors import LimitExceeded
from palio.matching.protocol import RowMask
from palio.matching.residuals import Columns, holds_on
from palio.model.advertisements import Advertisement, Alternative, UnreadAdvertisement
from palio.model.events import is_system_name
from palio.model.parcels import Parcel
from palio.model.values import NO_VALUES
from palio.routing.protocol import Selector, SelectorFactory

FEW_EVENTS: Final = 16
"""Events up to which each is tested by itself: a batch of columns costs more to set up."""


class Announcements:
    """The advertisements of one publisher, with each distinct test numbered.

    Tests at most `max_alternatives` of their alternatives, to bound the work for one event. Events
    that only the others announce count as not advertised.

    >>> import palio
    >>> from palio.model.row_parcels import RowParcel
    >>> from palio.routing.reference_selector import ReferenceSelector
    >>> offers = Announcements([palio.parse_advertisement("x > 1")], ReferenceSelector)
    >>> offers.announced_in(RowParcel("p", [{"x": 1}, {"x": 2}])).tolist()
    [False, True]
    """

    def __init__(
        self,
        offers: Sequence[Advertisement],
        new_selector: SelectorFactory,
        *,
        max_alternatives: int | None = None,
    ) -> None:
        self._announces_all = any(isinstance(offer, UnreadAdvertisement) for offer in offers)
        alternatives = [alternative for offer in offers for alternative in offer.alternatives]
        self._alternatives = alternatives[:max_alternatives]
        self._new_selector = new_selector
        # Alternatives share tests, as of one attribute: the selector runs each distinct test once.
        tests = (test for alternative in self._alternatives for test in alternative.tests.values())
        self._numbers = {test: number for number, test in enumerate(dict.fromkeys(tests))}

    @cached_property
    def _selector(self) -> Selector | None:
        """A selector with all tests; None if they exceed its limits: events are tested singly."""
        selector = self._new_selector()
        try:
            for test, number in self._numbers.items():
                selector.add(number, test, NO_VALUES, number)
        except LimitExceeded:
            return None
        return selector

    def announced_in(self, parcel: Parcel) -> RowMask:
        """Select the events of a parcel that any of the advertisements announces."""
        if self._announces_all:
            return np.ones(len(parcel), np.bool_)
        if len(parcel) <= FEW_EVENTS or self._selector is None:
            return np.fromiter(map(self._announces, parcel.rows), np.bool_, len(parcel))
        return np.concatenate(
            [self._announced_in_batch(self._selector, batch) for batch in parcel.batches]
        )

    def _announces(self, event: Mapping[str, Any]) -> bool:
        """Return whether an alternative announces an event. It is tested first next time, as a
        publisher's events are mostly alike.
        """
        for index, alternative in enumerate(self._alternatives):
            if alternative.announces(event, open=False):
                self._alternatives.insert(0, self._alternatives.pop(index))
                return True
        return False

    def _announced_in_batch(self, selector: Selector, batch: pa.RecordBatch) -> RowMask:
        passed = selector.route(Parcel("", batch))
        announced = np.zeros(batch.num_rows, np.bool_)
        for alternative in self._alternatives:
            announced |= self._announced_by(alternative, batch, passed)
        return announced

    def _announced_by(
        self, alternative: Alternative, batch: pa.RecordBatch, passed: dict[int, RowMask]
    ) -> RowMask:
        """Select events of which each attribute passes its test, and no residual is false."""
        announced = np.ones(batch.num_rows, np.bool_)
        read = {name for residual in alternative.residuals for name in residual.attributes}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            test = alternative.tests.get(name)
            # Brokers add the system's attributes. One that only a residual reads is tested below.
            if is_system_name(name) or (test is None and name in read):
                continue
            is_absent = column.is_null().to_numpy(zero_copy_only=False)
            mask = None if test is None else passed.get(self._numbers[test])
            # No mask: the alternative does not name the attribute, or no event passed its test.
            announced &= is_absent if mask is None else is_absent | mask
        columns = Columns(batch)
        for residual in alternative.residuals:
            # Rows that remain: a residual costs some microseconds a row. It may be unknown, as an
            # advertisement allows events without its attributes; only a false one rules out.
            rows = np.flatnonzero(announced)
            announced[rows] = ~holds_on(residual.inverted(), columns, rows, NO_VALUES)
        return announced
