"""Dead letters: durable events for those that a durable subscription has failed at too often.

A dead letter has the attributes of its event, and three of its own. Only durable subscriptions
whose filter names `dead_letter` get it: the event itself went to all others that match.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from palio.model.events import DEDUP_ID, EXPIRES, SEQ, TIME
from palio.model.parcels import Parcel

DEAD_LETTER: Final = "dead_letter"
"""The durable subscription that failed, such as `ann/orders`."""

REASON: Final = "dead_letter_reason"
"""Why the last attempt failed."""

ATTEMPTS: Final = "dead_letter_attempts"
"""The number of attempts."""


def letters_of(broker: str, log: int) -> str:
    """Return the publisher of a broker's dead letters; each log numbers them from the start."""
    return f"{broker}/dead-letters-{log}"


def dead_letter(parcel: Parcel, subject: str, reason: str, attempts: int) -> Parcel:
    """Return dead letters for events of a durable subscription, yet to be stamped.

    >>> event = Parcel("ann/1", pa.record_batch({"x": [1], SEQ: [7], TIME: [0]}))
    >>> dead_letter(event, "ann/orders", "no stock", 3).batch.to_pylist()
    [{'x': 1, 'dead_letter': 'ann/orders', 'dead_letter_reason': 'no stock', \
'dead_letter_attempts': 3}]
    """
    batch, ours = parcel.batch, (SEQ, TIME, EXPIRES, DEDUP_ID, DEAD_LETTER, REASON, ATTEMPTS)
    batch = batch.drop_columns([name for name in ours if name in batch.schema.names])
    own: list[tuple[str, str | int, pa.DataType]] = [
        (DEAD_LETTER, subject, pa.utf8()),
        (REASON, reason, pa.utf8()),
        (ATTEMPTS, attempts, pa.int64()),
    ]
    for name, value, kind in own:
        batch = batch.append_column(name, pa.array([value] * len(parcel), kind))
    return Parcel.of("", batch)
