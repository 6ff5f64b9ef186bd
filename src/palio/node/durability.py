"""`Durability`: the durable subscriptions of a network as one broker knows them, and its own.

`DurableEvents` stores the events for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np

from palio.language.parsing import parse_filter
from palio.matching.protocol import Matcher, RowMask
from palio.model.filters import FALSE, Filter
from palio.model.masks import pack_mask
from palio.node.claims import claim_of
from palio.node.cluster_state import ClusterState
from palio.node.dead_letters import DEAD_LETTER
from palio.node.durable import DurableEvents
from palio.node.effects import Store
from palio.node.fact_verifier import FactVerifier, is_subscription
from palio.node.history import History
from palio.node.interests import Interests, filter_of
from palio.node.limits import MAX_BOOKMARKS_BYTES, MAX_OWN_BOOKMARKS_BYTES
from palio.node.operations import Action, Claim, PutSubscription
from palio.node.sessions import Durable
from palio.protocol.messages import ClaimNumbers, Fact, Parcel, SessionEpoch

NO_DISK: Final = "this broker has no disk; set broker.data_dir (--data) to make it so"

MatcherFactory: TypeAlias = Callable[[], Matcher]


class Durability:
    """A broker's disk: facts, durable events, and the durable subscriptions that live here."""

    def __init__(
        self, name: str, store: Store, matcher: MatcherFactory, fact_verifier: FactVerifier
    ) -> None:
        stored = store.load()
        self.name = name
        self.epoch = stored.epoch
        self.last_time_us = stored.time_us
        """The time of an earlier incarnation's last publication that the journal has."""
        self.cluster_state = ClusterState(name, stored.facts, fact_verifier)
        self.events = DurableEvents(
            name,
            0,
            stored.operations,
            store,
            last_offset=stored.last_offset,
            records=stored.subscriptions,
        )
        self.bookmarks = Bookmarks(stored.bookmarks)
        self.history = History(name, self.events, stored.bookmarks, matcher)
        self.here: dict[str, Durable] = {}
        """Durable subscriptions that live here, or are about to."""
        self.owned: Counter[str] = Counter()
        """The number of them by owner."""
        self.interests = Interests(name, matcher())
        for claim in self.events.claims:
            self.interests.learn(claim)

    # --- the subscriptions of this broker ---

    def lives_here(self, subject: str) -> bool:
        """Return whether a durable subscription has its home here after the pending writes."""
        return self.events.claims.is_here(subject, self.events.overlay)

    def newest(self, subject: str) -> Claim | None:
        """Return the newest claim of a subscription, pending writes included."""
        return self.events.claims.newest(subject, self.events.overlay)

    def enter(self, durable: Durable) -> None:
        """Add a durable subscription that is about to live here."""
        if durable.subject not in self.here:
            self.here[durable.subject] = durable
            self.owned[durable.owner] += 1

    def remove(self, subject: str) -> Durable | None:
        """Remove and return a durable subscription; None if it did not live here."""
        durable = self.here.pop(subject, None)
        if durable is not None:
            self.owned[durable.owner] -= 1
            if not self.owned[durable.owner]:
                del self.owned[durable.owner]
        return durable

    def restore(self, subject: str, lease_s: float, now: float) -> None:
        """Reset a durable subscription whose write was refused to what the disk has."""
        self.remove(subject)
        claim = self.events.claims.stored(subject)
        if claim is not None and claim.home == self.name:
            durable = self.stored(claim, lease_s)
            durable.disconnected_at = now
            self.enter(durable)

    def stored(self, claim: Claim, lease_s: float) -> Durable:
        """Return a durable subscription whose home is here, as on the disk. A disk that was lost
        has no record of it: its filter then comes from its claim.
        """
        subject, record = claim.subject, self.events.records.get(claim.subject)
        owner = subject.partition("/")[0]
        if record is None:
            durable = Durable(subject, owner, _filter_or_false(claim), {}, lease_s)
        else:
            filter, values = parse_filter(record.filter), msgspec.msgpack.decode(record.values)
            durable = Durable(subject, owner, filter, values, record.lease_s)
        durable.claim = claim
        return durable

    @staticmethod
    def record(durable: Durable) -> PutSubscription:
        """Return the record that the disk keeps of a durable subscription."""
        packed = msgspec.msgpack.encode(durable.values)
        filter = str(durable.filter)
        return PutSubscription(durable.subject, durable.owner, filter, packed, durable.lease_s)

    # --- claims ---

    def homes(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return the homes of those subscriptions that have one."""
        claims = (self.events.claims.stored(subject) for subject in wanted)
        return {claim.subject: claim.home for claim in claims if claim is not None and claim.home}

    def learn(self, now: float, facts: Iterable[Fact]) -> tuple[list[Action], list[Fact]]:
        """Learn claims from other brokers. Return the actions, and the facts that are refused, as
        their brokers may not receive all events that the subscription matches.

        Such a broker cannot take a subscription over, since the backlog could not be sent to it.
        The present home supersedes the claim with a greater number instead.
        """
        actions: list[Action] = []
        refused: list[Fact] = []
        for fact in facts:
            if not is_subscription(fact.subject):
                continue
            claim, newest = claim_of(fact), self.newest(fact.subject)
            if newest is None or self._may_supersede(fact.origin, newest):
                actions += self.events.learn(now, [claim])
            elif claim.rank > newest.rank:
                refused.append(fact)
                if newest.home == self.name:
                    above = newest._replace(number=claim.number)
                    actions += self.events.open(now, above, None, None)
        return actions, refused

    def _may_supersede(self, origin: str, newest: Claim) -> bool:
        is_own = origin in (self.name, newest.home)
        return is_own or newest.is_over or self.cluster_state.may_receive(origin, newest.filter)

    def wanted_letters(self, letter: Parcel, subject: str) -> dict[str, RowMask]:
        """Return the subscriptions that match a dead letter of another one and name it in their
        filter, with their rows. All others that match have had the event itself.
        """
        wanted = {}
        for each, mask in self.interests.wanted(letter).items():
            claim = self.newest(each)
            filter = None if claim is None else filter_of(claim)
            if each != subject and filter is not None and DEAD_LETTER in filter.attributes:
                wanted[each] = mask
        return wanted

    def announce(self, claim: Claim) -> None:
        """Announce a claim unless the network has it: that this is the home of a subscription, or
        that the subscription is over.
        """
        is_ours = claim.is_over or (claim.home == self.name and bool(claim.filter))
        announced = (claim_of(fact).rank for fact in self.cluster_state.facts_about(claim.subject))
        if is_ours and all(rank < claim.rank for rank in announced):
            self.cluster_state.announce(
                claim.subject,
                filter=claim.filter if claim.home else "",
                claimed_us=claim.claimed_us,
                session_epoch=SessionEpoch(claim.client, claim.session_epoch),
                claim=ClaimNumbers(claim.number, claim.revision, claim.since),
            )


def packed(parcel: Parcel, wanted: Mapping[str, RowMask]) -> tuple[Parcel, dict[str, bytes | None]]:
    """Select the wanted events, and return them with the rows for each subscription (None: all)."""
    if len(parcel) == 1 or not wanted:
        return parcel, dict.fromkeys(wanted)
    rows: RowMask = np.logical_or.reduce(list(wanted.values()))
    if rows.all():
        return parcel, {subject: pack_mask(mask) for subject, mask in wanted.items()}
    some = {subject: pack_mask(mask[rows]) for subject, mask in wanted.items()}
    return parcel.select(rows), some


def _filter_or_false(claim: Claim) -> Filter:
    filter = filter_of(claim)
    return FALSE if filter is None else filter


class Bookmarks:
    """One bookmark for each durable subscription, with limits of bytes by owner and in all.

    >>> bookmarks = Bookmarks({"ann/orders": b"as far as 7"})
    >>> bookmarks.keep("ann/orders", b"as far as 9"), bookmarks.get("ann/orders")
    (True, b'as far as 9')
    >>> bookmarks.keep("ann/more", bytes(MAX_OWN_BOOKMARKS_BYTES)), bookmarks.get("ann/more")
    (False, b'')
    """

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        self._kept = dict(stored)
        self._own: dict[str, int] = {}
        self._bytes = 0
        for subscription, bookmark in stored.items():
            self._count(subscription, len(bookmark))

    def get(self, subscription: str) -> bytes:
        """Return the bookmark of a subscription; empty if it has none."""
        return self._kept.get(subscription, b"")

    def keep(self, subscription: str, bookmark: bytes) -> bool:
        """Replace a bookmark and return True, unless it exceeds a limit."""
        more = len(bookmark) - len(self.get(subscription))
        own = self._own.get(_owner(subscription), 0)
        if more > 0 and (
            own + more > MAX_OWN_BOOKMARKS_BYTES or self._bytes + more > MAX_BOOKMARKS_BYTES
        ):
            return False
        self._kept[subscription] = bookmark
        self._count(subscription, more)
        return True

    def drop(self, subscription: str) -> None:
        """Remove the bookmark of a subscription that has ended."""
        bookmark = self._kept.pop(subscription, b"")
        if bookmark:
            self._count(subscription, -len(bookmark))

    def _count(self, subscription: str, more: int) -> None:
        owner = _owner(subscription)
        self._bytes += more
        left = self._own.get(owner, 0) + more
        if left:
            self._own[owner] = left
        else:
            self._own.pop(owner, None)


def _owner(subscription: str) -> str:
    """Return the owner of a durable subscription: names have no slash."""
    return subscription.partition("/")[0]
