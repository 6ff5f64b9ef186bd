"""`Doors`: what brokers of a virtual network ask of each other and of clients, and are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from palio.node.authority import Authority, OpenAuthority
from palio.node.identity import NOBODY, Identity

__all__ = ["Doors"]


class Doors(NamedTuple):
    """By the name of a broker or client; by default everybody may do everything.

    >>> Doors().identity("b1").token
    ''
    """

    authority: Callable[[str], Authority] = lambda _: OpenAuthority()
    """Whom a broker lets in."""
    identity: Callable[[str], Identity] = lambda _: NOBODY
    """What a broker shows of itself."""
    token: Callable[[str], str] = lambda _: ""
    """What a client shows."""
