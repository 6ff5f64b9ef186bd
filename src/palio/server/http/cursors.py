"""`CursorFeed`: what a subscription hears, one event at a time, each with a cursor to resume from.

A cursor names what its consumer has got. For a durable subscription it is an entry in custody and a
row of it, `d.ENTRY.ROW`, with `.e` behind it if that row is the entry's last for this consumer; the
broker keeps what comes after until it is acknowledged. For others it
is a place in the session, `s.SESSION.POSITION.ROW`; the broker keeps the session for its grace.
A consumer that comes back with its cursor gets what comes after it; if that is no longer there, it
is told that there is a gap.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from palio.errors import Closed, InvalidBinding, InvalidInput
from palio.language.http_events import gap_event, to_json
from palio.language.parsing import parse_filter
from palio.model.events import rows
from palio.protocol.messages import Deliver, Gap, Gaps, unpack_mask
from palio.protocol.streams import size_of
from palio.server.http.subscriptions import HttpSubscription
from palio.server.local_client import RESUME_BYTES, Connect, Guest, News

__all__ = ["CursorFeed", "Item"]

MAX_CHUNK: Final = 1_000
"""Events that are given at once."""

_CURSOR: Final = re.compile(
    r"d\.(?P<entry>[0-9]{1,18})\.(?P<row>[0-9]{1,9})(?P<end>\.e)?"
    r"|s\.(?P<session>[^.]{1,80})\.(?P<position>[0-9]{1,18})\.(?P<place>[0-9]{1,9})"
)


class Item(NamedTuple):
    """An event as a CloudEvent in JSON, or a gap."""

    cursor: str
    document: dict[str, Any]
    is_gap: bool = False


_WHOLE: Final = 1_000_000_000
"""Stands for the row of a cursor behind the last row, beyond any that is written."""


class _Place(NamedTuple):
    """A cursor, read."""

    session: str
    number: int
    row: int

    @property
    def done(self) -> int:
        """The last entry in custody that its consumer has had whole."""
        return self.number - (self.row < _WHOLE)


_NOWHERE = _Place("", 0, -1)


class _Entry(NamedTuple):
    """An entry in custody that was given and is not acknowledged."""

    number: int
    size: int


class CursorFeed:
    """One consumer of one subscription. Iterate over it; `close` or `leave` it in the end."""

    def __init__(
        self, guest: Guest, subscription: HttpSubscription, after: _Place, keep_bytes: int
    ) -> None:
        self.subscription = subscription
        self._keep_bytes = 0 if subscription.request.sink else keep_bytes
        self._guest = guest
        self._after = after
        self._filter = parse_filter(subscription.filter)
        self._values: Mapping[str, Any] = subscription.values
        self._changed = False
        self._lost = False
        self._kept: deque[_Entry] = deque()
        self._kept_bytes = 0
        self._last = ""

    @classmethod
    async def open(
        cls,
        connect: Connect,
        subscription: HttpSubscription,
        *,
        cursor: str = "",
        name: str = "http",
        keep_bytes: int = RESUME_BYTES,
    ) -> CursorFeed:
        """Begin to listen, from a cursor on if there is one."""
        after = _read(cursor, durable=bool(subscription.durable))
        guest = await Guest.open(
            connect,
            name=name,
            token=subscription.token,
            session=after.session,
            received=max(0, after.number - 1) if after.session else 0,
            keep_bytes=0 if subscription.durable else keep_bytes,
        )
        feed = cls(guest, subscription, after, keep_bytes)
        try:
            await feed._begin()
        except BaseException:
            guest.close()
            raise
        return feed

    async def _begin(self) -> None:
        subscription, guest = self.subscription, self._guest
        if guest.resumed:  # it may have been changed while nobody listened
            await guest.replace(subscription.filter, subscription.values)
            self._changed = True
            return
        await guest.subscribe(
            subscription.filter,
            subscription.values,
            durable=subscription.durable,
            lease_s=subscription.request.config.lease_s,
        )
        self._lost = bool(self._after.session)
        if subscription.durable and self._after.done > 0:
            guest.acknowledge(self._after.done)

    async def chunks(self, most: int = MAX_CHUNK) -> AsyncIterator[list[Item]]:
        """Events and gaps, a few at a time. To ask for more is to be done with those before."""
        if self._lost:
            self._after = _NOWHERE
            yield [self._gap(Gap("*", 0, 0, 0))]
        while True:
            try:
                news = await self._guest.next()
            except Closed:
                return
            items = list(self._items(news))
            self._note(news.message)
            for start in range(0, len(items), most):
                yield items[start : start + most]
            self._guest.done()
            self._took()

    async def take(self, most: int, wait_s: float) -> list[Item]:
        """Up to `most` events and gaps that wait; if none does, wait `wait_s` for the first.

        Taking does not acknowledge: the reader returns with a cursor once it has dealt with them.
        """
        found: list[Item] = []
        left_bytes = RESUME_BYTES
        with suppress(Closed, TimeoutError):
            async with asyncio.timeout(wait_s):
                while not found or (self._guest.has_news and len(found) < most and left_bytes > 0):
                    news = await self._guest.next()
                    found += islice(self._items(news), most - len(found))
                    left_bytes -= size_of(news.message)
                    self._guest.done()
        return found

    async def change(self, subscription: HttpSubscription) -> None:
        """Go on with another filter or other values, under the same identity."""
        if subscription.filter == self.subscription.filter:
            await self._guest.update(subscription.values)
        else:
            await self._guest.replace(subscription.filter, subscription.values)
        self.subscription = subscription
        self._filter = parse_filter(subscription.filter)
        self._values = subscription.values
        self._changed = True

    async def update(self, values: Mapping[str, Any]) -> None:
        """New values for some parameters, for this consumer alone."""
        for name in values:
            if name not in self._values:
                raise InvalidBinding(f"the filter has no parameter :{name:.80}", name=name)
        await self._guest.update(values)
        self._values = {**self._values, **values}
        self._changed = True

    def acknowledge(self, cursor: str) -> None:
        """All up to a cursor has been dealt with, also what an earlier consumer was given; of a
        batch, only when that is its last row.
        """
        if not self.subscription.durable:
            return
        done = _read(cursor, durable=True).done
        while self._kept and self._kept[0].number <= done:
            self._let_go()
        if done:
            self._guest.acknowledge(done)

    async def forget(self) -> None:
        """End the subscription itself."""
        try:
            await self._guest.unsubscribe(forget=True)
        finally:
            self._guest.close()

    def close(self) -> None:
        """End the session."""
        self._guest.close()

    def leave(self) -> None:
        """Stop listening for now: what comes in the session's grace can be had with a cursor."""
        if self.subscription.durable:
            self._guest.close()
        else:
            self._guest.leave()

    # --- news to items ---

    def _items(self, news: News) -> Iterator[Item]:
        message = news.message
        if isinstance(message, Gaps):
            lost = self._lost_entry(message)
            if lost:
                self._last = f"d.{lost}.0.e"
            if not lost or lost > self._after.done:  # else whoever took the cursor was told
                yield from map(self._gap, message.gaps)
            return
        place = message.entry if self.subscription.durable else news.position
        if self.subscription.durable and 0 < place < self._after.number:
            return
        skipped = self._after.row if place == self._after.number else -1
        chosen = np.flatnonzero(unpack_mask(message.rows, len(message.parcel))).tolist()
        before: tuple[int, Mapping[str, Any]] | None = None
        for number, row in zip(chosen, rows(message.parcel.batch, chosen), strict=True):
            if number <= skipped:
                continue
            if self._changed and not self._filter.matches(row, self._values):
                continue
            if before is not None:
                yield self._item(message, place, *before)
            before = number, row
        if before is not None:
            yield self._item(message, place, *before, end=".e")

    def _lost_entry(self, message: Gaps) -> int:
        """The entry that a gap stands for, which comes without events behind it; 0 if none does."""
        following = self._guest.after_next
        after = None if following is None else following.message
        if message.gaps[-1].key < 0 or not isinstance(after, Deliver) or len(after.parcel):
            return 0
        return after.entry

    def _item(
        self, message: Deliver, place: int, number: int, row: Mapping[str, Any], end: str = ""
    ) -> Item:
        if not self.subscription.durable:
            self._last = f"s.{self._guest.session}.{place}.{number}"
        elif place:
            self._last = f"d.{place}.{number}{end}"
        return Item(self._last, to_json(row, message.parcel.publisher))

    def _gap(self, gap: Gap) -> Item:
        document = gap_event(gap.publisher, gap.first_seq, gap.last_seq, gap.count, "palio")
        return Item(self._last, document, is_gap=True)

    def _note(self, message: Deliver | Gaps) -> None:
        """Remember what is given out of custody."""
        if isinstance(message, Deliver) and message.entry:
            self._kept.append(_Entry(message.entry, message.parcel.nbytes))
            self._kept_bytes += message.parcel.nbytes

    def _took(self) -> None:
        """Acknowledge what was sent, but for the last of it, which may be on its way."""
        if self.subscription.request.config.acknowledge == "explicit":
            return
        done = 0
        while self._kept and self._kept_bytes > self._keep_bytes:
            done = self._let_go()
        if done:
            self._guest.acknowledge(done)

    def _let_go(self) -> int:
        """Forget the oldest entry; its number."""
        entry = self._kept.popleft()
        self._kept_bytes -= entry.size
        return entry.number


def _read(cursor: str, *, durable: bool) -> _Place:
    if not cursor:
        return _NOWHERE
    found = _CURSOR.fullmatch(cursor)
    if found is None or (found["entry"] is not None) is not durable:
        raise InvalidInput(f"{cursor!r:.100} is no cursor of this subscription; leave it out")
    if durable:
        return _Place("", int(found["entry"]), _WHOLE if found["end"] else int(found["row"]))
    return _Place(found["session"], int(found["position"]), int(found["place"]))
