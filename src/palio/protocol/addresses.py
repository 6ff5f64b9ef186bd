"""Where brokers are: `palio://host:port`, or `palios://` with TLS."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from palio.errors import InvalidConfiguration

__all__ = ["DEFAULT_PORT", "Address", "bracketed", "parse_address"]

DEFAULT_PORT: Final = 7400


class Address(NamedTuple):
    """A broker's address."""

    host: str
    port: int
    is_secure: bool

    def __str__(self) -> str:
        return f"palio{'s' if self.is_secure else ''}://{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """A host as it stands in an address, before the port.

    >>> bracketed("::1"), bracketed("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def parse_address(url: str) -> Address:
    """An address from its text.

    >>> print(parse_address("palio://localhost"))
    palio://localhost:7400
    """
    if "@" in url:  # shown nowhere: a password may stand before it
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
