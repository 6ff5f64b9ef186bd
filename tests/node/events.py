"""Parcels for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palio.model.events import stamped, to_batches
from palio.protocol.messages import Parcel


def parcel(*rows: Mapping[str, Any], publisher: str = "p", first_seq: int = 1) -> Parcel:
    """Rows of one shape, stamped."""
    (batch,) = to_batches(rows)
    return Parcel(publisher, stamped(batch, first_seq, 1_000_000))
