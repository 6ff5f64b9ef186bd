"""`CursorFeed`: events of a subscription with cursors to resume from, one by one or as batches.

A cursor names what its consumer has got. For a durable subscription it is an entry of its queue and
a row of it, `d.ENTRY.ROW`, with `.e` behind it if that row is the entry's last for this consumer;
the broker keeps later events until they are acknowledged. For others it is a place in the session,
`s.SESSION.POSITION.ROW`; the broker keeps the session for its grace. A row of `-` is before the
first: such a cursor is given when a feed opens, so that a consumer whose connection breaks before
the first event loses nothing. A consumer that returns with its cursor gets the later events;
if they are no longer available, it gets a gap.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from palio.errors import Closed, InvalidInput, PalioError, SubscriptionEnded, Unreachable
from palio.language.http_events import gap_event, to_json
from palio.language.parsing import parse_filter
from palio.model.events import EXPIRES, has_expired, rows
from palio.model.masks import unpack_mask
from palio.model.parameters import check_given, check_kept
from palio.protocol.limits import check_since
from palio.protocol.messages import Deliver, Gap, Gaps, Replace, Subscribe, Unsubscribe, Update
from palio.protocol.streams import size_of
from palio.server.http.subscriptions import HttpSubscription, check_names
from palio.server.local_client import KEY, RESUME_BYTES, Connect, InternalClient, News

MAX_CHUNK: Final = 1_000
"""Events that are given at once."""

_CURSOR: Final = re.compile(
    r"d\.(?P<entry>[0-9]{1,18})\.(?P<row>[0-9]{1,9})(?P<end>\.e)?"
    r"|s\.(?P<session>[^.]{1,80})\.(?P<position>[0-9]{1,18})\.(?P<place>[0-9]{1,9}|-)"
)


class Item(NamedTuple):
    """An event as a CloudEvent in JSON, or a gap."""

    cursor: str
    document: dict[str, Any]
    is_gap: bool = False


class FeedBatch(NamedTuple):
    """Events of one message, or a gap."""

    cursor: str
    """Of the last of them."""
    publisher: str
    batch: pa.RecordBatch | None
    gap: Gap | None = None
    place: str = ""
    """The cursor of the others but for their rows: these have none without it..."""
    numbers: Sequence[int] = ()
    """...and the rows in the message."""

    @property
    def size(self) -> int:
        """The number of rows that it takes up."""
        return 1 if self.batch is None else self.batch.num_rows

    def items(self) -> Iterator[Item]:
        """Each event by itself, or the gap."""
        if self.gap is not None:
            lost = self.gap.publisher, self.gap.first_seq, self.gap.last_seq, self.gap.count
            yield Item(self.cursor, gap_event(*lost, "palio", self.gap.reason), is_gap=True)
        if self.batch is not None:
            others = (
                f"{self.place}.{number}" if self.place else self.cursor
                for number in self.numbers[:-1]
            )
            for cursor, row in zip((*others, self.cursor), rows(self.batch), strict=True):
                yield Item(cursor, to_json(row, self.publisher))


_ALL: Final = 1 << 62
"""More rows than any message has."""

_WHOLE: Final = 1_000_000_000
"""Stands for the row of a cursor behind the last row, beyond any that is written."""


class _Place(NamedTuple):
    """A cursor, read."""

    session: str
    number: int
    row: int

    @property
    def done(self) -> int:
        """The last entry of its queue that its consumer has had whole."""
        return self.number - (self.row < _WHOLE)


_NOWHERE = _Place("", 0, -1)


class _Entry(NamedTuple):
    """An entry of its queue that was given and is not acknowledged."""

    number: int
    size: int


class CursorFeed:
    """One consumer of one subscription. Iterate over it; `close` or `leave` it in the end."""

    def __init__(
        self, client: InternalClient, subscription: HttpSubscription, after: _Place, keep_bytes: int
    ) -> None:
        self.subscription = subscription
        self._keep_bytes = 0 if subscription.request.sink else keep_bytes
        self._client = client
        self._after = after
        self._filter = parse_filter(subscription.filter)
        self._values: Mapping[str, Any] = subscription.values
        self._changed = False
        self._lost = False
        self._kept: deque[_Entry] = deque()
        self._kept_bytes = 0
        self.opened = ""
        """The cursor from which this feed began; empty if its subscription is durable."""
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
        after = _place_of(cursor, durable=bool(subscription.durable))
        client = await InternalClient.open(
            connect,
            name=name,
            token=subscription.token,
            session=after.session,
            received=max(0, after.number - 1) if after.session else 0,
            keep_bytes=0 if subscription.durable else keep_bytes,
        )
        feed = cls(client, subscription, after, keep_bytes)
        try:
            await feed._begin()
        except BaseException:
            client.close()
            raise
        if not subscription.durable:
            begins = f"s.{client.session}.{client.next_position}.-"
            feed.opened = feed._last = cursor if client.resumed else begins
        return feed

    async def _begin(self) -> None:
        subscription, client = self.subscription, self._client
        if client.resumed:  # it may have been changed while nobody listened
            await client.ask(_replacing(subscription))
            self._changed = True
            return
        filter, values, durable = subscription.filter, subscription.values, subscription.durable
        config = subscription.request.config
        since_us = check_since(config.since)
        await client.ask(
            Subscribe(0, KEY, filter, dict(values), durable, config.lease_s, since_us=since_us)
        )
        # A cursor named a session that is over by now: events of the meantime are gone.
        self._lost = bool(self._after.session)
        if subscription.durable and self._after.done > 0:
            client.table.acknowledge(KEY, self._after.done)

    async def chunks(self, most: int = MAX_CHUNK) -> AsyncIterator[list[Item]]:
        """Events and gaps, a few at a time. To ask for more is to be done with those before."""
        async for parts in self._follow():
            items = [item for part in parts for item in part.items()]
            for start in range(0, len(items), most):
                yield items[start : start + most]

    async def batches(self) -> AsyncIterator[FeedBatch]:
        """Batches of events, and gaps. To ask for more is to be done with those before."""
        async for parts in self._follow():
            for part in parts:
                yield part

    async def _follow(self) -> AsyncIterator[list[FeedBatch]]:
        if self._lost:
            self._after = _NOWHERE
            yield list(self._read(News(0, Gaps((Gap("*", 0, 0, 0),))), 1))
        while True:
            try:
                news = await self._client.next()
            except Closed:
                return
            parts = list(self._read(news, _ALL))
            self._note(news.message)
            yield parts
            self._client.done()
            self._took()

    async def take(self, most: int, wait_s: float) -> list[FeedBatch]:
        """Take up to `most` pending events and gaps; without any, wait `wait_s` for the first.

        Taking does not acknowledge: the reader returns with a cursor once it has dealt with them.
        """
        taken: list[FeedBatch] = []
        left, left_bytes = most, RESUME_BYTES
        # Another one who asks takes the subscription over, and is answered.
        with suppress(Closed, TimeoutError, SubscriptionEnded):
            async with asyncio.timeout(wait_s):
                while not taken or (self._client.has_news and left > 0 and left_bytes > 0):
                    news = await self._client.next()
                    taken += self._read(news, left)
                    left = most - sum(part.size for part in taken)
                    left_bytes -= size_of(news.message)
                    self._client.done()
        return taken

    async def change(self, subscription: HttpSubscription) -> None:
        """Change to another filter or other values, under the same identity."""
        if subscription.filter == self.subscription.filter:
            await self._client.ask(Update(0, KEY, dict(subscription.values)))
        else:
            await self._client.ask(_replacing(subscription))
        self.subscription = subscription
        self._filter = parse_filter(subscription.filter)
        self._values = subscription.values
        self._changed = True

    async def update(self, values: Mapping[str, Any]) -> None:
        """New values for some parameters, for this consumer alone."""
        check_names(self._filter, values)
        after = {**self._values, **values}
        check_given(self._filter, after)
        check_kept(self._values, after)
        if values:
            await self._client.ask(Update(0, KEY, dict(values)))
            self._values = after
            self._changed = True

    def acknowledge(self, cursor: str) -> None:
        """Acknowledge all up to a cursor, also what an earlier consumer was given; of a batch,
        only when that is its last row.
        """
        if not self.subscription.durable:
            return
        done = _place_of(cursor, durable=True).done
        while self._kept and self._kept[0].number <= done:
            self._let_go()
        if done:
            self._client.table.acknowledge(KEY, done)

    async def forget(self) -> None:
        """End the subscription itself."""
        try:
            await self._client.ask(Unsubscribe(0, KEY, True))
        finally:
            self._client.close()

    @property
    def failure(self) -> PalioError | None:
        """The reason why the session has ended; None while it is open."""
        return self._client.failure

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def leave(self) -> None:
        """Disconnect for now; a cursor can fetch the events of the session's grace."""
        if self.subscription.durable:  # its events wait in its queue, whether a session does or not
            self._client.close()
        else:
            self._client.leave()

    # --- received messages ---

    def _read(self, news: News, most: int) -> Iterator[FeedBatch]:
        """Select a consumer's rows of a message, and move its cursor behind them."""
        message = news.message
        if isinstance(message, Gaps):
            for gap in islice(self._gaps(message), most):
                yield FeedBatch(self._last, gap.publisher, None, gap)
            return
        chosen, batch = self._chosen(news, message), message.parcel.batch
        if not chosen:
            return
        given = chosen[:most]
        position, place = self._position(news, message), ""
        if not self.subscription.durable:
            place = f"s.{self._client.session}.{position}"
            self._last = f"{place}.{given[-1]}"
        elif position:
            place = f"d.{position}"
            self._last = f"{place}.{given[-1]}{'.e' if len(given) == len(chosen) else ''}"
        batch = batch if len(given) == batch.num_rows else batch.take(pa.array(given))
        yield FeedBatch(self._last, message.parcel.publisher, batch, None, place, given)

    def _gaps(self, message: Gaps) -> Iterator[Gap]:
        """The gaps that the consumer has not had."""
        lost = self._lost_entry(message)
        if lost:
            self._last = f"d.{lost}.0.e"
        if not lost or lost > self._after.done:  # else the cursor is behind the gap
            yield from message.gaps

    def _chosen(self, news: News, message: Deliver) -> list[int]:
        """The rows of a message that the consumer is to have."""
        position = self._position(news, message)
        # A queue begins again at what was not acknowledged; the cursor proves that it was received.
        if self.subscription.durable and 0 < position < self._after.number:
            return []
        skipped = self._after.row if position == self._after.number else -1
        chosen = np.flatnonzero(unpack_mask(message.rows, len(message.parcel))).tolist()
        chosen = [number for number in chosen if number > skipped]
        if self._changed or EXPIRES in message.parcel.shape.names:
            now = datetime.now(UTC)
            events = zip(chosen, rows(message.parcel.batch, chosen), strict=True)
            chosen = [row for row, event in events if self._is_wanted(event, now)]
        return chosen

    def _is_wanted(self, event: Mapping[str, Any], now: datetime) -> bool:
        if has_expired(event, now):
            return False
        return not self._changed or self._filter.matches(event, self._values)

    def _position(self, news: News, message: Deliver) -> int:
        return message.entry if self.subscription.durable else news.position

    def _lost_entry(self, message: Gaps) -> int:
        """The entry that a gap stands for, which comes without events behind it; 0 if none does."""
        following = self._client.after_next
        after = None if following is None else following.message
        if message.gaps[-1].key < 0 or not isinstance(after, Deliver) or len(after.parcel):
            return 0
        return after.entry

    def _note(self, message: Deliver | Gaps) -> None:
        """Remember what is given out of its queue."""
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
            self._client.table.acknowledge(KEY, done)

    def _let_go(self) -> int:
        """Forget the oldest entry; its number."""
        entry = self._kept.popleft()
        self._kept_bytes -= entry.size
        return entry.number


class Feeds:
    """The consumers of each subscription of the front."""

    def __init__(self, connect: Connect, keep_bytes: int) -> None:
        self._connect = connect
        self._keep_bytes = keep_bytes
        self._feeds: dict[str, list[CursorFeed]] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By subscription. Each session that opens takes a durable one over from the others, so
        they open one by one, and the last that opened is the one that is listed."""
        self._is_stopping = False

    def of(self, id: str) -> list[CursorFeed]:
        """The consumers of one subscription, the oldest first."""
        return self._feeds.get(id, [])

    async def listen(self, subscription: HttpSubscription, cursor: str = "") -> CursorFeed:
        """Another consumer."""
        async with self._one_by_one(subscription.id):
            feed = await CursorFeed.open(
                self._connect, subscription, cursor=cursor, keep_bytes=self._keep_bytes
            )
            if self._is_stopping:  # it opened while the others were ended
                feed.leave()
                raise Unreachable("the broker is stopping; try again soon, or another one")
            others = self._feeds.setdefault(subscription.id, [])
            if subscription.durable:  # it has one position, and so one consumer: the newest
                for other in others:
                    other.leave()
                others.clear()
            others.append(feed)
            return feed

    def _one_by_one(self, id: str) -> asyncio.Lock:
        return self._opening.setdefault(id, asyncio.Lock())

    def left(self, id: str, feed: CursorFeed) -> None:
        """Forget a consumer that is done; may be called twice."""
        feeds = self.of(id)
        if feed in feeds:
            feeds.remove(feed)
            feed.leave()
        if not feeds:
            self._feeds.pop(id, None)

    async def settle(self, subscription: HttpSubscription, cursor: str = "") -> None:
        """Have the node accept a subscription, which makes a durable one last; what is before a
        cursor is acknowledged.
        """
        feed = await CursorFeed.open(self._connect, subscription, cursor=cursor)
        feed.close()

    async def change(self, subscription: HttpSubscription) -> None:
        """Give a subscription another filter or other values, at all of its consumers."""
        async with self._one_by_one(subscription.id):
            feeds = self.of(subscription.id)
            for feed in feeds:
                await feed.change(subscription)
            if not feeds:
                await self.settle(subscription)

    async def acknowledge(self, subscription: HttpSubscription, cursor: str) -> None:
        """Acknowledge all up to a cursor, through the consumer if there is one."""
        async with self._one_by_one(subscription.id):
            feeds = self.of(subscription.id)
            if feeds:
                feeds[-1].acknowledge(cursor)
            else:
                await self.settle(subscription, cursor)

    async def forget(self, subscription: HttpSubscription) -> None:
        """Have the node forget a durable subscription: by a feed that it does not serve any more,
        since another resumed it, only another can do so.
        """
        feeds = self.of(subscription.id)
        if feeds:
            with suppress(SubscriptionEnded):
                await feeds[-1].forget()
                return
        again = await CursorFeed.open(self._connect, subscription)
        await again.forget()

    def close(self, id: str) -> None:
        """A subscription has ended."""
        for feed in list(self.of(id)):
            feed.close()

    def leave_all(self) -> None:
        """End all feeds, also those that are about to open: the front stops."""
        self._is_stopping = True
        for feeds in list(self._feeds.values()):
            for feed in feeds:
                feed.leave()


def _replacing(subscription: HttpSubscription) -> Replace:
    """Build the request that brings a resumed session's subscription up to date."""
    return Replace(0, KEY, subscription.filter, dict(subscription.values))


def _place_of(cursor: str, *, durable: bool) -> _Place:
    if not cursor:
        return _NOWHERE
    match = _CURSOR.fullmatch(cursor)
    if match is None or (match["entry"] is not None) is not durable:
        raise InvalidInput(f"{cursor!r:.100} is no cursor of this subscription; leave it out")
    if durable:
        return _Place("", int(match["entry"]), _WHOLE if match["end"] else int(match["row"]))
    row = -1 if match["place"] == "-" else int(match["place"])
    return _Place(match["session"], int(match["position"]), row)
