"""`LocalFacts`: publishes facts about the broker itself, under its own versions.

It extends the `FactStore` with the facts of one broker: which are durable, which must be published
under newer versions, and what a restart repeats. `ClusterState` decides when they are sent, and to
which peers.
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
    TRAFFIC,
    FactVerifier,
    is_subscription,
)
from palio.protocol.messages import NO_CLAIM, NO_SESSION_EPOCH, ClaimNumbers, Fact, SessionEpoch

# Subjects that stop counting when their origin is removed; its durable subscriptions do, too.
_DROPPED_ON_REMOVAL: Final = frozenset(
    (ADDRESS, FOUND, LEAVING, LINKS, LOG, PART, PEERS, PLAN, TRAFFIC)
)


SKIPPED: Final = 1 << 20
"""Versions that a broker leaves out as it starts: after the clock was put back, no version may name
two facts, and the disk lacks those that a refusal did not stop (`OF_AN_INCARNATION`)."""


class UnpublishedFacts:
    """The facts of one broker that are withheld from others, since the disk does not have them yet.

    A fact that the disk refuses is written under a newer version once there is space. Meanwhile it
    stays unpublished, and only waves that ask for its subject wait for it.

    >>> unpublished = UnpublishedFacts()
    >>> unpublished.add(Fact("b1", 4, "ann/d"))
    >>> unpublished.mark_refused(4, publishable=("links",))
    ([], ['ann/d'])
    >>> bool(unpublished), list(unpublished.unwritten)
    (True, ['ann/d'])
    """

    def __init__(self) -> None:
        # By version, the facts that are being written.
        self._pending: dict[int, Fact] = {}
        self.unwritten: dict[str, None] = {}
        """Subjects whose newest fact the disk has refused."""

    def __bool__(self) -> bool:
        return bool(self._pending or self.unwritten)

    def add(self, fact: Fact) -> None:
        """Withhold a fact until it is written."""
        self._pending[fact.version] = fact

    def withholds(self, fact: Fact) -> bool:
        """Return whether a fact of this broker must not be sent yet."""
        return fact.version in self._pending or fact.subject in self.unwritten

    def mark_written(self, version: int) -> list[Fact]:
        """Release the facts up to a version, which the disk has; return them in the order of
        versions.
        """
        done = self._take(version)
        for fact in done:
            self.unwritten.pop(fact.subject, None)
        return done

    def mark_refused(
        self, version: int, *, publishable: Collection[str]
    ) -> tuple[list[Fact], list[str]]:
        """Handle a refused write of the facts up to a version.

        Return those of `publishable` subjects, which may be sent all the same, and the other
        subjects, which are to be written under newer versions.
        """
        done = self._take(version)
        published = [fact for fact in done if fact.subject in publishable]
        failed = [fact.subject for fact in done if fact.subject not in publishable]
        self.unwritten.update(dict.fromkeys(failed))
        return published, failed

    def _take(self, version: int) -> list[Fact]:
        return [self._pending.pop(each) for each in sorted(self._pending) if each <= version]


class LocalFacts(FactStore):
    """The facts of a network, and those that one broker adds."""

    def __init__(
        self, name: str, facts: Iterable[Fact] = (), fact_verifier: FactVerifier | None = None
    ) -> None:
        super().__init__(name)
        self.fact_verifier = fact_verifier or FactVerifier(name)
        self.new_facts: list[Fact] = []
        """Newly learned facts of all brokers. The caller takes them out."""
        self.dropped_facts: list[Fact] = []
        """Facts of brokers that were removed. The caller takes them out."""
        # Own subjects that have yet to be published under newer versions.
        self._republishing: deque[str] = deque()
        # True if facts about this broker exist under versions above its own.
        self._is_superseded = False
        signed = sorted(self.fact_verifier.filter_signed(facts), key=lambda each: each.version)
        # Removals last: they end only earlier facts.
        for fact in sorted(signed, key=lambda each: each.subject.startswith(REMOVED)):
            self._load(fact)
        self.restarted.clear()  # the disk's incarnations are no restarts
        self.is_new = name not in self._versions
        """True if the disk has nothing of an earlier incarnation of this broker."""
        # The version at which this broker's own history starts.
        self._history_from = self._history_start(name)
        # The first version of this incarnation.
        self._incarnation = 0
        self._unpublished = UnpublishedFacts()
        held = (each for each in self._facts.values() if self._is_from_lost_disk(each))
        self._lost_disks.update((each.origin, -inf) for each in held)

    def begin(self, wall_us: int) -> None:
        """Start an incarnation, before there are links."""
        if self.is_new:
            self._versions[self.name] = self._history_from = self._incarnation = wall_us
        else:  # facts that a full disk refused may have been sent all the same
            self._versions[self.name] = max(self._version(self.name) + SKIPPED, wall_us)
            self._incarnation = self._version(self.name)
            if self.links(self.name):  # links of before the restart are down
                self._announce(LINKS)
        if self.is_leaving(self.name):
            self._announce(LEAVING)
        token = tuple(filter(None, (self.fact_verifier.token,)))
        mine = (fact for fact in self._facts.values() if fact.origin == self.name)
        is_less = any(self.fact_verifier.narrow_to_grant(fact) is not fact for fact in mine)
        if token != self.links(self.name, TOKEN) or self._is_superseded or is_less:
            self._announce(TOKEN, token)
            self._republish_all()
            self._republish(len(self._republishing))  # all at once: no peer has to wait yet
        if self.is_new:  # behind the token, which verifies it; carries the start of the history
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
        """Announce a fact about this broker; without a filter, the end of its subject."""
        self._reclaimed.pop(subject, None)
        previous = self.fact(self.name, subject)
        claimed_us = claimed_us or (previous.claimed_us if previous is not None else 0)
        self._publish(Fact(self.name, 0, subject, (), filter, claimed_us, session_epoch, claim))

    def announce_links(self, subject: str, names: tuple[str, ...]) -> None:
        """Announce a list of peers under a subject, unless it is unchanged."""
        if names != self.links(self.name, subject):
            self._announce(subject, names)

    def remove(self, broker: str, wall_us: int) -> None:
        """Announce that a broker is gone for good."""
        until = max(wall_us, self._version(broker))
        self._announce(f"{REMOVED}{broker}", claimed_us=until)

    def report_loss(self, why: str) -> None:
        """Announce that live events may have been lost at this broker."""
        self._publish(Fact(self.name, 0, LOSS_REPORT, filter=why))

    @property
    def has_published_all(self) -> bool:
        """True if all own facts are on the disk, and sent."""
        return not (self._unpublished or self._republishing)

    def is_published(self, fact: Fact) -> bool:
        """Return whether a fact may be sent: an own fact only once the disk has it."""
        return fact.origin != self.name or not self._unpublished.withholds(fact)

    def _announce(self, subject: str, links: tuple[str, ...] = (), claimed_us: int = 0) -> None:
        claim = NO_CLAIM
        if subject == LINKS:
            claimed_us, claim = self._history_from, ClaimNumbers(self._incarnation, 0, 0)
        self._publish(Fact(self.name, 0, subject, links, claimed_us=claimed_us, claim=claim))

    def _publish(self, content: Fact) -> None:
        """Sign a fact under the next version, store it, and withhold it until it is written."""
        version = self._version(self.name) + 1
        fact = self.fact_verifier.sign(
            msgspec.structs.replace(content, version=version, signature=b"")
        )
        self._accept(fact)
        self.new_facts.append(fact)
        self._unpublished.add(fact)

    def _republish_all(self) -> None:
        """Schedule all own facts for new versions, the token first: it verifies the others."""
        self._is_superseded = False
        mine = [fact for fact in self._facts.values() if fact.origin == self.name]
        mine.sort(key=lambda each: (each.subject != TOKEN, each.version))
        self._republishing = deque(fact.subject for fact in mine)

    def _republish(self, most: int) -> None:
        for _ in range(min(most, len(self._republishing))):
            self._publish(self._facts[self.name, self._republishing.popleft()])

    def _supersede(self, fact: Fact) -> None:
        """Take versions above those of a fact of an earlier incarnation, or a forged one."""
        if fact.version > self._version(self.name):
            self._versions[self.name] = fact.version
            self._is_superseded = True
        if (self.name, fact.subject) in self._facts and not self._is_newer_history(fact):
            return
        is_lasting = fact.subject == PLAN or fact.subject.startswith(REMOVED)
        if is_lasting or is_subscription(fact.subject):  # only an operator or owner ends these
            self._publish(fact)
            self._reclaimed[fact.subject] = fact.version
        else:
            self._announce(fact.subject, claimed_us=fact.claimed_us)

    def _accept(self, fact: Fact) -> None:
        """Store a fact; if it removed this broker, publish the token at once."""
        if self._load(fact) and self.fact_verifier.token:  # so that later facts verify
            self._announce(TOKEN, (self.fact_verifier.token,))

    def _load(self, fact: Fact) -> bool:
        """Store a fact, and drop those that it removes. Return whether own facts are among the
        latter, which have to be published under newer versions.
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
    """Return whether the removal of its origin up to a version ends a fact. Removals that the
    origin itself had published stay.
    """
    if fact.origin != broker or fact.version > until:
        return False
    return is_subscription(fact.subject) or fact.subject in _DROPPED_ON_REMOVAL
