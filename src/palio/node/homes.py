"""`Homes`: at which broker a durable subscription lives, as all of them say.

A broker where its owner registers it claims it, by a fact that names the owner's visit. The latest
claim counts: of one client that of the later visit, else that of the later time. Where it lived
before says that it has moved, and whoever ends it says by which visit that was.

Neither counts of a broker that may not hear all that the subscription asks for where it lives: what
waits there could not go there, and what is published would be kept for nobody. It stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from palio.node.registry import Registry
from palio.node.sessions import Durable
from palio.node.vouching import is_end, lives
from palio.protocol.messages import NO_VISIT, Fact, Visit

__all__ = ["NOWHERE", "Homes", "ends"]

NOWHERE: Final = ""
"""Where a durable subscription lives that is over."""


class Homes:
    """What the facts of a network say of its durable subscriptions, seen from one broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._name = registry.name

    def latest_claim(self, subject: str) -> Fact | None:
        """What the broker says where a durable subscription lives, if it lives anywhere."""
        return self._latest(self._registry.about(subject))

    def claim_elsewhere(self, subject: str) -> Fact | None:
        """The same, of other brokers."""
        about = self._registry.about(subject)
        return self._latest(fact for fact in about if fact.origin != self._name)

    def _latest(self, facts: Iterable[Fact]) -> Fact | None:
        """The latest claim of a broker that may hear all that the one before it asks for."""
        latest = None
        for claim in sorted(filter(lives, facts), key=lambda fact: (fact.claimed_us, fact.origin)):
            if latest is None or self._registry.hears(claim.origin, latest.filter):
                latest = claim
        return latest

    def of(self, subject: str) -> str:
        """Where a durable subscription that has moved away lives now, as far as is known: where
        brokers say that it has gone; if that leads nowhere, where it is claimed.
        """
        home, passed = self._name, {self._name, *self._registry.retired}
        said = self._registry.fact(home, subject)
        while said is not None and said.links and said.links[0] not in passed:
            home = said.links[0]
            passed.add(home)
            said = self._registry.fact(home, subject)
        leads_on = said is None or lives(said) or (is_end(said) and said.visit != NO_VISIT)
        claim = None if leads_on else self.claim_elsewhere(subject)
        return home if claim is None else claim.origin

    def claim(self, durable: Durable, visit: Visit) -> None:
        """Tell the network that a durable subscription lives here, by a visit of its owner."""
        claims = (fact.claimed_us for fact in self._registry.about(durable.subject))
        claim = max(durable.taken_us, 1 + max(claims, default=0))
        self._registry.announce(
            durable.subject, filter=str(durable.bound), claimed_us=claim, visit=visit
        )

    def visit(self, durable: Durable) -> Visit:
        """In which session its owner spoke of it last, as far as that is remembered."""
        claim = self._registry.fact(self._name, durable.subject)
        return durable.visit if claim is None or durable.visit != NO_VISIT else claim.visit

    def moved(self, durables: Iterable[Durable]) -> list[tuple[str, str]]:
        """Those of some durable subscriptions here that a later claim has taken elsewhere, with
        whereto; nowhere if their owner has ended them at another broker after they came here.
        """
        found = []
        for durable in durables:
            subject = durable.subject
            if self._is_over(durable):
                found.append((subject, NOWHERE))
                continue
            latest = self.latest_claim(subject)
            if latest is None or latest.origin == self._name:
                continue
            visit = self.visit(durable) if durable.session is None else durable.visit
            if not self._registry.hears(latest.origin, str(durable.bound)):
                continue
            if not _is_later(durable, visit, latest):
                found.append((subject, latest.origin))
            elif self._registry.hears(self._name, latest.filter):
                self.claim(durable, visit)  # its owner came after that; nobody here knew of it
        return found

    def _is_over(self, durable: Durable) -> bool:
        """Whether it was ended at another broker since its owner was here last. A claim of an
        earlier visit than that end is renewed, for this broker may forget that the owner was here.
        """
        claim = self._registry.fact(self._name, durable.subject)
        ends = [
            each
            for each in self._registry.about(durable.subject)
            if each.origin != self._name
            and is_end(each)
            and each.visit != NO_VISIT
            and self._registry.hears(each.origin, str(durable.bound))
        ]
        claimed_us = max(durable.taken_us, claim.claimed_us if claim is not None else 0)
        visit = self.visit(durable)
        if any(_ends(each, visit, claimed_us) for each in ends):
            return True
        if claim is not None and any(_ends(each, claim.visit, claim.claimed_us) for each in ends):
            self.claim(durable, durable.visit)
        return False

    def is_over(self, claim: Fact, visit: Visit) -> bool:
        """Whether what a broker claims was ended at another, after this visit of its owner."""
        return any(
            each.origin != claim.origin and _ends(each, visit, claim.claimed_us)
            for each in self._registry.about(claim.subject)
            if is_end(each) and each.visit != NO_VISIT
        )


def _is_later(durable: Durable, visit: Visit, claim: Fact) -> bool:
    """Whether the owner of a durable subscription came here after a broker had made this claim.

    Where both are visits of one client that is known, whatever the clocks say and though it has
    left; else the clocks decide, if it is here.
    """
    follows = visit.follows(claim.visit)
    if follows is None:
        return durable.session is not None and durable.taken_us > claim.claimed_us
    return follows


def _ends(end: Fact, visit: Visit, claimed_us: int) -> bool:
    """Whether a broker has ended a durable subscription after it came to live at another by this
    visit and claim. Who adopts one claims it by the visit that it came by.
    """
    follows = None if end.visit == visit else end.visit.follows(visit)
    return end.claimed_us > claimed_us if follows is None else follows


def ends(end: Fact, claim: Fact) -> bool:
    """Whether a broker has ended a durable subscription after another had made this claim."""
    return _ends(end, claim.visit, claim.claimed_us)
