"""The table of available patterns, and the factoring of a sequence by it (siena 5.4).

Peers advertise which events a broker can get from them. A factor is a longest run of
neighbouring steps for which there is at most one provider; two runs have different providers, or
one of them has several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.routing.poset import overlap
from palio.routing.protocol import Peer

__all__ = ["Factor", "Offers", "differences", "factored"]

Offers: TypeAlias = Mapping[Peer, Collection[Advertisement]]
"""The table of available patterns: by peer, what it advertises."""


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
