"""`Providers`: the peers that may provide a pattern's events, and the peers given a pattern.

Peers advertise which events a broker can get from them (siena 5.4). By that a sequence is
factored: a factor is a longest run of neighbouring steps for which there is at most one provider;
two runs have different providers, or one of them has several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.routing.patterns.standing import PatternSubscription
from palio.routing.patterns.underlay import Offers, Underlay
from palio.routing.poset import overlap
from palio.routing.protocol import Peer

MAX_DELEGATED: Final = 400
"""Patterns that one session or neighbour may have a broker see to. Each change of what is
advertised looks at all of them: 22 ms for one advertisement, 54 ms for 256 in a message."""


class Factor(NamedTuple):
    """Neighbouring steps of a pattern, and who may publish, or pass on, what matches them."""

    steps: tuple[Filter, ...]
    providers: frozenset[Peer]

    @property
    def only_provider(self) -> Peer | None:
        """The one peer from which all of it comes."""
        return next(iter(self.providers)) if len(self.providers) == 1 else None


def factored(steps: Iterable[Filter], offers: Offers) -> list[Factor]:
    """Split a sequence into the longest runs with at most one provider each.

    A step that nobody offers joins whatever is beside it: no event of it will come.

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
            peer for peer, offered in offers.items() if any(overlap(each, step) for each in offered)
        )
        if factors:
            before = factors[-1]
            together = before.providers | providers
            if len(together) < 2:
                factors[-1] = Factor((*before.steps, step), together)
                continue
        factors.append(Factor((step,), providers))
    return factors


def differences(before: Offers, after: Offers) -> list[Advertisement]:
    """The offers that some peer began or ended between two tables."""
    found: dict[Advertisement, None] = {}
    for peer in {**before, **after}:
        old, new = before.get(peer, ()), after.get(peer, ())
        found.update((each, None) for each in (*old, *new) if (each in old) != (each in new))
    return list(found)


class Providers:
    """The table of available patterns of one broker, as its patterns see it."""

    def __init__(self, underlay: Underlay) -> None:
        self._underlay = underlay
        self._entrusted: Counter[Peer] = Counter()
        """Number of patterns that each neighbour provides."""

    def offers(self, subscriber: Peer) -> Offers:
        """Return what all but a subscriber advertise; a client is offered its own events, too."""
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
