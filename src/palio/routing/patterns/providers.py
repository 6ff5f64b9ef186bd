"""`Providers`: the peers that may provide a pattern's events, and the peers that assemble one.

Peers advertise which events a broker can get from them (siena 5.4), and sequences are factored by
these advertisements. A *factor* is a longest run of neighbouring steps with one provider at most.
Two neighbouring factors have different providers, or one of them has several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.routing.patterns.subscriptions import PatternSubscription
from palio.routing.patterns.underlay import Offers, Underlay
from palio.routing.poset import overlap
from palio.routing.protocol import Peer

MAX_DELEGATED: Final = 400
"""Patterns that a broker assembles for one session or neighbour. Each change of advertisements
checks all of them: 22 ms for one advertisement, 54 ms for 256 in a message."""


class Factor(NamedTuple):
    """Neighbouring steps of a pattern, and the peers that may publish or forward their events."""

    steps: tuple[Filter, ...]
    providers: frozenset[Peer]

    @property
    def only_provider(self) -> Peer | None:
        """The one peer that provides all steps; None if there are several, or none."""
        return next(iter(self.providers)) if len(self.providers) == 1 else None


def factored(steps: Iterable[Filter], offers: Offers) -> list[Factor]:
    """Split a sequence into the longest runs with at most one provider each.

    A step without a provider joins a run beside it, as no event of it will come.

    >>> import palio
    >>> alarms = palio.parse_advertisement("alarm IS NOT NULL")
    >>> files = palio.parse_advertisement("file IS NOT NULL")
    >>> two, three = Peer.broker("s2"), Peer.broker("s3")
    >>> pattern = palio.parse("alarm = 'login' THEN alarm = 'login' THEN file = '/etc/passwd'")
    >>> for steps, providers in factored(pattern.steps, {two: [alarms], three: [files]}):
    ...     print(len(steps), *providers)
    2 broker s2
    1 broker s3
    """
    factors: list[Factor] = []
    for step in steps:
        providers = frozenset(
            peer
            for peer, offered in offers.items()
            if any(overlap(offer, step) for offer in offered)
        )
        if factors:
            before = factors[-1]
            together = before.providers | providers  # one name at most: a run with one provider
            if len(together) < 2:
                factors[-1] = Factor((*before.steps, step), together)
                continue
        factors.append(Factor((step,), providers))
    return factors


def differences(before: Offers, after: Offers) -> list[Advertisement]:
    """Return the offers that some peer began or ended between two tables."""
    changed: dict[Advertisement, None] = {}
    for peer in {**before, **after}:
        old, new = before.get(peer, ()), after.get(peer, ())
        changed.update((offer, None) for offer in (*old, *new) if (offer in old) != (offer in new))
    return list(changed)


class Providers:
    """The table of available patterns of one broker, as each subscription sees it."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self._delegated_counts: Counter[Peer] = Counter()

    def offers(self, subscriber: Peer) -> Offers:
        """Return the offers of all peers but a subscriber. A client's own count, as it receives its
        own events; a neighbour's would send the pattern back where it came from.
        """
        return {
            peer: offered
            for peer, offered in self._underlay.offers().items()
            if peer != subscriber or peer.is_client
        }

    def factors(self, subscription: PatternSubscription) -> list[Factor]:
        """Factor a pattern by the table as it is now."""
        return factored(subscription.pattern.steps, self.offers(subscription.subscriber))

    def goal(self, subscription: PatternSubscription) -> Peer | None:
        """Return the neighbour to delegate a pattern to: the single provider of all its steps; None
        if there is no such neighbour, or it has enough patterns.
        """
        # Whole patterns alone: a run of steps that is monitored by itself would find other
        # occurrences, as docs/concepts/routing-patterns.md shows.
        factors = self.factors(subscription)
        provider = factors[0].only_provider if len(factors) == 1 else None
        if provider is None or provider.is_client or subscription.is_long:
            return None
        is_full = self._delegated_counts[provider] >= MAX_DELEGATED
        return None if is_full and subscription.provider != provider else provider

    def set_provider(self, subscription: PatternSubscription, provider: Peer | None) -> None:
        """Note that a pattern has another provider, or none."""
        if subscription.provider is not None:
            self._delegated_counts[subscription.provider] -= 1
        if provider is not None:
            self._delegated_counts[provider] += 1
        subscription.provider = provider
