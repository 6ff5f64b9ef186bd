"""`History`: the durable events of the last hours, for subscriptions that begin in the past.

A broker that keeps a history (`Settings.history_s`) is the owner of a durable subscription to all
events, which it acknowledges when they are old enough. So the network brings every durable event
here, and disk, retransmission and loss reports are those of any durable subscription.

```
H1  a subscription with `since` begins, in the append that makes it, with the matching entries of
    the history, those in flight to the disk included
H2  an entry that comes for the history later is matched here for such subscriptions as well: its
    origin may not have known them yet
H3  the history is complete from its bookmark on; a gap reports a subscription that begins earlier
```
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final, TypeAlias

import msgspec

from palio.errors import NotSupported
from palio.matching.protocol import Matcher, RowMask
from palio.model.constraints import Constraint
from palio.model.events import TIME
from palio.model.filters import TRUE, Conjunction, Filter
from palio.model.masks import ONE_ROW, pack_mask
from palio.model.operators import Op
from palio.model.parcels import Parcel
from palio.node.durable import DurableEvents
from palio.node.effects import Moment
from palio.node.interests import Interests, filter_of
from palio.node.limits import MAX_HISTORY
from palio.node.loss_markers import LossMarker
from palio.node.operations import Action, Claim, Place, Put, PutSubscription
from palio.protocol.messages import Carry, Share
from palio.routing.protocol import routed

HISTORY_OWNER: Final = "$history"
"""The owner of the subscriptions that keep histories; no client may be called so."""

NewMatcher: TypeAlias = Callable[[], Matcher]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class History:
    """The history of one broker, and the subscriptions that began in it."""

    def __init__(
        self, name: str, events: DurableEvents, bookmarks: Mapping[str, bytes], matcher: NewMatcher
    ) -> None:
        self.subject = f"{HISTORY_OWNER}/{name}"
        self._name = name
        self._events = events
        self._matcher = matcher
        self._newcomers = Interests(name, matcher())
        self._since: dict[str, Filter] = {}
        """By subscription that began in the history and has not moved since, its first time."""
        self._floor = 0
        """The offset up to which entries are acknowledged, though perhaps not on the disk yet."""
        self.is_settling = False
        """True while brokers are asked whether they know that it is kept."""
        self.kept_from_us = int.from_bytes(bookmarks.get(self.subject, b""))
        """The time from which it is complete, by its bookmark (H3); 0 until that is known."""

    @property
    def is_kept(self) -> bool:
        """True if the disk has the subscription that keeps the history."""
        claim = self._events.claims.stored(self.subject)
        return claim is not None and claim.home == self._name

    # --- subscriptions that begin in the past ---

    def begin(self, asked: Claim, filter: Filter, since_us: int) -> list[Place]:
        """Return the placements of the history's events for a new subscription (H1)."""
        if not self.is_kept:
            raise NotSupported(
                f"the broker {self._name!r} keeps no history for since=; set limits.history_s "
                "there, or leave since= out"
            )
        subject, log = asked.subject, self._events.log
        number = self._events.claims.next(asked, log.overlay).number
        since = Constraint.of(TIME, Op.GE, _EPOCH + timedelta(microseconds=since_us))
        self._since[subject] = Filter.of([Conjunction.of([since])])
        self.learn(asked)
        wanted, engine = self._since[subject] & filter, self._matcher()
        engine.add(0, wanted, destination=0)
        places = []
        for entry, parcel in self._entries():
            mask: RowMask | None = ONE_ROW
            if parcel.event is None:
                mask = routed(engine, parcel).get(0)
            elif LossMarker.of(parcel) is None and not wanted.matches(parcel.event, {}):
                mask = None  # for one event an engine would cost more
            if mask is not None:
                share = Share(subject, number, pack_mask(mask))
                places.append(Place(self._name, log.offsets(), entry, (share,)))
        return places

    def gap(self, since_us: int) -> str:
        """Return why events since a time may be missing; empty if the history has them all (H3)."""
        if 0 < self.kept_from_us <= since_us:
            return ""
        begins = "now"
        if self.kept_from_us:
            begins = f"at {(_EPOCH + timedelta(microseconds=self.kept_from_us)).isoformat()}"
        return f"the history of {self._name!r} begins {begins}"

    def _entries(self) -> Iterator[tuple[int, Parcel]]:
        """Yield the entries of the history, in order; a loss marker in place of a damaged one. All
        their events are of the history, whose filter is TRUE.
        """
        after = self._floor
        while (delivery := self._events.delivery(self.subject, after)) is not None:
            after = delivery.offset
            yield delivery.entry, delivery.parcel
        for operation in self._events.log.in_flight:
            if isinstance(operation, Put) and operation.parcel is not None:
                subjects = (share.subject for to in operation.targets for share in to.shares)
                if self.subject in subjects:
                    yield operation.entry, operation.parcel

    def learn(self, claim: Claim) -> None:
        """Follow the filter of a subscription that began here, until it moves or ends."""
        if claim.subject == self.subject and claim.is_over:
            self.kept_from_us = 0
        since, filter = self._since.get(claim.subject), filter_of(claim)
        if since is not None and filter is not None and claim.home == self._name:
            self._newcomers.learn(claim._replace(filter=str(since & filter)))
        else:
            self.forget(claim.subject)

    def forget(self, subject: str) -> None:
        """Let a subscription no longer be one that began here."""
        if self._since.pop(subject, None) is not None:
            self._newcomers.learn(Claim(subject, 0, ""))

    def matches(self, parcel: Parcel, wanted: Mapping[str, RowMask]) -> Mapping[str, RowMask]:
        """Return the wanted rows with those of subscriptions that began here (H2)."""
        if not self._since or self.subject not in wanted:
            return wanted
        return {**self._newcomers.wanted(parcel), **wanted}

    def carried(self, message: Carry) -> Carry:
        """Return an entry with shares for subscriptions that began here (H2)."""
        subjects = {share.subject for share in message.shares}
        if not self._since or self.subject not in subjects:
            return message
        claims, overlay = self._events.claims, self._events.overlay
        shares = []
        for subject, mask in self._newcomers.wanted(message.parcel).items():
            claim = claims.newest(subject, overlay)
            if subject not in subjects and claim is not None:
                shares.append(Share(subject, claim.number, pack_mask(mask)))
        return msgspec.structs.replace(message, shares=(*message.shares, *shares))

    # --- what is kept ---

    def sweep(self, at: Moment, keep_s: float) -> list[Action]:
        """Begin or end the history by the setting, and acknowledge entries that are too old."""
        events = self._events
        if not events.is_ready or events.log.is_refusing:
            return []
        newest = events.claims.newest(self.subject, events.overlay)
        is_open = newest is not None and not newest.is_over
        asked = Claim(self.subject, 0, self._name, claimed_us=at.wall_us, filter=str(TRUE))
        if is_open and not keep_s:
            return events.end(at.now, asked, None)
        if keep_s and not is_open:
            record = PutSubscription(
                self.subject, HISTORY_OWNER, str(TRUE), msgspec.msgpack.encode({}), inf
            )
            return events.open(at.now, asked, record, None)
        return self._trim(at, keep_s) if is_open else []

    def _trim(self, at: Moment, keep_s: float) -> list[Action]:
        events, horizon_us = self._events, at.wall_us - round(keep_s * 1e6)
        items = list(events.backlog(self.subject).following(self._floor))
        index = bisect_left(items, horizon_us, key=lambda item: self._wall_us(item[1].entry))
        index = max(index, len(items) - MAX_HISTORY)
        if not index:
            return []
        self._floor, last = items[index - 1]
        return self.keep_from(at, self._wall_us(last.entry) + 1)

    def keep_from(self, at: Moment, time_us: int) -> list[Action]:
        """Acknowledge entries up to the floor, and record from when the history has all (H3)."""
        self.kept_from_us = max(time_us, self.kept_from_us)
        bookmark = self.kept_from_us.to_bytes(8)
        return self._events.acknowledge(at.now, self.subject, self._floor, (), bookmark)

    def _wall_us(self, entry: int) -> int:
        return self._events.heading(entry).wall_us
