"""Addresses of brokers, `palio://host:port` or `palios://` with TLS, and reasons of no answer."""

from __future__ import annotations

from errno import ECONNREFUSED
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from palio.errors import InvalidConfiguration

DEFAULT_PORT: Final = 7400


class Address(NamedTuple):
    """A broker's address."""

    host: str
    port: int
    is_secure: bool

    def __str__(self) -> str:
        return f"palio{'s' if self.is_secure else ''}://{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """Return a host as written in an address, before the port.

    >>> bracketed("::1"), bracketed("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def parse_address(url: str) -> Address:
    """Return the address of a text.

    >>> print(parse_address("palio://localhost"))
    palio://localhost:7400
    """
    if "@" in url:  # the error leaves out the text before it, which may have a password
        raise InvalidConfiguration(
            f"a broker's address ends with {url.rpartition('@')[2]!r:.200} and has a user or a "
            "password; who connects is shown by a token (token=, --token-file) or a certificate"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidConfiguration(f"{url!r:.200} is no address of a broker: {error}") from None
    if parts.scheme not in ("palio", "palios") or not parts.hostname:
        raise InvalidConfiguration(
            f"{url!r:.200} is no address of a broker; write palio://host:{DEFAULT_PORT}, "
            "or palios:// for TLS"
        )
    return Address(parts.hostname, DEFAULT_PORT if port is None else port, parts.scheme == "palios")


CLOSED: Final = "the broker closed the connection"
"""The reason of a connection that ended without one."""


def why_not(error: BaseException, url: str) -> str:
    """Return the reason why a connection to an address failed.

    >>> why_not(ConnectionRefusedError(), "palio://b1:7400")
    'nobody listens there; is the broker running, and is this its port?'
    """
    text = str(error) or type(error).__name__
    if isinstance(error, ConnectionRefusedError) or f"[Errno {ECONNREFUSED}]" in text:
        return "nobody listens there; is the broker running, and is this its port?"
    if isinstance(error, TimeoutError):
        return "no answer in time; is this the port for palio://? HTTP has one of its own"
    reason = getattr(error, "reason", "") or ""  # of TLS
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"):
        return "no TLS is spoken there; palio:// is the address of a broker without"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        detail = getattr(error, "verify_message", "") or reason
        return f"its certificate is not trusted ({detail}); name who vouches for it (tls=, --ca)"
    if text == CLOSED and url.startswith("palio://"):
        return f"{text} without an answer; if it wants TLS, the address is palios://"
    return text
