"""`KnownClaims`: at which broker each durable subscription lives, as far as one broker knows.

Each time its owner comes to a broker, that one opens a claim with a greater number: `ann/orders#3`.
The greatest claim counts, everywhere, whatever way the claims have come (D5); a broker remembers
the newest one of every durable subscription that it has learned of, also of those that are over, as
what was sent to it for an older claim is its own to hand on. The model is `tests.models.durable`.
"""

from __future__ import annotations

from collections.abc import Iterator

from palio.errors import Closed
from palio.node.log import Overlay
from palio.node.operations import Claim
from palio.protocol.messages import Fact


def claim_of(fact: Fact) -> Claim:
    """The claim that a broker has stated: it lives at that broker, or is over.

    >>> from palio.protocol.messages import ClaimNumbers
    >>> claim_of(Fact("b1", 7, "ann/d", filter="x > 1", claim=ClaimNumbers(3))).home
    'b1'
    """
    number, revision, since = fact.claim
    home = fact.origin if fact.filter else ""
    client, session_epoch = fact.session_epoch
    return Claim(
        fact.subject,
        number,
        home,
        client,
        session_epoch,
        revision,
        since,
        fact.claimed_us,
        fact.filter,
    )


def is_later(one: Claim, other: Claim) -> bool:
    """Return whether a client has said one after the other, in a later session; not if nobody
    knows.
    """
    return one.client == other.client and one.session_epoch > other.session_epoch > 0


def is_outdated(claim: Claim, before: Claim) -> bool:
    """Return whether a claim that outdoes another was made before it: then the owner is still
    there, and is to be claimed once more.

    >>> before = Claim("ann/d", 3, "b1", "ann/1", 7, claimed_us=20)
    >>> is_outdated(Claim("ann/d", 4, "b2", "ann/1", 6, claimed_us=30), before)
    True
    >>> is_outdated(Claim("ann/d", 4, "b2", "ann/2", 1, claimed_us=30), before)
    False
    """
    if claim.is_over:
        return False
    if claim.client == before.client and claim.session_epoch and before.session_epoch:
        return claim.session_epoch < before.session_epoch
    return claim.claimed_us <= before.claimed_us


class KnownClaims:
    """The newest claim of each durable subscription: as stored, and as it is under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stored: dict[str, Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._stored.values())

    def stored(self, subject: str) -> Claim | None:
        """The newest claim that the disk has."""
        return self._stored.get(subject)

    def newest(self, subject: str, overlay: Overlay) -> Claim | None:
        """The newest claim, by which what comes in is judged."""
        return overlay.claim(subject) or self._stored.get(subject)

    def subjects(self, overlay: Overlay) -> dict[str, None]:
        """All durable subscriptions that are known, also of claims that are under way."""
        return dict.fromkeys([*self._stored, *overlay.claimed])

    def is_here(self, subject: str, overlay: Overlay) -> bool:
        """Return whether a durable subscription lives here, and is not about to leave."""
        claim = self.newest(subject, overlay)
        return claim is not None and claim.home == self.name

    def is_news(self, claim: Claim, overlay: Overlay) -> bool:
        """Return whether a claim outdoes the newest that is known."""
        known = self.newest(claim.subject, overlay)
        return known is None or claim.rank > known.rank

    def next(self, asked: Claim, overlay: Overlay) -> Claim:
        """Make a claim for an owner who is here: above all that is known here or (`asked.number`)
        to the owner.

        `Closed` if that was said in a session that the client has left, and is back here since. A
        claim of another broker keeps no owner away who is here: that one claims it again if it is
        late.
        """
        known = self.newest(asked.subject, overlay)
        if known is not None and known.home == self.name and is_later(known, asked):
            raise Closed(f"{asked.subject} is heard in a later session of the same client")
        if known is None:
            return asked._replace(number=asked.number + 1, home=self.name, since=1)
        # What is over is what its end knew of: another broker may know of a claim after that.
        since = known.number + 1 if known.is_over else known.since
        number = 1 + max(asked.number, known.number)
        # It knows of the one before, so it comes after that, whatever the clocks say.
        claimed_us = max(asked.claimed_us, known.claimed_us + 1)
        return asked._replace(number=number, home=self.name, since=since, claimed_us=claimed_us)

    def changed(self, subject: str, filter: str, overlay: Overlay) -> Claim:
        """The claim of a durable subscription that lives here, with another filter."""
        known = self.newest(subject, overlay)
        assert known is not None and known.home == self.name, f"{subject} does not live here"
        return known._replace(filter=filter, revision=known.revision + 1)

    def over(self, asked: Claim, overlay: Overlay) -> Claim | None:
        """Return the fact that ends a durable subscription; None if it is unknown, or over."""
        known = self.newest(asked.subject, overlay)
        if known is None or known.is_over:
            return None
        number = max(known.number, asked.number)
        return known._replace(
            number=number, home="", client=asked.client, session_epoch=asked.session_epoch
        )

    def believed(self, claim: Claim, overlay: Overlay) -> Claim:
        """Decide what another broker's claim means here. What an owner said before it ended a
        durable subscription is over with it; an end that it said before it came back ends nothing.
        Each has a number of its own, as others have yet to learn of it.
        """
        known = self.newest(claim.subject, overlay)
        if known is None or not is_later(known, claim):
            return claim
        if known.is_over and not claim.is_over:
            return known._replace(number=claim.number)
        if claim.is_over and not known.is_over:
            return known._replace(number=claim.number + 1)
        return claim

    def apply(self, claim: Claim) -> Claim | None:
        """A claim is stored: the one that counted before."""
        before = self._stored.get(claim.subject)
        assert before is None or claim.rank > before.rank, (
            f"D5: {claim.rank} of {claim.subject} comes after {before and before.rank}"
        )
        self._stored[claim.subject] = claim
        return before
