"""`KnownClaims`: the home of each durable subscription, as known to one broker.

Each time an owner connects, its broker opens a claim with a greater number: `ann/orders#3`. The
greatest claim wins at every broker, in whatever order claims arrive (D5).

A broker remembers the newest claim of every durable subscription, also of those that are over: it
must hand on entries that reach it for an older claim. The model is `tests.models.durable`.
"""

from __future__ import annotations

from collections.abc import Iterator

from palio.errors import Closed
from palio.node.log import Overlay
from palio.node.operations import Claim
from palio.protocol.messages import Fact


def claim_of(fact: Fact) -> Claim:
    """Return the claim in a broker's fact: that broker is the subscription's home, or it is over.

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
    """Return whether one claim is of a later session of the same client; False if unknown."""
    return one.client == other.client and one.session_epoch > other.session_epoch > 0


def is_outdated(claim: Claim, before: Claim) -> bool:
    """Return whether a claim that supersedes another was made earlier. The owner is then still at
    the broker of `before`, which must claim the subscription with a greater number.

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
    """The newest claim of each durable subscription: stored, or in the overlay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stored: dict[str, Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._stored.values())

    def stored(self, subject: str) -> Claim | None:
        """Return the newest claim on the disk."""
        return self._stored.get(subject)

    def newest(self, subject: str, overlay: Overlay) -> Claim | None:
        """Return the newest claim, the overlay included. Inputs are judged by it."""
        return overlay.claim(subject) or self._stored.get(subject)

    def subjects(self, overlay: Overlay) -> dict[str, None]:
        """Return all durable subscriptions with a claim, stored or in the overlay."""
        return dict.fromkeys([*self._stored, *overlay.claimed])

    def is_here(self, subject: str, overlay: Overlay) -> bool:
        """Return whether a durable subscription has its home here once the overlay is stored."""
        claim = self.newest(subject, overlay)
        return claim is not None and claim.home == self.name

    def is_news(self, claim: Claim, overlay: Overlay) -> bool:
        """Return whether a claim supersedes the newest one here."""
        newest = self.newest(claim.subject, overlay)
        return newest is None or claim.rank > newest.rank

    def next(self, asked: Claim, overlay: Overlay) -> Claim:
        """Make a claim for an owner that is here, above all claims known here or (`asked.number`)
        to the owner.

        Raise `Closed` if a later session of the client has the subscription here. A claim of
        another broker is no obstacle: that broker claims with a greater number if it is later.
        """
        newest = self.newest(asked.subject, overlay)
        if newest is not None and newest.home == self.name and is_later(newest, asked):
            raise Closed(f"{asked.subject} is subscribed in a later session of the same client")
        if newest is None:
            return asked._replace(number=asked.number + 1, home=self.name, since=1)
        # An end covers the claims that its broker knew. Another broker may know a later claim, so
        # the new subscription begins above the end.
        since = newest.number + 1 if newest.is_over else newest.since
        number = 1 + max(asked.number, newest.number)
        # It is made with knowledge of the one before, so it is later, whatever the clocks show.
        claimed_us = max(asked.claimed_us, newest.claimed_us + 1)
        return asked._replace(number=number, home=self.name, since=since, claimed_us=claimed_us)

    def changed(self, subject: str, filter: str, overlay: Overlay) -> Claim:
        """Return the claim of a durable subscription whose home is here, with another filter."""
        newest = self.newest(subject, overlay)
        assert newest is not None and newest.home == self.name, f"{subject} does not live here"
        return newest._replace(filter=filter, revision=newest.revision + 1)

    def over(self, asked: Claim, overlay: Overlay) -> Claim | None:
        """Return the claim that ends a durable subscription; None if it is unknown, or over."""
        newest = self.newest(asked.subject, overlay)
        if newest is None or newest.is_over:
            return None
        number = max(newest.number, asked.number)
        return newest._replace(
            number=number, home="", client=asked.client, session_epoch=asked.session_epoch
        )

    def resolve(self, claim: Claim, overlay: Overlay) -> Claim:
        """Order another broker's claim by the sessions of the owner, and return the valid claim.

        A claim from before the owner's end is over with it. An end from before the owner came back
        ends nothing. The result supersedes the late claim, so that all brokers learn the outcome.
        """
        newest = self.newest(claim.subject, overlay)
        if newest is None or not is_later(newest, claim):
            return claim
        if newest.is_over and not claim.is_over:
            return newest._replace(number=claim.number)
        if claim.is_over and not newest.is_over:
            return newest._replace(number=claim.number + 1)
        return claim

    def apply(self, claim: Claim) -> Claim | None:
        """Replace the newest claim by one that is stored, and return the one before."""
        before = self._stored.get(claim.subject)
        assert before is None or claim.rank > before.rank, (
            f"D5: {claim.rank} of {claim.subject} after {before and before.rank}"
        )
        self._stored[claim.subject] = claim
        return before
