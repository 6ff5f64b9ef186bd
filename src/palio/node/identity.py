"""`Identity`: what a broker shows of itself, and what exactly it signs.

A token that is bound to a broker's key is like a certificate: everybody may see it, and it is worth
nothing to who does not have the key. So a broker shows it and signs, for each greeting, what nobody
else has asked to be signed. Keys and signatures are the shell's; a node has only this much of them.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from palio.protocol.messages import Fact


class Identity(Protocol):
    """A broker's bound token, and the key that it is bound to."""

    @property
    def token(self) -> str:
        """The key that it shows; empty if it has none."""

    def sign(self, data: bytes) -> bytes:
        """Its signature, by which `Authority.verified` knows that it has the key."""


class Nobody:
    """A broker without a token: it is alone, or its network is open."""

    token = ""

    def sign(self, data: bytes) -> bytes:  # noqa: ARG002  # whatever it is
        """See `Identity`."""
        return b""


NOBODY: Final = Nobody()

_encode: Final = msgspec.msgpack.Encoder().encode


def introduction_text(
    signer: str, dialer: str, listener: str, dialer_nonce: str, listener_nonce: str
) -> bytes:
    """Return a text that proves, once signed, that `signer`, one of the two, has its key.

    >>> introduction_text("a", "a", "b", "1", "2") == introduction_text("b", "a", "b", "1", "2")
    False
    """
    parts = ("palio introduction 1", signer, dialer, listener, dialer_nonce, listener_nonce)
    return _encode(parts)


def fact_text(fact: Fact) -> bytes:
    """Return the text that the origin of a fact signs: all of its content."""
    said = (fact.origin, fact.version, fact.subject, fact.links, fact.filter, fact.claimed_us)
    return _encode(("palio fact 2", *said, *fact.visit, *fact.claim))
