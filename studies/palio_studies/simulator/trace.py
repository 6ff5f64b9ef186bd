"""What happened: a hash of every step, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from palio.model.filters import Filter
from palio.model.row_parcels import RowParcel


@lru_cache(1 << 14)
def _text(filter: Filter) -> str:
    return str(filter)


def _plainly(value: object) -> object:
    """What msgpack has no form for, in one that is the same in every process."""
    if isinstance(value, Filter):
        return _text(value)
    if isinstance(value, RowParcel):
        return value.publisher, value.seqs
    if isinstance(value, Mapping):
        return dict(value)
    return repr(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plainly)

_BLOCK_BYTES: Final = 1 << 16
"""Of steps, which are then added to the digest."""


class Trace:
    """The steps of a run. `hash` is equal for two runs exactly when their steps are.

    >>> one, other = Trace(), Trace()
    >>> one.note(0, "a", "b", "hello")
    >>> other.note(0, "a", "b", "hello")
    >>> one.hash == other.hash
    True
    """

    def __init__(self) -> None:
        self.count = 0
        self._digest = blake2b(digest_size=16)
        self._steps = bytearray()
        """Steps that are not in the digest yet: it takes many at once for less."""

    def note(self, time_us: int, source: str, target: str, what: object) -> None:
        """Add a step: a message, or a word for what else happened."""
        self.count += 1
        _ENCODER.encode_into((time_us, source, target, what), self._steps, -1)
        if len(self._steps) > _BLOCK_BYTES:
            self._digest_steps()

    @property
    def hash(self) -> str:
        """The hash of all steps so far."""
        self._digest_steps()
        return self._digest.hexdigest()

    def _digest_steps(self) -> None:
        self._digest.update(self._steps)
        self._steps.clear()


class Costs(msgspec.Struct):
    """What a run cost, counted on links between brokers (local clients are free)."""

    batches: int = 0
    """Control messages that crossed a link."""
    subscribes: int = 0
    updates: int = 0
    unsubscribes: int = 0
    advertises: int = 0
    unadvertises: int = 0
    waves: int = 0
    """Waves and their echoes."""
    topology: int = 0
    """Link states, joins and leaves."""
    notifications: int = 0
    """Events that crossed a link, counted one by one."""
    delivered: int = 0
    """Events that a client took."""
    spurious: int = 0
    """Events that reached a client and failed its own, newer values."""
    stray: int = 0
    """Events that crossed a link to a broker that had nobody to send them to."""
    lost: int = 0
    """Messages lost on links, retransmissions of a reliable link included."""
    steps: int = 0
    """Messages that brokers worked on."""
    priced: float = 0.0
    """Link prices paid, each message times the price of its link, or 1 if that has none."""
