"""The nouns of routing and the `Router` protocol that every algorithm implements.

A router is a broker's brain: tables in, messages out. It knows no clock, no socket and no
randomness, and whatever it answers depends only on the calls made so far, in their order. The
shell around it (the simulator, a node) tells it of peers coming and going, hands it their messages
and asks where events go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import IllegalMessage
from palio.matching.protocol import Matcher, RowMask
from palio.model.events import rows as rows_of
from palio.model.events import to_batches
from palio.model.filters import Filter
from palio.model.values import Bindings
from palio.routing.messages import Control

__all__ = [
    "THE_ONE_ROW",
    "Events",
    "IllegalMessage",
    "Peer",
    "Role",
    "Router",
    "Selector",
    "SelectorFactory",
    "Send",
]


THE_ONE_ROW: Final = np.ones(1, np.bool_)
"""The mask of an event that is by itself."""
THE_ONE_ROW.flags.writeable = False


class Role(IntEnum):
    """What a peer is to this broker."""

    CLIENT = 0
    """An identity of siena's: whoever subscribes, advertises and publishes under one name."""
    BROKER = 1
    """A neighbouring broker (in a hierarchy: one whose master this broker is)."""
    MASTER = 2
    """The broker above this one in a hierarchy."""
    SIDE = 3
    """The other half of a gateway (see `hybrid`): a neighbour within the same broker."""
    SESSION = 4
    """A client whose subscriptions are an identity each: siena's rules do not join them."""


class Peer(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Somebody at the other end of a connection. Two peers of one broker differ in role or name.

    >>> Peer(Role.CLIENT, "alice") < Peer(Role.BROKER, "b2")
    True
    """

    role: Role
    name: str

    @classmethod
    def client(cls, name: str) -> Peer:
        """A client, that is, one identity."""
        return cls(Role.CLIENT, name)

    @classmethod
    def session(cls, name: str) -> Peer:
        """A client whose subscriptions stand side by side, whatever they cover."""
        return cls(Role.SESSION, name)

    @classmethod
    def broker(cls, name: str) -> Peer:
        """A neighbouring broker."""
        return cls(Role.BROKER, name)

    @classmethod
    def master(cls, name: str) -> Peer:
        """The broker above in a hierarchy."""
        return cls(Role.MASTER, name)

    @property
    def is_client(self) -> bool:
        """Whether it is a client rather than a broker."""
        return self.role in (Role.CLIENT, Role.SESSION)

    def __str__(self) -> str:
        return f"{self.role.name.lower()} {self.name}"


class Send(NamedTuple):
    """An instruction to the shell: deliver a message to a peer, in order with its others."""

    to: Peer
    message: Control


class Events:
    """Events of one publisher, in its order, as columns and as rows.

    Whichever is asked for and was not given is made from the other and kept.

    >>> events = Events.of("sensor", [{"x": 1}, {"x": 2}])
    >>> [row["x"] for row in events.select(np.array([False, True])).rows], events.seqs
    ([2], (0, 1))
    """

    __slots__ = ("_batch", "_numbers", "_rows", "_seqs", "epoch", "publisher", "source")

    def __init__(
        self,
        publisher: str,
        seqs: Sequence[int] | npt.NDArray[np.int64],
        *,
        rows: Sequence[Mapping[str, Any]] | None = None,
        batch: pa.RecordBatch | None = None,
        source: str | None = None,
        epoch: int = 0,
    ) -> None:
        self.publisher = publisher
        self.source = source
        """The broker where they were published, if the shell says."""
        self.epoch = epoch
        """Grows whenever the publisher starts numbering anew."""
        self._numbers = seqs if isinstance(seqs, np.ndarray) else None
        self._seqs = None if isinstance(seqs, np.ndarray) else tuple(seqs)
        self._rows = rows
        self._batch = batch

    @classmethod
    def of(cls, publisher: str, rows: Iterable[Mapping[str, Any]], first_seq: int = 0) -> Events:
        """Rows numbered from `first_seq`."""
        listed = list(rows)
        return cls(publisher, range(first_seq, first_seq + len(listed)), rows=listed)

    @property
    def seqs(self) -> tuple[int, ...]:
        """Their numbers."""
        if self._seqs is None:
            assert self._numbers is not None
            self._seqs = tuple(self._numbers.tolist())
        return self._seqs

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Their numbers as an array."""
        if self._numbers is None:
            self._numbers = np.asarray(self._seqs, np.int64)
        return self._numbers

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The events as mappings, absent attributes left out."""
        if self._rows is None:
            assert self._batch is not None
            self._rows = list(rows_of(self._batch))
        return self._rows

    @property
    def is_one_row(self) -> bool:
        """Whether it is one event, given as a mapping."""
        return self._batch is None and len(self) == 1

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The events as record batches, in order: several only where a type changes."""
        if self._batch is not None:
            return [self._batch]
        return list(to_batches(self.rows))

    def select(self, mask: RowMask) -> Events:
        """The events of some rows; these same events if that is all of them."""
        if mask[0] if len(mask) == 1 else mask.all():
            return self
        chosen = np.flatnonzero(mask).tolist()
        seqs = [self.seqs[row] for row in chosen]
        if self._rows is None and self._batch is not None:
            batch = self._batch.take(pa.array(chosen))
            return self._like(seqs, batch=batch)
        return self._like(seqs, rows=[self.rows[row] for row in chosen])

    def stamped(self, rows: Sequence[Mapping[str, Any]]) -> Events:
        """The same events with other rows."""
        return self._like(self.seqs, rows=rows)

    def _like(
        self,
        seqs: Sequence[int],
        rows: Sequence[Mapping[str, Any]] | None = None,
        batch: pa.RecordBatch | None = None,
    ) -> Events:
        return Events(
            self.publisher, seqs, rows=rows, batch=batch, source=self.source, epoch=self.epoch
        )

    def __len__(self) -> int:
        return len(self.numbers if self._seqs is None else self._seqs)

    def __repr__(self) -> str:
        return f"Events({self.publisher!r}, {self.seqs})"


class Router(Protocol):
    """One routing algorithm at one broker."""

    name: str

    def attach(self, peer: Peer) -> list[Send]:
        """A connection to a peer is up: start from nothing, and tell it what it must know."""

    def detach(self, peer: Peer) -> list[Send]:
        """A connection is down: forget the peer, and tell the others what that changes."""

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message. An illegal one raises `IllegalMessage` and changes nothing."""

    def route(self, sender: Peer, events: Events) -> dict[Peer, RowMask]:
        """To which peers, never back to the sender, which of these events go."""


class Selector(Protocol):
    """What a router needs of matching: which destinations events go to."""

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """Add a filter without or with variables for a destination."""

    def remove(self, key: int) -> None:
        """Forget a filter."""

    def bind(self, key: int, values: Bindings) -> None:
        """Change values of a filter's variables."""

    def route(self, events: Events) -> dict[int, RowMask]:
        """For each destination with any match, which rows go there."""


SelectorFactory: TypeAlias = Callable[[], Selector]


class Matching:
    """A `Selector` over any engine of the matching room.

    >>> from palio.matching.reference import Reference
    >>> selector = Matching(Reference())
    """

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._route_event: Callable[[Mapping[str, Any]], list[int]] | None = getattr(
            matcher, "route_event", None
        )

    def add(self, key: int, filter: Filter, values: Bindings, destination: int) -> None:
        """See `Selector`."""
        self._matcher.add(key, filter, values, destination=destination)

    def remove(self, key: int) -> None:
        """See `Selector`."""
        self._matcher.remove(key)

    def bind(self, key: int, values: Bindings) -> None:
        """See `Selector`."""
        self._matcher.bind(key, values)

    def route(self, events: Events) -> dict[int, RowMask]:
        """See `Selector`."""
        if self._route_event is not None and events.is_one_row:
            return dict.fromkeys(self._route_event(events.rows[0]), THE_ONE_ROW)
        batches = events.batches
        if len(batches) == 1:
            return self._matcher.route(batches[0])
        found: dict[int, RowMask] = {}
        start = 0
        for batch in batches:
            for destination, mask in self._matcher.route(batch).items():
                whole = found.setdefault(destination, np.zeros(len(events), np.bool_))
                whole[start : start + batch.num_rows] = mask
            start += batch.num_rows
        return found
