"""`Providers`: whom a broker may have the events of a pattern from, and who was given one."""

from __future__ import annotations

from collections import Counter
from typing import Final

from palio.routing.patterns.factoring import Factor, Offers, factored
from palio.routing.patterns.standing import PatternSubscription
from palio.routing.patterns.underlay import Underlay
from palio.routing.protocol import Peer

__all__ = ["MAX_DELEGATED", "Providers"]

MAX_DELEGATED: Final = 400
"""Patterns that one session or neighbour may have a broker see to. Each change of what is
advertised looks at all of them: 22 ms for one advertisement, 54 ms for 256 in a message."""


class Providers:
    """The table of available patterns of one broker, as its patterns see it."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self._entrusted: Counter[Peer] = Counter()
        """How many patterns each neighbour is the provider of."""

    def offers(self, subscriber: Peer) -> Offers:
        """What all but a subscriber advertise; a client is offered its own events, too."""
        return {
            peer: offered
            for peer, offered in self._underlay.offers().items()
            if peer != subscriber or peer.is_client
        }

    def factors(self, standing: PatternSubscription) -> list[Factor]:
        """A pattern factored by the table as it is now."""
        return factored(standing.pattern.steps, self.offers(standing.subscriber))

    def goal(self, standing: PatternSubscription) -> Peer | None:
        """The neighbour that is the single provider of the whole pattern, and may be given it; None
        if there is none.
        """
        factors = self.factors(standing)
        provider = factors[0].only_provider if len(factors) == 1 else None
        if provider is None or provider.is_client or standing.is_long:
            return None
        has_room = self._entrusted[provider] < MAX_DELEGATED or standing.provider == provider
        return provider if has_room else None

    def entrust(self, standing: PatternSubscription, provider: Peer | None) -> None:
        """A pattern has another provider, or none any longer."""
        if standing.provider is not None:
            self._entrusted[standing.provider] -= 1
        if provider is not None:
            self._entrusted[provider] += 1
        standing.provider = provider
