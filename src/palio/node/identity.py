"""`Identity`: a broker's token and signatures, and the texts that it signs.

A token that is bound to a broker's key is like a certificate: public, and useless without the key.
So a broker sends it, and signs for each handshake a text with the other end's fresh nonce. The
server has the keys and makes the signatures; a node has only this interface.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from palio.protocol.messages import Fact


class Identity(Protocol):
    """A broker's bound token, and the key that it is bound to."""

    @property
    def token(self) -> str:
        """The token that the broker sends; empty if it has none."""

    def sign(self, data: bytes) -> bytes:
        """Sign a text, so that `Authority.verified` accepts that this broker has the key."""


class Nobody:
    """The identity of a broker without a token: it is alone, or its network is open."""

    token = ""

    def sign(self, data: bytes) -> bytes:  # noqa: ARG002  # whatever it is
        """Sign nothing: there is no key."""
        return b""


NOBODY: Final = Nobody()

_encode: Final = msgspec.msgpack.Encoder().encode


def handshake_text(
    signer: str, dialer: str, listener: str, dialer_nonce: str, listener_nonce: str
) -> bytes:
    """Return a text that proves, once signed, that `signer`, one of the two brokers, has
    its key.

    >>> handshake_text("a", "a", "b", "1", "2") == handshake_text("b", "a", "b", "1", "2")
    False
    """
    parts = ("palio introduction 1", signer, dialer, listener, dialer_nonce, listener_nonce)
    return _encode(parts)


def fact_text(fact: Fact) -> bytes:
    """Return the text that the origin of a fact signs: all of its content."""
    content = (fact.origin, fact.version, fact.subject, fact.links, fact.filter, fact.claimed_us)
    return _encode(("palio fact 2", *content, *fact.session_epoch, *fact.claim))
