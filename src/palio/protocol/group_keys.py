"""`GroupKey`: the secret of all brokers that send each other datagrams, and the keys derived of it.

A *stream* is all datagrams that one incarnation of a sender sends under one plan. It has a name of
12 bytes, which reveals nothing without the secret, and a key of its own, derived from the secret
and the name (HKDF). A keyed check beside the name rejects invented names before a key is derived.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import TYPE_CHECKING, Final

import msgspec

from palio.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16
"""Bytes of randomness in the name of a stream."""

_NAME_BYTES: Final = 12
_CHECK_BYTES: Final = 4

STREAM_BYTES: Final = 1 + _NAME_BYTES + _CHECK_BYTES
"""The head of a datagram: the version of its format, the name of its stream, the check."""

_VERSION: Final = b"\x01"

_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A secret of 32 bytes. Its holders may receive and send all datagrams.

    >>> GroupKey.read("00" * 32) == UNSHARED
    True
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != _SECRET_BYTES:
            raise InvalidInput(
                f"a group key has {_SECRET_BYTES} bytes, not {len(self.secret)}; "
                "`openssl rand -hex 32` makes one"
            )

    @classmethod
    def read(cls, text: str) -> GroupKey:
        """Return the key of a file, in hexadecimal or base64."""
        text = text.strip()
        try:
            if len(text) == 2 * _SECRET_BYTES:
                return cls(bytes.fromhex(text))
            padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
            return cls(base64.b64decode(padded, validate=True))
        except (binascii.Error, ValueError):
            raise InvalidInput(
                f"this is no group key: {2 * _SECRET_BYTES} hexadecimal digits are expected, or "
                f"{_SECRET_BYTES} bytes in base64; `openssl rand -hex 32` makes one"
            ) from None


UNSHARED: Final = GroupKey(bytes(_SECRET_BYTES))
"""For brokers of one machine without a secret: it keeps out accidents, not attackers."""


class Ciphers:
    """The streams of a group key and their ciphers.

    >>> ciphers = Ciphers(UNSHARED)
    >>> stream = ciphers.stream(bytes(16), "b1", 1, 1)
    >>> len(stream), ciphers.knows(stream), ciphers.knows(bytes(17))
    (17, True, False)
    """

    def __init__(self, key: GroupKey) -> None:
        self._secret = key.secret
        self._naming = self._derived(b"names")
        self._checking = self._derived(b"checks")

    def stream(self, salt: bytes, source: str, incarnation: int, plan: int) -> bytes:
        """Return the head of the datagrams of a stream.

        `salt` is random, and new for each start of a sender. So two starts have different keys even
        if a clock that was set back gives both the same incarnation: a nonce is never reused.
        """
        about = _encode((salt, source, incarnation, plan))
        name = blake2s(about, key=self._naming, digest_size=_NAME_BYTES).digest()
        return _VERSION + name + self._check(_VERSION + name)

    def knows(self, stream: bytes) -> bool:
        """Return whether a holder of the secret made this head; it may be replayed."""
        name, check = stream[:-_CHECK_BYTES], stream[-_CHECK_BYTES:]
        return name[:1] == _VERSION and hmac.compare_digest(self._check(name), check)

    def cipher(self, stream: bytes) -> AESGCM:
        """Return the cipher that seals and opens the datagrams of a stream."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._derived(b"stream " + stream))

    def _check(self, name: bytes) -> bytes:
        return blake2s(name, key=self._checking, digest_size=_CHECK_BYTES).digest()

    def _derived(self, about: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"palio datagrams 1 " + about
        return HKDF(SHA256(), _SECRET_BYTES, salt=None, info=info).derive(self._secret)
