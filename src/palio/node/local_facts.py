"""`LocalFacts`: what a broker says of itself, under versions of its own, on top of what is known.

This is the voice of a `ClusterState`: whom it tells, and when, is for that to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from math import inf
from typing import Final

import msgspec

from palio.node.fact_store import FactStore
from palio.node.fact_verifier import (
    ADDRESS,
    FOUND,
    LEAVING,
    LINKS,
    LOG,
    LOSS_REPORT,
    PART,
    PEERS,
    PLAN,
    REMOVED,
    TOKEN,
    FactVerifier,
    is_subscription,
)
from palio.protocol.messages import NO_CLAIM, NO_SESSION_EPOCH, ClaimNumbers, Fact, SessionEpoch

_DROPPED_ON_REMOVAL: Final = frozenset((ADDRESS, FOUND, LEAVING, LINKS, LOG, PART, PEERS, PLAN))
"""Facts that count no longer, of a broker that is gone for good, with its durable subscriptions."""


SKIPPED: Final = 1 << 20
"""So many versions a broker leaves out as it starts, if its clock was put back: no number is used
for two facts, though the disk does not know of all that were told."""


class UnpublishedFacts:
    """The facts of one broker that others may not know yet.

    A broker tells what is on its disk and nothing else. What could not be written is sent again
    under a newer version, until there is room. Meanwhile nobody learns of it, and nobody waits for
    it but who asked about just that.

    >>> unpublished = UnpublishedFacts()
    >>> unpublished.add(Fact("b1", 4, "ann/d"))
    >>> unpublished.mark_refused(4, publishable=("links",))
    ([], ['ann/d'])
    >>> bool(unpublished), list(unpublished.unwritten)
    (True, ['ann/d'])
    """

    def __init__(self) -> None:
        self._pending: dict[int, Fact] = {}
        """By version, what is being written."""
        self.unwritten: dict[str, None] = {}
        """Subjects of which the newest fact could not be written."""

    def __bool__(self) -> bool:
        return bool(self._pending or self.unwritten)

    def add(self, fact: Fact) -> None:
        """Something is said, and being written."""
        self._pending[fact.version] = fact

    def withholds(self, fact: Fact) -> bool:
        """Return whether a fact of this broker may not be told."""
        return fact.version in self._pending or fact.subject in self.unwritten

    def mark_written(self, version: int) -> list[Fact]:
        """All up to a version is on the disk: what may be told, in the order of versions."""
        done = self._take(version)
        for fact in done:
            self.unwritten.pop(fact.subject, None)
        return done

    def mark_refused(
        self, version: int, *, publishable: Collection[str]
    ) -> tuple[list[Fact], list[str]]:
        """It could not be written: what may be told, and the subjects that are to be sent again."""
        done = self._take(version)
        told = [fact for fact in done if fact.subject in publishable]
        failed = [fact.subject for fact in done if fact.subject not in publishable]
        self.unwritten.update(dict.fromkeys(failed))
        return told, failed

    def _take(self, version: int) -> list[Fact]:
        return [self._pending.pop(each) for each in sorted(self._pending) if each <= version]


class LocalFacts(FactStore):
    """The facts of a network, and what one broker adds to them."""

    def __init__(
        self, name: str, facts: Iterable[Fact] = (), fact_verifier: FactVerifier | None = None
    ) -> None:
        super().__init__(name)
        self.fact_verifier = fact_verifier or FactVerifier(name)
        self.new_facts: list[Fact] = []
        """New facts of all brokers. The caller takes them out."""
        self.dropped_facts: list[Fact] = []
        """Facts of brokers that are retired now. The caller takes them out."""
        self._republishing: deque[str] = deque()
        """Subjects of this broker that are yet to be sent again."""
        self._is_superseded = False
        """True if something was said of this broker under a version above its own."""
        known = sorted(self.fact_verifier.filter_signed(facts), key=lambda each: each.version)
        for fact in sorted(known, key=lambda each: each.subject.startswith(REMOVED)):
            self._load(fact)
        self.restarted.clear()  # what the disk has is no news
        self.is_new = name not in self._versions
        """True if nothing of an earlier incarnation of this broker is known here."""
        self._history_from = self._history_start(name)
        """From which version on it remembers what it said."""
        self._incarnation = 0
        """Which version was the first."""
        self._unpublished = UnpublishedFacts()
        held = (each for each in self._facts.values() if self._is_from_lost_disk(each))
        self._lost_disks.update((each.origin, -inf) for each in held)

    def begin(self, wall_us: int) -> None:
        """The broker starts, with no links."""
        if self.is_new:
            self._versions[self.name] = self._history_from = self._incarnation = wall_us
        else:  # what a full disk did not take may have been told all the same
            self._versions[self.name] = max(self._version(self.name) + SKIPPED, wall_us)
            self._incarnation = self._version(self.name)
            if self.links(self.name):  # from before a restart
                self._announce(LINKS)
        if self.is_leaving(self.name):
            self._announce(LEAVING)
        token = tuple(filter(None, (self.fact_verifier.token,)))
        mine = (fact for fact in self._facts.values() if fact.origin == self.name)
        is_less = any(self.fact_verifier.narrow_to_grant(fact) is not fact for fact in mine)
        if token != self.links(self.name, TOKEN) or self._is_superseded or is_less:
            self._announce(TOKEN, token)
            self._republish_all()
            self._republish(len(self._republishing))  # nobody is linked yet, and nobody waits
        if self.is_new:  # behind the token; after a restart, too, it knows from when it remembers
            self._announce(LINKS)

    def announce(
        self,
        subject: str,
        *,
        filter: str = "",
        claimed_us: int = 0,
        session_epoch: SessionEpoch = NO_SESSION_EPOCH,
        claim: ClaimNumbers = NO_CLAIM,
    ) -> None:
        """Inform all brokers of something here, or (without a filter) of its end."""
        known = self.fact(self.name, subject)
        claimed_us = claimed_us or (known.claimed_us if known is not None else 0)
        self._publish(Fact(self.name, 0, subject, (), filter, claimed_us, session_epoch, claim))

    def announce_links(self, subject: str, names: tuple[str, ...]) -> None:
        """Inform all brokers of some of this broker's neighbours, if that is news."""
        if names != self.links(self.name, subject):
            self._announce(subject, names)

    def remove(self, broker: str, wall_us: int) -> None:
        """Inform all brokers that one of them is gone for good."""
        until = max(wall_us, self._version(broker))
        self._announce(f"{REMOVED}{broker}", claimed_us=until)

    def report_loss(self, why: str) -> None:
        """Inform all brokers that live events may have been lost on their way through here."""
        self._publish(Fact(self.name, 0, LOSS_REPORT, filter=why))

    @property
    def has_published_all(self) -> bool:
        """True if all that this broker has to say of itself is on its disk, and on its way."""
        return not (self._unpublished or self._republishing)

    def is_published(self, fact: Fact) -> bool:
        """Return whether others may know of a fact: one of this broker's own once it is on the
        disk.
        """
        return fact.origin != self.name or not self._unpublished.withholds(fact)

    def _announce(self, subject: str, links: tuple[str, ...] = (), claimed_us: int = 0) -> None:
        claim = NO_CLAIM
        if subject == LINKS:
            claimed_us, claim = self._history_from, ClaimNumbers(self._incarnation, 0, 0)
        self._publish(Fact(self.name, 0, subject, links, claimed_us=claimed_us, claim=claim))

    def _publish(self, said: Fact) -> None:
        """Say something under a new version."""
        version = self._version(self.name) + 1
        fact = self.fact_verifier.sign(
            msgspec.structs.replace(said, version=version, signature=b"")
        )
        self._accept(fact)
        self.new_facts.append(fact)
        self._unpublished.add(fact)

    def _republish_all(self) -> None:
        """Announce everything under new versions, the token first: from now on, part by part."""
        self._is_superseded = False
        mine = [fact for fact in self._facts.values() if fact.origin == self.name]
        mine.sort(key=lambda each: (each.subject != TOKEN, each.version))
        self._republishing = deque(fact.subject for fact in mine)

    def _republish(self, most: int) -> None:
        for _ in range(min(most, len(self._republishing))):
            self._publish(self._facts[self.name, self._republishing.popleft()])

    def _supersede(self, fact: Fact) -> None:
        """Something that this broker said in an earlier incarnation, or that was made up."""
        if fact.version > self._version(self.name):
            self._versions[self.name] = fact.version
            self._is_superseded = True
        if (self.name, fact.subject) in self._facts:
            return
        is_lasting = fact.subject == PLAN or fact.subject.startswith(REMOVED)
        if is_lasting or is_subscription(fact.subject):  # which is for others to end
            self._publish(fact)
        else:
            self._announce(fact.subject, claimed_us=fact.claimed_us)

    def _accept(self, fact: Fact) -> None:
        """From now on this counts."""
        if self._load(fact) and self.fact_verifier.token:  # what is said next is to be believed
            self._announce(TOKEN, (self.fact_verifier.token,))

    def _load(self, fact: Fact) -> bool:
        """Keep a fact, without what it retires; whether this broker itself had said some of that,
        and is to say it again.
        """
        retires = self._removes_broker(fact)
        self._store(fact)
        if not retires:
            return False
        broker, until = fact.subject.removeprefix(REMOVED), fact.claimed_us
        self._removed[broker] = until
        over = [each for each in self._facts.values() if _is_over(each, broker, until)]
        if broker == self.name:
            self._versions[broker] = max(until + 1, self._version(broker))
            self._is_superseded = self._is_superseded or bool(over)
            return bool(over)
        self._versions[broker] = max(until, self._version(broker))
        for each in over:
            self._drop(each)
        self.dropped_facts += over
        self.routing_version += 1
        return False


def _is_over(fact: Fact, broker: str, until: int) -> bool:
    """Return whether a fact counts no longer, as its origin is retired up to a version. That it had
    retired others does.
    """
    if fact.origin != broker or fact.version > until:
        return False
    return is_subscription(fact.subject) or fact.subject in _DROPPED_ON_REMOVAL
