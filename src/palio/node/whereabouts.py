"""`Whereabouts`: where brokers can be reached, as each says of itself in a fact (`ADDRESS`).

Nothing proves that a broker can be reached where it says, or that nobody else is there. Whoever
dials such an address looks who answers.
"""

from __future__ import annotations

from palio.errors import InvalidConfiguration
from palio.node.registry import Registry
from palio.node.vouching import ADDRESS
from palio.protocol.addresses import Address, parse_address
from palio.protocol.limits import MAX_URL_CHARS

__all__ = ["Whereabouts"]


class Whereabouts:
    """The addresses of a network's brokers, as one of them knows them.

    >>> registry = Registry("b1")
    >>> known = Whereabouts(registry)
    >>> known.tell("palio://north.example:7400")
    >>> print(known.of("b1"), known.of("b2"))
    palio://north.example:7400 None
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tell(self, url: str) -> None:
        """Tell all brokers where this one can be reached; empty if it cannot."""
        if self._said_by(self._registry.name) != url:
            self._registry.announce(ADDRESS, filter=url)

    def of(self, broker: str) -> Address | None:
        """Where a broker can be reached; None if it has not said so, or not in a way to be read."""
        said = self._said_by(broker)
        if not said or len(said) > MAX_URL_CHARS:
            return None
        try:
            return parse_address(said)
        except InvalidConfiguration:
            return None

    def _said_by(self, broker: str) -> str:
        fact = self._registry.fact(broker, ADDRESS)
        return "" if fact is None else fact.filter
