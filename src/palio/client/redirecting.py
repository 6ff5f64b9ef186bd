"""`elsewhere`: where a client goes whose broker is about to go."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from palio.errors import InvalidConfiguration
from palio.protocol.addresses import parse_address

__all__ = ["MOST_KNOWN", "elsewhere"]

MOST_KNOWN: Final = 16
"""Addresses that a client knows without having been given them by its application are no more than
it takes to have so many in all."""


def elsewhere(known: Sequence[str], told: Sequence[str], draw: random.Random) -> list[str]:
    """The addresses to try: those that the application gave, in any order, so that the clients of
    one broker do not all go to one other; then those that the broker tells of. `known` begins with
    that of the broker itself.

    A client that is connected by TLS goes nowhere without it.

    >>> elsewhere(["palio://b1"], ["palio://b2", "b3", "palio://b1"], random.Random(1))
    ['palio://b2']
    >>> elsewhere(["palios://b1", "palios://b4"], ["palio://b2"], random.Random(1))
    ['palios://b4']
    """
    here, *others = known
    draw.shuffle(others)
    fit = [url for url in _fit(told, here) if url not in known]
    return [*others, *fit[: max(0, MOST_KNOWN - len(known))]]


def _fit(told: Sequence[str], here: str) -> Iterator[str]:
    is_secure = here.startswith("palios://")
    for url in dict.fromkeys(told):
        try:
            address = parse_address(url)
        except InvalidConfiguration:
            continue  # what an application's own `dial` would make of it nobody knows
        if address.is_secure or not is_secure:
            yield url
